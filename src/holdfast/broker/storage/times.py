"""Finding a record by its time: the only place where storage looks inside a batch, and then only at the times.

A header says the latest time in its batch. To find the record itself that one batch is decoded, with the bounds on
decompression that all decoding has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass

from holdfast.broker.storage.segment import Segment
from holdfast.model import HoldfastError
from holdfast.records.header import LOG_APPEND_TIME, BatchHeader


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """A record found by its time."""

    offset: int
    timestamp: int


Search = Generator[Callable[[], "TimedOffset | None"] | None, "TimedOffset | None", "TimedOffset | None"]
"""A search that yields its slow parts: its caller runs each, in a thread if it likes, and sends back the result. None
is a pause, in which the caller may do something else."""


def run_here(search: Search) -> TimedOffset | None:
    """Run a search to its end, slow parts and all."""
    found = None
    while True:
        try:
            look = search.send(found)
        except StopIteration as end:
            value: TimedOffset | None = end.value
            return value
        found = None if look is None else look()


def first_at(segments: Iterable[Segment], timestamp: int, log_start: int) -> Search:
    """The first record at `timestamp` or later, from offset `log_start` on. Times need not rise."""
    for segment in segments:
        found = yield from segment.find_time(timestamp, behind=segment.position_before(log_start))
        while found is not None:
            position, header = found
            record = yield from _first_in(segment, position, header, timestamp, log_start)
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
    return (yield lambda: _look(batch, timestamp, log_start, whole))


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
