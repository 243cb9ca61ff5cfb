"""One client's connection: receives frames, passes them to the dispatcher, and sends the answers, in order.

Rules. One request is in work at a time; meanwhile bytes may wait in the buffer, but no frame is parsed. A frame is a
view of the receive buffer and is valid only until its handler returns, so a handler copies what it keeps. Memory is
taken for bytes that have arrived, not for a size that a client announces, and a frame larger than the first buffer
waits for memory (`room`). At most one first buffer is read ahead, so a connection that waits for memory holds none. If
anything is wrong with a frame, only this connection is closed, with one log line.

It must not know any API.
"""

from __future__ import annotations

import asyncio
import mmap
import ssl
from collections.abc import Callable
from typing import Protocol

from holdfast.broker.exchange import Body, Exchange, Parts
from holdfast.broker.limited_log import LimitedLog
from holdfast.broker.limits import KIB, MIB, Limits
from holdfast.broker.room import Room
from holdfast.broker.sending import send_in_order
from holdfast.model import HoldfastError
from holdfast.wire.codec import encode_response
from holdfast.wire.frames import frame_size

FIRST_BUFFER_BYTES = 16 * KIB
"""Enough for nearly every request; larger ones wait for room. Every connection has one, and there may be thousands."""
KEPT_BUFFER_BYTES = 2 * MIB
"""A busy producer keeps a buffer of up to this size between frames, until it goes idle or another waits for room."""
READ_BYTES = 256 * KIB
"""Read from a socket at a time. Many clients that send megabytes must not fill a turn of the loop with copying."""
WRITE_HIGH_WATER = 1 * MIB
"""Unsent bytes at which the next request has to wait."""


