"""One append-only file of a partition's log, with its index.

Rules: only the last segment of a log is appended to. Bytes are checked once before they are served: at append, by the
scan on opening, or, where an index file spared us that scan, when they are first read. Batches leave as they were
stored.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.files import Buffer, File
from holdfast.broker.storage.index import (
    HEAD_BYTES,
    INDEX_INTERVAL_BYTES,
    NO_TIMESTAMP,
    IndexFile,
    SparseIndex,
    end_promised,
    load_index,
)
from holdfast.broker.storage.pool import FilePool
from holdfast.broker.storage.scan import WINDOW_BYTES, Hole, Scan, Visit, scan
from holdfast.model import ErrorCode
from holdfast.records.header import HEADER_BYTES, BatchHeader, parse_header

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
_WALK_BYTES = 4096
"""Headers are walked through a window of one page."""
_HEADERS_AT_A_TIME = 1_000
"""Between two pauses of a search: about a millisecond."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """Whole batches as a piece of a file. Holds the file open, so it may be sent later."""

    file: File
    position: int
    count: int

    def fileno(self) -> int | None:
        """For sendfile; None when the data lives in memory."""
        return self.file.fileno()

    def read(self) -> bytes:
        return self.file.pread(self.count, self.position)


class Segment:
    """`size`, `end_offset` and `max_timestamp` hold once `open()` or `create()` has run."""

    __slots__ = (
        "_covered",
        "_covered_offset",
        "_index_due",
        "_index_read",
        "_on_hole",
        "_pool",
        "_size_found",
        "_unchecked",
        "_unchecked_left",
        "base_offset",
        "created_ms",
        "dropped",
        "end_offset",
        "holes",
        "index",
        "index_path",
        "max_timestamp",
        "opened",
        "path",
        "size",
        "stored_producers",
        "touched_ms",
    )

    def __init__(self, pool: FilePool, folder: str, base_offset: int, on_hole: OnHole) -> None:
        self._pool = pool
        self._on_hole = on_hole
        self.base_offset = base_offset
        self.path = f"{folder}/{base_offset:020d}{LOG_SUFFIX}"
        self.index_path = f"{folder}/{base_offset:020d}{INDEX_SUFFIX}"
        self.index = SparseIndex()
        self.size = 0
        self._size_found: int | None = None
        self.end_offset = base_offset
        self.max_timestamp = NO_TIMESTAMP
        self.created_ms: float = NO_TIMESTAMP
        self.touched_ms: float = 0.0
        """When it was last written to, or opened, by the clock that never goes back."""
        self.holes: list[Hole] = []
        self.opened = False
        self.dropped = False
        """Cut off from its log: its files may be gone at any moment."""
        self.stored_producers: bytes | None = None
        """The producers' state from the index file, None if there was no usable one."""
        self._index_due = 0
        self._index_read = False
        self._covered = 0
        """Bytes described by the index file we opened with, and the offset after them."""
        self._covered_offset = base_offset
        self._unchecked_left = 0
        self._unchecked = bytearray()
        """One flag for each index entry we opened with: 1 while the bytes up to the next entry are still unchecked."""

    def create(self) -> None:
        self._pool.get(self.path, create=True).truncate(0)
        self.opened = True

    @property
    def bytes_on_disk(self) -> int:
        """Its size, also before it was opened."""
        return self.size if self.opened else self.look_up_size()

    def look_up_size(self) -> int:
        """The file's size before it is opened. It is looked up once: only opened ones are written to."""
        if self._size_found is None:
            self._size_found = self._pool.files.size(self.path)
        return self._size_found

    # Opening

    def promised_end(self) -> int | None:
        """The offset behind this segment, as its index file's first bytes say; None if there is none, or if it does not
        describe a file of this size.
        """
        try:
            head = self._pool.files.open(self.index_path).pread(HEAD_BYTES, 0)
            size = self._pool.files.size(self.path)
        except FileNotFoundError:
            return None
        return end_promised(head, log_bytes=size)

    def load_index(self) -> bool:
        """Take over the index file if it is sound. True if there is one; `open` then scans only what lies after it."""
        self.size = self._pool.files.size(self.path)
        self._index_read = True
        try:
            size = self._pool.files.size(self.index_path)
            data = self._pool.files.open(self.index_path).pread(size, 0)
        except OSError:
            return False  # there is none, or it can't be read: the log itself has all of it
        stored = load_index(data, base_offset=self.base_offset, log_bytes=self.size)
        if stored is None or not self._agrees(stored):
            self._pool.files.unlink(self.index_path)  # it must not fit by chance once the log has grown again
            return False
        self.index = stored.index
        self.end_offset, self.max_timestamp = stored.end_offset, stored.max_timestamp
        self.stored_producers = stored.producers
        self._covered, self._covered_offset = stored.covered, stored.end_offset
        self._unchecked_left = len(stored.index)
        self._unchecked = bytearray(b"\x01" * self._unchecked_left)
        self._index_due = stored.index.positions[-1] + INDEX_INTERVAL_BYTES if stored.index else 0
        return True

    def open(self, visit: Visit | None = None) -> Scan:
        """Scan what no index file covers (all of it without one). The caller decides what a stop short of the end
        means.
        """
        if not self._index_read:
            self.load_index()

        def take(header: BatchHeader, position: int) -> None:
            self._note(header.base_offset, position, header.max_timestamp)
            if visit is not None:
                visit(header, position)

        file = self._pool.get(self.path)
        result = scan(file, start=self._covered, end=self.size, offset=self.end_offset, visit=take)
        self.end_offset = result.offset
        self.opened = True
        for hole in result.holes:
            self.add_hole(hole)
        return result

    def _agrees(self, stored: IndexFile) -> bool:
        """Compare the last entry with the log itself: an index left over from another life of this file must not be
        used.
        """
        if not stored.index:
            return True
        position = stored.index.positions[-1]
        head = self._pool.get(self.path).pread(HEADER_BYTES, position)
        return len(head) == HEADER_BYTES and parse_header(head).base_offset == stored.index.offsets[-1]

    # Writing

    def append(self, buffers: list[Buffer], header: BatchHeader, offset: int, max_timestamp: int) -> None:
        """Write one stamped batch at the end. If that fails, the file is cut back and nothing has changed."""
        file = self._pool.get(self.path)
        try:
            file.write(buffers, self.size)
        except OSError:
            # If even cutting fails, the next append overwrites the remains, and opening cuts them.
            with contextlib.suppress(OSError):
                file.truncate(self.size)
            raise
        self._note(offset, self.size, max_timestamp)
        self.size += header.size
        self.end_offset = offset + header.last_offset_delta + 1

    def _note(self, offset: int, position: int, max_timestamp: int) -> None:
        if position >= self._index_due:
            self.index.add(offset, position, self.max_timestamp)
            self._index_due = position + INDEX_INTERVAL_BYTES
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp

    def cut(self, size: int) -> None:
        """Drop everything from `size` on: a torn tail."""
        self._pool.get(self.path).truncate(size)
        self.size = size

    def write_index(self, producers: bytes) -> None:
        """Leave an index file behind. Losing it costs a scan, so it is neither synced nor renamed into place here."""
        stored = IndexFile(
            base_offset=self.base_offset,
            covered=self.size,
            end_offset=self.end_offset,
            max_timestamp=self.max_timestamp,
            index=self.index,
            producers=producers,
        )
        data = stored.dump()
        file = self._pool.files.open(self.index_path, create=True)
        file.truncate(0)
        file.write([data], 0)
        file.close()

    def remove(self) -> None:
        """The log first: an index without a log is ignored and swept, a log without an index is rebuilt."""
        for path in (self.path, self.index_path):
            with contextlib.suppress(FileNotFoundError):
                self._pool.files.unlink(path)
            self._pool.forget(path)  # now, so that nobody has opened it again meanwhile

    # Reading

    def slice(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> FileRange:
        """Whole batches from the one that holds `offset` on, at most `max_bytes` of them (or the first, if it is
        larger).
        """
        file = self._pool.get(self.path)
        start, first = self._find(file, offset)
        limit = start + max_bytes
        if self._unchecked:
            self.check(file, start, min(limit, self.size))
        ceiling = self._ceiling(start)
        if limit >= ceiling:
            end = ceiling
        else:
            end = self._last_boundary(file, start, limit)
        if end == start and min_one_batch:
            end = start + first.size
        return FileRange(file, start, end - start)

    def find_time(self, timestamp: int, *, behind: int = 0) -> Generator[None, object, tuple[int, BatchHeader] | None]:
        """The first batch from byte `behind` on that may hold a record of `timestamp` or later, with its position.

        Yields now and then: one that is not there is looked for in the whole segment, which has up to a million
        batches of one record.
        """
        if self.max_timestamp < timestamp or not self.index:
            return None
        file = self._pool.get(self.path)
        start = max(behind, self.index.positions[self.index.at_time(timestamp)])
        for number, (position, header) in enumerate(self._walk(file, start), 1):
            if header.max_timestamp >= timestamp:
                return position, header
            if number % _HEADERS_AT_A_TIME == 0:
                yield
        return None

    def position_before(self, offset: int) -> int:
        """Where a walk to `offset` begins: a little before it."""
        return self.index.positions[self.index.at_offset(offset)] if self.index else 0

    def read(self, position: int, count: int) -> bytes:
        return self._pool.get(self.path).pread(count, position)

    def _find(self, file: File, offset: int) -> tuple[int, BatchHeader]:
        if self.index:
            for position, header in self._walk(file, self.index.positions[self.index.at_offset(offset)]):
                if header.base_offset > offset:
                    raise damaged(offset, header.base_offset)
                if header.last_offset >= offset:
                    return position, header
        raise damaged(offset, self.end_offset)

    def _walk(self, file: File, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Headers from `position` on, checked where nobody has yet, jumping over holes."""
        window, start = b"", position
        while True:
            if self._unchecked or self.holes:
                position = self._next_good(file, position)
            if position >= self.size:
                return
            if position + HEADER_BYTES > start + len(window):
                window, start = file.pread(_WALK_BYTES, position), position
                if len(window) < HEADER_BYTES:
                    raise OSError(errno.EIO, f"{self.path} is shorter than it was")
            header = parse_header(window, position - start)
            yield position, header
            position += header.size

    def _next_good(self, file: File, position: int) -> int:
        """`position`, or the end of the holes that begin there. Behind a hole another unchecked stretch may begin."""
        while True:
            if self._unchecked:
                self.check(file, position, position + 1)
            end = next((hole.end for hole in self.holes if hole.start <= position < hole.end), position)
            if end == position:
                return position
            position = end

    def _last_boundary(self, file: File, start: int, limit: int) -> int:
        """The last batch boundary at or before `limit`."""
        end = max(self.index.positions[self.index.at_position(limit)], start)
        for position, header in self._walk(file, end):
            if position + header.size > limit:
                return position
            end = position + header.size
        return end

    def _ceiling(self, start: int) -> int:
        """Where serving from `start` must stop: at the next hole, or the end."""
        return min((hole.start for hole in self.holes if hole.start > start), default=self.size)

    # Checking what an index file let us skip

    def check(self, file: File, start: int, end: int) -> None:
        """Verify the not yet verified stretches that touch [start, end). Damage becomes holes."""
        entry = self.index.at_position(start)
        last = min(self.index.at_position(end - 1), len(self._unchecked) - 1)
        while entry <= last:
            stop = entry + 1
            if self._unchecked[entry]:
                first = self.index.positions[entry]
                while stop <= last and self._unchecked[stop] and self.index.positions[stop] - first < WINDOW_BYTES:
                    stop += 1
                self._check_entries(file, entry, stop)
            entry = stop
        if not self._unchecked_left:
            self._unchecked = bytearray()

    def _check_entries(self, file: File, entry: int, stop: int) -> None:
        """Scan from entry to entry `stop` (or to where the index file ended) and compare with what the index
        promises.
        """
        end, offset_after = self._covered, self._covered_offset
        if stop < len(self._unchecked):
            end, offset_after = self.index.positions[stop], self.index.offsets[stop]
        start, offset = self.index.positions[entry], self.index.offsets[entry]
        self._unchecked[entry:stop] = bytes(stop - entry)
        self._unchecked_left -= stop - entry
        result = scan(file, start=start, end=end, offset=offset)
        if result.position < end:
            start, offset = result.position, result.offset
        elif result.offset == offset_after:
            start = end
        if start < end:
            reason = result.reason or "the offsets do not continue"
            result.holes = [hole for hole in result.holes if hole.end <= start]
            result.holes.append(
                Hole(start=start, end=end, first_offset=offset, next_offset=offset_after, reason=reason)
            )
        for hole in result.holes:
            self.add_hole(hole)

    def add_hole(self, hole: Hole) -> None:
        self.holes = sorted([*self.holes, hole], key=lambda each: each.start)
        self._on_hole(self, hole)


OnHole = Callable[[Segment, Hole], None]


def damaged(offset: int, next_good: int) -> StorageError:
    return StorageError(
        ErrorCode.CORRUPT_MESSAGE,
        f"Offset {offset} lies in a damaged part of the log.",
        f"Continue from offset {next_good}; what lies between is lost.",
    )
