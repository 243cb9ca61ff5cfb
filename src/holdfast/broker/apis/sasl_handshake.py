"""SaslHandshake, 1: which mechanism will it be?

Version 0 is followed by bytes without frames; no current client sends it, and it is not offered.
PLAIN is offered over TLS only, unless the broker was started with --insecure.
"""

from __future__ import annotations

from holdfast.broker.connection import Connection
from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.security.sasl import mechanisms, start
from holdfast.broker.state import State
from holdfast.model import ErrorCode


def handle(exchange: Exchange, state: State) -> Body:
    connection = exchange.client
    assert isinstance(connection, Connection)
    if not connection.login_required:
        return refuse(exchange, ErrorCode.ILLEGAL_SASL_STATE)
    offered = mechanisms(plain=connection.encrypted or state.settings.security.insecure)
    if connection.principal is not None or connection.login is not None:
        return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": offered}
    if exchange.body.mechanism not in offered:
        return {"error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": offered}
    connection.login = start(exchange.body.mechanism, state.users)
    return {"error_code": ErrorCode.NONE, "mechanisms": offered}


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    return {"error_code": error, "mechanisms": []}
