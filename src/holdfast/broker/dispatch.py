"""From a frame to a handler: header, login, version, body, faults, handler; and what becomes of everything that goes
wrong.

    frame can't be read, or an API we don't serve      the connection is closed, one line is logged
    not logged in                                      the connection is closed: the client knew that it had to
    a handler refuses with a Kafka error               the API's own error answer
    a handler fails (our mistake)                      the same with UNKNOWN_SERVER_ERROR, and a traceback in the log
    an answer can't be encoded (our mistake)           the connection is closed, with a traceback in the log

It must not know what any API does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast.broker import apis
from holdfast.broker.connection import Connection
from holdfast.broker.exchange import SILENT, Exchange, Later, Result
from holdfast.broker.faults import Faults
from holdfast.broker.state import State
from holdfast.broker.storage.errors import StorageError
from holdfast.model import ErrorCode
from holdfast.wire import codec
from holdfast.wire.api import Api
from holdfast.wire.errors import UnsupportedVersion
from holdfast.wire.frames import RequestHeader, read_request_header

log = logging.getLogger("holdfast.broker")

BEFORE_LOGIN = frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})
"""What a stranger may ask."""


class Dispatcher:
    """Serves the frames of all connections."""

    def __init__(self, state: State, faults: Faults) -> None:
        self._state = state
        self._faults = faults

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        """Serve one frame. Raises a HoldfastError for what should close the connection."""
        header = read_request_header(frame)
        api = Api.of(header.api_key)
        if api is None or not apis.is_served(api, header.version):
            self._refuse_version(connection, header, api)
            return
        if not connection.authenticated and api not in BEFORE_LOGIN:
            connection.close(f"{api.name} before the login")
            return
        body = apis.module(api).decode(frame, header, api)
        request = codec.RequestFrame(
            api=api,
            version=header.version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            body=body,
        )
        exchange = Exchange(request, connection)
        connection.in_work = exchange
        if self._faults and self._faults.meet(exchange, connection, self._run):
            return
        self._run(exchange)

    def _run(self, exchange: Exchange) -> None:
        handler = apis.module(exchange.api)
        exchange.guard = lambda work: self._guarded(exchange, work)
        self._guarded(exchange, lambda: handler.handle(exchange, self._state))

    def _guarded(self, exchange: Exchange, work: Callable[[], Result]) -> None:
        """Do the work and send what it gives; when it fails, say so in the API's own way."""
        try:
            result = work()
        except StorageError as error:
            log.warning("%s: %s %s", exchange.api.name, error.what, error.do)
            result = apis.module(exchange.api).refuse(exchange, error.error)
        except Exception:
            log.exception("%s of version %d failed", exchange.api.name, exchange.version)
            result = apis.module(exchange.api).refuse(exchange, ErrorCode.UNKNOWN_SERVER_ERROR)
        if result is SILENT:
            exchange.silence()
        elif not isinstance(result, Later):
            exchange.answer(result)

    def _refuse_version(self, connection: Connection, header: RequestHeader, api: Api | None) -> None:
        """An unknown version of ApiVersions is answered in version 0 (KIP-511); the rest can't be answered at all."""
        unsupported = UnsupportedVersion(header.api_key, header.version, header.correlation_id, header.client_id)
        if api is not Api.API_VERSIONS:
            connection.close(unsupported.what)
            return
        body = apis.module(Api.API_VERSIONS).refuse(None, ErrorCode.UNSUPPORTED_VERSION)
        assert isinstance(body, dict)
        connection.send(codec.encode_response(Api.API_VERSIONS, 0, header.correlation_id, body))
        connection.next()
