"""Record batches of magic 2, the only format since Kafka 4: headers, checksum, and a plain iterator over records.

The iterator makes Python objects, one record at a time: for small uses (a tool's output, the coordinator's own log) and
as the oracle that the compiled path in `kernel` is compared with. Both hold the same rules:

- every length is checked against the bytes that are there, before anything is read or allocated;
- offsets rise within a batch and stay within what its header says; a record ends where its length says; nothing
  follows the last record.

This module must not know groups, logs or sockets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.model import HoldfastError, TopicPartition
from holdfast.records.compression import LIMITS, ByteView, Limits, decompress
from holdfast.records.header import (
    CONTROL,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    BatchHeader,
    matches_crc,
    parse_header,
)
from holdfast.records.transactions import AbortedTransactions

_INT64_MAX = 2**63 - 1
_MARKER_KEY = struct.Struct(">hh")
_ABORT = 0


class Unreadable(HoldfastError):
    """A batch of some partition that can't be read, and where it is."""

    def __init__(self, error: HoldfastError, partition: TopicPartition, offset: int) -> None:
        super().__init__(error.code, f"{partition} at offset {offset}: {error.what}", error.do)
        self.partition = partition
        self.offset = offset


class Header(NamedTuple):
    """A key may come several times; the value may be null."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """One record. A tuple and not a dataclass: iterating makes one for each."""

    offset: int
    timestamp: int
    """Milliseconds since 1970, of the type that the batch says."""
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def iter_headers(records: ByteView) -> Iterator[BatchHeader]:
    """The whole batches of a Fetch answer or a log segment. A cut last batch is normal: iteration ends before it."""
    at, end = 0, len(records)
    while end - at > MAGIC_AT:
        magic = records[at + MAGIC_AT]
        if magic != MAGIC:
            raise _old_format(magic)
        if end - at < HEADER_BYTES:
            return
        header = parse_header(records, at)
        first, records_there, last_delta = header.base_offset, header.record_count, header.last_offset_delta
        if header.size < HEADER_BYTES:
            raise corrupt_batch(first, f"it claims a length of {header.length} bytes")
        if header.end > end:
            return
        if records_there < 0 or last_delta < 0 or not 0 <= first < _INT64_MAX - last_delta:
            raise corrupt_batch(first, f"it claims {records_there} records and a last offset delta of {last_delta}")
        yield header
        at = header.end


def verify_crc(records: ByteView, header: BatchHeader) -> None:
    """Raise unless the batch's CRC-32C is right. Nothing after the header may be trusted before that."""
    if not matches_crc(records, header):
        raise corrupt_batch(header.base_offset, "its checksum does not match its content")


def iter_records(
    records: ByteView,
    *,
    lo: int = 0,
    hi: int = _INT64_MAX,
    aborted: Iterable[tuple[int, int]] | None = None,
    limits: Limits = LIMITS,
) -> Iterator[Record]:
    """Records with `lo <= offset < hi` of all whole batches, without control records.

    `aborted` lists a Fetch answer's aborted transactions as (producer id, first offset): their records are left out.
    """
    dropped = AbortedTransactions(aborted or ())
    for header in iter_headers(records):
        if header.base_offset >= hi:
            return
        verify_crc(records, header)
        if note_batch(records, header, dropped) or header.next_offset <= lo:
            continue
        for record in batch_records(records, header, limits=limits):
            if lo <= record.offset < hi:
                yield record


def note_batch(records: ByteView, header: BatchHeader, aborted: AbortedTransactions) -> bool:
    """Note the next batch in `aborted`. True if users must not see it: control batches and aborted transactions."""
    if not header.attributes & (TRANSACTIONAL | CONTROL):
        return False
    if header.control:
        if is_abort_marker(records, header):
            aborted.note_abort_marker(producer_id=header.producer_id, offset=header.last_offset)
        return True
    return aborted.note_batch(producer_id=header.producer_id, last_offset=header.last_offset)


def is_abort_marker(records: ByteView, header: BatchHeader) -> bool:
    """Whether a control batch aborts a transaction. Other control batches (commit, quorum) don't matter here."""
    for record in batch_records(records, header):
        if record.key is None or len(record.key) < _MARKER_KEY.size:
            raise malformed_record(header.base_offset, "a control record without a type")
        return bool(_MARKER_KEY.unpack_from(record.key)[1] == _ABORT)
    return False  # compaction has emptied it


