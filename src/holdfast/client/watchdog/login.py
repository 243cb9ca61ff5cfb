"""Logins for the watchdog, loaded only if the cluster asks for one. Blocking; the messages are `wire`'s."""

from __future__ import annotations

import secrets
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.net.security import Secret, Tls
from holdfast.wire.sasl import OauthLogin, PlainLogin, oauth_message, plain_message
from holdfast.wire.scram import ScramClient

HANDSHAKE, AUTHENTICATE = (17, 1), (36, 1)
SECRETS = ("key_pem", "key_password")
Ask = Callable[[int, int, bytes], bytes]


def wrapped(link: socket.socket, fields: Mapping[str, Any], host: str) -> ssl.SSLSocket:
    """TLS as the member uses it: the same files and checks."""
    secret = {name: Secret(fields[name]) for name in SECRETS if fields[name] is not None}
    return Tls(**{**fields, **secret}).context().wrap_socket(link, server_hostname=host)


def log_in(sasl: Mapping[str, Any], ask: Ask) -> None:
    mechanism = sasl["mechanism"]
    name = mechanism.encode()
    if struct.unpack(">h", ask(*HANDSHAKE, struct.pack(">h", len(name)) + name)[:2])[0] != 0:
        raise OSError("the broker refused the mechanism")
    if mechanism == "PLAIN":
        _authenticate(ask, plain_message(PlainLogin(sasl["user"], sasl["password"])))
    elif mechanism == "OAUTHBEARER":
        _authenticate(ask, oauth_message(OauthLogin(sasl["token"], sasl["extensions"])))
    else:
        client = ScramClient(mechanism, sasl["user"], sasl["password"], secrets.token_urlsafe(24))
        challenge = _authenticate(ask, client.first())
        client.finish(_authenticate(ask, client.respond(challenge)))


def _authenticate(ask: Ask, message: bytes) -> bytes:
    """SaslAuthenticate v1: error, error message, auth bytes, session lifetime."""
    answer = ask(*AUTHENTICATE, struct.pack(">i", len(message)) + message)
    (error,) = struct.unpack_from(">h", answer, 0)
    if error:
        raise OSError(f"the broker refused the login ({error})")
    (length,) = struct.unpack_from(">h", answer, 2)
    at = 4 + max(0, length)
    (size,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + size]
