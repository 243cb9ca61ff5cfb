"""Finding a record by its time: the only place where storage looks inside a batch, and then only at the times.

Headers say how late a batch reaches; where in it the wanted record stands takes decoding one batch, with the bounds on
decompression that all decoding has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.broker.storage.batch import LOG_APPEND_TIME, BatchHeader
from holdfast.broker.storage.segment import Segment
from holdfast.model import HoldfastError


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """A record found by its time."""

    offset: int
    timestamp: int


def first_at(segments: Iterable[Segment], timestamp: int, log_start: int) -> TimedOffset | None:
    """The first record at `timestamp` or later, from offset `log_start` on. Times need not rise."""
    for segment in segments:
        found = segment.find_time(timestamp)
        while found is not None:
            position, header = found
            record = _first_in(segment, position, header, timestamp, log_start)
            if record is not None:
                return record
            found = segment.find_time(timestamp, behind=position + header.size)
    return None


def _first_in(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, log_start: int
) -> TimedOffset | None:
    if header.last_offset < log_start:
        return None
    whole = TimedOffset(max(header.base_offset, log_start), header.max_timestamp)
    if header.attributes & LOG_APPEND_TIME:
        return whole
    from holdfast.records.batch import iter_records  # loads the codecs, which most brokers never need

    try:
        for record in iter_records(segment.read(position, header.size), lo=log_start):
            if record.timestamp >= timestamp:
                return TimedOffset(record.offset, record.timestamp)
    except HoldfastError:
        return whole  # the producer lied about what is inside: the batch's own start is the best answer there is
    return None
