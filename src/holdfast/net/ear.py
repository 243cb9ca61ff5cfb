"""The socket on which a member hears its peers' pokes, and sends its own.

Nothing that others write makes a member stumble: a poke is not essential. Whoever can't be reached learns of the round
from the coordinator.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from holdfast.group.user_data import Endpoint

MAX_DATAGRAM = 256
"""Longest poke that is read: a token has at most 64 characters."""

MAX_GULP = 64
"""How many pokes are read at a time. The machine asks the coordinator at most every 10 ms anyway."""


class Ear:
    """Pokes in and out, on one loop. Without a socket it is deaf and dumb."""

    def __init__(
        self, bound: socket.socket | None, heard: Callable[[str], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        """`bound` is a socket of `open_ear`, and ours from now on. `heard` is called with the text of each poke."""
        self._socket = bound
        self._heard = heard
        self._loop = loop
        if bound is not None:
            loop.add_reader(bound.fileno(), self._hear)

    def _hear(self) -> None:
        """Report the pokes that arrived, each text once. At most MAX_GULP are read at a time."""
        if self._socket is None:
            return
        said: dict[bytes, None] = {}
        for _ in range(MAX_GULP):
            try:
                said[self._socket.recv(MAX_DATAGRAM)] = None
            except (BlockingIOError, OSError):
                break
        for data in said:
            if data:  # an empty datagram is no poke
                self._heard(data.decode("ascii", "replace"))

    def poke(self, peers: tuple[Endpoint, ...], datagram: bytes) -> None:
        """Send it to all of them. An address that is none costs nobody else the poke."""
        if self._socket is None:
            return
        for peer in peers:
            with contextlib.suppress(OSError, ValueError, TypeError, OverflowError):
                self._socket.sendto(datagram, (peer.host, peer.port))

    def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None


def open_ear(host: str) -> tuple[socket.socket, Endpoint]:
    """A socket that receives pokes on this address, and its endpoint for the subscription."""
    ear = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    ear.bind((host, 0))
    ear.setblocking(False)
    return ear, Endpoint(host, int(ear.getsockname()[1]))
