"""Partition logs and their processing, as arithmetic: a steady producer, a steady reader, no object per record.

The end of a log is a function of time, and so is the position of a lane (one member at work on one partition): it reads
at its speed until it has caught up, then it follows the producer. A world with a million records costs what an empty
one costs.
"""

from __future__ import annotations


class PartitionLog:
    """One partition's records: offsets 0 to `end(now)`, one every `1 / rate` milliseconds while produced."""

    __slots__ = ("created_at", "rate", "stopped_at")

    def __init__(self, created_at: float, rate: float) -> None:
        self.created_at = created_at
        self.rate = rate
        self.stopped_at: float | None = None

    def end(self, now: float) -> int:
        """Records acknowledged to the producer by now, which is the next offset."""
        until = now if self.stopped_at is None else min(now, self.stopped_at)
        return int((until - self.created_at) * self.rate)


class Lane:
    """One member's work on one partition."""

    __slots__ = ("_from", "_position", "_since", "_speed", "log", "running")

    def __init__(self, log: PartitionLog, position: int, speed: float, now: float) -> None:
        self.log = log
        self.running = True
        self._from = position
        self._position = position
        self._since = now
        self._speed = speed

    def position(self, now: float) -> int:
        """The next offset to be processed."""
        if not self.running:
            return self._position
        read = self._position + int((now - self._since) * self._speed)
        return max(self._position, min(read, self.log.end(now)))

    def has_moved(self, now: float) -> bool:
        """Whether it has processed anything."""
        return self.position(now) > self._from

    def stall(self, now: float) -> int:
        """Stop; the position where it stopped."""
        self._position = self.position(now)
        self.running = False
        return self._position

    def go_on(self, now: float) -> int:
        """Go on from that position."""
        self._since = now
        self.running = True
        return self._position
