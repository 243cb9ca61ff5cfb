"""One connection to one broker: versions, login, and requests in a pipeline.

Rules. A broker answers in the order of the requests; an answer out of order ends the connection. A request whose caller
was cancelled keeps its place, and its late answer is dropped, so it can't be taken for another's. When the connection
ends, every waiting caller gets an error of its own, and later requests are refused at once. At most `MAX_IN_FLIGHT`
requests are under way; further ones wait their turn.

Nothing here retries, or decides which broker to ask: that is up to `cluster`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.group import messages as m
from holdfast.model import ErrorCode
from holdfast.net.errors import NetError, disconnected, reason, timed_out
from holdfast.net.framing import FrameProtocol
from holdfast.net.login import log_in, login_failed
from holdfast.net.security import PLAINTEXT, Security
from holdfast.wire import codec, fetch, groups
from holdfast.wire.api import Api, common_version
from holdfast.wire.coordinators import GroupHead, group_head
from holdfast.wire.errors import MalformedFrame
from holdfast.wire.frames import correlation_of

MAX_IN_FLIGHT = 64
"""A broker works on one request of a connection at a time; a longer queue only hides that it doesn't keep up."""

REAUTHENTICATE_AT = 0.85
"""Part of a session's lifetime after which we log in again, as Java's client does (KIP-368)."""

LEAST_SESSION_S = 1.0
"""Kafka refuses a second login within a second of the first."""

CLOSE_TIMEOUT_S = 1.0
"""A TLS shutdown that takes longer is cut short."""

SOFTWARE_NAME = "holdfast"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Waiting:
    correlation_id: int
    answer: asyncio.Future[bytes | memoryview]
    takes_room: bool


