"""SaslAuthenticate, 0 to 2: one step of a login.

Version notes: 1 session lifetimes (KIP-368), which are not limited here: 0 · 2 compact.
A login that fails is answered and the connection closed. The cause goes to the log, not to the client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast.broker.connection import Connection
from holdfast.broker.exchange import PARKED, Body, Exchange, Result
from holdfast.broker.security.sasl import Challenge, Check, Done, Login, LoginFailed, Plain, Scram
from holdfast.broker.slices import LOGIN, InThread, Steps
from holdfast.broker.state import State
from holdfast.model import ErrorCode

log = logging.getLogger("holdfast.broker")


def handle(exchange: Exchange, state: State) -> Result | Steps:
    connection = exchange.client
    assert isinstance(connection, Connection)
    login = connection.login
    if not isinstance(login, Scram | Plain):
        return refuse(exchange, ErrorCode.ILLEGAL_SASL_STATE)
    try:
        return _step(exchange, connection, login)
    except LoginFailed as failure:
        _fail(exchange, connection, failure.cause)
        return PARKED


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    return {"error_code": error, "error_message": None, "auth_bytes": b""}


def _step(exchange: Exchange, connection: Connection, login: Login) -> Result | Steps:
    match login.step(exchange.body.auth_bytes):
        case Challenge(message):
            return {"error_code": ErrorCode.NONE, "auth_bytes": message}
        case Done(user, message):
            _succeed(connection, user)
            return {"error_code": ErrorCode.NONE, "auth_bytes": message}
        case Check(user, right):
            return _checked(exchange, connection, user, right)


def _checked(exchange: Exchange, connection: Connection, user: str, right: Callable[[], bool]) -> Steps:
    """Slow on purpose, so it runs in a thread; one request is in work per connection, so nothing overtakes it.

    In a lane of its own: anybody may guess passwords, and disk work must not wait for that.
    """
    if not (yield InThread(right, LOGIN)):
        _fail(exchange, connection, f"wrong name or password for {user!r}")
        return PARKED
    _succeed(connection, user)
    return {"error_code": ErrorCode.NONE, "auth_bytes": b""}


def _succeed(connection: Connection, user: str) -> None:
    connection.principal = user
    connection.login = None


def _fail(exchange: Exchange, connection: Connection, cause: str) -> None:
    connection.log_once(f"login failed: {cause}")
    text = LoginFailed(cause).what  # clients add what to do by themselves
    exchange.answer({"error_code": ErrorCode.SASL_AUTHENTICATION_FAILED, "error_message": text, "auth_bytes": b""})
    connection.finish_and_close()