def batch_records(records: ByteView, header: BatchHeader, *, limits: Limits = LIMITS) -> Iterator[Record]:
    """All records of one batch whose checksum has been verified."""
    section = memoryview(records)[header.start + HEADER_BYTES : header.end]
    raw = bytes(section) if header.codec == 0 else decompress(header.codec, section, limits=limits)
    reader = _Reader(raw, header.base_offset)
    last_delta = -1
    for _ in range(header.record_count):
        record = _read_record(reader, header, last_delta)
        last_delta = record.offset - header.base_offset
        yield record
    if reader.at != len(raw):
        raise malformed_record(header.base_offset, "bytes follow the last record")


def _read_record(reader: _Reader, header: BatchHeader, last_delta: int) -> Record:
    length = reader.varint(5)
    stop = reader.at + length
    if length < 0 or stop > len(reader.data):
        raise reader.error("a record reaches beyond the end")
    reader.end = stop
    reader.skip(1)  # attributes, unused so far
    timestamp = header.base_timestamp + reader.varint(10)
    if not -_INT64_MAX - 1 <= timestamp <= _INT64_MAX:
        raise reader.error("a timestamp out of range")
    delta = reader.varint(5)
    if not last_delta < delta <= header.last_offset_delta:
        raise reader.error(f"offset delta {delta} after {last_delta}, the batch ends at {header.last_offset_delta}")
    key, value = reader.sized(), reader.sized()
    headers = tuple(_read_header(reader) for _ in range(reader.header_count()))
    if reader.at != stop:
        raise reader.error("a record is shorter than it says")
    reader.end = len(reader.data)
    if header.timestamp_type:
        timestamp = header.max_timestamp
    return Record(header.base_offset + delta, timestamp, key, value, headers)


def _read_header(reader: _Reader) -> Header:
    key = reader.sized()
    if key is None:
        raise reader.error("a header without a key")
    return Header(key.decode("utf-8", "replace"), reader.sized())  # Java replaces what is not UTF-8, too


class _Reader:
    """A position in a records section; `end` is the end of the record being read."""

    __slots__ = ("at", "base_offset", "data", "end")

    def __init__(self, data: bytes, base_offset: int) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)
        self.base_offset = base_offset

    def varint(self, max_bytes: int) -> int:
        """A zigzag number: of 32 bits in at most 5 bytes, of 64 in at most 10."""
        value = 0
        for index in range(max_bytes):
            if self.at >= self.end:
                raise self.error("a number reaches beyond the end")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                break
        else:
            raise self.error("a number is too long")
        if value >> (32 if max_bytes == 5 else 64):
            raise self.error("a number is too large")
        return (value >> 1) ^ -(value & 1)

    def sized(self) -> bytes | None:
        size = self.varint(5)
        if size == -1:
            return None
        start = self.at
        self.skip(size)
        return self.data[start : self.at]

    def skip(self, size: int) -> None:
        if size < 0 or size > self.end - self.at:
            raise self.error(f"{size} bytes claimed, {self.end - self.at} left")
        self.at += size

    def header_count(self) -> int:
        count = self.varint(5)
        if count < 0 or count > (self.end - self.at) // 2:  # an empty header has two bytes
            raise self.error(f"{count} headers claimed")
        return count

    def error(self, found: str) -> HoldfastError:
        return malformed_record(self.base_offset, f"{found} (byte {self.at} of {len(self.data)})")


def corrupt_batch(base_offset: int, found: str) -> HoldfastError:
    """Bytes were damaged on the way or on disk."""
    return HoldfastError(
        "CORRUPT_BATCH",
        f"The record batch at offset {base_offset} is damaged: {found}.",
        "Fetch it again; if that does not help, the broker's copy is damaged: seek past it or restore the replica.",
    )


def malformed_record(base_offset: int, found: str) -> HoldfastError:
    """The checksum is right but the content is not: a faulty or hostile producer."""
    return HoldfastError(
        "MALFORMED_RECORD",
        f"The record batch at offset {base_offset} can't be read: {found}.",
        "Its checksum is right, so its producer wrote it that way: seek past it and check the producer.",
    )


def _old_format(magic: int) -> HoldfastError:
    if magic > MAGIC:
        return HoldfastError(
            "UNSUPPORTED_MESSAGE_FORMAT",
            f"The bytes are not a record batch of a known format: magic {magic}.",
            "Check that what you read is Kafka's log format; the newest is magic 2.",
        )
    return HoldfastError(
        "UNSUPPORTED_MESSAGE_FORMAT",
        f"The topic holds messages in the old format (magic {magic}), which Kafka 4 has dropped.",
        "Let a broker before 4.0 rewrite it (message.format.version 0.11 or later, then compact or copy the topic).",
    )
