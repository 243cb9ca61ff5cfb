"""The segments of a partition, in order: their files, which of them holds an offset, and what is damaged in them.

Segments are opened on first use. Opening one checks what its index file does not vouch for: a torn tail of the last one
is cut off, everything else that is damaged becomes a hole, and both are reported. It must not know what is appended.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import overload

from holdfast.broker.storage.errors import Recovery
from holdfast.broker.storage.pool import FilePool
from holdfast.broker.storage.scan import Hole, Scan, Visit
from holdfast.broker.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment
from holdfast.broker.storage.sync import Syncer
from holdfast.broker.storage.trash import Trash

_LOG_NAME = re.compile(rf"\d{{20}}{re.escape(LOG_SUFFIX)}")
_INDEX_NAME = re.compile(rf"\d{{20}}{re.escape(INDEX_SUFFIX)}")


class Segments(Sequence[Segment]):
    """Those of one partition. `topic` and `partition` are for reports."""

    def __init__(
        self,
        pool: FilePool,
        folder: str,
        *,
        topic: str,
        partition: int,
        syncer: Syncer,
        steady: Callable[[], float],
        report: Callable[[Recovery], None],
        trash: Trash,
    ) -> None:
        self._pool = pool
        self._folder = folder
        self._topic = topic
        self._partition = partition
        self._syncer = syncer
        self._steady = steady
        self._report = report
        self._trash = trash
        self._all: list[Segment] = []
        self._bases: list[int] = []
        """Their first offsets, for bisecting."""

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, number: int) -> Segment: ...
    @overload
    def __getitem__(self, number: slice) -> list[Segment]: ...
    def __getitem__(self, number: int | slice) -> Segment | list[Segment]:
        return self._all[number]

    @property
    def size(self) -> int:
        """Bytes on disk, index files not counted."""
        return sum(segment.bytes_on_disk for segment in self._all)

    def one_by_one(self) -> Iterator[Segment]:
        """All of them, opened when their turn comes. Segments may be added and deleted meanwhile."""
        for segment in tuple(self._all):
            if not segment.dropped:
                yield self.ensure_open(segment)

    def measure(self) -> Callable[[], None] | None:
        """Work for any thread, after which asking for the size is quick; None if it is so already."""
        unknown = [segment for segment in self._all if not segment.opened]
        return partial(_measure, unknown) if unknown else None

    def holding(self, offset: int) -> Segment:
        """The one that this offset is in, or would be."""
        return self._all[max(bisect_right(self._bases, offset) - 1, 0)]

    def base_after(self, segment: Segment) -> int:
        """The first offset of the next one."""
        return self._bases[bisect_right(self._bases, segment.base_offset)]

    # Files that come and go

    def load(self, names: Sequence[str]) -> None:
        """Take over the files of these names, but for those being removed. Indexes whose log is gone are removed: a
        deletion was interrupted."""
        going = self._trash.bases(self._folder)
        bases = {int(name.removesuffix(LOG_SUFFIX)) for name in names if _LOG_NAME.fullmatch(name)}
        known = bases | going
        for name in names:
            if _INDEX_NAME.fullmatch(name) and int(name.removesuffix(INDEX_SUFFIX)) not in known:
                self._pool.files.unlink(f"{self._folder}/{name}")
        for base in sorted(bases - going):
            self._add(Segment(self._pool, self._folder, base, self._found_hole))

    def create(self, base_offset: int) -> Segment:
        """A new last one."""
        segment = Segment(self._pool, self._folder, base_offset, self._found_hole)
        segment.create()
        segment.created_ms = segment.touched_ms = self._steady()
        self._add(segment)
        self._syncer.changed_folder(self._folder)
        return segment

    def _add(self, segment: Segment) -> None:
        self._all.append(segment)
        self._bases.append(segment.base_offset)

    def drop(self, count: int) -> None:
        """Cut off the first `count`, whose files are removed now or later. Raises an OSError if the disk refuses now;
        then it is tried again later."""
        gone = self._all[:count]
        del self._all[:count], self._bases[:count]
        for segment in gone:
            segment.dropped = True
            self._syncer.renewed(segment.path)
        self._trash.put(self._folder, gone)

    def whole_below(self, offset: int) -> int:
        """How many of the first ones have nothing at `offset` or behind it. The last one always stays."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    # Opening

    def ensure_open(self, segment: Segment) -> Segment:
        if not segment.opened:
            self.open(segment)
        return segment

    def open(self, segment: Segment, visit: Visit | None = None) -> None:
        result = segment.open(visit)
        segment.touched_ms = self._steady()
        if segment is not self._all[-1]:
            self._check_end(segment, result)
        elif result.reason:
            rest = segment.size - result.position
            segment.cut(result.position)
            self._syncer.wrote(segment.path)
            end = (result.offset, result.offset)
            self._found(segment, result.position, cut=rest, offsets=end, reason=result.reason)

    def check_middle(self) -> None:
        """Check the segments that are no longer written to. One that is shorter than it was, or missing, is reported
        now. Flipped bits in one of the right size are found only when it is read.
        """
        for segment, after in pairwise(self._all):
            if not segment.opened and segment.promised_end() != after.base_offset:
                self.open(segment)

    def _check_end(self, segment: Segment, result: Scan) -> None:
        """A segment in the middle must reach the next one; what is missing is a hole, even one of no bytes."""
        after = self.base_after(segment)
        if segment.end_offset >= after and not result.reason:
            return
        reason = result.reason or "the file ends too early, or a segment after it is gone"
        hole = Hole(
            start=result.position,
            end=segment.size,
            first_offset=segment.end_offset,
            next_offset=after,
            reason=reason,
        )
        segment.add_hole(hole)

    def _found_hole(self, segment: Segment, hole: Hole) -> None:
        lost = (hole.first_offset, hole.next_offset)
        self._found(segment, hole.start, damaged=hole.end - hole.start, offsets=lost, reason=hole.reason)

    def _found(
        self, segment: Segment, position: int, *, cut: int = 0, damaged: int = 0, offsets: tuple[int, int], reason: str
    ) -> None:
        """Report what was cut off, or can't be read. `offsets`: the first that is lost and the next that is not."""
        self._report(
            Recovery(
                topic=self._topic,
                partition=self._partition,
                file=segment.path,
                position=position,
                cut_bytes=cut,
                damaged_bytes=damaged,
                first_offset=offsets[0],
                next_offset=offsets[1],
                reason=reason,
            )
        )


def _measure(segments: Sequence[Segment]) -> None:
    for segment in segments:
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            segment.look_up_size()
