"""Removing a file that nobody has touched since a given time, in stores that can rename: rename it aside, then check.

Whoever touches it after the rename finds no file; whoever touched it before is seen. After a crash in between, the next
`clean` puts the file back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

ASIDE = ".old-"
"""Prefix of files that are being removed. If one stays, a crash interrupted its removal."""


_UUID = re.compile(r"[0-9a-f]{32}")


class Renaming(Protocol):
    """What a store must be able to do."""

    def move(self, name: str, to: str) -> bool:
        """Rename; False if there is no such file, or if the other name is taken."""

    def modified(self, name: str) -> float | None: ...

    def remove(self, name: str) -> None: ...


def beside(name: str, other: str) -> str:
    """Another name in the same folder."""
    folder, slash, _ = name.rpartition("/")
    return f"{folder}{slash}{other}"


def is_unique(name: str, prefix: str) -> bool:
    """Whether a name is this prefix and a UUID, as ours are; an editor's hidden files begin with a dot, too."""
    return name.startswith(prefix) and _UUID.fullmatch(name, len(prefix)) is not None


def remove_untouched(store: Renaming, name: str, before: float) -> bool:
    aside = beside(name, ASIDE + name.rpartition("/")[2])
    if not store.move(name, aside):
        return False
    modified = store.modified(aside)
    if modified is None:  # `put_back` of another was faster
        return False
    if modified >= before:
        store.move(aside, name)
        return False
    store.remove(aside)
    return True


def put_back(store: Renaming, folder: str, listed: list[str], ours: Callable[[str], bool]) -> None:
    for name in listed:
        if name.startswith(ASIDE) and ours(name.removeprefix(ASIDE)):
            store.move(f"{folder}/{name}", f"{folder}/{name.removeprefix(ASIDE)}")  # unless it was removed meanwhile
