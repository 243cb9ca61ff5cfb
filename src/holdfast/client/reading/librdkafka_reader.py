"""The reader of poll() and consume(): librdkafka fetches and decodes, and hands over confluent-kafka's messages.

Records are taken from it a few hundred at a time into `ahead`, and handed out from there one by one. The application's
position in a partition is one past the last record that was handed out, and past what comes after it that nobody gets:
the marker at the end of a transaction, aborted records. Of these only librdkafka knows. But its positions are past what
`ahead` still holds too, and do not go back when a topic was recreated and is read again from its beginning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

import confluent_kafka as ck
from confluent_kafka import cimpl

from holdfast.client.partitions import (
    AS_COMMITTED,
    confluent_at,
    confluent_list,
    epoch_of,
    name_of,
    names_of,
    offsets_of,
)
from holdfast.client.raised import Raised
from holdfast.client.reading.book import Book
from holdfast.client.reading.librdkafka import committed_offsets, first_queued, looked_up, polled, unassign
from holdfast.client.reading.taken_ahead import Ahead
from holdfast.client.reading.turns import Turns
from holdfast.client.telemetry.connections import BrokersSeen
from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition
from holdfast.net.flow_values import TAIL

SERVE_EVERY_S = 0.1
"""How often librdkafka is polled for its own callbacks (statistics, errors, tokens) when its records are not needed."""


class LibrdkafkaReader:
    """A `Reader` over confluent-kafka's handle."""

    finds_committed = True
    in_statistics = True

    def __init__(
        self,
        handle: cimpl.Consumer,
        book: Book,
        *,
        turns: Turns,
        raised: Raised,
        reset: int,
        brokers: BrokersSeen | None = None,
    ) -> None:
        """`raised` keeps what the handle's callbacks raise, `brokers` what they say about connections; `reset` is where
        auto.offset.reset starts."""
        self.handle = handle
        self.book = book
        self.ahead = Ahead(book)
        self._turns = turns
        self.raised = raised
        self._reset = reset
        self._brokers = brokers
        self._flows = False
        """Whether the last call returned records: then more are likely there, and are taken without waiting."""
        self._serve_at = 0.0

    # -- what is read

    def add(self, partitions: Sequence[ck.TopicPartition]) -> None:
        wanted = looked_up(self.handle, partitions)
        self.handle.incremental_assign(wanted)
        self.book.begin(offsets_of(wanted))

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        unassign(self.handle, partitions)
        self._forget(partitions)

    def drop_again(self, partitions: Collection[TopicPartition]) -> None:
        unassign(self.handle, names_of(self.handle.assignment()).intersection(partitions))
        self._forget(partitions)

    def replace(self, partitions: Sequence[ck.TopicPartition]) -> None:
        wanted = looked_up(self.handle, partitions)
        self.handle.assign(wanted)
        self._forget(self.book.assigned)
        self.book.begin(offsets_of(wanted))

    def seek(self, partition: ck.TopicPartition) -> None:
        (found,) = looked_up(self.handle, [partition])
        self.handle.seek(found)
        where = name_of(partition)
        self.ahead.forget([where])
        self.book.restart(where, found.offset)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self.handle.pause(confluent_list(partitions))
        self.ahead.set_aside(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self.handle.resume(confluent_list(partitions))
        self.ahead.bring_back(partitions)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = list(partitions)
        self.ahead.forget(gone)
        self.book.forget(gone)

    # -- where it stands

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        self._ask_what_was_passed(partitions)
        return self.ahead.positions(partitions)

    def handed_out(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        return self.ahead.positions(partitions)

    def _ask_what_was_passed(self, partitions: Collection[TopicPartition]) -> None:
        """Not while librdkafka is asked for records (then one of its callbacks asks, or another thread polls): it may
        be past records that are still on their way into `ahead`."""
        ahead = self.ahead
        with self._turns.asking():
            fills = ahead.fills
            if not ahead.filling:
                theirs = self._returned(set(partitions) - ahead.unread().keys())
                if ahead.fills == fills:
                    ahead.passed(theirs)

    def _returned(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        """librdkafka's own position: one past the last record it returned, for partitions where it returned one."""
        listed = confluent_list(partitions)
        if not listed:
            return {}
        with self._turns.asking():
            found = self.handle.position(listed)
        return {name_of(p): OffsetEntry(p.offset, epoch_of(p)) for p in found if p.error is None and p.offset >= 0}

    def watermarks(self, partition: TopicPartition) -> tuple[int, int] | None:
        low, high = self.handle.get_watermark_offsets(confluent_at(partition, ck.OFFSET_INVALID), cached=True)
        return (low, high) if high >= 0 else None

    # -- records

    def take(self, count: int, wait_s: float) -> list[ck.Message]:
        rows: list[ck.Message] = []
        self.take_into(rows, count, wait_s)
        return rows

    def take_into(self, rows: list[ck.Message], count: int, wait_s: float) -> None:
        """Append up to `count` to these. If it is interrupted, what was taken is in there, or is read again."""
        self._turns.begin_poll()
        try:
            before = len(rows)
            self.ahead.move(rows, count)
            came = len(rows) - before
            if came < count:
                self._hand_out_at_once(rows, count - came, 0 if came else wait_s)
        finally:
            self._turns.end_poll()

    def _hand_out_at_once(self, rows: list[ck.Message], count: int, wait_s: float) -> None:
        """Records from librdkafka that don't go through `ahead`, which only notes the positions after them."""
        ahead = self.ahead
        try:
            ahead.begin()
            came = self.handle.consume(count, wait_s)
            rows += came
            self.raised.call_back()
            ahead.note(came)
            ahead.filling = False
        except BaseException:  # Ctrl-C on the way from librdkafka to here
            ahead.filling = False
            self._read_again()
            raise

    def gather(self, wait_s: float, *, slices: int = 1, calm: Callable[[], bool] = lambda: True) -> None:
        """Take records from librdkafka if none is ready. Waits up to `slices` times `wait_s`, and only while `calm`.

        If records are ready, librdkafka is polled only as often as its callbacks need it.
        """
        now = time.monotonic()
        if not self.ahead.ready or now >= self._serve_at:
            self._serve_at = now + SERVE_EVERY_S
            self._fill(wait_s, slices, calm)

    def idle_poll(self) -> bool:
        """Poll librdkafka without waiting, and do nothing else. True if no record came and no callback raised; a record
        that came is kept in `ahead`. A short cut for an idle consumer that polls with timeout 0: this reader must be in
        charge."""
        self._turns.begin_poll()
        try:
            came = self._take_in(lambda: polled(self.handle, 0))
        finally:
            self._turns.end_poll()
        return not came and self.raised.first is None

    def look_for_brokers(self) -> None:
        """Log that no broker can be reached, if so."""
        if self._brokers is not None and self._brokers.down:
            self._brokers.look(self.handle)

    def make_callbacks(self) -> None:
        """While the other reader is in charge: nothing is assigned to librdkafka, and it only makes its callbacks."""
        now = time.monotonic()
        if now >= self._serve_at:
            self._serve_at = now + SERVE_EVERY_S
            self.handle.poll(0)
            self.raised.call_back()

    def _fill(self, wait_s: float, slices: int, calm: Callable[[], bool]) -> None:
        self._turns.begin_poll()
        try:
            handle, ahead = self.handle, self.ahead
            if ahead.ready:  # librdkafka is polled only for its callbacks
                self._take_in(lambda: polled(handle, 0))
            elif self._flows:
                self._take_in(lambda: handle.consume(ahead.wanted, 0) or self._wait_for_message(wait_s, slices, calm))
            else:
                self._take_in(lambda: self._wait_for_message(wait_s, slices, calm))
            self._flows = bool(ahead.ready)
        finally:
            self._turns.end_poll()

    def _take_in(self, ask: Callable[[], list[ck.Message]]) -> bool:
        """Put what `ask` gets from librdkafka into `ahead`. True if anything came."""
        ahead = self.ahead
        try:
            ahead.begin()
            came = ask()
            self.raised.call_back()
            doubted = ahead.put(came) if came else None
            ahead.filling = False
            if doubted:
                self._read_doubted_again(doubted)
        except BaseException:  # Ctrl-C on the way from librdkafka to here
            ahead.filling = False
            self._read_again()
            raise
        return bool(came)

    def _wait_for_message(self, wait_s: float, slices: int, calm: Callable[[], bool]) -> list[ck.Message]:
        """Wait for the next message: in slices, and only while nothing else has to be done."""
        came = polled(self.handle, wait_s)
        while not came and (slices := slices - 1) > 0 and calm():
            self.raised.call_back()
            if self.raised.first is not None or self._turns.wanted:  # a callback raised, or another thread waits
                break
            came = polled(self.handle, wait_s)
        return came

    def _read_doubted_again(self, doubted: Iterable[TopicPartition]) -> None:
        """A callback changed the position of these while librdkafka returned records. Nothing tells whether the
        records are from before or after that, so they are read again from the new position."""
        for partition in sorted(set(doubted) & self.book.assigned):
            at = self.book.starts[partition]
            if at not in AS_COMMITTED:
                self.seek(confluent_at(partition, at))

    def _read_again(self) -> None:
        """Records that librdkafka returned may be lost: read again from the application's position."""
        for partition, given in sorted(self._returned(self.book.assigned).items()):
            reached = self.ahead.reached(partition)
            at = self.book.starts[partition] if reached is None else reached.offset
            if at != given.offset and (at >= 0 or at == ck.OFFSET_BEGINNING):
                self.seek(confluent_at(partition, at))
                if reached is not None:
                    self.book.reached[partition] = reached

    # -- who reads

    def write_down(self) -> None:
        assigned = set(self.book.assigned)
        # Only where records were handed out: until librdkafka begins, its position may be of an earlier assignment.
        reached = {p: entry.offset for p, entry in self.positions(self.ahead.positions(assigned).keys()).items()}
        starts = {**self.book.starts, **self.ahead.unread(), **reached}
        unnamed = [p for p in assigned if starts[p] in AS_COMMITTED]
        if unnamed:  # librdkafka looks these up when it begins to read, our fetcher can't
            known = committed_offsets(self.handle, unnamed)
            starts.update({p: known.get(p, self._reset) for p in unnamed})
        self.book.starts.update({p: starts[p] for p in assigned})

    def stop(self) -> None:
        open_ends = {p for p, at in self.book.starts.items() if at == ck.OFFSET_END or at <= TAIL}
        if open_ends:
            self._find_ends(open_ends)
        self.handle.unassign()
        self.ahead.discard()

    def _find_ends(self, open_ends: set[TopicPartition]) -> None:
        """Write down where these began: they were to start at the end, have delivered nothing yet, and we were not told
        at which offset. If records came since, the first one in librdkafka's queue is at that offset. If none came, the
        end has not moved. The others are unassigned first, so that only these are in the queue."""
        there = names_of(self.handle.assignment())
        unassign(self.handle, there - open_ends)
        queued = first_queued(self.handle, len(open_ends))
        for partition in sorted(open_ends):
            marks = self.watermarks(partition)
            if partition in queued:
                self.book.starts[partition] = queued[partition]
            elif marks is not None and self.book.starts[partition] == ck.OFFSET_END:
                self.book.starts[partition] = marks[1]

    def take_over(self) -> None:
        starts = [confluent_at(p, at) for p, at in sorted(self.book.starts.items())]
        if starts:
            found = looked_up(self.handle, starts)
            self.handle.assign(found)
            self.book.begin(offsets_of(found))
        self.handle.pause(confluent_list(self.book.paused))
        self.handle.resume(confluent_list(self.book.known - self.book.paused))

    def close(self) -> None:
        self.ahead.ready.clear()
        with self._turns.asking():
            self.handle.close()
        self.raised.call_back()
        self.raised.raise_first()
