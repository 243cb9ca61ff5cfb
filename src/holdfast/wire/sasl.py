"""The one-message mechanisms of SASL: PLAIN (RFC 4616) and OAUTHBEARER (RFC 7628), written and read.

Unreadable bytes raise `MalformedFrame`, which never holds a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.wire.errors import MalformedFrame

OAUTH_ABORT = b"\x01"
"""What a client sends after a refusal, so that the server can end the conversation."""

_SEPARATOR = "\x01"


@dataclass(frozen=True, slots=True)
class PlainLogin:
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class OauthLogin:
    token: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)


def plain_message(login: PlainLogin) -> bytes:
    return f"\0{login.user}\0{login.password}".encode()


def read_plain(content: bytes) -> PlainLogin:
    """Raises if the client wants to act as another user, which Kafka does not support."""
    try:
        acting_as, user, password = content.decode().split("\0")
    except ValueError:
        raise MalformedFrame("A PLAIN message that is not three UTF-8 strings") from None
    if not user or not password:
        raise MalformedFrame("A PLAIN message without a user or a password")
    if acting_as not in ("", user):
        raise MalformedFrame("A PLAIN message that wants to act as somebody else")
    return PlainLogin(user, password)


def oauth_message(login: OauthLogin) -> bytes:
    extensions = "".join(f"{name}={value}{_SEPARATOR}" for name, value in sorted(login.extensions.items()))
    return f"n,,{_SEPARATOR}auth=Bearer {login.token}{_SEPARATOR}{extensions}{_SEPARATOR}".encode()


def read_oauth(content: bytes) -> OauthLogin:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise MalformedFrame("An OAUTHBEARER message that is not UTF-8") from None
    header, _, rest = text.partition(_SEPARATOR)
    if not header.startswith("n,") or not header.endswith(",") or not rest.endswith(_SEPARATOR * 2):
        raise MalformedFrame("An OAUTHBEARER message of another form")
    pairs = dict(pair.partition("=")[::2] for pair in rest[:-2].split(_SEPARATOR))
    scheme, _, token = pairs.pop("auth", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise MalformedFrame("An OAUTHBEARER message without a bearer token")
    return OauthLogin(token.strip(), pairs)
