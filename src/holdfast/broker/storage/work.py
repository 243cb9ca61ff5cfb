"""Long work in pieces: what runs where is up to its caller.

A `Work` yields None where it may be interrupted, and a callable for a slow piece, which may run in another thread; its
result is sent back. After each pause the world may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

Work = Generator[Callable[[], Any] | None, Any, T]


def run_here(work: Work[T]) -> T:
    """Run work to its end on this thread, slow pieces and all."""
    step: Callable[[], Callable[[], Any] | None] = partial(next, work)
    while True:
        try:
            piece = step()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            step = partial(work.send, None if piece is None else piece())
        except Exception as error:  # noqa: BLE001  # raised where the piece was asked for
            step = partial(work.throw, error)
