"""Room for large requests: who may hold how much, in which order.

A frame that fits a connection's first buffer needs nobody's leave. A larger one asks for all the room that it still
needs, before more of it is read, and waits in line until there is so much: first come, first served. So whoever has
begun can always finish. (Handing out room piece by piece, as it comes, lets many begin and nobody finish.)

It must not know sockets or frames.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class Guest(Protocol):
    """Somebody who waits for room."""

    def room_granted(self, count: int) -> None:
        """The room asked for is yours now."""
        ...


class Room:
    """Bytes in flight beyond everybody's first buffer, of all connections."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        """What is granted, whether its bytes have come or not."""
        self._line: OrderedDict[Guest, int] = OrderedDict()

    @property
    def waiting(self) -> int:
        return len(self._line)

    def ask(self, guest: Guest, count: int) -> bool:
        """Whether `count` bytes are granted now; if not, `room_granted` is called when they are."""
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
        """A guest who waits no more."""
        if self._line.pop(guest, None) is not None:
            self._serve()

    def _fits(self, count: int) -> bool:
        """Whoever is alone may always go on: a limit below one frame must not mean for ever."""
        return self.taken + count <= self.limit or self.taken == 0

    def _serve(self) -> None:
        while self._line and self._fits(next(iter(self._line.values()))):
            guest, count = self._line.popitem(last=False)
            self.taken += count
            guest.room_granted(count)
