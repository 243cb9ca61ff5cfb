"""Record batches of magic 2 from records: for `holdfast produce`, and for tests that need every kind of batch.

Plain Python, a few hundred thousand records a second; bulk producing goes through librdkafka. The caller sets the
offsets: 0, 1, 2 … when sending to a broker, while a stored log starts anywhere and may have gaps.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from crc32c import crc32c

from holdfast.model import HoldfastError
from holdfast.records.batch import Record
from holdfast.records.compression import Codec, compress
from holdfast.records.header import (
    CONTROL,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL,
)

_CRC = struct.Struct(">I")
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """Who wrote a batch: set by idempotent and transactional producers."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    base_sequence: int = -1


NO_PRODUCER = Producer()


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    codec: int = Codec.NONE,
    producer: Producer = NO_PRODUCER,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    delete_horizon: int | None = None,
    leader_epoch: int = -1,
) -> bytes:
    """One batch of `records`, whose offsets rise.

    `base_offset` and `last_offset` may lie outside the records' own, as compaction leaves them; without records they
    are required. `log_append_time` stamps the whole batch (timestamp type 1).
    """
    base, last = _offset_range(records, base_offset, last_offset)
    first_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    base_timestamp = first_timestamp if delete_horizon is None else delete_horizon
    raw = b"".join(_encode_record(record, base, base_timestamp) for record in records)
    section = compress(codec, raw)
    attributes = codec
    attributes |= LOG_APPEND_TIME if log_append_time is not None else 0
    attributes |= TRANSACTIONAL if transactional else 0
    attributes |= CONTROL if control else 0
    attributes |= DELETE_HORIZON if delete_horizon is not None else 0
    newest = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    header = HEADER.pack(
        base,
        HEADER_BYTES - LENGTH_PREFIX_BYTES + len(section),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last - base,
        base_timestamp,
        newest if log_append_time is None else log_append_time,
        producer.producer_id,
        producer.epoch,
        producer.base_sequence,
        len(records),
    )
    return with_crc(header + section)


def encode_marker(
    *,
    offset: int,
    timestamp: int,
    producer: Producer,
    commit: bool,
    coordinator_epoch: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch that ends a transaction."""
    record = Record(
        offset=offset,
        timestamp=timestamp,
        key=_MARKER_KEY.pack(0, 1 if commit else 0),
        value=_MARKER_VALUE.pack(0, coordinator_epoch),
    )
    return encode_batch([record], producer=producer, transactional=True, control=True, leader_epoch=leader_epoch)


def with_crc(batch: bytes) -> bytes:
    """The batch with a newly computed checksum."""
    return batch[: CRC_FROM - 4] + _CRC.pack(crc32c(memoryview(batch)[CRC_FROM:])) + batch[CRC_FROM:]


def _offset_range(records: Sequence[Record], base: int | None, last: int | None) -> tuple[int, int]:
    if not records and (base is None or last is None):
        raise _unencodable("A batch without records needs base_offset and last_offset.")
    base = records[0].offset if base is None else base
    last = records[-1].offset if last is None else last
    offsets = [base - 1, *(record.offset for record in records), last + 1]
    if base < 0 or last - base > _INT32_MAX or any(a >= b for a, b in pairwise(offsets)):
        raise _unencodable(f"Offsets must rise between {base} and {last}, and span less than 2^31.")
    return base, last


def _encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    parts = [b"\0", _varint(record.timestamp - base_timestamp), _varint(record.offset - base_offset)]
    parts += (_sized(record.key), _sized(record.value), _varint(len(record.headers)))
    for key, value in record.headers:
        parts += (_sized(key.encode()), _sized(value))
    body = b"".join(parts)
    return _varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """Zigzag: small numbers of either sign take few bytes."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    if rest >> 64:
        raise _unencodable(f"{value} does not fit 64 bits.")
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _unencodable(what: str) -> HoldfastError:
    return HoldfastError("UNENCODABLE_BATCH", what, "Split the records into several batches, or correct them.")
