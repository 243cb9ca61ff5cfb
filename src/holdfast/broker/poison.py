"""Looking into what a producer sends, so that no batch is stored on which every reader would stumble.

Kafka unpacks and walks through every batch before it appends it, and so do we: the compression must be what the header
says, there must be as many records as it says, each as long as it says, with offsets that rise by one. Small batches
are looked at on the spot. A batch that unpacks to much, or is packed in very many pieces, is looked at in a thread, one
at a time. Machine code says yes to whole batches, once it is there (`quick`); Python says what is wrong with the
others.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from crc32c import crc32c

from holdfast.broker.quick import Quick
from holdfast.broker.slices import CHECK, PAUSE, InThread, Steps
from holdfast.broker.storage.batch import (
    CRC_FROM,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL,
    check_produced,
    parse_header,
)
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.files import Buffer
from holdfast.model import ErrorCode, HoldfastError

if TYPE_CHECKING:
    from holdfast.records.compression import Limits

ON_THE_SPOT_BYTES = 512 * 1024
"""What a batch may unpack to without leaving the loop: two milliseconds or three, with the slowest codec."""

COPIED_BYTES = 1024 * 1024
QUICK_BYTES = 4 * 1024 * 1024
"""What machine code may look at without leaving the loop: at most six milliseconds, with records of seven bytes."""
MOST_BYTES = 64 * 1024 * 1024
"""What it may unpack to at all: one batch at a time is held unpacked. Readers have the same bound."""


def inspect(payload: Buffer, quick: Quick, *, max_bytes: int) -> Steps:
    """Raises the refusal that Kafka would answer with, if this is not one sound batch."""
    header = check_produced(payload, max_bytes=max_bytes)
    view = memoryview(payload)[HEADER_BYTES:]
    if header.compression == 0:
        if quick.ready and len(view) > QUICK_BYTES:
            yield InThread(lambda: _in_thread(payload, view, quick), CHECK)
        else:
            yield from _look(payload, view, quick)
        return
    from holdfast.records.compression import Limits, has_many_pieces  # loads the codecs

    few, many = (Limits(max_bytes=most) for most in (ON_THE_SPOT_BYTES, MOST_BYTES))
    try:
        long = len(view) > ON_THE_SPOT_BYTES or has_many_pieces(header.compression, view)
        unpacked = None if long else _unpack(header.compression, view, few)
    except StorageError as refused:
        if refused.error is not ErrorCode.MESSAGE_TOO_LARGE:
            raise
        unpacked = None
    if unpacked is not None:
        yield from _look(payload, unpacked, quick)
    else:
        codec = header.compression
        yield InThread(lambda: _in_thread(payload, _unpack(codec, view, many), quick), CHECK)
        quick.walked(header.records)


def is_batch(payload: Buffer) -> bool:
    """Whether this is one batch with the checksum that it should have, whatever else is wrong with it."""
    if len(payload) < HEADER_BYTES:
        return False
    header = parse_header(payload)
    whole = header.magic == MAGIC and header.size == len(payload)
    return whole and crc32c(memoryview(payload)[CRC_FROM:]) == header.crc


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
        # Kafka fails with UNKNOWN_SERVER_ERROR here. CORRUPT_MESSAGE would make producers send it again and again.
        do = "Look at the producer: its batches say a compression that they don't have."
        raise StorageError(ErrorCode.INVALID_RECORD, error.what, do) from None


def _look(payload: Buffer, records: Buffer, quick: Quick) -> Steps:
    header = parse_header(payload)
    if not quick.sound(header.records, header.base_timestamp, records):
        yield from _walk(payload, records)
        quick.walked(header.records)


def _walk(payload: Buffer, records: Buffer) -> Steps:
    from holdfast.records.batch import HEADER
    from holdfast.records.batch import BatchHeader as Header
    from holdfast.records.walk import Walk

    # Python reads single bytes from `bytes` a seventh faster than from a view; copying a megabyte takes far less.
    quick = bytes(records) if len(records) <= COPIED_BYTES else records
    walk = Walk(Header._make((*HEADER.unpack_from(payload), 0, len(payload))), quick)
    try:
        while not walk.check():
            yield PAUSE
    except HoldfastError as error:
        do = "Look at the producer: its batches are not what their headers say."
        raise StorageError(ErrorCode.INVALID_RECORD, error.what, do) from None


def _in_thread(payload: Buffer, records: Buffer, quick: Quick) -> None:
    """The same beside the loop. It makes way for it between pieces, since Python runs one of the two at a time."""
    header = parse_header(payload)
    if not quick.sound(header.records, header.base_timestamp, records):
        for _ in _walk(payload, records):
            time.sleep(0)
