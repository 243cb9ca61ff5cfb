"""Virtual time: a clock that jumps from one scheduled call to the next.

Rules. Time is milliseconds and never goes back. Calls for one moment run in the order in which they were scheduled, so
that a seed gives one history and no other. Nothing here reads a real clock or knows what it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

MAX_CALLS = 2_000_000
"""In one world. A healthy one needs some thousands: a world that spins is a finding, not a reason to wait."""


class WorldSpins(Exception):
    """The world made more calls than any sound world makes."""


class Timer:
    """One scheduled call; it can be cancelled."""

    __slots__ = ("args", "at", "call")

    def __init__(self, at: float, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.at = at
        self.call: Callable[..., object] | None = call
        self.args = args

    def cancel(self) -> None:
        self.call = None
        self.args = ()


class Clock:
    """The world's time and its agenda."""

    __slots__ = ("_agenda", "_number", "calls", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.calls = 0
        self._number = 0
        self._agenda: list[tuple[float, int, Timer]] = []

    def at(self, when: float, call: Callable[..., object], *args: Any) -> Timer:
        """Have it called at `when`, or now if that is past."""
        if when < self.now:
            when = self.now
        self._number = number = self._number + 1
        timer = Timer(when, call, args)
        heappush(self._agenda, (when, number, timer))
        return timer

    def after(self, delay: float, call: Callable[..., object], *args: Any) -> Timer:
        when = self.now + delay if delay > 0.0 else self.now
        self._number = number = self._number + 1
        timer = Timer(when, call, args)
        heappush(self._agenda, (when, number, timer))
        return timer

    def run_until(self, end: float) -> None:
        """Let everything happen that is due up to and including `end`."""
        agenda, calls = self._agenda, self.calls
        while agenda and agenda[0][0] <= end:
            when, _, timer = heappop(agenda)
            call = timer.call
            if call is None:
                continue
            self.now = when
            self.calls = calls = calls + 1
            if calls > MAX_CALLS:
                raise WorldSpins(f"more than {MAX_CALLS} calls by {when:.0f} ms")
            call(*timer.args)
        self.now = max(self.now, end)

    @property
    def agenda_length(self) -> int:
        """Calls to come, without the cancelled ones."""
        return len([timer for _, _, timer in self._agenda if timer.call is not None])
