"""One client's connection: bytes in, frames out to the dispatcher, answers back, in order and within bounds.

Rules. One request is in work at a time; while it is, bytes may wait in the buffer but no frame is looked at. A frame is
a view of the receive buffer and is valid only until its handler returns, so what outlives the handler is copied by it.
Buffers grow with the bytes that really came, never with what a stranger announces. Whatever is wrong with a frame, this
connection alone is closed, with one logged line.

It must not know any API.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Protocol

from holdfast.broker.exchange import Body, Exchange, Parts
from holdfast.broker.limits import KIB, MIB, Limits
from holdfast.model import HoldfastError
from holdfast.wire.codec import encode_response
from holdfast.wire.cursor import FileSlice
from holdfast.wire.frames import frame_size

log = logging.getLogger("holdfast.broker")

FIRST_BUFFER_BYTES = 64 * KIB
"""Enough for nearly every request; larger ones grow it by doubling."""
KEPT_BUFFER_BYTES = 2 * MIB
"""A busy producer keeps a buffer of this size between frames; the sweeper takes it back when it falls silent."""
STREAM_BYTES = 1 * MIB
"""Sent from a file in one go; after each the connection counts as alive."""
WRITE_HIGH_WATER = 1 * MIB
"""Unsent bytes at which the next request has to wait."""


class _Descriptor:
    """A file as `loop.sendfile` wants one: it asks for its number and nothing else."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd


