"""Work beside the event loop, in daemon threads, so that the process does not wait for them when it ends.

Python waits for a thread pool's threads at exit: with a pool, a large scene would delay Ctrl-C until it is played.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from holdfast.model import HoldfastError

T = TypeVar("T")


async def done_unless(ending: asyncio.Event, work: Callable[[], T]) -> T:
    """The result of `work`, or PAGE_ENDS as soon as `ending` is set. The work then goes on; its result is dropped."""
    result = in_thread(work)
    ends = asyncio.ensure_future(ending.wait())
    try:
        both: set[asyncio.Future[Any]] = {result, ends}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        raise HoldfastError("PAGE_ENDS", "the page's server was ended.", "Start it again: holdfast ui.")
    finally:
        ends.cancel()
        result.cancel()


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    return asyncio.wrap_future(_started(work))


def _started(work: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from here on it can't be cancelled, so that it always takes its result

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # raised where the result is awaited
            future.set_exception(error)

    threading.Thread(target=run, name="holdfast-page-work", daemon=True).start()
    return future
