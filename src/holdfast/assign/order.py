"""The orders in which Java's assignors look at members, so that our answers are theirs where theirs are well defined.

Java compares strings by UTF-16 code unit, Python by code point. They differ only when a character beyond U+FFFF meets
one in U+E000–U+FFFF; we take Java's order everywhere, so that an id from the astral plane sorts as with a Java leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


def utf16(text: str) -> bytes:
    """A key that sorts as Java's String.compareTo does. Lone surrogates are allowed: ids come from strangers."""
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

    Where more members than there are larger shares hold enough for one, Java lets this order decide who keeps it. It
    follows from the ids alone but for two ids in one bucket, where Java goes by insertion and we by `members`.
    """
    capacity = 16
    while len(members) > capacity * 3 // 4:
        capacity *= 2
    buckets = []
    for member in members:
        units = member.encode("utf-16-be", "surrogatepass")
        value = 0
        for at in range(0, len(units), 2):
            value = (31 * value + (units[at] << 8) + units[at + 1]) & 0xFFFFFFFF
        buckets.append((value ^ (value >> 16)) & (capacity - 1))
    return sorted(range(len(members)), key=lambda position: (buckets[position], position))
