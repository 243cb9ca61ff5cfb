"""Threads for what blocks, shared by all AsyncConsumers of a process: two pools, so that neither waits for itself.

A callback of the listener takes one of `CALLERS` for as long as it runs. What it may wait for meanwhile, a question to
the cluster or to the group, runs on `ASKERS`, whose work never waits for a callback. With one pool for both, a round
that concerns as many consumers as there are threads would stop all of them for good: each callback would wait for a
thread that another callback holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

THREADS = 32
"""Most threads of each. Only more callbacks than this that wait for each other could block them."""


class Pool(Executor):
    """A ThreadPoolExecutor that a forked process has anew: it does not inherit its parent's threads, and would wait for
    those that were idle."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = threads
        self._name = name
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._pool = ThreadPoolExecutor(self._threads, self._name)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._pool.submit(fn, *args, **kwargs)


CALLERS = Pool(THREADS, "holdfast-aio")
"""For what makes the listener's calls: they wait for the application's loop."""

ASKERS = Pool(THREADS, "holdfast-aio-ask")
"""For everything else that blocks."""
