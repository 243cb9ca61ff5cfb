"""The orders in which Java's assignors look at members, so that our plans equal Java's where those are well defined.

Java compares strings by UTF-16 code unit, Python by code point. They differ only when a character beyond U+FFFF meets
one in U+E000–U+FFFF. We use Java's order everywhere, so that such ids sort as they do with a Java leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np


def utf16(text: str) -> bytes:
    """A key that sorts as Java's String.compareTo does. Lone surrogates are allowed: ids come from any client."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_as_java(texts: Iterable[str]) -> list[str]:
    """Sorted by UTF-16 code unit."""
    texts = list(texts)
    return sorted(texts) if all(text.isascii() for text in texts) else sorted(texts, key=utf16)


def static_first(instance_of: Callable[[str], str | None]) -> Callable[[str], tuple[bool, bytes, bytes]]:
    """The key of range and round robin: static members by instance id, then dynamic ones by member id."""

    def key(member: str) -> tuple[bool, bytes, bytes]:
        instance = instance_of(member)
        return (instance is None, b"" if instance is None else utf16(instance), utf16(member))

    return key


def hash_map_order(members: Sequence[str]) -> list[int]:
    """The positions of `members` in the order in which a Java HashMap of them is walked.

    When more members hold enough for a larger share than there are larger shares, Java lets this order decide who keeps
    one. It depends on the ids alone, except within a bucket: there Java uses insertion order, and we that of `members`.
    """
    capacity = 16
    while len(members) > capacity * 3 // 4:
        capacity *= 2
    buckets = np.zeros(len(members), np.int64)
    by_length: dict[int, list[int]] = {}
    encoded = [utf16(member) for member in members]
    for position, text in enumerate(encoded):
        by_length.setdefault(len(text), []).append(position)
    for length, positions in by_length.items():
        joined = b"".join(encoded[position] for position in positions)
        units = np.frombuffer(joined, ">u2").reshape(len(positions), length // 2).astype(np.int64)
        value = np.zeros(len(positions), np.int64)
        for column in range(length // 2):
            value = (31 * value + units[:, column]) & 0xFFFFFFFF
        buckets[positions] = (value ^ (value >> 16)) & (capacity - 1)
    return [int(position) for position in np.argsort(buckets, kind="stable")]
