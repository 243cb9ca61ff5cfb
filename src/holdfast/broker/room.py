"""Memory for large requests, granted in order.

A frame that fits into its connection's first buffer needs no grant. A larger one asks for all the memory that it still
needs before more of it is read, and waits in a queue until there is enough: first come, first served. So a frame that
was granted memory can always be finished. (If memory were granted piece by piece, many could begin and none finish.)

It must not know sockets or frames.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class Guest(Protocol):
    """Waits for memory: a connection."""

    def room_granted(self, count: int) -> None:
        """The bytes asked for are granted now."""
        ...


class Room:
    """The memory of all connections beyond their first buffers."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        """Bytes granted, whether they have arrived or not."""
        self._line: OrderedDict[Guest, int] = OrderedDict()

    @property
    def waiting(self) -> int:
        return len(self._line)

    def ask(self, guest: Guest, count: int) -> bool:
        """Whether `count` bytes are granted at once; if not, `room_granted` is called when they are."""
        if not self._line and self._fits(count):
            self.taken += count
            return True
        self._line[guest] = count
        return False

    def release(self, count: int) -> None:
        """Give back what was granted."""
        self.taken -= count
        self._serve()

    def forget(self, guest: Guest) -> None:
        """This one no longer waits."""
        if self._line.pop(guest, None) is not None:
            self._serve()

    def _fits(self, count: int) -> bool:
        """A single frame is always granted, even if it is larger than the limit: otherwise it would wait for ever."""
        return self.taken + count <= self.limit or self.taken == 0

    def _serve(self) -> None:
        while self._line and self._fits(next(iter(self._line.values()))):
            guest, count = self._line.popitem(last=False)
            self.taken += count
            guest.room_granted(count)
