"""Appends a note of ours to the user data of a custom assignor, so that both travel in Kafka's one field.

    the assignor's bytes · the note · int32 length of the note · flag · magic

The flag is 0 where the assignor gave no bytes at all, else 1. An assignor never sees the note. Built-in assignors have
a format that Java reads, and don't use this one.
"""

from __future__ import annotations

import struct

MAGIC = b"hdft"
_TRAILER = struct.Struct(">i?4s")


def attach(own: bytes | None, note: bytes) -> bytes:
    """The assignor's bytes followed by the note."""
    return (own or b"") + note + _TRAILER.pack(len(note), own is not None, MAGIC)


def detach(data: bytes | None) -> tuple[bytes | None, bytes | None]:
    """The assignor's bytes and the note, each None if absent. Bytes without a note are the assignor's."""
    if data is None or len(data) < _TRAILER.size or not data.endswith(MAGIC):
        return data, None
    length, has_own, _ = _TRAILER.unpack_from(data, len(data) - _TRAILER.size)
    start = len(data) - _TRAILER.size - length
    if not 0 <= start <= len(data) - _TRAILER.size or data[start : start + len(MAGIC)] != MAGIC:
        return data, None
    return (data[:start] if has_own else None), data[start : start + length]
