"""The header of a record batch (Kafka's format v2, magic 2): its bytes, and a value that holds one.

Layout, big-endian, 61 bytes: base offset 8, length 4, leader epoch 4, magic 1, crc 4, attributes 2, last offset delta
4, base timestamp 8, max timestamp 8, producer id 8, producer epoch 2, base sequence 4, record count 4; then the
records. The length counts from after itself; the CRC-32C covers from the attributes on. So offset and epoch can be
stamped without touching the checksum, the append time can't.

Nothing is checked here, and nothing else of ours is imported: the broker loads this at its start.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LENGTH_PREFIX_BYTES = 12
"""Base offset and length: what the length field does not count."""
CRC_FROM = 21
"""The checksum covers from here to the end: a broker sets offset and epoch without computing it again."""
MAGIC_AT = 16
MAGIC = 2
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40


class BatchHeader(NamedTuple):
    """The fields in their order on the wire, and where the batch begins. A tuple: one is made for every batch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    start: int = 0
    """Where the batch begins in the buffer that it was read from."""

    @property
    def size(self) -> int:
        return LENGTH_PREFIX_BYTES + self.length

    @property
    def end(self) -> int:
        """Where it ends in that buffer."""
        return self.start + LENGTH_PREFIX_BYTES + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Where to read on after this batch, also when compaction emptied its end."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2^31 - 1 to 0."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        """A `Codec`, or a number that Kafka does not define."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0: set by the producer (CreateTime). 1: set by the broker (LogAppendTime), one for the whole batch."""
        return 1 if self.attributes & LOG_APPEND_TIME else 0

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Holds a transaction's marker, and no records for users."""
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon(self) -> int | None:
        """When compaction may drop this batch's tombstones (KIP-534); it then stands in the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


def parse_header(data: bytes | bytearray | memoryview, at: int = 0) -> BatchHeader:
    """The header at this position; the caller made sure that 61 bytes are there."""
    return BatchHeader._make((*HEADER.unpack_from(data, at), at))


def matches_crc(data: bytes | bytearray | memoryview, header: BatchHeader) -> bool:
    """Whether the batch's CRC-32C is right. Nothing after the header may be trusted before that."""
    return crc32c(memoryview(data)[header.start + CRC_FROM : header.end]) == header.crc
