"""A produced batch: checked by its header, and stamped, without decoding a single record.

The checks and their order follow Kafka's (ProduceRequest, UnifiedLog, LogValidator), so that a client sees the same
code. Records inside are not looked at here: what a producer says of them is checked before (`broker.batch_check`).
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from holdfast.broker.storage.config import LogConfig
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.files import Buffer
from holdfast.model import ErrorCode
from holdfast.records.header import (
    CONTROL,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    matches_crc,
    parse_header,
)

LEADER_EPOCH = 0
"""One broker, one leader for ever. It is checked when a log is scanned, since the checksum does not cover it."""
LAST_CODEC = 4
"""none, gzip, snappy, lz4, zstd."""

SMALLEST_LEGACY_RECORD = 14
"""Below this Kafka calls the length itself corrupt, whatever the magic (LegacyRecord overhead of v0)."""

_STAMP = struct.Struct(">qiibIh")
_PREFIX = struct.Struct(">qiib")
_TIMES = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35


def _refuse(error: ErrorCode, what: str) -> StorageError:
    return StorageError(error, what, "Send one valid record batch of format v2 per partition.")


def check_produced(payload: Buffer, *, max_bytes: int) -> BatchHeader:
    """Accept exactly one well-formed batch from a client, or raise with the code that Kafka would answer."""
    size = len(payload)
    if size < HEADER_BYTES:
        raise _too_short(payload)
    header = parse_header(payload)
    if header.magic != MAGIC or LENGTH_PREFIX_BYTES + header.length != size:
        raise _not_one_batch(header, size)
    _check_header(header, size, max_bytes)
    if not matches_crc(payload, header):
        raise _refuse(ErrorCode.CORRUPT_MESSAGE, "The batch does not match its checksum.")
    check_origin(header)
    return header


def _too_short(payload: Buffer) -> StorageError:
    """Shorter than a header of v2; perhaps a whole record of an older format."""
    if len(payload) < _PREFIX.size:
        return _refuse(ErrorCode.INVALID_RECORD, "The produced data holds no record batch.")
    _, length, _, magic = _PREFIX.unpack_from(payload)
    if length < SMALLEST_LEGACY_RECORD or not 0 <= magic <= MAGIC:
        return _refuse(ErrorCode.CORRUPT_MESSAGE, f"The batch has length {length} and magic {magic}.")
    if magic != MAGIC:
        return _refuse(ErrorCode.INVALID_RECORD, f"Record format v{magic} is not accepted, only v{MAGIC}.")
    if LENGTH_PREFIX_BYTES + length > len(payload):
        return _refuse(ErrorCode.INVALID_RECORD, "The record batch is incomplete.")
    return _refuse(ErrorCode.CORRUPT_MESSAGE, "The batch is smaller than its header.")


def _not_one_batch(header: BatchHeader, size: int) -> StorageError:
    if header.length < SMALLEST_LEGACY_RECORD or not 0 <= header.magic <= MAGIC:
        return _refuse(ErrorCode.CORRUPT_MESSAGE, f"The batch has length {header.length} and magic {header.magic}.")
    if header.magic != MAGIC:
        return _refuse(ErrorCode.INVALID_RECORD, f"Record format v{header.magic} is not accepted, only v{MAGIC}.")
    if header.size > size:
        return _refuse(ErrorCode.INVALID_RECORD, "The record batch is incomplete.")
    if header.size < HEADER_BYTES:
        return _refuse(ErrorCode.CORRUPT_MESSAGE, "The batch is smaller than its header.")
    return _refuse(ErrorCode.INVALID_RECORD, "The produced data holds more than one record batch.")


def _check_header(header: BatchHeader, size: int, max_bytes: int) -> None:
    if header.base_offset != 0:
        raise _refuse(ErrorCode.INVALID_RECORD, f"The base offset is {header.base_offset}; a producer sends 0.")
    if size > max_bytes:
        what = f"The batch of {size} bytes is larger than max.message.bytes ({max_bytes})."
        raise StorageError(ErrorCode.MESSAGE_TOO_LARGE, what, "Send smaller batches or raise the topic's setting.")
    if header.codec > LAST_CODEC:
        raise _refuse(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Compression {header.codec} is not known.")


def check_origin(header: BatchHeader) -> None:
    """What a client may not send. The checksum covers these fields, so they are checked after it."""
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        what = f"The batch says {header.record_count} records but spans {header.last_offset_delta + 1} offsets."
        raise _refuse(ErrorCode.INVALID_RECORD, what)
    if header.attributes & (CONTROL | TRANSACTIONAL):
        raise _refuse(ErrorCode.INVALID_RECORD, "Transactions and control records are not accepted by this broker.")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise _refuse(ErrorCode.INVALID_RECORD, "An idempotent producer must number its batches from 0.")


def check_time(header: BatchHeader, config: LogConfig, now: int) -> None:
    """Refuse a batch whose times this topic does not take."""
    if config.append_time:
        if header.attributes & LOG_APPEND_TIME:
            what = "The batch claims to have the broker's append time already."
            raise StorageError(ErrorCode.INVALID_TIMESTAMP, what, "Send batches with CreateTime.")
        return
    if header.max_timestamp > now + config.timestamp_after_max_ms:
        what = f"The batch's timestamp {header.max_timestamp} lies too far in the future (now: {now})."
        do = "Set the producer's clock, or raise message.timestamp.after.max.ms."
        raise StorageError(ErrorCode.INVALID_TIMESTAMP, what, do)


def stamp(payload: Buffer, header: BatchHeader, *, offset: int, append_time: int | None) -> list[Buffer]:
    """The batch as it is stored: our offset and epoch, and with `append_time` the topic's time instead of the sender's.

    A sender's flag that its times are the broker's is cleared, as in Kafka. Returned as buffers for one vectored write;
    the records themselves are never copied.
    """
    view = memoryview(payload)
    if append_time is None and not header.attributes & LOG_APPEND_TIME:
        return [_PREFIX.pack(offset, header.length, LEADER_EPOCH, MAGIC), view[_PREFIX.size :]]
    middle = bytearray(view[23:HEADER_BYTES])
    attributes = header.attributes & ~LOG_APPEND_TIME
    if append_time is not None:
        _TIMES.pack_into(middle, _MAX_TIMESTAMP_AT - 23, append_time)
        attributes |= LOG_APPEND_TIME
    crc = crc32c(view[HEADER_BYTES:], crc32c(middle, crc32c(struct.pack(">h", attributes))))
    first = _STAMP.pack(offset, header.length, LEADER_EPOCH, MAGIC, crc, attributes)
    return [first, middle, view[HEADER_BYTES:]]
