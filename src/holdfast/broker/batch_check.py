"""Checks the records in a produced batch, so that no batch is stored that every reader would fail on.

As in Kafka, every batch is unpacked and walked through before it is appended: its compression, the number of records
and their lengths must be as declared, and offsets must rise by one. Small batches are checked on the event loop. A
batch that unpacks to a lot, or is compressed in very many pieces, is checked in a thread, one at a time. Once compiled
code is available (`compiled_check`), it accepts sound batches; Python checks the others and finds out what is wrong.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast.broker.compiled_check import CompiledCheck
from holdfast.broker.slices import CHECK, PAUSE, InThread, Steps
from holdfast.broker.storage.batch import check_produced
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.files import Buffer
from holdfast.model import ErrorCode, HoldfastError
from holdfast.records.header import HEADER_BYTES, MAGIC, TRANSACTIONAL, matches_crc, parse_header

if TYPE_CHECKING:
    from holdfast.records.compression import Limits

ON_THE_SPOT_BYTES = 512 * 1024
"""A batch that unpacks to at most this is checked on the loop: 2 to 3 ms with the slowest codec."""

COPIED_BYTES = 1024 * 1024
"""Records up to this size are copied before Python walks through them (`_walk`)."""
COMPILED_BYTES = 4 * 1024 * 1024
"""Uncompressed records up to this size are checked by compiled code on the loop: at most 6 ms, with 7-byte records."""
MOST_BYTES = 64 * 1024 * 1024
"""The most that a batch may unpack to: one batch at a time is held unpacked. Readers have the same limit."""


def inspect(payload: Buffer, compiled: CompiledCheck, *, max_bytes: int) -> Steps:
    """Raises the error that Kafka would answer, unless this is one sound batch."""
    header = check_produced(payload, max_bytes=max_bytes)
    view = memoryview(payload)[HEADER_BYTES:]
    if header.codec == 0:
        if compiled.ready and len(view) > COMPILED_BYTES:
            yield InThread(lambda: _in_thread(payload, view, compiled), CHECK)
        else:
            yield from _look(payload, view, compiled)
        return
    from holdfast.records.compression import Limits, has_many_pieces  # loads the codecs

    few, many = (Limits(max_bytes=most) for most in (ON_THE_SPOT_BYTES, MOST_BYTES))
    try:
        long = len(view) > ON_THE_SPOT_BYTES or has_many_pieces(header.codec, view)
        unpacked = None if long else _unpack(header.codec, view, few)
    except StorageError as refused:
        if refused.error is not ErrorCode.MESSAGE_TOO_LARGE:
            raise
        unpacked = None
    if unpacked is not None:
        yield from _look(payload, unpacked, compiled)
    else:
        codec = header.codec
        yield InThread(lambda: _in_thread(payload, _unpack(codec, view, many), compiled), CHECK)
        compiled.walked(header.record_count)


def is_batch(payload: Buffer) -> bool:
    """Whether this is one batch with the right checksum, whatever else is wrong with it."""
    if len(payload) < HEADER_BYTES:
        return False
    header = parse_header(payload)
    whole = header.magic == MAGIC and header.size == len(payload)
    return whole and matches_crc(payload, header)


def is_transactional(payload: Buffer) -> bool:
    if len(payload) < HEADER_BYTES:
        return False
    header = parse_header(payload)
    return header.magic == MAGIC and bool(header.attributes & TRANSACTIONAL)


def _unpack(codec: int, view: memoryview, limits: Limits) -> Buffer:
    from holdfast.records.walk import unpack

    try:
        return unpack(codec, view, limits=limits)
    except HoldfastError as error:
        if error.code == "DECOMPRESSION_TOO_LARGE":
            do = "Send smaller batches, or compress less."
            raise StorageError(ErrorCode.MESSAGE_TOO_LARGE, error.what, do) from None
        # Kafka answers UNKNOWN_SERVER_ERROR here. CORRUPT_MESSAGE would make producers send it again and again.
        do = "Check the producer: its batches are not compressed as their headers say."
        raise StorageError(ErrorCode.INVALID_RECORD, error.what, do) from None


def _look(payload: Buffer, records: Buffer, compiled: CompiledCheck) -> Steps:
    header = parse_header(payload)
    if not compiled.sound(header.record_count, header.base_timestamp, records):
        yield from _walk(payload, records)
        compiled.walked(header.record_count)


def _walk(payload: Buffer, records: Buffer) -> Steps:
    from holdfast.records.walk import Walk

    # Python reads single bytes from `bytes` a seventh faster than from a view, and copying a megabyte costs far less.
    data = bytes(records) if len(records) <= COPIED_BYTES else records
    walk = Walk(parse_header(payload), data)
    try:
        while not walk.check():
            yield PAUSE
    except HoldfastError as error:
        do = "Check the producer: its batches are not what their headers say."
        raise StorageError(ErrorCode.INVALID_RECORD, error.what, do) from None


def _in_thread(payload: Buffer, records: Buffer, compiled: CompiledCheck) -> None:
    """The same in a thread. It yields the GIL between pieces, because the loop needs it too."""
    header = parse_header(payload)
    if not compiled.sound(header.record_count, header.base_timestamp, records):
        for _ in _walk(payload, records):
            time.sleep(0)
