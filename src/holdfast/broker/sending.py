"""Answers whose records go from the file to the socket, without passing through Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.broker.exchange import Parts
from holdfast.broker.limits import MIB
from holdfast.wire.cursor import FileSlice

STREAM_BYTES = 1 * MIB
"""Sent from a file at a time; after each piece the connection counts as alive."""


class _Descriptor:
    """A file as `loop.sendfile` wants one: it asks for its number and nothing else."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd


async def send_in_order(transport: asyncio.Transport, answer: Parts, alive: Callable[[], None]) -> None:
    """Send all parts, slices of files by the system's sendfile. OSError, or RuntimeError if the transport closes.

    `alive` is called whenever a piece has gone out.
    """
    loop = asyncio.get_running_loop()
    for part in answer.parts:
        if not isinstance(part, FileSlice):
            transport.write(part)
            continue
        for offset in range(part.offset, part.offset + part.length, STREAM_BYTES):
            count = min(STREAM_BYTES, part.offset + part.length - offset)
            file: Any = _Descriptor(part.fd)
            sent = await loop.sendfile(transport, file, offset, count, fallback=False)
            alive()
            if sent != count:
                raise OSError("a file is shorter than it was")
