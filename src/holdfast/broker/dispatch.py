"""From a frame to a handler: header, version, login, body, faults, handler; and what happens when something goes wrong.

    frame can't be read, or an API we don't serve      the connection is closed, one line is logged
    not logged in                                      the connection is closed: clients know that they must log in
    a handler refuses with a Kafka error               the API's own error answer
    a handler fails (our mistake)                      the same with UNKNOWN_SERVER_ERROR, and a traceback in the log;
                                                       before the login the connection is closed too
    an answer can't be encoded (our mistake)           the connection is closed, with a traceback in the log

It must not know what any API does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from holdfast.broker import apis
from holdfast.broker.connection import Connection
from holdfast.broker.exchange import SILENT, Body, Exchange, Later, Parts, Result
from holdfast.broker.faults import Faults
from holdfast.broker.slices import PAUSE, READ, WRITING, Floor, InThread, Steps, take_apart
from holdfast.broker.state import State
from holdfast.broker.storage.errors import StorageError
from holdfast.model import ErrorCode, HoldfastError
from holdfast.wire import codec
from holdfast.wire.api import Api
from holdfast.wire.errors import UnsupportedVersion
from holdfast.wire.frames import RequestHeader, read_request_header

LARGE_FRAME_BYTES = 64 * 1024
"""Decoding a request above this size may take tens of milliseconds, if it is full of small items."""

MOST_ORPHANS = 64
"""A Produce request whose client has left is still completed while fewer jobs than this are queued."""

BEFORE_LOGIN = frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})
"""What a client may ask before it has logged in."""


class Dispatcher:
    """Serves the frames of all connections."""

    def __init__(self, state: State, faults: Faults) -> None:
        self._state = state
        self._faults = faults
        self._limited_log = state.limited_log
        self._floor = Floor()

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        """Serve one frame. Raises a HoldfastError if the connection should be closed."""
        header = read_request_header(frame)
        api = Api.of(header.api_key)
        if api is None or not apis.is_served(api, header.version):
            self._refuse_version(connection, header, api)
        elif not connection.authenticated and api not in BEFORE_LOGIN:
            connection.close(f"{api.name} before the login")
        elif len(frame) <= LARGE_FRAME_BYTES:
            self._begin(connection, header, api, apis.module(api).decode(frame, header, api))
        elif api is Api.PRODUCE:
            self._read_large(connection, frame, header, api, None)
        else:
            self._floor.ask(lambda: self._begin_large(connection, frame, header, api))

    def _begin(
        self,
        connection: Connection,
        header: RequestHeader,
        api: Api,
        body: object,
        released: Callable[[], None] | None = None,
    ) -> None:
        request = codec.RequestFrame(
            api=api,
            version=header.version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            body=body,
        )
        exchange = Exchange(request, connection)
        exchange.on_released = released
        connection.in_work = exchange
        if self._faults and self._faults.meet(exchange, connection, self._run, self._refuse):
            exchange.release()
            return
        self._run(exchange)

    def _begin_large(self, connection: Connection, frame: memoryview, header: RequestHeader, api: Api) -> None:
        def released() -> None:
            self._state.collector.let_go()
            self._floor.leave()

        self._state.collector.hold_off()
        self._read_large(connection, frame, header, api, released)

    def _read_large(
        self,
        connection: Connection,
        frame: memoryview,
        header: RequestHeader,
        api: Api,
        released: Callable[[], None] | None,
    ) -> None:
        """Queue a large frame and decode it in a thread, so that many of them don't delay others' small requests.
        Decoded objects take forty times the memory of the bytes. So only one large request is in work at a time, except
        for Produce, whose records stay bytes."""

        def steps() -> Steps:
            return (yield InThread(lambda: apis.module(api).decode(frame, header, api), READ))

        def read(outcome: Callable[[], object]) -> None:
            try:
                body = outcome()
                if not connection.closed or self._goes_on(api):
                    self._begin(connection, header, api, body, released)
                    return
            except HoldfastError as error:
                connection.close(error.what)
            if released is not None:
                released()

        self._state.slices.run_later(steps(), read)

    def _run(self, exchange: Exchange) -> None:
        handler = apis.module(exchange.api)
        exchange.guard = lambda work: self._guarded(exchange, work)
        self._guarded(exchange, lambda: handler.handle(exchange, self._state))

    def _guarded(self, exchange: Exchange, work: Callable[[], Result | Steps]) -> None:
        """Do the work and send its result. If it fails, send the API's own error answer."""
        try:
            result = work()
        except StorageError as error:
            self._limited_log.warning("%s: %s %s", exchange.api.name, error.what, error.do)
            result = self._refuse(exchange, error.error)
        except Exception:  # noqa: BLE001  # logged by `limited_log`
            self._limited_log.exception("%s of version %d failed", exchange.api.name, exchange.version)
            result = self._refuse(exchange, ErrorCode.UNKNOWN_SERVER_ERROR)
            _close_on_stranger(exchange, result)
        if isinstance(result, Mapping) and isinstance(exchange.client, Connection) and codec.is_long(result):
            result = _ready(result)
        if isinstance(result, Generator):
            self._in_slices(exchange, result)
            return
        if result is SILENT:
            exchange.silence()
        elif not isinstance(result, Later):
            exchange.answer(result)
        exchange.release()

    def _refuse(self, exchange: Exchange, error: ErrorCode) -> Body:
        module = apis.module(exchange.api)
        if module.refused is not None:
            module.refused(exchange, self._state, error)
        return module.refuse(exchange, error)

    def _in_slices(self, exchange: Exchange, steps: Steps) -> None:
        """Run long work, and encode an answer that may be long, in slices."""

        def finished(outcome: Callable[[], Result]) -> None:
            self._guarded(exchange, outcome)

        def abandoned() -> bool:
            return exchange.done and not self._goes_on(exchange.api)

        self._state.slices.run(_encoded(exchange, steps), finished, abandoned)

    def _goes_on(self, api: Api) -> bool:
        """Whether a request is completed although its client has left: with acks=0 producers may disconnect right after
        sending. Only a limited number, or a client that keeps reconnecting could pile them up."""
        return api is Api.PRODUCE and len(self._state.slices) < MOST_ORPHANS

    def _refuse_version(self, connection: Connection, header: RequestHeader, api: Api | None) -> None:
        """An unknown version of ApiVersions is answered in version 0 (KIP-511). Anything else can't be answered."""
        unsupported = UnsupportedVersion(header.api_key, header.version, header.correlation_id, header.client_id)
        if api is not Api.API_VERSIONS:
            connection.close(unsupported.what)
            return
        body = apis.module(Api.API_VERSIONS).refuse(None, ErrorCode.UNSUPPORTED_VERSION)
        assert isinstance(body, dict)
        connection.send(codec.encode_response(Api.API_VERSIONS, 0, header.correlation_id, body))
        connection.next()


def _ready(result: Result) -> Steps:
    """A result as the steps that lead to it: a long answer is encoded in slices, wherever it came from."""
    yield PAUSE
    return result


def _encoded(exchange: Exchange, steps: Steps) -> Steps:
    result = yield from steps
    # A short body is encoded when it is sent.
    if not isinstance(result, Mapping) or not codec.is_long(result) or not isinstance(exchange.client, Connection):
        return result
    if exchange.changed is not None:
        result = exchange.changed(result)
        assert isinstance(result, Mapping)
    frame = exchange.frame
    yield WRITING
    data = yield from codec.encode_response_steps(frame.api, frame.version, frame.correlation_id, result)
    if exchange.changed is None:  # else the test that changed it may still look at it
        yield from take_apart(result)
    return Parts((data,))


def _close_on_stranger(exchange: Exchange, result: object) -> None:
    """If a client makes us fail before its login, send the answer and then close the connection."""
    connection = exchange.client
    if isinstance(connection, Connection) and not connection.authenticated:
        assert not isinstance(result, Later)
        exchange.answer(result)  # type: ignore[arg-type]  # an API's refusal is a body
        connection.finish_and_close()
