"""The UDP socket on which a member receives its peers' pokes, and sends its own.

A poke only says that a round has begun. It may be lost or forged without harm: the coordinator tells every member
anyway, only later.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from holdfast.group.user_data import Endpoint

MAX_DATAGRAM = 256
"""Longest poke that is read: a token has at most 64 characters."""

MAX_AT_ONCE = 64
"""How many pokes are read at a time. The machine asks the coordinator at most every 10 ms anyway."""


class PokeSocket:
    """Pokes in and out, on one loop. Without a socket it does nothing."""

    def __init__(
        self, bound: socket.socket | None, heard: Callable[[str], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        """`bound` comes from `open_poke_socket` and is ours from now on. `heard` is called with the text of each
        poke."""
        self._socket = bound
        self._heard = heard
        self._loop = loop
        if bound is not None:
            loop.add_reader(bound.fileno(), self._hear)

    def _hear(self) -> None:
        """Report the pokes that arrived, each text once. At most MAX_AT_ONCE are read at a time."""
        if self._socket is None:
            return
        said: dict[bytes, None] = {}
        for _ in range(MAX_AT_ONCE):
            try:
                said[self._socket.recv(MAX_DATAGRAM)] = None
            except (BlockingIOError, OSError):
                break
        for data in said:
            if data:  # an empty datagram is not a poke
                self._heard(data.decode("ascii", "replace"))

    def poke(self, peers: tuple[Endpoint, ...], datagram: bytes) -> None:
        """Send it to all of them. A bad address does not keep it from the others."""
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


def open_poke_socket(host: str) -> tuple[socket.socket, Endpoint]:
    """A socket that receives pokes on this address, and its endpoint for the subscription."""
    ear = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    ear.bind((host, 0))
    ear.setblocking(False)
    return ear, Endpoint(host, int(ear.getsockname()[1]))
