"""How the engine's thread wakes consumers that wait on an application's loop: many of them with one wake-up.

`call_soon_threadsafe` writes to a socket and releases the GIL for it. When a round ends, hundreds of consumers on one
loop have to be woken within milliseconds. So their functions are queued, and the loop is woken once.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary


class Waker:
    """One per loop. `wake` may be called from any thread; the functions it gets are called on the loop, in order."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._wake_sent = False
        self._lock = threading.Lock()

    def wake(self, loop: asyncio.AbstractEventLoop, look: Callable[[], None]) -> None:
        """Have `look` called on the loop. Raises RuntimeError when the loop is closed."""
        with self._lock:
            self._waiting.append(look)
            if self._wake_sent:
                return
            self._wake_sent = True
        try:
            loop.call_soon_threadsafe(self._call_all)
        except RuntimeError:
            with self._lock:
                self._wake_sent = False
                self._waiting.clear()
            raise

    def _call_all(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
            self._wake_sent = False
        for look in waiting:
            look()


_wakers: WeakKeyDictionary[asyncio.AbstractEventLoop, Waker] = WeakKeyDictionary()


def waker_of(loop: asyncio.AbstractEventLoop) -> Waker:
    """This loop's waker. To be called on the loop."""
    return _wakers.setdefault(loop, Waker())
