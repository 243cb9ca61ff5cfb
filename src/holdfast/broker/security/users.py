"""The users file: names, SCRAM verifiers and rules, as JSON. Passwords are never in it.

    {"version": 1, "secret": "...", "users": {"alice": {"allow": ["read:topic:orders"],
        "SCRAM-SHA-256": {"salt": "...", "iterations": 10000, "stored_key": "...", "server_key": "..."}, ...}}}

Written to a new file that is renamed into place, mode 0600; refused if others may use it. A file that can't be read is
refused too: a broker must not start open because of a typing error.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.broker.security.rules import Rules, parse_rules
from holdfast.broker.security.scram import (
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    Mechanism,
    Verifier,
    fake_verifier,
    make_verifier,
)
from holdfast.model import HoldfastError

VERSION = 1
MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_USERS = 10_000
"""Each costs a few hundred bytes; more of them want a directory service, not a file."""
MAX_NAME = 249
MAX_PASSWORD = 1_024
"""PBKDF2 hashes it once; the bound is for the frame before the login."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    verifiers: Mapping[Mechanism, Verifier]
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Users:
    """All users. Empty means that nobody has to log in."""

    by_name: Mapping[str, User] = field(default_factory=dict)
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    """The salts of unknown users are made from it, so that they are the same after a restart."""

    def __bool__(self) -> bool:
        return bool(self.by_name)

    @property
    def rules(self) -> Rules:
        return Rules({name: user.allow for name, user in self.by_name.items()})

    def verifier(self, name: str, mechanism: Mechanism) -> tuple[Verifier, bool]:
        """A verifier to answer with, and whether the user exists."""
        user = self.by_name.get(name)
        if user is None:
            return fake_verifier(mechanism, name, self.secret), False
        return user.verifiers[mechanism], True

    def with_user(
        self, name: str, password: str, *, allow: Iterable[str] = (), iterations: int = DEFAULT_ITERATIONS
    ) -> Users:
        """The same with one user more, or with a new password and new rules for one that is there."""
        _check_user(name, password, iterations)
        allowed = tuple(allow)
        for text in allowed:
            parse_rules(text)
        verifiers = {mechanism: make_verifier(mechanism, password, iterations=iterations) for mechanism in Mechanism}
        users = {**self.by_name, name: User(verifiers=verifiers, allow=allowed)}
        return Users(dict(sorted(users.items())), self.secret)

    def without_user(self, name: str) -> Users:
        if name not in self.by_name:
            raise HoldfastError("USER_UNKNOWN", f"There is no user {name!r}.", "List the users to see who there is.")
        return Users({other: user for other, user in self.by_name.items() if other != name}, self.secret)


def _check_user(name: str, password: str, iterations: int) -> None:
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
        raise HoldfastError(
            "USER_INVALID", f"{name[:MAX_NAME]!r} can't be a user's name.", f"Use 1 to {MAX_NAME} visible characters."
        )
    if not 0 < len(password.encode()) <= MAX_PASSWORD or "\0" in password:
        raise HoldfastError(
            "PASSWORD_INVALID", "The password is empty or too long.", f"Use 1 to {MAX_PASSWORD} bytes, without a zero."
        )
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise HoldfastError(
            "ITERATIONS_INVALID", f"{iterations} iterations.", f"Use {MIN_ITERATIONS} to {MAX_ITERATIONS}."
        )


def load_users(path: Path, *, others_may: bool = False) -> Users:
    """The users in a file; none if there is no file. A file that others may read or change is refused, as by ssh: a
    reader can try passwords against its verifiers, and a writer decides who may log in."""
    try:
        found = path.stat()
        if found.st_size > MAX_FILE_BYTES:
            raise _invalid(path, f"it is larger than {MAX_FILE_BYTES} bytes")
        if found.st_mode & 0o077 and not others_may:
            raise HoldfastError(
                "USERS_FILE_OPEN",
                f"{path} can be used by others (mode {stat.S_IMODE(found.st_mode):04o}).",
                f"Run `chmod 600 {path}`; if others have read it, give its users new passwords.",
            )
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Users()
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(path, str(error)) from error
    try:
        return _users_of(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise _invalid(path, f"{type(error).__name__}: {error}") from error
    except RecursionError:
        raise _invalid(path, "it is nested too deeply") from None


def _invalid(path: Path, why: str) -> HoldfastError:
    return HoldfastError(
        "USERS_FILE_INVALID", f"{path} can't be read as a users file: {why}.", "Restore or rewrite it."
    )


def _users_of(content: Any) -> Users:
    if content["version"] != VERSION:
        raise ValueError(f"version {content['version']!r} is not known")
    if len(content["users"]) > MAX_USERS:
        raise ValueError(f"more than {MAX_USERS} users")
    users = {}
    for name, entry in sorted(content["users"].items()):
        allow = tuple(str(text) for text in entry["allow"])
        for text in allow:
            parse_rules(text)
        verifiers = {mechanism: _verifier_of(entry[mechanism.value]) for mechanism in Mechanism}
        users[name] = User(verifiers=verifiers, allow=allow)
    return Users(users, _bytes(content["secret"]))


def _verifier_of(entry: Any) -> Verifier:
    iterations = int(entry["iterations"])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"{iterations} iterations are not within {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return Verifier(
        salt=_bytes(entry["salt"]),
        iterations=iterations,
        stored_key=_bytes(entry["stored_key"]),
        server_key=_bytes(entry["server_key"]),
    )


def save_users(path: Path, users: Users) -> None:
    entries = {
        name: {
            "allow": list(user.allow),
            **{mechanism.value: _entry_of(verifier) for mechanism, verifier in user.verifiers.items()},
        }
        for name, user in users.by_name.items()
    }
    content = {"version": VERSION, "secret": _text(users.secret), "users": entries}
    beside = path.with_name(path.name + ".new")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise HoldfastError(
            "USERS_FILE_NOT_WRITTEN", f"{path} can't be written: {error.strerror}.", "Check the folder and its rights."
        ) from error


def _entry_of(verifier: Verifier) -> dict[str, object]:
    return {
        "salt": _text(verifier.salt),
        "iterations": verifier.iterations,
        "stored_key": _text(verifier.stored_key),
        "server_key": _text(verifier.server_key),
    }


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
