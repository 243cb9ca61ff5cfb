"""The fetcher's answers on their way to rows: fed to the decoder in order, and released when all their rows are taken.

A partition's position is one past the last row that was taken, and past rows that were filtered out after it. Where the
decoder has none yet, it is what the book says.

It has no lock: `batch_reader` holds one around every call.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.client.reading.book import Book
from holdfast.client.reading.epochs import Epochs
from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition
from holdfast.net.flow_values import NO_END, Fetched
from holdfast.net.flows import Flows

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.records.arrow import ArrowDecoder


@dataclass(frozen=True, slots=True)
class Stand:
    """Where the application stood at some time: the decoder's positions, and the book's."""

    decoded: dict[TopicPartition, int]
    reached: dict[TopicPartition, OffsetEntry]
    starts: dict[TopicPartition, int]


class Answers:
    """What was fetched of one reader's partitions and not taken yet."""

    def __init__(
        self, decoder: ArrowDecoder, flows: Flows, book: Book, *, ended: Callable[[TopicPartition, Fetched], None]
    ) -> None:
        """`ended` is called when a partition was read to its end."""
        self.epochs = Epochs()
        self._decoder = decoder
        self._flows = flows
        self._book = book
        self._ended = ended
        self._fed: dict[TopicPartition, deque[Fetched]] = {}
        self._fed_rows = 0
        self._eras: dict[TopicPartition, int] = {}

    # -- rows

    def feed(self, max_rows: int) -> bool:
        """Feed the decoder enough for a batch, one answer of each partition in turn. False when there was nothing."""
        fed = False
        while self._fed_rows < max_rows:
            found = self._flows.next_answer()
            if found is None:
                break
            flow, answer = found
            where = flow.partition
            if self._comes_later(where, answer):
                self._flows.put_back(flow, answer)
                break
            if answer.end != NO_END:
                self._ended(where, answer)
                continue
            self._feed_one(where, answer)
            fed = True
        return fed

    def _comes_later(self, where: TopicPartition, answer: Fetched) -> bool:
        """Whether the rows before it must be taken first: it marks an end, or is the first answer after a reset."""
        breaks = answer.end != NO_END or answer.era != self._eras.get(where, 0)
        return breaks and self._decoder.waits(where.topic, where.partition)

    def _feed_one(self, where: TopicPartition, answer: Fetched) -> None:
        starts, reached = self._book.starts, self._book.reached
        if answer.era != self._eras.get(where, 0):
            self._decoder.discard(where.topic, where.partition)
            reached.pop(where, None)
            self._eras[where], starts[where] = answer.era, answer.start
        if starts[where] < 0:
            starts[where] = answer.start  # a symbolic offset that has been looked up
        stands = reached.get(where)
        self._decoder.feed(
            answer.records,
            topic=where.topic,
            partition=where.partition,
            lo=answer.start if stands is None else max(answer.start, stands.offset),
            aborted=answer.aborted,
        )
        self._fed.setdefault(where, deque()).append(answer)
        self._fed_rows += answer.rows
        self.epochs.note(where, answer.epochs)

    def take(self, max_rows: int, *, include_headers: bool) -> pa.RecordBatch | None:
        """The next rows of what was fed. Raises `Unreadable` for a batch that can't be read; then call `step_back`."""
        batch = self._decoder.take(max_rows=max_rows, include_headers=include_headers)
        self._let_go()
        return batch

    def step_back(self, backoff_s: float) -> None:
        """A batch could not be read: its partition is fetched again from there, after a pause."""
        later = time.monotonic() + backoff_s
        for partition, answers in list(self._fed.items()):
            position = self._decoder.position(partition)
            unread = position is None or position < answers[-1].next_offset
            if unread and not self._decoder.waits(partition.topic, partition.partition):
                start = self._book.starts[partition] if position is None else position
                del self._fed[partition]
                self._flows.seek(partition, start, not_before=later)
        self._let_go()

    def _let_go(self) -> None:
        """Release answers of which every row was handed out, so that more can be fetched."""
        for partition, answers in list(self._fed.items()):
            waits = self._decoder.waits(partition.topic, partition.partition)
            position = self._decoder.position(partition)
            while answers and (not waits or (position is not None and answers[0].next_offset <= position)):
                self._flows.read(partition, answers.popleft().size)
            if not answers:
                del self._fed[partition]
        self._fed_rows = sum(answer.rows for answers in self._fed.values() for answer in answers)

    # -- where it stands

    def position(self, partition: TopicPartition) -> OffsetEntry | None:
        """One past the last row that was taken; None before the first."""
        found = self._decoder.position(partition)
        if found is not None and found > self._book.starts.get(partition, 0):
            return self.entry(partition, found)
        return self._book.reached.get(partition)

    def stand(self) -> Stand:
        """All positions before the next batch is taken. Copied as they are, since every batch asks."""
        return Stand(self._decoder.marks(), dict(self._book.reached), dict(self._book.starts))

    def positions_at(self, stand: Stand) -> dict[TopicPartition, OffsetEntry]:
        moved = {p: at for p, at in stand.decoded.items() if at > stand.starts.get(p, 0)}
        return {**stand.reached, **{p: self.entry(p, at) for p, at in moved.items()}}

    def entry(self, partition: TopicPartition, offset: int) -> OffsetEntry:
        """This offset, with the leader epoch of the record before it if that is known."""
        return OffsetEntry(offset, self.epochs.one(partition, offset - 1))

    def resume_at(self, partition: TopicPartition) -> int:
        """Where another reader has to continue: the position, or else the start."""
        position = self.position(partition)
        if position is not None:
            return position.offset
        placed = None if partition in self._fed else self._flows.unread_from(partition)
        return self._book.starts[partition] if placed is None else placed

    def pause(self, partition: TopicPartition) -> None:
        """Hold it back. Answers that are not taken yet are kept, and those that still arrive are held back too."""
        position = self.position(partition)
        self._decoder.discard(partition.topic, partition.partition)
        if position is not None:
            self._book.reached[partition] = position
        self._flows.pause(partition, self._fed.pop(partition, ()))

    def forget(self, partition: TopicPartition) -> None:
        """It is read from elsewhere: nothing that was fetched of it counts."""
        self._decoder.discard(partition.topic, partition.partition)
        self._fed.pop(partition, None)

    def drop(self, partition: TopicPartition) -> None:
        """It is no longer read."""
        self.forget(partition)
        self.epochs.forget(partition)
        self._eras.pop(partition, None)
