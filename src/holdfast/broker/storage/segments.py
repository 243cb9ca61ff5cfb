"""The segments of a partition, in order: their files, which of them holds an offset, and what is damaged in them.

Segments are opened on first use. Opening one checks what its index file does not vouch for: a torn tail of the last one
is cut off, everything else that is damaged becomes a hole, and both are reported. It must not know what is appended.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import overload

from holdfast.broker.storage.errors import Recovery
from holdfast.broker.storage.pool import FilePool
from holdfast.broker.storage.scan import Hole, Scan, Visit
from holdfast.broker.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment
from holdfast.broker.storage.sync import Syncer

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
    ) -> None:
        self._pool = pool
        self._folder = folder
        self._topic = topic
        self._partition = partition
        self._syncer = syncer
        self._steady = steady
        self._report = report
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

    def holding(self, offset: int) -> Segment:
        """The one that this offset is in, or would be."""
        return self._all[max(bisect_right(self._bases, offset) - 1, 0)]

    def base_after(self, segment: Segment) -> int:
        """The first offset of the next one."""
        return self._bases[bisect_right(self._bases, segment.base_offset)]

    # Files that come and go

    def load(self, names: Sequence[str]) -> None:
        """Take over the files of these names. Indexes whose log is gone are removed: a deletion was interrupted."""
        bases = {int(name.removesuffix(LOG_SUFFIX)) for name in names if _LOG_NAME.fullmatch(name)}
        for name in names:
            if _INDEX_NAME.fullmatch(name) and int(name.removesuffix(INDEX_SUFFIX)) not in bases:
                self._pool.files.unlink(f"{self._folder}/{name}")
        for base in sorted(bases):
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

    def drop_first(self) -> None:
        first = self._all[0]
        first.remove()
        self._syncer.renewed(first.path)
        del self._all[0], self._bases[0]
        self._syncer.changed_folder(self._folder)

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
