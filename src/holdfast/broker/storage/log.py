"""A partition's log: batches appended at the end, read from any offset, deleted from the start.

Rules: offsets are assigned here and nowhere else. A refused append changes nothing. What was acknowledged is served
byte for byte, or the reader is told that it is damaged; it is never skipped silently. The high watermark is the log
end, because there is one replica. This module must not know requests or threads, nor topics except for their names in
messages. `segments` keeps the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

from holdfast.broker.storage.batch import check_produced, check_time, stamp
from holdfast.broker.storage.config import UNLIMITED, LogConfig
from holdfast.broker.storage.errors import Recovery, StorageError, disk_trouble, disk_work
from holdfast.broker.storage.files import Buffer
from holdfast.broker.storage.index import NO_TIMESTAMP
from holdfast.broker.storage.mend import Mend
from holdfast.broker.storage.pool import FilePool
from holdfast.broker.storage.producers import Producers, SeenBatch
from holdfast.broker.storage.segment import FileRange, Segment, damaged
from holdfast.broker.storage.segments import Segments
from holdfast.broker.storage.start import START_FILE, read_start, write_start
from holdfast.broker.storage.sync import Syncer
from holdfast.broker.storage.times import Search, TimedOffset, first_at
from holdfast.broker.storage.trash import Trash
from holdfast.broker.storage.work import Work, run_here
from holdfast.model import ErrorCode
from holdfast.records.header import BatchHeader


class Appended(NamedTuple):
    """The answer to an append. A tuple, because one is made for every batch."""

    base_offset: int
    last_offset: int
    log_append_time: int
    """-1 where the producer's own time is kept, as Produce answers it."""
    log_start_offset: int
    duplicate: bool = False
    """True if this batch was here already: the offsets are those of the first time."""


