"""Removing a file that nobody has touched, where files can be renamed: set aside first, then look.

Whoever touches it later finds nothing, whoever did so before is seen. A crash in between leaves it aside, until
somebody puts it back.
"""

from __future__ import annotations

from typing import Protocol

ASIDE = ".old-"
"""Files that are being removed. One that stays is left over from a crash in that moment."""


class Renaming(Protocol):
    """What is asked of a store."""

    def move(self, name: str, to: str) -> bool:
        """Rename; False if there is no such file, or if the other name is taken."""

    def modified(self, name: str) -> float | None: ...

    def remove(self, name: str) -> None: ...


def beside(name: str, other: str) -> str:
    """Another name in the same folder."""
    folder, slash, _ = name.rpartition("/")
    return f"{folder}{slash}{other}"


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


def put_back(store: Renaming, folder: str, listed: list[str]) -> None:
    for name in listed:
        if name.startswith(ASIDE):
            store.move(f"{folder}/{name}", f"{folder}/{name.removeprefix(ASIDE)}")  # unless it was removed meanwhile
