"""Finding a record by its time: the only place where storage looks inside a batch, and then only at the times.

A header says the latest time in its batch. To find the record itself that one batch is decoded, with the bounds on
decompression that all decoding has.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.broker.storage.segment import Segment
from holdfast.broker.storage.work import Work
from holdfast.model import HoldfastError
from holdfast.records.header import LOG_APPEND_TIME, BatchHeader


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """A record found by its time."""

    offset: int
    timestamp: int


Search = Work["TimedOffset | None"]


def first_at(segments: Iterable[Segment], timestamp: int, log_start: int) -> Search:
    """The first record at `timestamp` or later, from offset `log_start` on. Times need not rise."""
    for segment in segments:
        yield None  # there may be thousands
        try:
            record: TimedOffset | None = yield from _first_of(segment, timestamp, log_start)
        except FileNotFoundError:
            if not segment.dropped:
                raise
            continue  # deleted while we looked
        if record is not None:
            return record
    return None


def _first_of(segment: Segment, timestamp: int, log_start: int) -> Search:
    found = yield from segment.find_time(timestamp, behind=segment.position_before(log_start))
    while found is not None:
        position, header = found
        record: TimedOffset | None = yield from _first_in(segment, position, header, timestamp, log_start)
        if record is not None:
            return record
        found = yield from segment.find_time(timestamp, behind=position + header.size)
    return None


def _first_in(segment: Segment, position: int, header: BatchHeader, timestamp: int, log_start: int) -> Search:
    if header.last_offset < log_start:
        return None
    whole = TimedOffset(max(header.base_offset, log_start), header.max_timestamp)
    if header.attributes & LOG_APPEND_TIME:
        return whole
    batch = segment.read(position, header.size)
    record: TimedOffset | None = yield lambda: _look(batch, timestamp, log_start, whole)
    return record


def _look(batch: bytes, timestamp: int, log_start: int, whole: TimedOffset) -> TimedOffset | None:
    """Look into one batch. In a thread this competes with the loop for the interpreter, so it makes way often."""
    from holdfast.records import batch as records  # loads the codecs, which most brokers never need
    from holdfast.records.walk import Walk, section_of, unpack

    try:
        header = next(records.iter_headers(batch))
        records.verify_crc(batch, header)
        walk = Walk(header, unpack(header.codec, section_of(batch, header)))
        while not walk.find(timestamp, log_start):
            time.sleep(0)
    except HoldfastError:
        return whole  # the producer lied about what is inside: the batch's own start is the best answer there is
    return TimedOffset(walk.found_offset, walk.found_time) if walk.found_offset >= 0 else None