class Connection:
    """Made by `Connection.open`. Everything runs on the loop it was opened on."""

    def __init__(self, host: str, port: int, *, client_id: str | None, security: Security) -> None:
        self.where = f"{host}:{port}"
        self._client_id = client_id
        self._security = security
        self._protocol = FrameProtocol(self._received, self._ended)
        self._waiting: deque[_Waiting] = deque()
        self._room = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._login = asyncio.Lock()
        self._log_in_again_at: float | None = None
        self._correlation_id = 0
        self._error: NetError | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._served = False
        """Whether anything but the version request was answered."""
        self.turned_away: NetError | None = None
        """The error it ended with, if the broker hung up on the first request, with no login configured."""
        self.when_served: Callable[[], None] | None = None

    # -- life

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = "holdfast",
        security: Security = PLAINTEXT,
        family: int = socket.AF_UNSPEC,
        timeout_s: float = 10.0,
    ) -> Connection:
        """Connect, learn the broker's versions, log in."""
        connection = cls(host, port, client_id=client_id, security=security)
        try:
            async with asyncio.timeout(timeout_s):
                await connection._connect(host, port, family)
                await connection._learn_versions()
                if security.sasl is not None:
                    await connection._log_in()
        except TimeoutError:
            await connection.close()
            raise timed_out(connection.where, "a new connection", timeout_s, settable=False) from None
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def closed(self) -> bool:
        return self._error is not None

    @property
    def in_flight(self) -> int:
        """Requests sent and not answered, including those whose caller has given up."""
        return len(self._waiting)

    async def close(self) -> None:
        """Close it. Callers that still wait get an error."""
        transport = self._protocol.transport
        if transport is None:
            self._ended("it was never opened")
            return
        transport.close()
        self._ended("we closed it")
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._protocol.gone.wait()
        except TimeoutError:
            transport.abort()

    def abort(self, why: str) -> None:
        """Close it at once, without a TLS shutdown."""
        self._protocol.end(why)
        self._ended(why)

    # -- requests

    def version(self, api: Api) -> int:
        """The highest version of this API that both ends know."""
        version = common_version(api, *self._versions.get(api.key, (0, -1)))
        if version is None:
            raise NetError(
                "UNSUPPORTED_BY_BROKER",
                f"{self.where} does not offer {api.schema} in a version we know ({api.lowest} to {api.highest}).",
                "Upgrade the broker, or do without.",
                retriable=False,
            )
        return version

    def offers(self, api: Api, version: int = 0) -> bool:
        newest = common_version(api, *self._versions.get(api.key, (0, -1)))
        return newest is not None and newest >= version

    async def request(self, api: Api, body: Any, *, timeout_s: float, version: int | None = None) -> Any:
        """The body of the answer. A callable body is given the version first."""
        asked = self.version(api) if version is None else version
        content = body(asked) if callable(body) else body

        frame = await self._timed(api, self._encoder(api, asked, content), timeout_s)
        return self._read(lambda: codec.decode_response(api, asked, frame).body)

    async def fetch(self, request: fetch.FetchRequest, *, timeout_s: float) -> fetch.FetchResponse:
        """Records as views of the received frame. Topics need both names and ids, for brokers of any version."""
        version = self.version(Api.FETCH)
        if version >= 13 and any(topic.topic_id is None for topic in request.topics):
            version = 12  # metadata came from a broker that had no ids yet

        def encode(correlation_id: int) -> bytes:
            return fetch.encode_fetch_request(version, correlation_id, self._client_id, request)

        frame = await self._timed(Api.FETCH, encode, timeout_s)
        return self._read(lambda: fetch.decode_fetch_response(version, frame))

    async def ask_coordinator(self, request: m.Request, *, timeout_s: float) -> m.Answer:
        """A group's request, and its answer."""
        api = groups.api_of(request)
        version = self.version(api)
        body = await self.request(api, groups.body_of(request, version), timeout_s=timeout_s, version=version)
        return groups.answer_of(request, version, body)

    async def group_head(self, group: str, *, timeout_s: float) -> GroupHead:
        """This group's state, assignor and size, as its coordinator describes it."""
        version = self.version(Api.DESCRIBE_GROUPS)
        encode = self._encoder(Api.DESCRIBE_GROUPS, version, {"groups": [group]})
        frame = await self._timed(Api.DESCRIBE_GROUPS, encode, timeout_s)
        return self._read(lambda: group_head(version, frame))

    def _encoder(self, api: Api, version: int, body: Any) -> Callable[[int], bytes]:
        return lambda correlation_id: codec.encode_request(api, version, correlation_id, self._client_id, body)

    async def _timed(self, api: Api, encode: Callable[[int], bytes], timeout_s: float) -> bytes | memoryview:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(api, encode, within_session=True)
        except TimeoutError:
            raise timed_out(self.where, api.schema, timeout_s) from None

    async def _exchange(
        self, api: Api, encode: Callable[[int], bytes], *, within_session: bool = False
    ) -> bytes | memoryview:
        """Send and wait. Messages of the login are not `within_session`: they don't wait for the login to end."""
        if within_session:
            await self._room.acquire()
        try:
            await self._protocol.writable.wait()
            if within_session:
                await self._keep_session()
            self._raise_if_ended()
            # From here to the write nothing awaits: the order of waiters is the order on the wire.
            self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
            frame = encode(self._correlation_id)
        except BaseException:
            if within_session:
                self._room.release()
            raise
        answer: asyncio.Future[bytes | memoryview] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(self._correlation_id, answer, within_session))
        assert self._protocol.transport is not None
        self._protocol.transport.write(frame)
        return await answer

    def _read(self, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except MalformedFrame as error:
            self._protocol.end(error.what.rstrip("."))
            raise disconnected(self.where, error.what.rstrip(".")) from error

    def _raise_if_ended(self) -> None:
        if self._error is not None:
            raise self._error.again()

    # -- answers

    def _received(self, frame: bytes | memoryview) -> None:
        correlation_id = correlation_of(frame)
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            expected = self._waiting[0].correlation_id if self._waiting else "nothing"
            raise MalformedFrame(f"an answer out of order: {correlation_id} came, {expected} was expected")
        waiting = self._waiting.popleft()
        if waiting.takes_room:
            self._room.release()
        if not waiting.answer.done():
            waiting.answer.set_result(frame)
        if self._versions and not self._served:
            self._served = True
            if self.when_served is not None:
                self.when_served()

    def _ended(self, why: str) -> None:
        if self._error is not None:
            return
        if not self._versions:
            why += ", before it told its versions (a listener that expects TLS does that)" if "closed it" in why else ""
        turned_away = self._versions and not self._served and self._security.sasl is None and "broker closed it" in why
        if turned_away:
            why += ", before it answered a request (a listener that expects a login does that; see security.protocol)"
        self._error = disconnected(self.where, why)
        if turned_away:
            self.turned_away = self._error.again()
        waiting, self._waiting = list(self._waiting), deque()
        for one in waiting:
            if not one.answer.done():
                one.answer.set_exception(self._error.again())
            if one.takes_room:
                self._room.release()

    # -- opening

    async def _connect(self, host: str, port: int, family: int) -> None:
        tls = self._security.tls
        context = None if tls is None else tls.context()
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: self._protocol,
                host,
                port,
                family=family,
                ssl=context,
                server_hostname=None if context is None else host,
            )
        except ssl.SSLError as error:
            raise NetError(
                "TLS_FAILED",
                f"No TLS connection to {self.where}: {getattr(error, 'verify_message', '') or error.reason}.",
                "Check ssl.ca.location, the broker's certificate and name, and that this listener speaks TLS.",
                retriable=False,
            ) from error
        except OSError as error:
            if context is not None and isinstance(error, ConnectionResetError | ConnectionAbortedError):
                raise NetError(
                    "CONNECTION_FAILED",
                    f"{self.where} answers, but not in TLS: it hung up during the handshake.",
                    "Check security.protocol and the port: a listener without TLS does that, or a broker that stops.",
                    retriable=True,
                ) from error
            raise NetError(
                "CONNECTION_FAILED",
                f"No connection to {self.where}: {reason(error)}.",
                "Check that the broker runs, its address, and the network.",
                retriable=True,
            ) from error
        assert self._protocol.transport is not None
        raw = self._protocol.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):  # a socket that is gone already will say so by itself
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    async def _learn_versions(self) -> None:
        version = Api.API_VERSIONS.highest
        body = await self._ask_versions(version)
        if body.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = {entry.api_key: (entry.min_version, entry.max_version) for entry in body.api_keys}
            version = common_version(Api.API_VERSIONS, *offered.get(Api.API_VERSIONS.key, (0, 0))) or 0
            body = await self._ask_versions(version)
        if body.error_code != 0:
            raise NetError(
                "UNSUPPORTED_BY_BROKER",
                f"{self.where} answered {codec.error_code(body.error_code).name} when asked for its versions.",
                "Is it a Kafka broker?",
                retriable=False,
            )
        self._versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in body.api_keys}

    async def _ask_versions(self, version: int) -> Any:
        from holdfast import __version__

        body = {"client_software_name": SOFTWARE_NAME, "client_software_version": __version__}
        frame = await self._exchange(Api.API_VERSIONS, self._encoder(Api.API_VERSIONS, version, body))
        # A broker that does not know this version answers in version 0 (KIP-511).
        refused = frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
        return self._read(lambda: codec.decode_response(Api.API_VERSIONS, 0 if refused else version, frame).body)

    # -- logging in, and logging in again before the session ends

    async def _keep_session(self) -> None:
        """Log in again before the session ends. Other requests wait: the broker accepts none during a login."""
        while self._login.locked() or self._session_is_old():
            async with self._login:
                if self._session_is_old():
                    await self._authenticate()

    def _session_is_old(self) -> bool:
        due = self._log_in_again_at
        return due is not None and asyncio.get_running_loop().time() >= due

    async def _log_in(self) -> None:
        async with self._login:
            await self._authenticate()

    async def _authenticate(self) -> None:
        try:
            started = asyncio.get_running_loop().time()
            lifetime_s = await self._converse()
        except BaseException as error:  # also if cancelled: the broker would take the next request as part of the login
            self._protocol.end(error.what.rstrip(".") if isinstance(error, NetError) else "a login was given up")
            raise
        again_in_s = max(lifetime_s * REAUTHENTICATE_AT, LEAST_SESSION_S)
        self._log_in_again_at = started + again_in_s if lifetime_s > 0 else None

    async def _converse(self) -> float:
        """Log in, and return how many seconds the session lasts (0: for ever)."""
        sasl = self._security.sasl
        assert sasl is not None
        handshake = await self._sasl(Api.SASL_HANDSHAKE, {"mechanism": sasl.mechanism}, version=1)
        if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(sorted(handshake.mechanisms)) or "none"
            raise login_failed(f"{self.where} does not take {sasl.mechanism}; it offers {offered}")
        if handshake.error_code:
            said = codec.error_code(handshake.error_code).name
            raise login_failed(f"{self.where} answered {said} to a login", retriable=True)
        lifetime_ms = 0

        async def send(content: bytes) -> bytes:
            nonlocal lifetime_ms
            answer = await self._sasl(
                Api.SASL_AUTHENTICATE, {"auth_bytes": content}, version=self.version(Api.SASL_AUTHENTICATE)
            )
            if answer.error_code:
                raise login_failed(answer.error_message or codec.error_code(answer.error_code).name)
            lifetime_ms = getattr(answer, "session_lifetime_ms", 0)
            return bytes(answer.auth_bytes)

        await log_in(sasl, send)
        return lifetime_ms / 1000

    async def _sasl(self, api: Api, body: Any, *, version: int) -> Any:
        frame = await self._exchange(api, self._encoder(api, version, body))
        return self._read(lambda: codec.decode_response(api, version, frame).body)
