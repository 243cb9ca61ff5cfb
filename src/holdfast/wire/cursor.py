"""Reading and writing field by field, for Fetch and Produce, whose codecs are written by hand.

`Cursor` gives records as views of the frame, without a copy. `Sink` collects what is to be sent as a list of parts, so
that records go from a file to a socket without passing through Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from holdfast.wire import primitives as p
from holdfast.wire.errors import MalformedFrame

_INT8, _INT16, _INT32, _INT64 = (struct.Struct(form) for form in (">b", ">h", ">i", ">q"))


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Bytes that stay in a file until the socket takes them (sendfile)."""

    fd: int
    offset: int
    length: int

    def __len__(self) -> int:
        return self.length


Part = bytes | bytearray | memoryview | FileSlice


class Cursor:
    """A position in a message being read. Raises MalformedFrame and nothing else."""

    __slots__ = ("_at", "_data", "_flexible", "_source", "_what")

    def __init__(self, data: bytes | memoryview, at: int, *, flexible: bool, what: str) -> None:
        self._data = memoryview(data)
        self._source = p.Source(self._data)
        self._at = at
        self._flexible = flexible
        self._what = what

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """Several fields of constant size at once."""
        at = self._skip(layout.size)
        return layout.unpack_from(self._data, at)

    def int8(self) -> int:
        return int(_INT8.unpack_from(self._data, self._skip(1))[0])

    def int16(self) -> int:
        return int(_INT16.unpack_from(self._data, self._skip(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack_from(self._data, self._skip(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack_from(self._data, self._skip(8))[0])

    def uuid(self) -> UUID | None:
        at = self._skip(16)
        content = bytes(self._data[at : at + 16])
        return None if content == p.ZERO_UUID else UUID(bytes=content)

    def nullable_string(self) -> str | None:
        length = self._length(short=True)
        if length < 0:
            return None
        at = self._skip(length)
        try:
            return str(self._data[at : at + length], "utf-8")
        except UnicodeDecodeError:
            raise self.malformed("a string that is not UTF-8") from None

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise self.malformed("null where a string must be")
        return text

    def nullable_view(self) -> memoryview | None:
        """Bytes as a view of the frame."""
        length = self._length(short=False)
        if length < 0:
            return None
        at = self._skip(length)
        return self._data[at : at + length]

    def nullable_count(self, least: int) -> int:
        """How many items follow, each of at least `least` bytes; -1 for null."""
        count = self._length(short=False)
        if count > 0:
            try:
                self._source.take(count, self._at, least)
            except MalformedFrame as error:
                raise self.malformed(error.what) from None
        return count

    def count(self, least: int) -> int:
        count = self.nullable_count(least)
        if count < 0:
            raise self.malformed("null where an array must be")
        return count

    def int32s(self) -> tuple[int, ...]:
        count = self.count(4)
        return struct.unpack_from(f">{count}i", self._data, self._skip(4 * count))

    def tags(self, known: dict[int, Callable[[Cursor], None]] | None = None) -> None:
        """Read the tagged fields in `known` and skip the others. Does nothing in a message without tagged fields."""
        if not self._flexible:
            return
        for _ in range(self._counted_tags()):
            tag, size = self._uvarint(), self._uvarint()
            end = self._skip(size) + size
            if known is not None and tag in known:
                self._at = end - size
                known[tag](self)
                if self._at != end:
                    raise self.malformed(f"tag {tag} that says {size} bytes and has {size + self._at - end}")

    def malformed(self, found: str) -> MalformedFrame:
        return MalformedFrame(f"{self._what} at byte {self._at}: {found}")

    def _counted_tags(self) -> int:
        count = self._uvarint()
        try:
            self._source.take(count, self._at, 2)
        except MalformedFrame as error:
            raise self.malformed(error.what) from None
        return count

    def _length(self, *, short: bool) -> int:
        if self._flexible:
            return self._uvarint() - 1
        length = self.int16() if short else self.int32()
        if length < -1:
            raise self.malformed(f"a length of {length}")
        return length

    def _uvarint(self) -> int:
        try:
            value, self._at = p.read_uvarint(self._source, self._at)
        except IndexError:
            raise self.malformed("the bytes end too early") from None
        except MalformedFrame as error:
            raise self.malformed(error.what) from None
        return value

    def _skip(self, length: int) -> int:
        at = self._at
        if length > self._source.end - at:
            raise self.malformed(f"{length} bytes wanted and {self._source.end - at} left")
        self._at = at + length
        return at


class Sink:
    """A message being written, as parts. `finish` puts the size in front."""

    __slots__ = ("_flexible", "_head", "_parts", "out")

    def __init__(self, head: bytearray, *, flexible: bool) -> None:
        self._head = head
        self._parts: list[Part] = []
        self.out = head
        """The buffer that small fields are appended to."""
        self._flexible = flexible

    def string(self, text: str | None) -> None:
        content = None if text is None else text.encode()
        length = -1 if content is None else len(content)
        if self._flexible:
            p.write_compact_length(self.out, length)
        else:
            p.write_int16_length(self.out, length)
        if content is not None:
            self.out += content

    def uuid(self, value: UUID | None) -> None:
        p.write_uuid(self.out, value)

    def count(self, count: int) -> None:
        """A number of items, or a length of bytes; -1 is null."""
        if self._flexible:
            p.write_compact_length(self.out, count)
        else:
            p.write_int32_length(self.out, count)

    def parts(self, parts: tuple[Part, ...] | None) -> None:
        """Records, as they are."""
        if parts is None:
            self.count(-1)
            return
        self.count(sum(len(part) for part in parts))
        if parts:
            self._parts += (self.out, *parts)
            self.out = bytearray()

    def tags(self, tags: tuple[tuple[int, bytes], ...] = ()) -> None:
        if not self._flexible:
            return
        p.write_uvarint(self.out, len(tags))
        for tag, content in tags:
            p.write_uvarint(self.out, tag)
            p.write_uvarint(self.out, len(content))
            self.out += content

    def finish(self) -> list[Part]:
        self._parts.append(self.out)
        _INT32.pack_into(self._head, 0, sum(len(part) for part in self._parts) - 4)
        return [part for part in self._parts if len(part)]


def join(parts: list[Part]) -> bytes:
    """Parts as one piece. For parts in memory only."""
    assert not any(isinstance(part, FileSlice) for part in parts), "a file's slice is sent, not joined"
    return b"".join(parts)  # type: ignore[arg-type]  # asserted above
