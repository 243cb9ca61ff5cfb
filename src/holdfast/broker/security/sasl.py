"""The broker's half of a login, as a pure exchange of bytes: SCRAM in two steps, PLAIN in one.

    login = start(mechanism, users)          raises for a mechanism that is not offered
    login.step(message) -> Challenge | Done | Check     raises LoginFailed

Rules. Every failure looks the same from outside, so that a client can't tell a wrong name from a wrong password. A
nonce is compared as a whole. Nothing here sends, waits or computes for long: PLAIN's slow comparison is returned as a
`Check`, to be run elsewhere.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.broker.security.scram import (
    Mechanism,
    Verifier,
    password_is_right,
    proof_is_right,
    server_signature,
)
from holdfast.broker.security.users import MAX_NAME, MAX_PASSWORD, Users
from holdfast.model import HoldfastError

PLAIN = "PLAIN"
MAX_MESSAGE = 4_096
"""Names, nonces and proofs of both mechanisms fit ten times."""
NONCE_BYTES = 24

_FIRST = re.compile(
    r"(?P<gs2>[ny],(?P<authzid>a=[^,]*)?,)(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+))"
)
_FINAL = re.compile(r"(?P<bare>c=(?P<binding>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)),p=(?P<proof>[^,]+)")
"""A nonce is printable ASCII in both messages (RFC 5802). `hmac.compare_digest` refuses other text."""


class LoginFailed(HoldfastError):
    """The login is over. What the client is told is the same for every cause; `cause` is for the log."""

    def __init__(self, cause: str) -> None:
        super().__init__("LOGIN_FAILED", "This user with this password is not known here.", "Check both.")
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Challenge:
    """Send this, and expect another message."""

    message: bytes


@dataclass(frozen=True, slots=True)
class Done:
    """The login has succeeded. Send this."""

    user: str
    message: bytes = b""


@dataclass(frozen=True, slots=True)
class Check:
    """`right()` takes milliseconds: run it in a thread. If it is true, `user` is logged in."""

    user: str
    right: Callable[[], bool]


class Scram:
    """RFC 5802 without channel binding, which Kafka's clients don't offer."""

    def __init__(self, mechanism: Mechanism, users: Users, nonce: str) -> None:
        self._mechanism = mechanism
        self._users = users
        self._own_nonce = nonce
        self._user = ""
        self._verifier: Verifier | None = None
        self._known = False
        self._gs2 = ""
        self._nonce = ""
        self._spoken = ""

    def step(self, message: bytes) -> Challenge | Done:
        text = _text_of(message)
        return self._first(text) if self._verifier is None else self._final(text, self._verifier)

    def _first(self, text: str) -> Challenge:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise LoginFailed("the first SCRAM message can't be read")
        self._user = _unescape(found["user"])
        if found["authzid"] not in (None, "a=", f"a={found['user']}"):
            raise LoginFailed(f"{self._user!r} wants to act as somebody else")
        self._verifier, self._known = self._users.verifier(self._user, self._mechanism)
        self._gs2 = found["gs2"]
        self._nonce = found["nonce"] + self._own_nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._spoken = f"{found['bare']},{challenge}"
        return Challenge(challenge.encode())

    def _final(self, text: str, verifier: Verifier) -> Done:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise LoginFailed("the last SCRAM message can't be read")
        binding = base64.b64encode(self._gs2.encode()).decode()
        same = hmac.compare_digest(found["nonce"].encode(), self._nonce.encode()) and found["binding"] == binding
        spoken = f"{self._spoken},{found['bare']}".encode()
        right = proof_is_right(self._mechanism, verifier, spoken, _decode(found["proof"]))
        if not (same and right and self._known):
            raise LoginFailed(f"wrong name or password for {self._user!r}")
        signature = server_signature(self._mechanism, verifier, spoken)
        return Done(self._user, b"v=" + base64.b64encode(signature))


class Plain:
    """RFC 4616."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def step(self, message: bytes) -> Check:
        parts = _text_of(message).split("\0")
        if len(parts) != 3 or not 0 < len(parts[1]) <= MAX_NAME or not 0 < len(parts[2]) <= MAX_PASSWORD:
            raise LoginFailed("the PLAIN message can't be read")
        acting_as, user, password = parts
        if acting_as not in ("", user):
            raise LoginFailed(f"{user!r} wants to act as somebody else")
        verifier, known = self._users.verifier(user, Mechanism.SHA_256)
        return Check(user, lambda: password_is_right(Mechanism.SHA_256, verifier, password) and known)


Login = Scram | Plain


def mechanisms(*, plain: bool) -> tuple[str, ...]:
    """What is offered, the strongest first."""
    offered = (Mechanism.SHA_512.value, Mechanism.SHA_256.value)
    return (*offered, PLAIN) if plain else offered


def start(mechanism: str, users: Users) -> Login:
    """A login by one of the `mechanisms`."""
    if mechanism == PLAIN:
        return Plain(users)
    return Scram(Mechanism(mechanism), users, secrets.token_urlsafe(NONCE_BYTES))


def _text_of(message: bytes) -> str:
    if len(message) > MAX_MESSAGE:
        raise LoginFailed(f"a message of {len(message)} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginFailed("a message that is not UTF-8") from None


def _unescape(name: str) -> str:
    if re.search(r"=(?!2C|3D)", name):
        raise LoginFailed("a user name that is not escaped as RFC 5802 says")
    return name.replace("=2C", ",").replace("=3D", "=")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise LoginFailed("a proof that is not base64") from None
