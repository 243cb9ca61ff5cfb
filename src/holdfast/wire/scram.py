"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), both ends, as a conversation of byte strings.

    client -> first()                    "n,,n=user,r=nonce"
    server -> challenge(first)           "r=nonce+theirs,s=salt,i=iterations"
    client -> respond(challenge)         "c=biws,r=…,p=proof"
    server -> verify(response)           "v=signature", and the user's name
    client -> finish(signature)          or it raises: the server does not know the password

Rules. Iterations are checked on both sides (too few make a recorded login cheap to crack, too many are an attack on our
processor), nonces are compared whole, signatures in constant time. An unknown user gets a salt and a refusal like
everybody else. Every failure is a `ScramError`, which never holds a secret. Channel binding is not offered by Kafka.
Names and passwords are taken as UTF-8 without SASLprep, as Kafka's Java client does.

Nonces are arguments: this module must not know randomness or a socket.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.model import HoldfastError

MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

MIN_ITERATIONS = 4_096
"""RFC 7677's minimum, and Kafka's."""

MAX_ITERATIONS = 100_000
"""About 50 ms of work. Asking for more is an attack on our processor."""

MAX_MESSAGE_BYTES = 8_192
"""Names, nonces and salts are short; a longer message is not SCRAM."""

_NO_BINDING = "n,,"
_BINDING = base64.b64encode(_NO_BINDING.encode()).decode()


class ScramError(HoldfastError):
    """A conversation that can't go on."""

    def __init__(self, what: str) -> None:
        super().__init__("SCRAM_FAILED", what, "Check user name, password and mechanism on both sides.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """What a server stores instead of a password."""

    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def make_credential(mechanism: str, password: str, *, salt: bytes, iterations: int = MIN_ITERATIONS) -> ScramCredential:
    """What to store for this password."""
    _check_iterations(iterations)
    salted = _salted(mechanism, password, salt, iterations)
    return ScramCredential(
        mechanism=mechanism,
        salt=salt,
        iterations=iterations,
        stored_key=_hash(mechanism, _mac(mechanism, salted, b"Client Key")),
        server_key=_mac(mechanism, salted, b"Server Key"),
    )


class ScramClient:
    """The client's end. Each method is called once, in order."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._first_bare = f"n={_escape(user)},r={nonce}"
        self._server_signature = b""

    def __repr__(self) -> str:
        return f"ScramClient({self._mechanism})"

    def first(self) -> bytes:
        return (_NO_BINDING + self._first_bare).encode()

    def respond(self, challenge: bytes) -> bytes:
        text = _text(challenge, "challenge")
        fields = _fields(text, "challenge", ("r", "s", "i"))
        nonce = fields["r"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("The server's nonce does not continue ours.")
        iterations = _number(fields["i"])
        _check_iterations(iterations)
        salted = _salted(self._mechanism, self._password, _decode(fields["s"], "salt"), iterations)
        without_proof = f"c={_BINDING},r={nonce}"
        signed = f"{self._first_bare},{text},{without_proof}".encode()
        client_key = _mac(self._mechanism, salted, b"Client Key")
        signature = _mac(self._mechanism, _hash(self._mechanism, client_key), signed)
        self._server_signature = _mac(self._mechanism, _mac(self._mechanism, salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(_xor(client_key, signature)).decode()}".encode()

    def finish(self, final: bytes) -> None:
        """Raises unless the server proved that it knows the password."""
        text = _text(final, "final message")
        if text.startswith("e="):
            raise ScramError("The server refused the proof.")
        given = _decode(_fields(text, "final message", ("v",))["v"], "signature")
        if not self._server_signature or not hmac.compare_digest(given, self._server_signature):
            raise ScramError("The server's signature is wrong: it does not know the password.")


class ScramServer:
    """The server's end. Each method is called once, in order."""

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], ScramCredential | None],
        nonce: str,
        *,
        fake_key: bytes,
    ) -> None:
        """`find` looks up a user; `fake_key` is a secret of the server, from which the salts of unknown users are
        made."""
        self._mechanism = mechanism
        self._find = find
        self._own_nonce = nonce
        self._fake_key = fake_key
        self._user = ""
        self._credential: ScramCredential | None = None
        self._known = False
        self._nonce = ""
        self._so_far = ""

    def challenge(self, first: bytes) -> bytes:
        text = _text(first, "first message")
        if not text.startswith(_NO_BINDING):
            raise ScramError("Channel binding and authorization identities are not supported.")
        bare = text[len(_NO_BINDING) :]
        fields = _fields(bare, "first message", ("n", "r"))
        if not fields["r"]:
            raise ScramError("The client's nonce is empty.")
        self._user = _unescape(fields["n"])
        found = self._find(self._user)
        self._known = found is not None and found.mechanism == self._mechanism
        self._credential = found if found is not None and self._known else self._fake(self._user)
        _check_iterations(self._credential.iterations)
        self._nonce = fields["r"] + self._own_nonce
        salt = base64.b64encode(self._credential.salt).decode()
        reply = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._so_far = f"{bare},{reply}"
        return reply.encode()

    def verify(self, response: bytes) -> tuple[str, bytes]:
        """(user, final message), or it raises."""
        if self._credential is None:
            raise ScramError("The proof came before the first message.")
        text = _text(response, "response")
        without_proof, _, proof = text.rpartition(",p=")
        fields = _fields(without_proof, "response", ("c", "r"))
        if fields["c"] != _BINDING:
            raise ScramError("The channel binding changed within the conversation.")
        if not hmac.compare_digest(fields["r"].encode(), self._nonce.encode()):
            raise ScramError("The nonce changed within the conversation.")
        signed = f"{self._so_far},{without_proof}".encode()
        signature = _mac(self._mechanism, self._credential.stored_key, signed)
        client_key = _xor(_decode(proof, "proof"), signature)
        right = hmac.compare_digest(_hash(self._mechanism, client_key), self._credential.stored_key)
        if not (right and self._known):
            raise ScramError("Unknown user or wrong password.")
        verifier = base64.b64encode(_mac(self._mechanism, self._credential.server_key, signed)).decode()
        return self._user, f"v={verifier}".encode()

    def _fake(self, user: str) -> ScramCredential:
        """Always the same for one name, so that asking twice does not reveal whether the user exists."""
        salt = _mac(self._mechanism, self._fake_key, b"salt:" + user.encode())[:16]
        key = _mac(self._mechanism, self._fake_key, b"key:" + user.encode())
        return ScramCredential(
            mechanism=self._mechanism, salt=salt, iterations=MIN_ITERATIONS, stored_key=key, server_key=key
        )