class Server(Protocol):
    """What a connection needs of the server."""

    limits: Limits
    now: Callable[[], float]
    bytes_in_flight: int

    stalled: set[Connection]
    """Those whose clients are slow to take their answers."""

    def joined(self, connection: Connection) -> None: ...
    def left(self, connection: Connection) -> None: ...
    def serve(self, connection: Connection, frame: memoryview) -> None: ...
    def buffers_freed(self) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """Implements `exchange.Client`."""

    def __init__(self, server: Server, *, host: str, node_id: int, login_required: bool) -> None:
        self.host = host
        self.node_id = node_id
        self.principal: str | None = None
        self.login: object | None = None
        """The SASL exchange under way; belongs to `apis.sasl_authenticate`."""
        self.login_required = login_required
        self.began = server.now()
        self.last_activity = self.began
        self.frame_began: float | None = None
        self.in_work: Exchange | None = None
        self.busy = False
        self.closed = False
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(0)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._need = 0
        """Bytes that the frame being received takes, its size included; 0 while unknown."""
        self._pumping = False
        self._reading_paused = False
        self._writing_paused = False
        self._starved = False
        self._stream: asyncio.Task[None] | None = None

    @property
    def peer(self) -> str:
        return f"{self.host}" if self.principal is None else f"{self.principal}@{self.host}"

    @property
    def authenticated(self) -> bool:
        return not self.login_required or self.principal is not None

    @property
    def encrypted(self) -> bool:
        return self._transport is not None and self._transport.get_extra_info("sslcontext") is not None

    @property
    def takes_files(self) -> bool:
        return not self.encrypted

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def buffer_bytes(self) -> int:
        return len(self._buffer)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        self._server.joined(self)
        self._resize(FIRST_BUFFER_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):
            self.log_once(f"TLS failed: {exc.reason or exc}")
        self.closed = True
        self._server.left(self)
        if self._stream is not None:
            self._stream.cancel()
        exchange, self.in_work = self.in_work, None
        if exchange is not None:
            exchange.gone()
        self._resize(0)

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._end == len(self._buffer) or (self._start and self._start + self._need > len(self._buffer)):
            self._make_room()
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self.last_activity = self._server.now()
        self._pump()

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._server.stalled.add(self)

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._server.stalled.discard(self)
        self._pump()

    # Buffers

    def _make_room(self) -> None:
        """Move what is unread to the front, and grow when the frame needs it and half of the buffer has really come.

        Never called while a request is in work: reading is paused before the buffer is full then.
        """
        waiting = self._end - self._start
        size = len(self._buffer)
        if self._need > size and waiting * 2 >= size:
            size = self._grown(size)
        self._replace(size)

    def _grown(self, size: int) -> int:
        """The next size for a frame that does not fit: twice as much, or all of it if that is nearly the same."""
        return self._need if self._need <= size * 3 else size * 2

    def _replace(self, size: int) -> None:
        """A buffer of `size` with the unread bytes at its front. Views of the old one stay valid."""
        waiting = self._end - self._start
        if size == len(self._buffer) and self._start:
            self._view[:waiting] = bytes(self._view[self._start : self._end])
        else:
            new = bytearray(size)
            new[:waiting] = self._view[self._start : self._end]
            self._server.bytes_in_flight += size - len(self._buffer)
            shrunk = size < len(self._buffer)
            self._buffer, self._view = new, memoryview(new)
            if shrunk:
                self._server.buffers_freed()
        self._start, self._end = 0, waiting

    def _resize(self, size: int) -> None:
        self._start = self._end = 0
        self._replace(size)

    def trim(self) -> None:
        """Give a large buffer back when nothing is in it."""
        if not self.busy and self._start == self._end and len(self._buffer) > FIRST_BUFFER_BYTES:
            self._resize(FIRST_BUFFER_BYTES)

    # Frames

    def _pump(self) -> None:
        """Serve the frames that are complete, one after the other, until one has to wait."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while not (self.busy or self._writing_paused or self.closed):
                frame = self._next_frame()
                if frame is None:
                    break
                self.busy = True
                self.frame_began = None
                self._server.serve(self, frame)
        except HoldfastError as error:
            self.close(error.what)
        finally:
            self._pumping = False
        self._pace_reading()

    def _next_frame(self) -> memoryview | None:
        waiting = self._end - self._start
        if waiting == 0:
            self._start = self._end = self._need = 0
            self.frame_began = None
            if len(self._buffer) > KEPT_BUFFER_BYTES:
                self._resize(FIRST_BUFFER_BYTES)
            return None
        if self.frame_began is None:
            self.frame_began = self.last_activity
        if waiting < 4:
            self._need = 4
            return None
        limits = self._server.limits
        limit = limits.max_frame_bytes if self.authenticated else limits.max_frame_bytes_before_login
        size = 4 + frame_size(self._view[self._start : self._start + 4], limit=limit)
        if waiting < size:
            self._need = size
            return None
        frame = self._view[self._start + 4 : self._start + size]
        self._start += size
        self._need = 0
        return frame

    def _pace_reading(self) -> None:
        """Stop reading where bytes could not be kept, and go on when they can."""
        if self.closed:
            return
        blocked = self.busy or self._writing_paused
        full = blocked and self._end == len(self._buffer)
        limit = self._server.limits.max_bytes_in_flight
        growing = not blocked and self._need > len(self._buffer)
        more = self._grown(len(self._buffer)) - len(self._buffer) if growing else 0
        self._starved = more > 0 and self._server.bytes_in_flight + more > limit
        self._set_reading(paused=full or self._starved)

    def memory_freed(self) -> None:
        if self._starved:
            self._pace_reading()

    def _set_reading(self, *, paused: bool) -> None:
        if paused == self._reading_paused or self._transport is None or self._transport.is_closing():
            return
        self._reading_paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # Answers

    def finish(self, exchange: Exchange, result: Body | None) -> None:
        """The request in work is done: send its answer, if it has one, and go on."""
        if self.closed or exchange is not self.in_work:
            return
        self.in_work = None
        try:
            if isinstance(result, Parts):
                if result.files:
                    self._stream = asyncio.get_running_loop().create_task(self._send_files(result))
                    return
                self.send(*result.parts)  # type: ignore[arg-type]  # no files, so no slices of any
            elif result is not None:
                self.send(encode_response(exchange.api, exchange.version, exchange.frame.correlation_id, result))
        except Exception:
            # Whoever answers may be in the middle of other clients' answers, which must not suffer.
            log.exception("the answer to %s of version %d can't be sent", exchange.api.name, exchange.version)
            self.close("its answer can't be sent")
            return
        self.next()

    def send(self, *parts: bytes | bytearray | memoryview) -> None:
        if self._transport is not None:
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    @property
    def streaming(self) -> bool:
        """Whether an answer is going out straight from files."""
        return self._stream is not None

    async def _send_files(self, answer: Parts) -> None:
        """Send parts in order, file slices by the system's sendfile. The request stays in work until all is gone."""
        loop = asyncio.get_running_loop()
        transport = self._transport
        assert transport is not None
        try:
            for part in answer.parts:
                if not isinstance(part, FileSlice):
                    transport.write(part)
                    continue
                for offset in range(part.offset, part.offset + part.length, STREAM_BYTES):
                    count = min(STREAM_BYTES, part.offset + part.length - offset)
                    file: Any = _Descriptor(part.fd)
                    sent = await loop.sendfile(transport, file, offset, count, fallback=False)
                    self.last_activity = self._server.now()
                    if sent != count:
                        raise OSError("a file is shorter than it was")
        except (OSError, RuntimeError) as error:
            # RuntimeError is how asyncio says that the transport is closing.
            self.close(f"sending failed: {error}")
            return
        finally:
            self._stream = None
        self.next()

    def next(self) -> None:
        """Go on with the next frame. Later, if the answer came from elsewhere: one client's answer never runs another
        request in the middle of whatever brought it about."""
        self.busy = False
        self.last_activity = self._server.now()
        if not self._pumping:
            asyncio.get_running_loop().call_soon(self._pump)

    # Closing

    def log_once(self, why: str) -> None:
        if not self.closed:
            log.warning("%s: %s", self.peer, why)

    def close(self, why: str | None = None) -> None:
        """Close now. `why` is the line for the log, None when there is nothing wrong."""
        if self.closed:
            return
        if why is not None:
            self.log_once(f"connection closed: {why}")
        self.abort()

    def abort(self) -> None:
        """Close without waiting for anything."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def finish_and_close(self) -> None:
        """Close once what was sent has gone out: an answer that says no must arrive."""
        self.closed = True
        if self._transport is not None:
            self._transport.close()
