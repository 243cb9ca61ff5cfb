"""The data plane: two readers of the same partitions, of which one reads at a time.

poll() and consume() read through librdkafka, in manual-assign mode, with explicit offsets and without its group code.
consume_arrow() reads through our own fetcher (`arrow`). A call of the other kind hands every partition over at the
application's position. So a program may mix them: no record is lost or comes twice.

Calls come from the thread that polls, or from others in their turn (`turns`). Only assigned partitions are delivered:
when `drop` or `replace` returns, neither reader delivers what was taken away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import confluent_kafka as ck
from confluent_kafka import cimpl

from holdfast.client.partitions import (
    AS_COMMITTED,
    NOWHERE,
    RESET,
    confluent_at,
    confluent_entry,
    confluent_list,
    first_offsets,
    first_offsets_of_batch,
    name_of,
    names_of,
    offsets_of,
)
from holdfast.client.reading.librdkafka import committed_offsets, first_queued, looked_up, polled, unassign, warm
from holdfast.client.reading.positions import Positions
from holdfast.client.reading.start_offsets import check_seek, check_starts
from holdfast.client.reading.taken_ahead import Ahead, Raised
from holdfast.client.reading.turns import Turns
from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition
from holdfast.net.flows import TAIL

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.client.reading.arrow import ArrowPlane

SERVE_EVERY_S = 0.1
"""How often librdkafka is polled for its own callbacks (statistics, errors, tokens) when its records are not needed."""


class DataPlane:
    """Who reads which partitions, from where."""

    def __init__(
        self,
        handle: cimpl.Consumer,
        *,
        reset: str,
        open_arrow: Callable[[], ArrowPlane],
        raised: Raised | None = None,
    ) -> None:
        """`raised` keeps what the handle's callbacks raise."""
        self.handle = handle
        self.ahead = Ahead()
        self.turns = Turns()
        self.raised = raised or Raised()
        self._flows = False
        """Whether the last call returned records: then more are likely there, and are taken without waiting."""
        self._beside = False
        """Whether consume() handed out records without `ahead`, which must be told the positions before it is used."""
        self.assigned: set[TopicPartition] = set()
        self.arrow: ArrowPlane | None = None
        """The other reader, while it reads."""
        self._reset = RESET[reset]
        self._open_arrow = open_arrow
        self._idle_arrow: ArrowPlane | None = None
        self._places = Positions(handle, self.ahead, self.turns)
        self._sought: dict[TopicPartition, OffsetEntry] = {}
        """Where the application stood before a seek. A commit uses it until the application gets a new record."""
        self._paused: set[TopicPartition] = set()
        """Stays until resumed, also while another member owns the partition, as in librdkafka."""
        self._known: set[TopicPartition] = set()
        """Every partition that was ever read here. Others can't be paused, as in librdkafka."""
        self._serve_at = 0.0

    # -- what is assigned

    def warm(self, topics: Sequence[str]) -> None:
        """Let librdkafka look these topics up before they are needed; see `librdkafka.warm`."""
        if self.arrow is None:
            warm(self.handle, topics)

    def add(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Start these; None means that the group has no offset yet, so auto.offset.reset decides."""
        starts = {p: self._reset if at is None else at for p, at in offsets.items() if p not in self.assigned}
        if starts:
            self.take([confluent_at(p, at) for p, at in sorted(starts.items())])

    def take(self, partitions: Iterable[ck.TopicPartition]) -> None:
        """Read these too, each from the offset it names."""
        wanted = list(partitions) if self.arrow is not None else looked_up(self.handle, partitions)
        starts = offsets_of(wanted)
        with self.turns.asking():
            if self.arrow is None:
                self.handle.incremental_assign(wanted)
                self._places.starts.update(starts)
            else:
                check_starts(wanted, beside=self.assigned)
                self.arrow.add(starts)
            self.assigned |= set(starts)
            self._known |= self.assigned

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        with self.turns.asking():
            gone = sorted(set(partitions) & self.assigned)
            if not gone:
                return
            if self.arrow is not None:
                self.arrow.drop(gone)
            else:
                unassign(self.handle, gone)
            self.assigned.difference_update(gone)
            self._forget(gone)

    def replace(self, partitions: Iterable[ck.TopicPartition]) -> None:
        """A manual assignment of the user's own."""
        wanted = list(partitions) if self.arrow is not None else looked_up(self.handle, partitions)
        starts = offsets_of(wanted)
        with self.turns.asking():
            if self.arrow is not None:
                self.arrow.drop(self.assigned)
                self.arrow.add(starts)
            else:
                self.handle.assign(wanted)
            self._forget(self.assigned)
            self.assigned = set(starts)
            self._known |= self.assigned
            if self.arrow is None:
                self._places.starts = dict(starts)

    def assignment(self) -> list[ck.TopicPartition]:
        with self.turns.asking():
            return list(self.handle.assignment()) if self.arrow is None else confluent_list(self.assigned)

    def seek(self, partition: ck.TopicPartition) -> None:
        where = name_of(partition)
        with self.turns.asking():
            stood = self.standing([where])
            self._seek(where, partition)
            self._sought.update(stood)

    def _seek(self, where: TopicPartition, partition: ck.TopicPartition) -> None:
        if self.arrow is None:
            (found,) = looked_up(self.handle, [partition])
            self.handle.seek(found)
            self._places.restart(where, found.offset)
        else:
            check_seek(partition, self.assigned)
            self.arrow.seek(where, partition.offset)

    def rewind(self, taken: list[ck.Message] | pa.RecordBatch) -> None:
        """These records are not handed out after all: read each partition again from its first one."""
        first = first_offsets(taken) if isinstance(taken, list) else first_offsets_of_batch(taken)
        for where, offset in sorted(first.items()):
            if where in self.assigned:
                self._seek(where, confluent_at(where, offset))
                self._sought[where] = OffsetEntry(offset)

    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        """Stop reading these. A partition that was never read is not paused, as with librdkafka. So the first on_assign
        can pause its partitions only after it has assigned them itself."""
        with self.turns.asking():
            named = names_of(partitions) & self._known
            if self.arrow is None:
                self.handle.pause(confluent_list(named))
                self.ahead.set_aside(named)
                self._paused |= named
            else:
                self.arrow.pause(named)

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        named = names_of(partitions)
        with self.turns.asking():
            if self.arrow is None:
                self.handle.resume(partitions)
                self.ahead.bring_back(named)
                self._paused -= named
            else:
                self.arrow.resume(named)

    # -- where it stands

    def position(self, partitions: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
        """The same partitions, each with one past the last record that was handed out."""
        named = [name_of(p) for p in partitions]
        reached = self.positions(named)
        return [confluent_entry(where, reached.get(where, NOWHERE)) for where in named]

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        """Where the application stands: one past the last record it got, with that record's leader epoch if known.
        Partitions of which it got nothing are left out."""
        asked = sorted(set(partitions) & self.assigned)
        if self.arrow is not None:
            reached = {p: at for p in asked if (at := self.arrow.position(p)) is not None}
            return {p: OffsetEntry(at, self.arrow.epoch_before(p, at)) for p, at in reached.items()}
        return self._places.of(asked)

    def standing(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        """Where a commit would be made: the position, or after a seek the one before it until a new record came."""
        asked = set(partitions)
        before = {p: entry for p, entry in self._sought.items() if p in asked}
        return {**before, **self.positions(asked)}

    def watermarks(self, partition: TopicPartition) -> tuple[int, int] | None:
        """The low and high watermark that its reader has last seen."""
        if self.arrow is not None:
            return self.arrow.watermarks(partition)
        low, high = self.handle.get_watermark_offsets(confluent_at(partition, ck.OFFSET_INVALID), cached=True)
        return (low, high) if high >= 0 else None

    def lag_max(self) -> int | None:
        """The largest lag: from a position to the high watermark that the partition's reader has last seen."""
        reached = self.positions(self.assigned)
        seen = {p: marks for p in reached if (marks := self.watermarks(p)) is not None}
        return max((max(0, high - reached[p].offset) for p, (_low, high) in seen.items()), default=None)

    # -- who reads

    def to_arrow(self) -> ArrowPlane:
        """Let our own fetcher read, from where the application stands."""
        if self.arrow is None:
            arrow, self._idle_arrow = self._idle_arrow or self._open_arrow(), None
            reached = {p: entry.offset for p, entry in self.positions(self.assigned).items()}
            starts = self._librdkafka_hands_over({**self.ahead.unread(), **reached})
            self.ahead.forget(self.assigned)
            arrow.add(starts, read=reached, paused=self._paused)
            self.arrow = arrow
            self._places.starts, self._places.carried, self._paused = {}, {}, set()
        now = time.monotonic()
        if now >= self._serve_at:
            self._serve_at = now + SERVE_EVERY_S
            self.handle.poll(0)  # nothing is assigned to librdkafka now: it only makes callbacks
        return self.arrow

    def to_librdkafka(self) -> cimpl.Consumer:
        """Let librdkafka read again, from where the application stands."""
        if self.arrow is not None:
            self._arrow_hands_over(self.arrow)
        return self.handle

    def _arrow_hands_over(self, arrow: ArrowPlane) -> None:
        partitions = sorted(self.assigned)
        starts = {p: arrow.goes_on(p) for p in partitions}
        self._places.carried = {p: at for p in partitions if (at := arrow.position(p)) is not None}
        self._paused = arrow.paused
        self.ahead.paused_now(self._paused)
        arrow.drop(partitions)
        arrow.resume(self._paused)
        self.arrow, self._idle_arrow = None, arrow
        if partitions:
            found = looked_up(self.handle, [confluent_at(p, starts[p]) for p in partitions])
            self.handle.incremental_assign(found)
            self._places.starts = offsets_of(found)
        self.handle.pause(confluent_list(self._paused))
        self.handle.resume(confluent_list(self._known - self._paused))

    def _librdkafka_hands_over(self, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Unassign everything from librdkafka, and return where each partition goes on.

        A partition that was to start at the end and has delivered nothing yet started at an offset that we were not
        told. If records came since, the first one in librdkafka's queue is at that offset. If none came, the end has
        not moved.
        """
        starts = {p: reached.get(p, self._places.starts.get(p, self._reset)) for p in self.assigned}
        unnamed = [p for p, at in starts.items() if at in AS_COMMITTED]
        if unnamed:  # librdkafka looks these up when it begins to read, our fetcher can't
            known = committed_offsets(self.handle, unnamed)
            starts.update({p: known.get(p, self._reset) for p in unnamed})
        open_ends = {p for p, at in starts.items() if at == ck.OFFSET_END or at <= TAIL}
        unassign(self.handle, self.assigned - open_ends)
        queued = first_queued(self.handle, len(open_ends))
        for partition in sorted(open_ends):
            marks = self.watermarks(partition)
            if partition in queued:
                starts[partition] = queued[partition]
            elif marks is not None and starts[partition] == ck.OFFSET_END:
                starts[partition] = marks[1]
        unassign(self.handle, open_ends)
        return starts

    # -- librdkafka's records

    def gather(self, wait_s: float, *, slices: int = 1, calm: Callable[[], bool] = lambda: True) -> None:
        """Take records from librdkafka if none is ready. Waits up to `slices` times `wait_s`, and only while `calm`.

        If records are ready, librdkafka is polled only as often as its callbacks need it.
        """
        now = time.monotonic()
        if not self.ahead.ready or now >= self._serve_at:
            self._serve_at = now + SERVE_EVERY_S
            self._fill(wait_s, slices, calm)

    def brings_nothing(self) -> bool:
        """Poll librdkafka without waiting, and do nothing else. True if there was no record and no callback raised; a
        record that came is kept in `ahead`. A short cut for an idle consumer that polls with timeout 0. `gather` was
        called just before, so librdkafka is the reader and `ahead` knows the positions."""
        self.turns.begin_poll()
        try:
            came = self._take_in(lambda: polled(self.handle, 0))
        finally:
            self.turns.end_poll()
        return not came and self.raised.first is None

    def _fill(self, wait_s: float, slices: int, calm: Callable[[], bool]) -> None:
        with self.turns.polling():
            handle, ahead = self.to_librdkafka(), self.ahead
            if self._beside:
                ahead.stands(self.positions(self.assigned))
                self._beside = False
            if ahead.ready:  # librdkafka is polled only for its callbacks
                self._take_in(lambda: polled(handle, 0))
            elif self._flows:
                self._take_in(lambda: handle.consume(ahead.wanted, 0))
            else:
                self._take_in(lambda: self._waited_for(handle, wait_s, slices, calm))
            self._flows = bool(ahead.ready)

    def _take_in(self, ask: Callable[[], list[ck.Message]]) -> bool:
        """Put what `ask` gets from librdkafka into `ahead`. True if anything came."""
        ahead = self.ahead
        try:
            ahead.begin()
            came = ask()
            doubted = ahead.put(came) if came else None
            ahead.filling = False
            if doubted:
                self._read_doubted_again(doubted)
        except BaseException:  # Ctrl-C on the way from librdkafka to here
            ahead.filling = False
            self._read_again()
            raise
        return bool(came)

    def _waited_for(
        self, handle: cimpl.Consumer, wait_s: float, slices: int, calm: Callable[[], bool]
    ) -> list[ck.Message]:
        """Wait for the next message: in slices, and only while nothing else has to be done."""
        came = polled(handle, wait_s)
        while not came and (slices := slices - 1) > 0 and calm():
            if self.raised.first is not None or self.turns.wanted:  # a callback raised, or another thread waits
                break
            came = polled(handle, wait_s)
        return came

    def _read_doubted_again(self, doubted: Iterable[TopicPartition]) -> None:
        """A callback changed the position of these while librdkafka returned records. Nothing tells whether the
        records are from before or after that, so they are read again from the new position."""
        for partition in sorted(set(doubted) & self.assigned):
            at = self._places.starts.get(partition, ck.OFFSET_INVALID)
            if at not in AS_COMMITTED:
                self._seek(partition, confluent_at(partition, at))

    def _read_again(self) -> None:
        """Records that librdkafka returned may be lost: read again from the application's position."""
        for partition, given in sorted(self._places.returned(self.assigned).items()):
            stands = self.ahead.reached(partition)
            reached = self._places.carried.get(partition) if stands is None else stands.offset
            at = self._places.starts.get(partition, ck.OFFSET_INVALID) if reached is None else reached
            if at != given.offset and (at >= 0 or at == ck.OFFSET_BEGINNING):
                self._seek(partition, confluent_at(partition, at))
                if reached is not None:
                    self._places.carried[partition] = reached

    def consume(self, count: int, wait_s: float) -> list[ck.Message]:
        """Hand out up to `count` records."""
        with self.turns.polling():
            handle = self.to_librdkafka()
            rows = self.ahead.take(count)
            if len(rows) < count:
                self._beside = True
                rows += handle.consume(count - len(rows), 0 if rows else wait_s)
        return rows

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = list(partitions)
        for partition in gone:
            self._sought.pop(partition, None)
        self._places.forget(gone)

    def close(self) -> None:
        self.assigned = set()
        for arrow in (self.arrow, self._idle_arrow):
            if arrow is not None:
                arrow.close()
        self.arrow = self._idle_arrow = None
        self.ahead.ready.clear()
        with self.turns.asking():
            self.handle.close()
        self.raised.raise_first()
