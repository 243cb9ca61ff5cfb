"""Kafka's primitive types: how each is read from untrusted bytes and written to a buffer.

A reader takes a `Source` and a position and returns the value and the position after it. Every length and count is
checked against the bytes left before anything is allocated, and arrays and tags draw on the source's budget.
A writer takes a bytearray and a value and appends.

This module must not know any message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from holdfast.wire.errors import MalformedFrame

Reader = Callable[["Source", int], tuple[Any, int]]
Writer = Callable[[bytearray, Any], None]

MAX_ITEMS = 500_000
"""How many array items and tags one message may hold. A frame of 16 MiB could claim 8 million of two bytes each: a
gigabyte of objects, and ten seconds on the event loop. Half a million take less than 100 MB and a second."""

MAX_LEGACY_STRING = 32_767
"""The largest length that an int16 can hold."""

ZERO_UUID = bytes(16)
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

FIXED: dict[str, tuple[str, int]] = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "error_code": ("h", 2),
    "timedelta_i32": ("i", 4),
    "timedelta_i64": ("q", 8),
    "datetime_i64": ("q", 8),
}
"""Types of constant size: struct format and bytes. Times are milliseconds, as on the wire; error codes are numbers."""


class Source:
    """Bytes being read, and how many more items they may still expand to."""

    __slots__ = ("budget", "data", "end")

    def __init__(self, data: bytes | memoryview, budget: int = MAX_ITEMS) -> None:
        self.data = data
        self.end = len(data)
        self.budget = budget

    def take(self, count: int, at: int, item_bytes: int) -> None:
        """Allow an array of `count` items, or refuse it because the bytes left can't hold them."""
        if count * item_bytes > self.end - at:
            raise MalformedFrame(f"{count} items can't fit into the {self.end - at} bytes left")
        self.budget -= count
        if self.budget < 0:
            raise MalformedFrame(f"more than {MAX_ITEMS} items in one message")


# -- lengths and counts


def read_uvarint(source: Source, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits."""
    data = source.data
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                break
            return value, at + 1
    raise MalformedFrame("a varint of more than 32 bits")


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def uvarint(value: int) -> bytes:
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


def read_compact_length(source: Source, at: int) -> tuple[int, int]:
    """A length stored plus one; -1 is null."""
    byte = source.data[at]
    if byte < 0x80:
        return byte - 1, at + 1
    value, at = read_uvarint(source, at)
    return value - 1, at


def read_int16_length(source: Source, at: int) -> tuple[int, int]:
    value = _INT16.unpack_from(source.data, at)[0]
    if value < -1:
        raise MalformedFrame(f"a length of {value}")
    return value, at + 2


def read_int32_length(source: Source, at: int) -> tuple[int, int]:
    value = _INT32.unpack_from(source.data, at)[0]
    if value < -1:
        raise MalformedFrame(f"a length of {value}")
    return value, at + 4


def write_compact_length(out: bytearray, length: int) -> None:
    write_uvarint(out, length + 1)


def write_int16_length(out: bytearray, length: int) -> None:
    if length > MAX_LEGACY_STRING:
        raise ValueError(f"a string of {length} bytes is longer than {MAX_LEGACY_STRING}")
    out += _INT16.pack(length)


def write_int32_length(out: bytearray, length: int) -> None:
    out += _INT32.pack(length)


# -- strings and bytes


def string_reader(length_reader: Reader, *, nullable: bool) -> Reader:
    def read(source: Source, at: int) -> tuple[str | None, int]:
        length, at = length_reader(source, at)
        if length < 0:
            if nullable:
                return None, at
            raise MalformedFrame("null where a string must be")
        end = at + length
        if end > source.end:
            raise MalformedFrame(f"a string of {length} bytes and {source.end - at} left")
        return str(source.data[at:end], "utf-8"), end

    return read


def bytes_reader(length_reader: Reader, *, nullable: bool) -> Reader:
    def read(source: Source, at: int) -> tuple[bytes | None, int]:
        length, at = length_reader(source, at)
        if length < 0:
            if nullable:
                return None, at
            raise MalformedFrame("null where bytes must be")
        end = at + length
        if end > source.end:
            raise MalformedFrame(f"{length} bytes wanted and {source.end - at} left")
        return bytes(source.data[at:end]), end

    return read


def blob_writer(length_writer: Callable[[bytearray, int], None], *, nullable: bool) -> Writer:
    """Strings and bytes: a length, then the content."""

    def write(out: bytearray, value: str | bytes | memoryview | None) -> None:
        if value is None:
            if not nullable:
                raise ValueError("null where a value must be")
            length_writer(out, -1)
            return
        content = value.encode() if isinstance(value, str) else value
        length_writer(out, len(content))
        out += content

    return write


def read_uuid(source: Source, at: int) -> tuple[UUID | None, int]:
    """A UUID; all zeros means none."""
    end = at + 16
    if end > source.end:
        raise MalformedFrame(f"16 bytes wanted and {source.end - at} left")
    content = bytes(source.data[at:end])
    return (None if content == ZERO_UUID else UUID(bytes=content)), end


def write_uuid(out: bytearray, value: UUID | None) -> None:
    out += ZERO_UUID if value is None else value.bytes


def fixed_reader(kind: str) -> Reader:
    layout = struct.Struct(">" + FIXED[kind][0])

    def read(source: Source, at: int) -> tuple[Any, int]:
        return layout.unpack_from(source.data, at)[0], at + layout.size

    return read


def fixed_writer(kind: str) -> Writer:
    layout = struct.Struct(">" + FIXED[kind][0])

    def write(out: bytearray, value: Any) -> None:
        out += layout.pack(value)

    return write


# -- arrays


def array_reader(length_reader: Reader, item: Reader, item_bytes: int, *, nullable: bool) -> Reader:
    def read(source: Source, at: int) -> tuple[tuple[Any, ...] | None, int]:
        count, at = length_reader(source, at)
        if count < 0:
            if nullable:
                return None, at
            raise MalformedFrame("null where an array must be")
        source.take(count, at, item_bytes)
        items = []
        for _ in range(count):
            value, at = item(source, at)
            items.append(value)
        return tuple(items), at

    return read


def fixed_array_reader(length_reader: Reader, kind: str, *, nullable: bool) -> Reader:
    """An array of numbers, read in one go."""
    code, size = FIXED[kind]

    def read(source: Source, at: int) -> tuple[tuple[Any, ...] | None, int]:
        count, at = length_reader(source, at)
        if count < 0:
            if nullable:
                return None, at
            raise MalformedFrame("null where an array must be")
        if not count:
            return (), at
        source.take(count, at, size)
        return struct.unpack_from(f">{count}{code}", source.data, at), at + count * size

    return read


def array_writer(length_writer: Callable[[bytearray, int], None], item: Writer, *, nullable: bool) -> Writer:
    def write(out: bytearray, values: Sequence[Any] | None) -> None:
        if values is None:
            if not nullable:
                raise ValueError("null where an array must be")
            length_writer(out, -1)
            return
        length_writer(out, len(values))
        for value in values:
            item(out, value)

    return write


def fixed_array_writer(length_writer: Callable[[bytearray, int], None], kind: str, *, nullable: bool) -> Writer:
    """An array of numbers, written in one go."""
    code, _ = FIXED[kind]

    def write(out: bytearray, values: Sequence[Any] | None) -> None:
        if values is None:
            if not nullable:
                raise ValueError("null where an array must be")
            length_writer(out, -1)
            return
        length_writer(out, len(values))
        out += struct.pack(f">{len(values)}{code}", *values)

    return write
