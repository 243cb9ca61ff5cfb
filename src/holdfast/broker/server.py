"""The server: listeners, connections, and what bounds them. It knows frames, and hands them to a dispatcher.

Rules. Connections are counted when they are accepted, before a TLS hand-shake costs anything. One sweep a second looks
for frames, hand-shakes and logins that take too long, and for silent connections: a timer per frame would cost more
than serving it. Stopping closes the listeners first, then the connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable

from holdfast.broker.connection import FIRST_BUFFER_BYTES, Connection
from holdfast.broker.limited_log import LimitedLog
from holdfast.broker.limits import Limits
from holdfast.broker.room import Room
from holdfast.model import HoldfastError

log = logging.getLogger("holdfast.broker")

BACKLOG = 4_096
"""Connections that the system queues while we are busy. A group of a thousand that starts at once opens about 3,000.
Beyond the limit the system drops them silently, and the client's system tries again after 1, 3, 7 and 15 s, when many
clients have given up: with 128, hundreds of 1,000 members did not get in within 10 s. Linux allows 4,096 by default."""

ACCEPTS_AT_ONCE = 16
"""Connections accepted in one turn of the loop: about 2 ms. If it were one, many clients that connect to a busy broker
would wait for as many turns."""
ACCEPT_PAUSE_SECONDS = 0.1
"""After the system refused an accept (out of files), before trying again."""

STOP_TURNS = 100
"""Turns of the event loop that closing connections may take to say goodbye; plain ones need two, TLS a few more."""

Dispatch = Callable[[Connection, memoryview], None]


class Server:
    """Implements `connection.Server`."""

    def __init__(
        self,
        *,
        limits: Limits,
        dispatch: Dispatch,
        limited_log: LimitedLog,
        tls: ssl.SSLContext | None = None,
        login_required: bool = False,
    ) -> None:
        self.limits = limits
        self.now = time.monotonic
        self.room = Room(limits.max_bytes_in_flight)
        self.limited_log = limited_log
        self.keepers: set[Connection] = set()
        self.serve = dispatch
        self._tls = tls
        self._login_required = login_required
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        """Listeners that are paused because the system refused an accept."""
        self._connections: set[Connection] = set()
        self._stalled: dict[Connection, None] = {}
        """Connections whose clients are slow to take their answers, the longest stalled first."""
        self._opening: dict[Connection, socket.socket] = {}
        """Accepted, and still in their hand-shake."""
        self._refusing = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._swept_at: float | None = None

    # Listening

    def listen(self, host: str, port: int, *, node_id: int) -> int:
        """Take connections for one of the advertised brokers; returns the port."""
        listener = _bind(host, port)
        self._sockets.append(listener)
        self._accept_from(listener, node_id)
        if self._sweeper is None:
            self._sweep()
        return int(listener.getsockname()[1])

    def _accept_from(self, listener: socket.socket, node_id: int) -> None:
        asyncio.get_running_loop().add_reader(listener, self._accept, listener, node_id)

    def _accept(self, listener: socket.socket, node_id: int) -> None:
        """Accept a few connections at a time, so that many new ones don't delay the existing ones."""
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                taken, address = listener.accept()
            except ConnectionAbortedError:
                continue  # this one has disconnected already; there may be others
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.limited_log.warning("accepting a connection failed: %s", error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                self._pauses[listener] = loop.call_later(ACCEPT_PAUSE_SECONDS, self._accept_from, listener, node_id)
                return
            self._take_in(taken, address, node_id)

    def _take_in(self, taken: socket.socket, address: tuple[str, int], node_id: int) -> None:
        if self.connection_count >= self.limits.max_connections:
            self._refuse(taken, address[0])
            return
        self._refusing = False
        connection = Connection(self, host=address[0], node_id=node_id, login_required=self._login_required)
        self._opening[connection] = taken
        task = asyncio.get_running_loop().create_task(self._open(taken, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse(self, taken: socket.socket, host: str) -> None:
        """One line when refusing begins, not one for every attempt."""
        taken.close()
        if not self._refusing:
            self._refusing = True
            log.warning("%s: connection refused: there are %d already", host, self.limits.max_connections)

    async def _open(self, taken: socket.socket, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        timeout = self.limits.frame_seconds if self._tls is not None else None
        try:
            taken.setblocking(False)
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(lambda: connection, taken, ssl=self._tls, ssl_handshake_timeout=timeout)
        except OSError as error:
            self.limited_log.warning("%s: connection closed: %s", connection.host, _why_not_open(error))
            taken.close()
        finally:
            self._opening.pop(connection, None)

    # Connections

    @property
    def connection_count(self) -> int:
        return len(self._connections) + len(self._opening)

    @property
    def connections(self) -> frozenset[Connection]:
        return frozenset(self._connections)

    @property
    def unsent_bytes(self) -> int:
        """Answers that wait for slow clients. What other clients have yet to take, below the high-water mark, is not
        counted."""
        return sum(connection.unsent_bytes for connection in self._stalled)

    @property
    def bytes_in_flight(self) -> int:
        """Everybody's first buffer, and what large frames were granted."""
        return len(self._connections) * FIRST_BUFFER_BYTES + self.room.taken

    def joined(self, connection: Connection) -> None:
        self._opening.pop(connection, None)
        self._connections.add(connection)

    def left(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._stalled.pop(connection, None)
        self.keepers.discard(connection)

    def room_wanted(self) -> None:
        for connection in tuple(self.keepers):
            connection.trim()

    def stalled(self, connection: Connection) -> None:
        """The unsent answers of all clients are limited. Beyond the limit the connection that is stalled longest is
        closed."""
        self._stalled[connection] = None
        while self.unsent_bytes > self.limits.max_bytes_unsent:
            longest = next(iter(self._stalled))
            del self._stalled[longest]
            longest.close("its client is slow to read its answers, and too many answers are waiting")

    def caught_up(self, connection: Connection) -> None:
        self._stalled.pop(connection, None)

    # Limits in time

    def _sweep(self) -> None:
        limits = self.limits
        now = self.now()
        interval = min(1.0, limits.frame_seconds / 4, limits.idle_seconds / 4)
        late = 0.0 if self._swept_at is None else now - self._swept_at - interval
        self._swept_at = now
        for connection in tuple(self._connections):
            if late > interval:
                connection.excuse(late)
            self._check(connection, now)
        self.limited_log.tell_rest()
        self._sweeper = asyncio.get_running_loop().call_later(interval, self._sweep)

    def _check(self, connection: Connection, now: float) -> None:
        limits = self.limits
        silent = now - connection.last_activity
        if connection.closed:
            if silent > limits.frame_seconds:
                connection.abort()
        elif connection.busy:
            if connection.streaming and silent > limits.idle_seconds:
                connection.close("its client has stopped reading an answer")
        elif connection.held_up:
            if connection.writing_paused and silent > limits.idle_seconds:
                connection.close("its client has stopped reading an answer")
        elif connection.frame_began is not None and now - connection.frame_began > limits.frame_seconds:
            connection.close(f"a frame was not complete after {limits.frame_seconds:g} s")
        elif not connection.authenticated and now - connection.began > limits.frame_seconds:
            connection.close(f"no login within {limits.frame_seconds:g} s")
        elif silent > limits.idle_seconds:
            connection.close()
        elif silent > 1.0:
            connection.trim()

    # Stopping

    async def stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        loop = asyncio.get_running_loop()
        for pause in self._pauses.values():
            pause.cancel()
        for listener in self._sockets:
            loop.remove_reader(listener)
            listener.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for taken in self._opening.values():
            # Its task was cancelled before it began, so that nobody else will close it.
            taken.close()
        for connection in tuple(self._connections):
            connection.abort()
        # Aborted connections report their end in the loop's next turns.
        for _ in range(STOP_TURNS):
            if self._connections:
                await asyncio.sleep(0)


NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"})
"""What OpenSSL calls first bytes that are no hand-shake."""


def _why_not_open(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        return "this listener speaks TLS, and its client does not" if reason in NOT_TLS else f"TLS failed: {reason}"
    if isinstance(error, ConnectionError) and not str(error):
        return "its client went away in the TLS hand-shake; does it trust this certificate?"
    return str(error) or type(error).__name__


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise _cannot_listen(host, port, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from error
    return listener


def _cannot_listen(host: str, port: int, error: OSError | UnicodeError) -> HoldfastError:
    # UnicodeError is what Python makes of a name with an empty or a very long part.
    why = error.strerror or str(error) if isinstance(error, OSError) else "no host can have this name"
    return HoldfastError(
        "CANNOT_LISTEN",
        f"{host}:{port} can't be listened on: {why}.",
        "Choose another --listen address; port 0 takes a free one.",
    )
