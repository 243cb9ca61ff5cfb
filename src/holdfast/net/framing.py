"""A stream of bytes cut into frames, as an asyncio protocol.

Small frames are taken out of one scratch buffer; a large one is received straight into its own, without a copy in
between: a fetch answer of many megabytes is touched once.

This module must not know what a frame holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.wire.errors import MalformedFrame
from holdfast.wire.frames import SIZE, frame_size

SCRATCH_BYTES = 64 * 1024

MAX_RESPONSE_BYTES = 256 * 1024 * 1024
"""Five times Kafka's fetch.max.bytes; what announces more is not a Kafka broker."""


class FrameProtocol(asyncio.BufferedProtocol):
    """Calls `on_frame` for every frame and `on_end` once, when no more will come."""

    def __init__(
        self,
        on_frame: Callable[[bytes | memoryview], None],
        on_end: Callable[[str], None],
        *,
        limit: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self._on_frame = on_frame
        self._on_end = on_end
        self._limit = limit
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._have = 0
        self._large: bytearray | None = None
        self._filled = 0
        self._ended = False
        self.transport: asyncio.Transport | None = None
        self.writable = asyncio.Event()
        self.writable.set()
        self.gone = asyncio.Event()
        """Set when the transport has let go of its socket."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        self.end("the network failed" if exc is not None else "the broker closed it")

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def end(self, why: str) -> None:
        """Stop, and say so once. Whatever arrives later is ignored."""
        if self._ended:
            return
        self._ended = True
        self.writable.set()
        if self.transport is not None and not self.transport.is_closing():
            self.transport.abort()
        self._on_end(why)

    # -- bytes in

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return memoryview(self._large)[self._filled :]
        return self._scratch[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended:
            return
        try:
            if self._large is not None:
                self._fill(nbytes)
            else:
                self._have += nbytes
                self._cut()
        except MalformedFrame as error:
            self.end(error.what.rstrip("."))

    def _fill(self, count: int) -> None:
        assert self._large is not None
        self._filled += count
        if self._filled == len(self._large):
            frame, self._large = self._large, None
            self._on_frame(memoryview(frame))

    def _cut(self) -> None:
        at = 0
        while not self._ended and self._have - at >= SIZE.size:
            size = frame_size(self._scratch[at : at + SIZE.size], limit=self._limit)
            start, end = at + SIZE.size, at + SIZE.size + size
            if end <= self._have:
                self._on_frame(bytes(self._scratch[start:end]))
                at = end
            elif SIZE.size + size <= SCRATCH_BYTES:
                break
            else:
                self._large = bytearray(size)
                self._filled = self._have - start
                self._large[: self._filled] = self._scratch[start : self._have]
                at = self._have
        rest = self._have - at
        if at and rest:
            self._scratch[:rest] = bytes(self._scratch[at : self._have])
        self._have = rest
