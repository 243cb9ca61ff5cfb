"""Walks through a batch's records without making objects: checks that they are well-formed, or finds the first record
of a given time or later.

The rules are those of `batch`. This is the fast form for a broker, which checks every batch it receives and does not
need its records. A walk continues where it stopped, so that a long batch can be walked in pieces.
"""

from __future__ import annotations

from holdfast.model import HoldfastError
from holdfast.records.batch import malformed_record
from holdfast.records.compression import LIMITS, ByteView, Codec, Limits, decompress_into, room_for
from holdfast.records.header import HEADER_BYTES, BatchHeader

PIECE = 4_000
"""Records walked in one go: about 3 ms."""


_FAR_TIME = 2**62
"""Milliseconds since 1970. If a batch's base timestamp is nearer to 1970 than this, only differences of nine or ten
bytes can overflow 64 bits."""


def unpack(codec: int, section: ByteView, *, limits: Limits = LIMITS) -> ByteView:
    """A batch's records section, decompressed, without another copy."""
    if codec == Codec.NONE:
        return section
    view = room_for(limits)
    return view[: decompress_into(codec, section, view)]


class Walk:
    """A position in the records of one batch."""

    __slots__ = ("_at", "_data", "_header", "_index", "found_offset", "found_time")

    def __init__(self, header: BatchHeader, data: ByteView) -> None:
        """`data` is the records section, unpacked."""
        self._header = header
        self._data = data
        self._at = 0
        self._index = 0
        self.found_offset = -1
        self.found_time = -1

    @property
    def done(self) -> bool:
        return self._index >= self._header.record_count

    def check(self, most: int = PIECE) -> bool:
        """Check the next records. True when the whole batch is checked. Raises MALFORMED_RECORD."""
        at, index = self._at, self._index
        try:
            self._check(min(self._index + most, self._header.record_count))
        except IndexError:
            raise self._wrong("a record reaches beyond the end", self._index) from None
        if abs(self._header.base_timestamp) > _FAR_TIME:
            self._check_times(at, index)
        if not self.done:
            return False
        if self._at != len(self._data):
            raise self._wrong("bytes follow the last record", self._index)
        return True

    def _check(self, until: int) -> None:  # noqa: C901  # unrolled: see below
        """One long function, unrolled and with local names: it runs for every record received, so every call and
        attribute look-up in it costs producers throughput."""
        data, at, index = self._data, self._at, self._index
        end = len(data)
        while index < until:
            size = data[at]
            at += 1
            if size > 127:
                more = data[at]
                if more < 128:
                    size = size & 127 | more << 7
                    at += 1
                else:
                    size, at = _long(data, at, size)
            stop = at + (size >> 1)
            if size & 1 or stop > end:
                raise self._wrong("a record reaches beyond the end", index)
            at += 1  # attributes, unused so far
            if data[at] > 127:
                at += 1
                if data[at] > 127:
                    at = self._skip_time(at, index)
            delta = data[at + 1]
            at += 2
            if delta > 127:
                more = data[at]
                if more < 128:
                    delta = delta & 127 | more << 7
                    at += 1
                else:
                    delta, at = _long(data, at, delta)
            if delta != index + index:
                raise self._wrong("its offsets do not rise by one", index)
            size = data[at]  # the key's
            at += 1
            if size > 127:
                more = data[at]
                if more < 128:
                    size = size & 127 | more << 7
                    at += 1
                else:
                    size, at = _long(data, at, size)
            if not size & 1:
                at += size >> 1
            elif size != 1:
                raise self._wrong("a key of negative length", index)
            size = data[at]  # the value's
            at += 1
            if size > 127:
                more = data[at]
                if more < 128:
                    size = size & 127 | more << 7
                    at += 1
                else:
                    size, at = _long(data, at, size)
            if not size & 1:
                at += size >> 1
            elif size != 1:
                raise self._wrong("a value of negative length", index)
            if at >= stop:
                raise self._wrong("a record is longer than it says", index)
            if data[at]:
                at = self._headers(at, stop, index)
            else:
                at += 1
            if at != stop:
                raise self._wrong("a record does not end where it says", index)
            index += 1
        self._at, self._index = at, index

    def _skip_time(self, at: int, index: int) -> int:
        """The position of the last byte of a timestamp that is longer than two bytes; `at` is its second byte."""
        first, data = at - 1, self._data
        while data[at] > 127:
            at += 1
        if at - first > 9 or (at - first == 9 and data[at] > 1):
            raise self._wrong("a time of more than 64 bits", index)
        if at - first > 7:  # shorter ones can't overflow; bases beyond _FAR_TIME are checked separately
            self._check_time(first, index)
        return at

    def _check_times(self, at: int, index: int) -> None:
        """Check all timestamps of the records from here to the walk's position, whose other fields are checked."""
        while index < self._index:
            size, at = _long(self._data, at, 0, first=True)
            self._check_time(at + 1, index)
            at, index = at + (size >> 1), index + 1

    def _check_time(self, at: int, index: int) -> None:
        time, _ = _number(self._data, at)
        if not -_FAR_TIME * 2 <= self._header.base_timestamp + time < _FAR_TIME * 2:
            raise self._wrong("a time that does not fit", index)

    def _headers(self, at: int, stop: int, index: int) -> int:
        data = self._data
        count, at = _long(data, at, 0, first=True)
        if count & 1 or count >> 1 > stop - at:
            raise self._wrong("a number of headers that can't be", index)
        for _ in range(count >> 1):
            for null in (False, True):  # a header has a key; its value may be missing
                size, at = _long(data, at, 0, first=True)
                if size & 1:
                    if size != 1 or not null:
                        raise self._wrong("a header without a key", index)
                else:
                    at += size >> 1
                if at > stop:
                    raise self._wrong("a header reaches beyond its record", index)
        return at

    def find(self, timestamp: int, least_offset: int, most: int = PIECE) -> bool:
        """Look at the next records for the first at `timestamp` or later and at `least_offset` or later.

        True when the search is over: `found_offset` says where, -1 nowhere. Raises MALFORMED_RECORD.
        """
        data, header = self._data, self._header
        until = min(self._index + most, header.record_count)
        try:
            while self._index < until:
                size, at = _long(data, self._at, 0, first=True)
                stop = at + (size >> 1)
                if size & 1 or stop > len(data):
                    raise self._wrong("a record reaches beyond the end", self._index)
                time, at = _number(data, at + 1)
                delta, _ = _long(data, at, 0, first=True)
                self._at, self._index = stop, self._index + 1
                offset = header.base_offset + (delta >> 1)
                if header.base_timestamp + time >= timestamp and offset >= least_offset:
                    self.found_offset, self.found_time = offset, header.base_timestamp + time
                    return True
        except IndexError:
            raise self._wrong("a record reaches beyond the end", self._index) from None
        return self.done

    def _wrong(self, found: str, index: int) -> HoldfastError:
        return malformed_record(self._header.base_offset, f"{found} (record {index})")


def _long(data: ByteView, at: int, low: int, *, first: bool = False) -> tuple[int, int]:
    """A number of more than one byte, still zigzag, whose first byte was `low`; with `first`, read that one too."""
    if first:
        low = data[at]
        at += 1
        if low < 128:
            return low, at
    value, shift = low & 127, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise IndexError("a number of more than 32 bits")
    return value, at


def _number(data: ByteView, at: int) -> tuple[int, int]:
    """A signed number of 64 bits."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise IndexError("a number of more than 64 bits")


def section_of(records: ByteView, header: BatchHeader) -> ByteView:
    """The part of a batch that holds its records, as it is stored."""
    return memoryview(records)[header.start + HEADER_BYTES : header.end]
