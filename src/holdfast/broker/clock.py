"""The broker's time: one reading for records, groups and retention, and one timer that goes with it.

`SystemClock` is the machine's. `ManualClock` stands still until a test moves it: sessions expire, rounds time out and
records grow old when the test says so. Sockets are never on this clock: limits on frames and a fetch's wait are real
seconds, or a frozen clock would freeze the clients too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> float:
        """For groups: milliseconds since 1970 when the broker started, and steady from there. Never goes back."""
        ...

    def wall_ms(self) -> int:
        """For records: milliseconds since 1970 as the machine says, whatever it was set to meanwhile."""
        ...

    def call_at(self, at_ms: float, what: Callable[[], None]) -> Timer:
        """Run `what` once the clock shows `at_ms`. Called, and calls back, on the broker's event loop."""
        ...


class SystemClock:
    """Groups run on the monotonic clock: setting the time, or waking a laptop, expels nobody. Records carry the wall
    clock's time, as producers do. The monotonic one may stop while the machine sleeps, and producers' times would then
    seem to be in the future.
    """

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000.0 - time.monotonic() * 1000.0

    def now_ms(self) -> float:
        return time.monotonic() * 1000.0 + self._offset_ms

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_at(self, at_ms: float, what: Callable[[], None]) -> Timer:
        delay = max(0.0, at_ms - self.now_ms()) / 1000.0
        return asyncio.get_running_loop().call_later(delay, what)


class ManualTimer:
    __slots__ = ("at_ms", "what")

    def __init__(self, at_ms: float, what: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.what: Callable[[], None] | None = what

    def cancel(self) -> None:
        self.what = None


class ManualClock:
    """Moves only by `advance`, which must run on the broker's event loop; `holdfast.testing.Broker.advance` sees to
    it."""

    def __init__(self, now_ms: float = 1_700_000_000_000.0) -> None:
        self._now_ms = now_ms
        self._set_back_ms = 0.0
        self._timers: list[ManualTimer] = []

    def now_ms(self) -> float:
        return self._now_ms

    def wall_ms(self) -> int:
        return int(self._now_ms - self._set_back_ms)

    def set_back(self, by_ms: float) -> None:
        """Set the time of day back, as somebody may do on a real machine. Elapsed time is not affected."""
        self._set_back_ms += by_ms

    def call_at(self, at_ms: float, what: Callable[[], None]) -> Timer:
        timer = ManualTimer(at_ms, what)
        self._timers.append(timer)
        return timer

    def advance(self, by_ms: float) -> None:
        """Go forward, stopping at each timer on the way so that it sees its own time."""
        if by_ms < 0:
            raise ValueError(f"{by_ms} ms: elapsed time never goes back. The time of day can be set back.")
        until = self._now_ms + by_ms
        while (timer := self._next(until)) is not None:
            self._timers.remove(timer)
            self._now_ms = max(self._now_ms, timer.at_ms)
            what, timer.what = timer.what, None
            if what is not None:
                what()
        self._now_ms = until

    def _next(self, until: float) -> ManualTimer | None:
        self._timers = [timer for timer in self._timers if timer.what is not None]
        due = [timer for timer in self._timers if timer.at_ms <= until]
        return min(due, key=lambda timer: timer.at_ms, default=None)
