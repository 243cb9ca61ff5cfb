"""An asyncio loop on a daemon thread, for code on other threads. Nothing else in holdfast starts one.

    host = LoopThread("holdfast-reader")
    answer = host.call(ask(), timeout_s=10)
    host.stop()

Whatever is still under way when it stops is cancelled and awaited on the loop, so that no connection is left half open.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

STOP_S = 10.0
"""How long to wait for the thread to end, which takes milliseconds."""

Broken = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]


class LoopThread:
    """Runs from the moment it is made until `stop`."""

    def __init__(self, name: str, *, broken: Broken | None = None, joins_pool: bool = True) -> None:
        """`broken` is called on the loop for exceptions that nobody caught. `joins_pool`: whether stopping waits for
        what runs on the loop's default executor."""
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(broken)
        self._joins_pool = joins_pool
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller is on this very thread, where `call` would wait for itself."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run it on the loop and wait for it. What takes too long is cancelled."""
        future = self.submit(work)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise

    def stop(self, last: Coroutine[Any, Any, None] | None = None, *, timeout_s: float = STOP_S) -> bool:
        """Run `last` on the loop, raising what it raises, and end the thread. False if the thread has not ended in
        time."""
        if not self._thread.is_alive():
            if last is not None:
                last.close()
            return True
        ending = self.submit(_nothing() if last is None else last)
        ending.add_done_callback(lambda _done: self.loop.call_soon_threadsafe(self.loop.stop))
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        ending.result()
        return True

    # -- on the thread

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self._wind_up())
            self.loop.close()

    async def _wind_up(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        if self._joins_pool:
            await self.loop.shutdown_default_executor()


async def _nothing() -> None:
    pass