class Log:
    """One partition. Opening repairs what a crash left behind and reports it through `report`."""

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        folder: str,
        pool: FilePool,
        syncer: Syncer,
        clock: Callable[[], int],
        steady: Callable[[], float],
        config: LogConfig,
        report: Callable[[Recovery], None],
        trash: Trash | None = None,
    ) -> None:
        """Without `trash`, files are removed at once."""
        self.topic = topic
        self.partition = partition
        self.config = config
        """May be replaced at any time; takes effect at the next append or retention."""
        self._folder = folder
        self._pool = pool
        self._files = pool.files
        self._syncer = syncer
        self._clock = clock
        """The time of day, for what records carry. It may be set back."""
        self._steady = steady
        """Milliseconds that never go back, for durations."""
        self.producers = Producers()
        self._segments = Segments(
            pool,
            folder,
            topic=topic,
            partition=partition,
            syncer=syncer,
            steady=steady,
            report=report,
            trash=Trash(syncer) if trash is None else trash,
        )
        self._changed = False
        """Whether the last segment's index file is out of date."""
        self._rolling = False
        """A new segment could not be created; its file may exist already."""
        self.retired = False
        """Set when this object is not to be used any more: its topic was deleted, or its files opened anew."""
        self.log_start_offset = 0
        self.log_end_offset = 0
        with self._disk("Opening"):
            self._open()

    def _disk(self, doing: str) -> AbstractContextManager[None]:
        return disk_work(f"{doing} {self.topic}-{self.partition}")

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset

    @property
    def size(self) -> int:
        """Bytes on disk, index files not counted."""
        return self._segments.size

    # Opening

    def _open(self) -> None:
        try:
            names = self._files.listdir(self._folder)
        except FileNotFoundError:
            return
        self._segments.load(names)
        stored_start = read_start(self._files, self._folder) if START_FILE in names else 0
        if self._segments:
            self._load_tail()
            self._segments.check_middle()
            self.log_end_offset = self._segments[-1].end_offset
        if stored_start > self.log_end_offset:
            # A crash lost records that DeleteRecords had deleted. The log continues after them: what is appended now
            # must not be before the log start.
            self.log_end_offset = stored_start
            self._new_segment()
        self.log_start_offset = max(self._segments[0].base_offset, stored_start) if self._segments else 0

    def _load_tail(self) -> None:
        """Open from the last segment with a sound index on: there the producers' state is known, the rest is
        replayed.
        """
        first = len(self._segments) - 1
        while not self._segments[first].load_index() and first > 0:
            first -= 1
        stored = self._segments[first].stored_producers
        if stored is not None:
            self.producers.load(stored)
        for segment in self._segments[first:]:
            self._segments.open(segment, self.producers.replay)
            # What is read here may never have been synced: it must be before a repeated batch of it is acknowledged.
            self._syncer.wrote(segment.path)
        self._changed = True
        self._syncer.changed_folder(self._folder)
        self._syncer.made_folder(self._folder)

    # Appending

    def append(self, payload: Buffer, *, commit: bool = True) -> Appended:
        """Append one record batch as a client sent it. With `commit=False` the caller calls `Store.commit` before the
        ack.
        """
        now = self._clock()
        config = self.config
        header = check_produced(payload, max_bytes=config.max_message_bytes)
        check_time(header, config, now)
        if header.producer_id >= 0:
            seen = self.producers.check(header)
            if seen is not None:
                return self._again(header, seen)
        append_time = now if config.append_time else None
        timestamp = header.max_timestamp if append_time is None else append_time
        offset = self.log_end_offset
        try:
            segment = self._writable(header.size)
            segment.append(stamp(payload, header, offset=offset, append_time=append_time), header, offset, timestamp)
        except OSError as error:
            raise disk_trouble(f"Appending to {self.topic}-{self.partition}", error) from error
        self._changed = True
        self.log_end_offset = segment.end_offset
        self._syncer.wrote(segment.path)
        if header.producer_id >= 0:
            self.producers.record(header, offset, timestamp)
        if commit:
            self._syncer.commit(segment.path)
        return Appended(
            base_offset=offset,
            last_offset=segment.end_offset - 1,
            log_append_time=NO_TIMESTAMP if append_time is None else append_time,
            log_start_offset=self.log_start_offset,
        )

    def _again(self, header: BatchHeader, seen: SeenBatch) -> Appended:
        path = self._segments.holding(seen.base_offset).path
        if self._syncer.broken(path):
            raise self._broken()
        self._syncer.wrote(path)  # its sync may still be under way, and fail: the next one must know
        return Appended(
            base_offset=seen.base_offset,
            last_offset=seen.base_offset + header.last_offset_delta,
            log_append_time=seen.timestamp if self.config.append_time else NO_TIMESTAMP,
            log_start_offset=self.log_start_offset,
            duplicate=True,
        )

    def _broken(self) -> StorageError:
        return StorageError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"Forcing {self.topic}-{self.partition} to disk failed, and its file is not rewritten yet.",
            "Check the disk; the broker goes on by itself once it could rewrite the file.",
        )

    def _writable(self, size: int) -> Segment:
        """The segment to append to: the last one, or a new one when that is full or old."""
        if not self._segments:
            self._files.mkdir(self._folder)
            self._syncer.made_folder(self._folder)
            return self._new_segment()
        last = self._segments[-1]
        if self._syncer.broken(last.path):
            raise self._broken()
        now = self._steady()
        if last.created_ms == NO_TIMESTAMP:
            last.created_ms = now  # opened, not created: its age counts from now; retention goes by records anyway
        if self._rolling or (
            last.size
            and (last.size + size > self.config.segment_bytes or now - last.created_ms >= self.config.segment_ms)
        ):
            return self._roll()
        last.touched_ms = now
        return last

    def _roll(self) -> Segment:
        """Close the last segment and create the next one. Failing to write the old one's index does not stop the roll:
        it can be rebuilt. Until the next one exists nothing is appended: its empty file may be there already, and would
        hide what is appended to the old one.
        """
        self._rolling = True
        last = self._segments[-1]
        with contextlib.suppress(OSError):
            last.write_index(self.producers.dump())
            self._syncer.wrote(last.index_path)
        return self._new_segment()

    def _new_segment(self) -> Segment:
        segment = self._segments.create(self.log_end_offset)
        self._rolling = False
        return segment

    # Reading

    def slice(self, offset: int, max_bytes: int, *, min_one_batch: bool = True) -> FileRange | None:
        """Whole batches from `offset` on, as a range of one file (for sendfile, or `.read()`); None at the log end."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            what = f"Offset {offset} is not in {self.log_start_offset} to {self.log_end_offset}."
            raise StorageError(ErrorCode.OFFSET_OUT_OF_RANGE, what, "Start from the earliest or latest offset.")
        if offset == self.log_end_offset:
            return None
        try:
            found = self._segment_of(offset).slice(offset, max_bytes, min_one_batch=min_one_batch)
        except OSError as error:
            raise disk_trouble(f"Reading {self.topic}-{self.partition}", error) from error
        return found if found.count else None

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool = True) -> bytes:
        """The same as bytes; empty at the log end."""
        found = self.slice(offset, max_bytes, min_one_batch=min_one_batch)
        if found is None:
            return b""
        with self._disk("Reading"):
            return found.read()

    def _segment_of(self, offset: int) -> Segment:
        segment = self._segments.ensure_open(self._segments.holding(offset))
        if offset >= segment.end_offset:
            raise damaged(offset, self._segments.base_after(segment))
        return segment

    # Times

    def offset_for_time(self, timestamp: int) -> TimedOffset | None:
        """The first record whose time is `timestamp` or later, None if there is none."""
        return run_here(self.search_time(timestamp))

    def search_time(self, timestamp: int) -> Search:
        """The same as a search whose slow parts, looking into batches, may run in a thread (see `times.Search`)."""
        with self._disk("Searching"):
            return (yield from first_at(self._segments.one_by_one(), timestamp, self.log_start_offset))

    def search_greatest_time(self) -> Work[int]:
        """The greatest time of all records, -1 if there is none."""
        greatest = NO_TIMESTAMP
        with self._disk("Searching"):
            for segment in self._segments.one_by_one():
                greatest = max(greatest, segment.max_timestamp)
                yield None
        return greatest

    def offset_of_max_time(self) -> TimedOffset | None:
        """The first record with the greatest time of all (ListOffsets' MAX_TIMESTAMP)."""
        greatest = run_here(self.search_greatest_time())
        return None if greatest < 0 else self.offset_for_time(greatest)

    # Deleting

    def delete_records(self, before: int) -> int:
        """Forget everything before offset `before` (-1: everything); returns the new log start offset. Survives a
        restart.
        """
        target = self.start_wanted(before)
        if target > self.log_start_offset:
            self.write_start(target)
            self.started_at(target)
        return self.log_start_offset

    def start_wanted(self, before: int) -> int:
        """Where the log would start: to be written with `write_start`, if it is later than now."""
        target = self.log_end_offset if before == -1 else before
        if not 0 <= target <= self.log_end_offset:
            what = f"Offset {before} is beyond the log end {self.log_end_offset}."
            raise StorageError(ErrorCode.OFFSET_OUT_OF_RANGE, what, "Delete up to the log end at most; -1 means that.")
        return target

    def write_start(self, offset: int) -> None:
        """Write and sync a new start. Touches nothing else, so it may run in a thread. Call `started_at` afterwards."""
        with self._disk("Deleting records of"):
            write_start(self._files, self._folder, offset)

    def started_at(self, offset: int) -> None:
        """The new start is on disk. Delete whole segments below it; if that fails, it is tried again later."""
        self.log_start_offset = max(self.log_start_offset, offset)
        with contextlib.suppress(OSError):
            self._drop_below_start()

    def _drop_below_start(self) -> None:
        self._segments.drop(self._segments.whole_below(self.log_start_offset))

    def apply_retention(self) -> int:
        """Delete segments that are too old or too many, oldest first; returns how many."""
        return run_here(self.retention())

    def retention(self) -> Work[int]:
        """The same in pieces. Between two of them records may be appended or deleted, and the log may be retired."""
        now = self._clock()
        self.producers.expire(now)
        with self._disk("Deleting old segments of"):
            self._drop_below_start()
            if self.config.retention_bytes != UNLIMITED:
                yield self._segments.measure()
            dropped, surplus, surplus_from = 0, 0, None
            while not self.retired and self._segments and self.log_end_offset > self.log_start_offset:
                first = self._segments[0]
                if first is not surplus_from:
                    surplus = self.config.surplus(self.size)
                size = first.bytes_on_disk
                if not self._is_old(first, now) and (surplus < size or size == 0):
                    break
                if len(self._segments) == 1:
                    # The new one carries the log end; it must be on disk before the last data goes.
                    self._roll()
                    yield partial(self._files.fsync_dir, self._folder)
                    continue
                # The start moves first: from then on nobody begins to read there.
                self.log_start_offset = max(self.log_start_offset, self._segments[1].base_offset)
                self._segments.drop(1)
                dropped += 1
                surplus, surplus_from = surplus - size, self._segments[0]
                yield None
            return dropped

    def _is_old(self, segment: Segment, now: int) -> bool:
        if self.config.retention_ms == UNLIMITED:
            return False  # without opening it
        newest = self._segments.ensure_open(segment).max_timestamp
        return self.config.is_old(newest, now, self._steady() - segment.touched_ms)

    # After a failed fsync

    def mends(self) -> list[Mend]:
        """The files of this log that must be rewritten before they can be relied on."""
        broken = [segment for segment in self._segments if self._syncer.broken(segment.path)]
        return [Mend(self._files, segment.path, segment.base_offset) for segment in broken]

    def owns(self, path: str) -> bool:
        return path.rpartition("/")[0] == self._folder

    def use_mended(self, mend: Mend) -> bool:
        """Use a file that was rewritten. False if it does not contain what it should: then the log must be opened
        again, as after a crash.
        """
        self._pool.forget(mend.path)
        segment = next((each for each in self._segments if each.path == mend.path), None)
        if segment is None:
            with contextlib.suppress(OSError):
                self._files.unlink(mend.path)  # retention took it meanwhile
            return True
        return mend.kept_bytes == segment.size and mend.end_offset == segment.end_offset

    # Closing

    def close(self) -> None:
        """Leave an index behind, so that the next opening scans nothing. The caller has synced the log before."""
        if self._changed and self._segments:
            self._segments[-1].write_index(self.producers.dump())
            self._changed = False
