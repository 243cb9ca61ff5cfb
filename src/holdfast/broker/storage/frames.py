"""The file format of a journal.

    file    two copies of: "HFJ1", salt 8, CRC-32C 4; then frames
    frame   marker 4, length of the body 4, CRC-32C of salt, position, length and body 4, body
    body    entries: key length 4, value length 4 (-1: a tombstone), key, value

Record batches are not used, because nobody fetches a journal: timestamps, varints and codecs would only cost. A frame
of ours is atomic for all its entries, and starts with a marker by which the next frame is found after damage. The salt
is random, and known to this file only. Values come from clients: without the salt, a value that contains a well-formed
frame could be taken for a real one when the next frame is searched for after a torn write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from crc32c import crc32c

Entry = tuple[bytes, bytes | None]

FILE_MAGIC = b"HFJ1"
SALT_BYTES = 8
HEADER_BYTES = 32

_MARKER = b"\xf5HJ\n"
_FRAME = struct.Struct("<4sII")
_SEED = struct.Struct("<8sqI")
_ENTRY = struct.Struct("<Ii")
_TOMBSTONE = -1

FRAME_BYTES = _FRAME.size
ENTRY_BYTES = _ENTRY.size


def encode(entries: Sequence[Entry]) -> tuple[bytes, list[tuple[int, int]]]:
    """The body of a frame, and the position and size of each entry in it."""
    parts: list[bytes] = []
    places: list[tuple[int, int]] = []
    at = 0
    for key, value in entries:
        parts += (_ENTRY.pack(len(key), _TOMBSTONE if value is None else len(value)), key, value or b"")
        size = _ENTRY.size + len(key) + len(value or b"")
        places.append((at, size))
        at += size
    return b"".join(parts), places


def file_header(salt: bytes) -> bytes:
    """Written twice, so that one flipped bit in it does not cost the whole file."""
    once = FILE_MAGIC + salt
    return 2 * (once + crc32c(once).to_bytes(4, "little"))


def read_header(data: bytes) -> bytes | None:
    for copy in (data[:16], data[16:32]):
        if len(copy) == 16 and copy[:4] == FILE_MAGIC and crc32c(copy[:12]).to_bytes(4, "little") == copy[12:]:
            return copy[4:12]
    return None


def frame_head(body: bytes | bytearray, position: int, salt: bytes) -> bytes:
    length = len(body)
    return _FRAME.pack(_MARKER, length, crc32c(body, crc32c(_SEED.pack(salt, position, length))))


def frame_end(data: bytes, position: int, salt: bytes) -> int | None:
    """Where the frame at `position` ends; None if it is incomplete or damaged."""
    if position + _FRAME.size > len(data):
        return None
    marker, length, crc = _FRAME.unpack_from(data, position)
    end = position + _FRAME.size + length
    if marker != _MARKER or end > len(data):
        return None
    body = memoryview(data)[position + _FRAME.size : end]
    if crc32c(body, crc32c(_SEED.pack(salt, position, length))) != crc:
        return None
    return end if _well_formed(body) else None


def _well_formed(body: memoryview) -> bool:
    at = 0
    while at < len(body):
        if at + _ENTRY.size > len(body):
            return False
        key_bytes, value_bytes = _ENTRY.unpack_from(body, at)
        at += _ENTRY.size + key_bytes + max(value_bytes, 0)
    return at == len(body)


def next_frame(data: bytes, position: int, salt: bytes) -> int | None:
    """The next sound frame after a bad one; None if there is none, in which case the bad one is a torn tail."""
    at = data.find(_MARKER, position + 1)
    while at >= 0:
        if frame_end(data, at, salt) is not None:
            return at
        at = data.find(_MARKER, at + 1)
    return None


def entries_of(data: bytes, position: int, end: int) -> Iterator[tuple[bytes, bytes | None, int, int]]:
    while position < end:
        key_bytes, value_bytes = _ENTRY.unpack_from(data, position)
        start = position + _ENTRY.size
        middle = start + key_bytes
        stop = middle + max(value_bytes, 0)
        value = None if value_bytes == _TOMBSTONE else data[middle:stop]
        yield data[start:middle], value, position, stop - position
        position = stop