class Server(Protocol):
    """What a connection needs of the server."""

    limits: Limits
    now: Callable[[], float]
    room: Room
    limited_log: LimitedLog

    keepers: set[Connection]
    """Connections that keep a large buffer between two frames."""

    def joined(self, connection: Connection) -> None: ...
    def left(self, connection: Connection) -> None: ...
    def serve(self, connection: Connection, frame: memoryview) -> None: ...
    def room_wanted(self) -> None:
        """A connection waits for room: connections that keep large buffers they don't need should give them back."""
        ...

    def stalled(self, connection: Connection) -> None:
        """A client is slow to take its answers."""
        ...

    def caught_up(self, connection: Connection) -> None:
        """A client that was slow has taken its answers."""
        ...


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
        self._buffer: bytearray | mmap.mmap = bytearray(0)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._need = 0
        """Bytes that the frame being received takes, its size included; 0 while unknown."""
        self._pumping = False
        self._reading_paused = False
        self._writing_paused = False
        self._granted = 0
        """Room for this connection's buffer beyond the first one's size."""
        self._in_line = False
        """Waits for room."""
        self._stream: asyncio.Task[None] | None = None

    @property
    def peer(self) -> str:
        return self.host if self.principal is None else f"{self.principal}@{self.host}"

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
    def held_up(self) -> bool:
        """Whether we have stopped reading: then the client must not be taken for slow."""
        return self._in_line or self._reading_paused or self._writing_paused

    @property
    def writing_paused(self) -> bool:
        return self._writing_paused

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        self._server.joined(self)
        self._replace(FIRST_BUFFER_BYTES)

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
        self._start = self._end = 0
        if len(self._buffer):
            self._replace(0)
            room = self._server.room
            room.forget(self)
            self._in_line = False
            granted, self._granted = self._granted, 0
            room.release(granted)

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._end == len(self._buffer) or (self._start and self._start + self._need > len(self._buffer)):
            self._make_room()
        return self._view[self._end : min(self._read_limit, self._end + READ_BYTES)]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self.last_activity = self._server.now()
        self._pump()

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._server.stalled(self)

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._server.caught_up(self)
        self._pump()

    # Buffers

    @property
    def _read_limit(self) -> int:
        """How far the buffer may be filled: the frame being received, and what a first buffer holds."""
        return min(len(self._buffer), self._start + max(self._need, FIRST_BUFFER_BYTES))

    def _make_room(self) -> None:
        """Move what is unread to the front of a buffer that the frame fits into.

        Never called while a request is in work: reading is paused before the buffer is full then.
        """
        self._replace(max(self._need, len(self._buffer)))

    def _replace(self, size: int) -> None:
        """A buffer of `size` with the unread bytes at its front. Views of the old one stay valid.

        A large one is mapped: its pages take memory when bytes come into them, and go back to the system at once.
        """
        waiting = self._end - self._start
        if size == len(self._buffer) and self._start:
            self._view[:waiting] = bytes(self._view[self._start : self._end])
        else:
            new: bytearray | mmap.mmap = bytearray(size) if size <= FIRST_BUFFER_BYTES else mmap.mmap(-1, size)
            new[:waiting] = self._view[self._start : self._end]
            self._buffer, self._view = new, memoryview(new)
        self._start, self._end = 0, waiting

    def trim(self) -> None:
        """Give a large buffer back when nothing in it needs its size."""
        small = self._end - self._start <= FIRST_BUFFER_BYTES and self._need <= FIRST_BUFFER_BYTES
        if self._granted and small and not self.busy:
            self._give_back()

    def _give_back(self) -> None:
        """Go back to a buffer of the first size, with what is unread in it."""
        if len(self._buffer) > FIRST_BUFFER_BYTES:
            self._replace(FIRST_BUFFER_BYTES)
        granted, self._granted = self._granted, 0
        self._server.keepers.discard(self)
        self._server.room.release(granted)

    def _ask_for_room(self) -> None:
        """Ask for room for the whole frame being received. What this connection has is given back first: a connection
        that waits holds nothing."""
        self._give_back()
        more = self._need - FIRST_BUFFER_BYTES
        self._in_line = True
        if self._server.room.ask(self, more):
            self._in_line, self._granted = False, more
        else:
            self._server.room_wanted()

    def room_granted(self, count: int) -> None:
        self._in_line, self._granted = False, count
        self._pace_reading()

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
        if self._granted and self._need == 0 and (len(self._buffer) > KEPT_BUFFER_BYTES or self._server.room.waiting):
            self._give_back()
        if waiting == 0:
            if self._granted:
                self._server.keepers.add(self)
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
        """Stop reading when there is no place for more bytes, and go on when there is."""
        if self.closed:
            return
        blocked = self.busy or self._writing_paused
        if not (blocked or self._in_line) and self._need > FIRST_BUFFER_BYTES + self._granted:
            self._ask_for_room()
        full = blocked and self._end >= self._read_limit
        self._set_reading(paused=full or self._in_line)

    def _set_reading(self, *, paused: bool) -> None:
        if paused == self._reading_paused or self._transport is None or self._transport.is_closing():
            return
        self._reading_paused = paused
        if paused:
            self._transport.pause_reading()
            return
        if self.frame_began is not None:
            self.frame_began = self._server.now()  # what we held up is not counted against its client
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
        except Exception:  # noqa: BLE001  # logged by `limited_log`
            # The caller may be in the middle of answering other clients, so this must not raise.
            self._server.limited_log.exception(
                "the answer to %s of version %d can't be sent", exchange.api.name, exchange.version
            )
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
        transport = self._transport
        assert transport is not None
        try:
            await send_in_order(transport, answer, self._alive)
        except (OSError, RuntimeError) as error:
            # RuntimeError is how asyncio says that the transport is closing.
            self.close(f"sending failed: {error}")
            return
        finally:
            self._stream = None
        self.next()

    def _alive(self) -> None:
        self.last_activity = self._server.now()

    def next(self) -> None:
        """Go on with the next frame. If the answer came from somewhere else, then in a later turn of the loop: the next
        request must not run in the middle of the work that brought the answer."""
        self.busy = False
        self._alive()
        if not self._pumping:
            asyncio.get_running_loop().call_soon(self._pump)

    # Closing

    def log_once(self, why: str) -> None:
        if not self.closed:
            self._server.limited_log.warning("%s: %s", self.peer, why)

    def excuse(self, seconds: float) -> None:
        """The broker itself was stopped for this long: don't count it against the client."""
        self.began += seconds
        if self.frame_began is not None:
            self.frame_began += seconds

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
        """Close when everything sent has gone out, so that an error answer still arrives."""
        self.closed = True
        if self._transport is not None:
            self._transport.close()
