"""The sparse index of a segment: one entry for about every 4 KiB of log, with three rising columns.

An entry says: the batch with this base offset starts at this position, and everything before it in the segment has at
most this timestamp. So one table answers both "where is offset N" and "where may time T start". It is only a shortcut:
readers go on from there by batch headers, and a missing or damaged index file is rebuilt from the log.

On disk an index also records how much of the log it covers and the producers' state there, which is what makes
opening a partition cheap: only what lies after that point is scanned.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from crc32c import crc32c

INDEX_INTERVAL_BYTES = 4096
"""Bytes between entries, as Kafka's index.interval.bytes: a walk reads one page at most. In memory 6 MiB of index for
each GiB of log in tiny batches, 1.5 MiB in batches of 16 KiB."""

NO_TIMESTAMP = -1

_HEAD = struct.Struct("<4sHHqqqqII")
_MAGIC = b"HFIX"
_VERSION = 1
_COLUMN = "q"

HEAD_BYTES = _HEAD.size


class SparseIndex:
    """Three columns, kept as machine integers."""

    __slots__ = ("max_before", "offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array(_COLUMN)
        self.positions = array(_COLUMN)
        self.max_before = array(_COLUMN)

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, position: int, max_before: int) -> None:
        self.offsets.append(offset)
        self.positions.append(position)
        self.max_before.append(max_before)

    def at_offset(self, offset: int) -> int:
        """Number of the last entry at or before `offset`; 0 when there is none, which is where a walk starts anyway."""
        return max(bisect_right(self.offsets, offset) - 1, 0)

    def at_position(self, position: int) -> int:
        """Number of the last entry at or before the byte `position`."""
        return max(bisect_right(self.positions, position) - 1, 0)

    def at_time(self, timestamp: int) -> int:
        """Number of the last entry before which everything is older than `timestamp`."""
        return max(bisect_left(self.max_before, timestamp) - 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """What an index file holds. `covered` is how many bytes of the log it describes; the log may have grown since."""

    base_offset: int
    covered: int
    end_offset: int
    max_timestamp: int
    index: SparseIndex
    producers: bytes
    """Opaque here: the producers' state at `end_offset`."""

    def dump(self) -> bytes:
        columns = (self.index.offsets, self.index.positions, self.index.max_before)
        body = b"".join(_little(column).tobytes() for column in columns) + self.producers
        numbers = (self.base_offset, self.covered, self.end_offset, self.max_timestamp)
        head = _HEAD.pack(_MAGIC, _VERSION, 0, *numbers, len(self.index), len(self.producers))
        return head + body + struct.pack("<I", crc32c(body, crc32c(head)))


def end_promised(head: bytes, *, log_bytes: int) -> int | None:
    """The offset behind a log of `log_bytes`, by the first bytes of its index; None if they don't describe all of it.

    A cheap hint whether a log has its full length: the checksum is not verified.
    """
    if len(head) < _HEAD.size:
        return None
    magic, version, _, _, covered, end_offset, *_ = _HEAD.unpack(head)
    return int(end_offset) if magic == _MAGIC and version == _VERSION and covered == log_bytes else None


def load_index(data: bytes, *, base_offset: int, log_bytes: int) -> IndexFile | None:
    """The index in `data`, or None if it is torn, damaged, of another version or does not fit a log of `log_bytes`."""
    if len(data) < _HEAD.size + 4:
        return None
    magic, version, _, base, covered, end_offset, max_timestamp, count, tail = _HEAD.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or len(data) != _HEAD.size + 24 * count + tail + 4:
        return None
    if crc32c(memoryview(data)[:-4]) != int.from_bytes(data[-4:], "little"):
        return None
    if base != base_offset or covered > log_bytes or (covered > 0) != (count > 0):
        return None
    index = SparseIndex()
    position = _HEAD.size
    for column in (index.offsets, index.positions, index.max_before):
        column.frombytes(data[position : position + 8 * count])
        position += 8 * count
        if sys.byteorder == "big":
            column.byteswap()
    return IndexFile(
        base_offset=base,
        covered=covered,
        end_offset=end_offset,
        max_timestamp=max_timestamp,
        index=index,
        producers=data[position:-4],
    )


def _little(column: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return column
    swapped = array(_COLUMN, column)
    swapped.byteswap()
    return swapped
