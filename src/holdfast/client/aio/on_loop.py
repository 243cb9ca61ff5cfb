"""Runs coroutines of the application on its loop, for a thread that waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LOOK_S = 1.0
"""How often the thread checks that the loop still exists."""


def on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], *, gone: Callable[[], bool]) -> T:
    """Run this on the loop and wait for it, on any thread but the loop's own. Raises RuntimeError when the loop has
    ended, or when `gone` says that the consumer has moved to another one."""
    try:
        future = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError:  # the loop is closed
        work.close()
        raise
    while True:
        try:
            return future.result(LOOK_S)
        except TimeoutError:
            if future.done():
                raise
            if loop.is_closed() or gone():
                future.cancel()
                raise RuntimeError("the event loop of this consumer ended during its callback") from None