# -- helpers


def _salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)


def _mac(mechanism: str, key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, MECHANISMS[mechanism])


def _hash(mechanism: str, content: bytes) -> bytes:
    return hashlib.new(MECHANISMS[mechanism], content).digest()


def _xor(left: bytes, right: bytes) -> bytes:
    if len(left) != len(right):
        raise ScramError("A proof of the wrong length.")
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _check_iterations(iterations: int) -> None:
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ScramError(f"{iterations} iterations were asked for; {MIN_ITERATIONS} to {MAX_ITERATIONS} are allowed.")


def _text(content: bytes, what: str) -> str:
    if len(content) > MAX_MESSAGE_BYTES:
        raise ScramError(f"A {what} of {len(content)} bytes.")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ScramError(f"The {what} is not UTF-8.") from None


def _fields(text: str, what: str, names: tuple[str, ...]) -> dict[str, str]:
    """The attributes of a message, which come in a fixed order; extensions after them are ignored."""
    parts = text.split(",")
    if parts[0].startswith("m="):
        raise ScramError("A mandatory extension that we don't know.")
    found = dict(zip(names, (part[2:] for part in parts), strict=False))
    if len(found) < len(names) or any(
        not part.startswith(f"{name}=") for name, part in zip(names, parts, strict=False)
    ):
        raise ScramError(f"The {what} lacks one of {', '.join(names)}.")
    return found


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ScramError("The number of iterations is not a number.")
    return int(text)


def _decode(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError(f"The {what} is not base64.") from None


def _escape(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescape(name: str) -> str:
    parts = name.split("=")
    if any(not part.startswith(("2C", "3D")) for part in parts[1:]):
        raise ScramError("The user's name is not escaped.")
    return parts[0] + "".join(("," if part.startswith("2C") else "=") + part[2:] for part in parts[1:])
