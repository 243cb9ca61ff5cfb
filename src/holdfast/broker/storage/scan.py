"""Checks a log file batch by batch, and finds the next good batch after damage.

Two kinds of trouble look alike at first: a torn tail (the process or machine died while writing: nothing good
follows) and damage in the middle (a flipped bit, a lost sector: acknowledged batches follow). The first is cut, the
second must not be: what follows is searched for, and the damaged range is reported as a hole that can't be served.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.broker.storage.batch import LEADER_EPOCH
from holdfast.broker.storage.files import File
from holdfast.records.header import HEADER_BYTES, MAGIC, BatchHeader, matches_crc, parse_header

WINDOW_BYTES = 1024 * 1024
"""Read this much at a time: large enough that calls don't count, small enough to be nothing in memory."""

MAX_RECORDS_PER_BATCH = 64 * 1024 * 1024 // 7
"""Seven bytes each at least, in a batch that unpacks to 64 MiB at most. How well it packs has no bound."""

_EPOCH_AND_MAGIC = LEADER_EPOCH.to_bytes(4, "big") + bytes([MAGIC])
_EPOCH_AT = 12

Visit = Callable[[BatchHeader, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """A range of bytes that can't be served, and the offsets it took with it."""

    start: int
    end: int
    first_offset: int
    next_offset: int
    reason: str


@dataclass(slots=True)
class Scan:
    """How far a scan got: everything before `position` is good except the holes, and the next offset is `offset`."""

    position: int
    offset: int
    holes: list[Hole] = field(default_factory=list)
    reason: str = ""
    """Why it stopped short of the end; empty if it did not."""


class _Window:
    """A file seen through one buffer."""

    def __init__(self, file: File, end: int) -> None:
        self._file = file
        self._end = end
        self._start = 0
        self._data = b""

    def view(self, position: int, count: int) -> memoryview:
        """`count` bytes at `position`, fewer at the end of the file."""
        start = position - self._start
        if start < 0 or start + count > len(self._data):
            wanted = min(max(count, WINDOW_BYTES), self._end - position)
            self._data = self._file.pread(wanted, position) if wanted > 0 else b""
            self._start, start = position, 0
        return memoryview(self._data)[start : start + count]


def scan(file: File, *, start: int, end: int, offset: int, visit: Visit | None = None) -> Scan:
    """Check every batch in [start, end), the first of which should carry `offset`.

    `visit(header, position)` is called for each good one, in order.
    """
    window = _Window(file, end)
    result = Scan(position=start, offset=offset)
    while result.position < end:
        _run(window, result, visit)
        if result.position >= end:
            break
        header, reason = _check(window, result.position, end, result.offset)
        if header is None:
            found = _find_next(window, result.position, end, result.offset)
            if found is None:
                result.reason = reason
                return result
            position, header = found
            result.holes.append(_hole(result, position, header.base_offset, reason))
            result.position = position
        if visit is not None:
            visit(header, result.position)
        result.position += header.size
        result.offset = header.last_offset + 1
    return result


def _run(window: _Window, result: Scan, visit: Visit | None) -> None:
    """The fast path through one window full of good batches; stops at anything else and leaves it to `_check`."""
    view = window.view(result.position, WINDOW_BYTES)
    at, limit, offset = 0, len(view), result.offset
    while at + HEADER_BYTES <= limit:
        header = parse_header(view, at)
        stop = header.end
        if (
            header.base_offset != offset
            or header.magic != MAGIC
            or header.leader_epoch != LEADER_EPOCH
            or header.last_offset_delta < 0
            or not at + HEADER_BYTES <= stop <= limit
            or not matches_crc(view, header)
        ):
            break
        if visit is not None:
            visit(header, result.position + at)
        offset += header.last_offset_delta + 1
        at = stop
    result.position += at
    result.offset = offset


def _hole(result: Scan, end: int, next_offset: int, reason: str) -> Hole:
    return Hole(start=result.position, end=end, first_offset=result.offset, next_offset=next_offset, reason=reason)


def _check(window: _Window, position: int, end: int, offset: int) -> tuple[BatchHeader | None, str]:
    """The good batch at `position`, or None and what is wrong with it."""
    head = window.view(position, HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return None, "the header is incomplete"
    header = parse_header(head)
    if header.base_offset != offset:
        return None, f"offset {header.base_offset} where {offset} was expected"
    reason = _whole(window, header, position, end)
    return (None, reason) if reason else (header, "")


def _whole(window: _Window, header: BatchHeader, position: int, end: int) -> str:
    """What is wrong with this batch apart from its offset; empty when nothing is."""
    if header.magic != MAGIC or header.leader_epoch != LEADER_EPOCH:
        return "this is not a record batch"
    if header.size < HEADER_BYTES or header.last_offset_delta < 0:
        return "the length is impossible"
    if position + header.size > end:
        return "the batch is incomplete"
    body = window.view(position, header.size)
    if len(body) < header.size or not matches_crc(body, header):
        return "the checksum does not match"
    return ""


@dataclass(frozen=True, slots=True)
class _Gap:
    """What is known about a damaged place, to judge what is found after it."""

    position: int
    end: int
    offset: int
    likely: tuple[int, ...]
    """The next offset by each of the two counts in the damaged header. One flipped bit spoils at most one of them."""
    torn: bool
    """It looks like an interrupted write. Its records may contain bytes that look like batches."""

    def accepts(self, window: _Window, position: int, header: BatchHeader) -> bool:
        """Whether a whole batch found at `position` may be the continuation.

        Its checksum does not cover its offset, so something else must confirm that: the damaged header, the batch that
        follows, or, at the very end, that the jump is possible for so many bytes.
        """
        if header.base_offset in self.likely:
            return True
        if self.torn or header.base_offset <= self.offset:
            return False
        following = position + header.size
        if following >= self.end:
            most_batches = (position - self.position) // HEADER_BYTES
            return header.base_offset - self.offset <= MAX_RECORDS_PER_BATCH * most_batches
        return _check(window, following, self.end, header.last_offset + 1)[0] is not None


def _find_next(window: _Window, position: int, end: int, offset: int) -> tuple[int, BatchHeader] | None:
    """The next good batch behind the bad one at `position`, or None: then the bad one is a torn tail."""
    head = window.view(position, HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return None
    bad = parse_header(head)
    gap = _Gap(
        position=position,
        end=end,
        offset=offset,
        likely=tuple(offset + count for count in (bad.last_offset_delta + 1, bad.record_count) if count > 0),
        torn=bad.base_offset == offset and bad.magic == MAGIC and position + bad.size > end,
    )
    if bad.size >= HEADER_BYTES:
        found = _candidate(window, position + bad.size, gap)
        if found is not None:
            return position + bad.size, found
    return _search(window, position + 1, gap)


def _search(window: _Window, start: int, gap: _Gap) -> tuple[int, BatchHeader] | None:
    """Look for the five fixed bytes of a header (epoch and magic) and test every place where they occur."""
    position = start + _EPOCH_AT
    while position < gap.end:
        chunk = bytes(window.view(position, WINDOW_BYTES))
        at = chunk.find(_EPOCH_AND_MAGIC)
        while at >= 0:
            found = _candidate(window, position + at - _EPOCH_AT, gap)
            if found is not None:
                return position + at - _EPOCH_AT, found
            at = chunk.find(_EPOCH_AND_MAGIC, at + 1)
        position += max(len(chunk) - len(_EPOCH_AND_MAGIC) + 1, 1)
    return None


def _candidate(window: _Window, position: int, gap: _Gap) -> BatchHeader | None:
    head = window.view(position, HEADER_BYTES) if position < gap.end else b""
    if len(head) < HEADER_BYTES:
        return None
    header = parse_header(head)
    if _whole(window, header, position, gap.end) or not gap.accepts(window, position, header):
        return None
    return header
