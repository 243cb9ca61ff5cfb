"""A SASL login as a conversation of messages.

    await log_in(sasl, send)        # `send` carries one message to the broker and returns its answer

Rules. The server must prove itself too where the mechanism can (SCRAM). Secrets never appear in an error. The work of
SCRAM's key derivation runs in a thread: it takes up to 50 ms, and heartbeats must go out meanwhile.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from holdfast.net.errors import NetError
from holdfast.net.security import Sasl
from holdfast.wire import sasl as messages
from holdfast.wire.scram import ScramClient, ScramError

NONCE_BYTES = 24

Send = Callable[[bytes], Awaitable[bytes]]


async def log_in(sasl: Sasl, send: Send) -> None:
    """Log in. Raises NetError if the broker refuses, or fails to prove its identity."""
    if sasl.mechanism == "PLAIN":
        await send(messages.plain_message(messages.PlainLogin(sasl.user, sasl.password.reveal())))
    elif sasl.mechanism == "OAUTHBEARER":
        await _oauth(sasl, send)
    else:
        await _scram(sasl, send)


async def _scram(sasl: Sasl, send: Send) -> None:
    client = ScramClient(sasl.mechanism, sasl.user, sasl.password.reveal(), secrets.token_urlsafe(NONCE_BYTES))
    try:
        challenge = await send(client.first())
        response = await asyncio.to_thread(client.respond, challenge)
        client.finish(await send(response))
    except ScramError as error:
        raise login_failed(error.what) from None


async def _oauth(sasl: Sasl, send: Send) -> None:
    assert sasl.token is not None, "OAUTHBEARER was configured without a source of tokens"
    try:
        given = await asyncio.to_thread(sasl.token)
        token, extensions = str(given[0]), given[3] if len(given) > 3 else {}
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001  # a user's callback may raise anything, and its text may quote the token
        raise login_failed(f"oauth_cb raised {type(error).__name__}", retriable=True) from None
    said = await send(messages.oauth_message(messages.OauthLogin(token, dict(extensions or {}))))
    if said:  # a refusal comes as a challenge, which the client must answer before the broker ends it
        await send(messages.OAUTH_ABORT)
        raise login_failed("the broker did not accept the token")


def login_failed(why: str, *, retriable: bool = False) -> NetError:
    return NetError(
        "AUTHENTICATION_FAILED",
        f"The login failed: {why.rstrip('.')}.",
        "Check sasl.mechanism, user and password, and that the broker knows them.",
        retriable=retriable,
    )
