"""SCRAM's arithmetic (RFC 5802, RFC 7677): verifiers made from passwords, and proofs checked against them.

What is stored can check a password and can't be used as one: a thief of the users file still has to guess. Comparing
takes the same time wherever two values differ. This module knows no user by name and no message.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from enum import Enum

MIN_ITERATIONS = 4_096
"""The minimum of RFC 7677, and Kafka's."""
MAX_ITERATIONS = 100_000
"""More would let a users file make each login cost seconds. Clients refuse absurd counts as well."""
DEFAULT_ITERATIONS = 10_000
"""About 5 ms for each login, and for each guess."""
SALT_BYTES = 24


class Mechanism(Enum):
    """Kafka's names of the two."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def hash(self) -> str:
        return "sha256" if self is Mechanism.SHA_256 else "sha512"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """What the broker keeps instead of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)


def make_verifier(
    mechanism: Mechanism, password: str, *, iterations: int = DEFAULT_ITERATIONS, salt: bytes | None = None
) -> Verifier:
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    salted = salted_password(mechanism, password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash)
    return Verifier(
        salt=salt,
        iterations=iterations,
        stored_key=hashlib.new(mechanism.hash, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", mechanism.hash),
    )


def fake_verifier(mechanism: Mechanism, user: str, secret: bytes) -> Verifier:
    """The verifier of a user that does not exist: the same salt every time, and a key that no password matches."""

    def derived(what: bytes) -> bytes:
        return hmac.digest(secret, what + mechanism.hash.encode() + b"\0" + user.encode(), "sha512")

    size = hashlib.new(mechanism.hash).digest_size
    return Verifier(
        salt=derived(b"salt")[:SALT_BYTES],
        iterations=DEFAULT_ITERATIONS,
        stored_key=derived(b"stored")[:size],
        server_key=derived(b"server")[:size],
    )


def proof_is_right(mechanism: Mechanism, verifier: Verifier, auth_message: bytes, proof: bytes) -> bool:
    """Whether the sender of `proof` knows the password."""
    signature = hmac.digest(verifier.stored_key, auth_message, mechanism.hash)
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    return hmac.compare_digest(hashlib.new(mechanism.hash, client_key).digest(), verifier.stored_key)


def server_signature(mechanism: Mechanism, verifier: Verifier, auth_message: bytes) -> bytes:
    """Proves to the client that this server knows its verifier."""
    return hmac.digest(verifier.server_key, auth_message, mechanism.hash)


def password_is_right(mechanism: Mechanism, verifier: Verifier, password: str) -> bool:
    """The same question for PLAIN, where the password itself comes over TLS. Slow on purpose."""
    found = make_verifier(mechanism, password, iterations=verifier.iterations, salt=verifier.salt)
    return hmac.compare_digest(found.stored_key, verifier.stored_key)
