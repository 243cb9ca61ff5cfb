"""Records that were taken from librdkafka a few hundred at a time, and are handed out one by one.

A call into librdkafka costs more than handling a record. So poll() takes many records in one call and hands them out
from here. A record here that was not handed out counts as unread. The application's position is before it. It is
dropped when its partition is revoked (the new owner reads it again) and kept back while its partition is paused. Errors
and end-of-partition events keep their place among the records.

librdkafka's own position is past everything it returned. So for a partition with unread records the position is known
here: one past the last record that was handed out. It is computed when somebody asks, not with every record. For one
without, librdkafka may be further: past records that nobody gets (`passed`).

Another thread may ask while one polls, for instance a worker that commits. Everything here except handing out holds a
lock. Handing out is one `popleft`, which is atomic.

A Ctrl-C may come between any two steps of Python. A record that is then neither here nor with the application would
count as handed out, and be committed. So records go from one list to another in one step of C (`move`), and what is
rearranged is as before if that is interrupted.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import confluent_kafka as ck

from holdfast.client.partitions import after_record, first_offsets, partition_of
from holdfast.client.reading.book import Book
from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition

MOST_ROWS = 500
"""Most records taken in one call: enough to share the cost of the call, and few enough to scan quickly."""

FIRST_ROWS = 16
"""Records taken by the first call, before their size is known."""

MOST_BYTES = 1 << 20
"""Most bytes of values taken in one call, estimated from the last ones: what a consumer may need beyond librdkafka's
own queue."""

FEW_ROWS = 16
"""How many handed-out records may be kept until their positions are worked out. A slow topic brings its records one by
one, and to work out each by itself would cost as much as to hand it out."""

FEW_PARTITIONS = 16
"""Up to this many partitions it is quicker to look for the first record of each than to look at every record."""


class Ahead:
    """One consumer's unread records, in librdkafka's order."""

    def __init__(self, book: Book | None = None) -> None:
        """The positions of what was handed out go into the book."""
        self.ready: deque[ck.Message] = deque()
        """Records to hand out, from the left. Always the same object, so that others may keep a reference to it."""
        self.filling = False
        """True while librdkafka is asked for records: its positions may then be past what has arrived here."""
        self.fills = 0
        """How often it was asked. Who asks for its positions compares this to see whether it was asked meanwhile."""
        self._lock = threading.RLock()
        self._batch: list[ck.Message] = []
        """What `ready` held when `_work_out` last ran, and what was added since. The records at its front that `ready`
        no longer has were handed out."""
        self._aside: list[ck.Message] = []
        """Unread records of paused partitions."""
        self._changed: set[TopicPartition] = set()
        """Sought or unassigned while librdkafka was asked: the records that it returns of these may be from before."""
        self._book = book or Book()
        """Its `reached` is as of the last `_work_out`. Records that arrive of a partition that it calls paused are kept
        aside too: a callback may have paused it while librdkafka returned records."""
        self._rows = FIRST_ROWS

    @property
    def wanted(self) -> int:
        """How many to take next."""
        return self._rows

    def begin(self) -> None:
        """librdkafka is asked for records from here on."""
        self._changed.clear()
        self.filling = True
        self.fills += 1

    def put(self, rows: list[ck.Message]) -> set[TopicPartition]:
        """Append records that librdkafka returned. Returns the partitions whose records were not kept, because they
        were sought or unassigned meanwhile: these must be read again."""
        doubted: set[TopicPartition] = set()
        if rows:
            size = sum(map(len, rows)) // len(rows)
            self._rows = max(1, min(MOST_ROWS, MOST_BYTES // max(1, size)))
        with self._lock:
            if len(self._batch) >= min(FEW_ROWS, self._rows):
                self._work_out()
            if self._changed:
                doubted = self._changed & set(map(partition_of, rows))
                rows = [row for row in rows if partition_of(row) not in doubted]
            if paused := self._book.paused:
                self._aside += [row for row in rows if partition_of(row) in paused]
                rows = [row for row in rows if partition_of(row) not in paused]
            self._append(rows)
        return doubted

    def _append(self, rows: list[ck.Message]) -> None:
        known = len(self._batch)
        try:
            self._batch.extend(rows)
            self.ready.extend(rows)
        except BaseException:
            if rows and not (self.ready and self.ready[-1] is rows[-1]):
                del self._batch[known:]  # otherwise they would count as handed out
            raise

    def move(self, rows: list[ck.Message], count: int = sys.maxsize) -> None:
        """Hand out up to `count` records: append them to these, in one step."""
        with contextlib.suppress(IndexError):  # empty, or emptied by another thread meanwhile
            rows.extend(islice(iter(self.ready.popleft, None), count))

    def put_back(self) -> None:
        """The record that was handed out last has not reached the application: it is the next one again."""
        with self._lock:
            handed = len(self._batch) - len(self.ready)
            if handed > 0:
                self.ready.appendleft(self._batch[handed - 1])

    # -- where the application stands

    def note(self, rows: list[ck.Message]) -> None:
        """These were handed out without coming through here. Not of partitions that a callback sought or unassigned
        while librdkafka returned them: their position is what the callback said."""
        with self._lock:
            self._work_out()
            self._note([row for row in rows if partition_of(row) not in self._changed] if self._changed else rows)

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        """One past the last record of each of these that was handed out; without those of which none was."""
        with self._lock:
            self._work_out()
            reached = self._book.reached
            return {p: reached[p] for p in partitions if p in reached}

    def reached(self, partition: TopicPartition) -> OffsetEntry | None:
        """One past the last record of this partition that was handed out; None if there was none since it started."""
        with self._lock:
            self._work_out()
            return self._book.reached.get(partition)

    def unread(self) -> dict[TopicPartition, int]:
        """The offset of the first unread record of each partition that has one."""
        with self._lock:
            return first_offsets((*self._aside, *self._not_handed_out()))

    def _work_out(self) -> None:
        """Move the book's positions past the records that were handed out since the last time."""
        handed = self._batch[: len(self._batch) - len(self.ready)]  # another thread may hand one out after this line
        if handed:
            self._note(handed)
            del self._batch[: len(handed)]

    def passed(self, theirs: Mapping[TopicPartition, OffsetEntry]) -> None:
        """librdkafka's positions in partitions without unread records. They are further than ours where it passed what
        nobody gets: the marker at the end of a transaction, and aborted records.

        One in a partition that went back may be a leftover from before, and counts once it has moved.
        """
        with self._lock:
            self._work_out()
            reached, went_back = self._book.reached, self._book.went_back
            for partition, entry in theirs.items():
                ours = reached.get(partition)
                if ours is None or entry.offset > ours.offset:
                    leftover = went_back.get(partition, entry.offset - 1)
                    if leftover is None or leftover == entry.offset:
                        went_back[partition] = entry.offset
                        continue
                    reached[partition] = entry
                went_back.pop(partition, None)

    def _note(self, handed: list[ck.Message]) -> None:
        """Every record passes here, so what is asked of each is as little as can be."""
        first, last = self._outermost(handed)
        if any(row.error() is not None for row in (*first.values(), *last.values())):
            handed = [row for row in handed if row.error() is None]
            first, last = self._outermost(handed)
        reached, after = self._book.reached, {partition_of(row): after_record(row) for row in last.values()}
        begins = {partition_of(row): row.offset() or 0 for row in first.values()}
        gapless = sum(after[p].offset - at for p, at in begins.items()) == len(handed)
        if not gapless or any(p in reached and at < reached[p].offset for p, at in begins.items()):
            self._look_for_falls(handed)
        reached.update(after)

    def _outermost(self, rows: list[ck.Message]) -> tuple[dict[Any, ck.Message], dict[Any, ck.Message]]:
        """The first and the last of these of each partition."""
        keys: list[Any] = list(map(ck.Message.partition, rows))
        if len(self._book.topics) > 1:
            keys = list(zip(map(ck.Message.topic, rows), keys, strict=True))
        last = dict(zip(keys, rows, strict=True))
        if len(last) <= FEW_PARTITIONS:
            return {key: rows[keys.index(key)] for key in last}, last
        return dict(zip(reversed(keys), reversed(rows), strict=True)), last

    def _look_for_falls(self, handed: list[ck.Message]) -> None:
        """Offsets have gaps, or fall: look at each. What falls was not sought, which forgets the position."""
        at = {p: entry.offset for p, entry in self._book.reached.items()}
        for row in handed:
            if row.error() is None:
                where, offset = partition_of(row), row.offset() or 0
                if offset < at.get(where, 0):
                    self._book.went_back[where] = None
                at[where] = offset + 1

    def _not_handed_out(self) -> list[ck.Message]:
        self._work_out()
        return self._batch[len(self._batch) - len(self.ready) :]

    # -- what goes, waits and comes back

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop all that is known of these: they are read from another position, or no longer read."""
        gone = set(partitions)
        with self._lock:
            self._rearrange(lambda rows: [row for row in rows if partition_of(row) not in gone])
            self._aside = [row for row in self._aside if partition_of(row) not in gone]
            for partition in gone:
                self._book.reached.pop(partition, None)
                self._book.went_back.pop(partition, None)
            if self.filling:
                self._changed |= gone

    def discard(self) -> None:
        """Drop all unread records, since another reader reads them again. The positions stay."""
        with self._lock:
            self._rearrange(lambda _: [])
            self._aside = []
            self._book.went_back.clear()
            if self.filling:
                self._changed.update(self._book.assigned)

    def set_aside(self, partitions: Iterable[TopicPartition]) -> None:
        """These are paused: keep back their unread records. librdkafka's position is already past them."""
        paused = set(partitions)

        def parted(rows: list[ck.Message]) -> list[ck.Message]:
            self._aside = [*self._aside, *(row for row in rows if partition_of(row) in paused)]
            return [row for row in rows if partition_of(row) not in paused]

        with self._lock:
            self._book.paused |= paused
            self._rearrange(parted)

    def bring_back(self, partitions: Iterable[TopicPartition]) -> None:
        """These are resumed: their unread records are handed out first."""
        resumed = set(partitions)

        def joined(rows: list[ck.Message]) -> list[ck.Message]:
            back = [row for row in self._aside if partition_of(row) in resumed]
            self._aside = [row for row in self._aside if partition_of(row) not in resumed]
            return [*back, *rows]

        with self._lock:
            self._book.paused -= resumed
            if any(partition_of(row) in resumed for row in self._aside):
                self._rearrange(joined)

    def _rearrange(self, arranged: Callable[[list[ck.Message]], list[ck.Message]]) -> None:
        """Go on with what this makes of the unread records. What another thread takes meanwhile counts as handed out.
        Interrupted, all is as before."""
        self._work_out()
        aside, rows = self._aside, list[ck.Message]()
        try:
            self.move(rows)
            taken = set(map(id, rows))
            self._note([row for row in self._batch if id(row) not in taken])
            kept = arranged(rows)
            self._batch = list(kept)
            self.ready.extend(kept)
        except BaseException:
            if rows:  # they were moved
                self.ready.clear()
                self._aside, self._batch = aside, list(rows)
                self.ready.extend(rows)
            raise
