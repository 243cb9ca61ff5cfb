"""The data plane: two readers of the same partitions, of which one reads at a time.

poll() and consume() read through librdkafka, in manual-assign mode, with explicit offsets and without its group code.
consume_arrow() reads through our own fetcher (`arrow`). A call of the other kind hands every partition over at the
application's position. So a program may mix them: no record is lost or comes twice.

Calls come from the thread that polls, or from others in their turn (`turns`).

Only assigned partitions are delivered. When `drop` or `replace` returns, neither reader delivers what was taken away.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
from confluent_kafka import cimpl

from holdfast.client.config.known import as_config_error
from holdfast.client.member.patterns import is_pattern
from holdfast.client.reading.start_offsets import check_seek, check_starts
from holdfast.client.reading.taken_ahead import Ahead, Raised
from holdfast.client.reading.turns import Turns
from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition
from holdfast.net.flows import TAIL

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.client.reading.arrow import ArrowPlane

LOOKED_UP = (ck.OFFSET_BEGINNING, ck.OFFSET_END)
"""Symbolic offsets that we look up, because librdkafka must not (`DataPlane._found`)."""

AS_COMMITTED = (ck.OFFSET_INVALID, ck.OFFSET_STORED)
"""No offset was named: reading starts at the group's committed offset."""

RESET = {"earliest": ck.OFFSET_BEGINNING, "latest": ck.OFFSET_END, "error": ck.OFFSET_INVALID}

SERVE_EVERY_S = 0.1
"""How often librdkafka is polled for its own callbacks (statistics, errors, tokens) when its records are not needed."""

LOOK_AT = 10_000
"""How many records are taken from librdkafka's queue at a time to find out where "the end" was."""

COMMITTED_S = 30.0
"""Time limit for asking for committed offsets, when our fetcher takes over what librdkafka has not begun yet."""

LOOK_UP_S = 1.0
"""Time limit for looking up where partitions begin or end. It takes two milliseconds unless their leaders are gone."""

WARM_S = 0.2
"""Time limit for one look-up at subscribe. On a healthy cluster it takes two milliseconds."""

WARM_SINGLY = 8
"""With more topics than this, or with a pattern, all topics of the cluster are looked up in one request."""


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
        self._starts: dict[TopicPartition, int] = {}
        """Where librdkafka was told to start: the position until it has delivered something."""
        self._carried: dict[TopicPartition, int] = {}
        """Positions reached by our fetcher, until librdkafka has one of its own."""
        self._sought: dict[TopicPartition, OffsetEntry] = {}
        """Where the application stood before a seek. A commit uses it until the application gets a new record."""
        self._paused: set[TopicPartition] = set()
        """Stays until resumed, also while another member owns the partition, as in librdkafka."""
        self._known: set[TopicPartition] = set()
        """Every partition that was ever read here. Others can't be paused, as in librdkafka."""
        self._serve_at = 0.0

    # -- what is assigned

    def warm(self, topics: Sequence[str]) -> None:
        """Let librdkafka look these topics up before they are needed: a topic it does not know costs half a second
        when it is first read.

        To be called by the polling thread: on another one it would wait until that one stops polling.
        """
        if self.arrow is not None:
            return
        one_by_one = len(topics) <= WARM_SINGLY and not any(map(is_pattern, topics))
        with contextlib.suppress(ck.KafkaException):  # not reachable yet: then it is looked up when needed
            for topic in topics if one_by_one else [None]:
                found = self.handle.list_topics(topic, timeout=WARM_S).topics
                if one_by_one:
                    self._connect(found)

    def _connect(self, topics: Mapping[str, Any]) -> None:
        """Ask the leaders something small, so that librdkafka connects to them now and not with the first fetch."""
        by_leader = {
            part.leader: ck.TopicPartition(name, part.id, ck.OFFSET_END)
            for name, topic in topics.items()
            for part in topic.partitions.values()
            if part.leader >= 0
        }
        if by_leader:
            self.handle.offsets_for_times(list(by_leader.values()), timeout=WARM_S)

    def add(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Start these; None means that the group has no offset yet, so auto.offset.reset decides."""
        starts = {p: self._reset if at is None else at for p, at in offsets.items() if p not in self.assigned}
        if starts:
            self.take([ck.TopicPartition(p.topic, p.partition, at) for p, at in sorted(starts.items())])

    def take(self, partitions: Iterable[ck.TopicPartition]) -> None:
        """Read these too, each from the offset it names."""
        wanted = list(partitions) if self.arrow is not None else self._found(partitions)
        starts = _starts(wanted)
        with self.turns.first():
            if self.arrow is None:
                self.handle.incremental_assign(wanted)
                self._starts.update(starts)
            else:
                check_starts(wanted, beside=self.assigned)
                self.arrow.add(starts)
            self.assigned |= set(starts)
            self._known |= self.assigned

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        with self.turns.first():
            gone = sorted(set(partitions) & self.assigned)
            if gone:
                if self.arrow is not None:
                    self.arrow.drop(gone)
                else:
                    self.handle.incremental_unassign(_listed(gone))
                self.assigned -= set(gone)
                self._forget(gone)

    def replace(self, partitions: Iterable[ck.TopicPartition]) -> None:
        """A manual assignment of the user's own."""
        wanted = list(partitions) if self.arrow is not None else self._found(partitions)
        starts = _starts(wanted)
        with self.turns.first():
            if self.arrow is not None:
                self.arrow.drop(self.assigned)
                self.arrow.add(starts)
            else:
                self.handle.assign(wanted)
            self._forget(self.assigned)
            self.assigned = set(starts)
            self._known |= self.assigned
            if self.arrow is None:
                self._starts = dict(starts)

    def assignment(self) -> list[ck.TopicPartition]:
        with self.turns.first():
            return list(self.handle.assignment()) if self.arrow is None else _listed(self.assigned)

    def seek(self, partition: ck.TopicPartition) -> None:
        where = TopicPartition(partition.topic, partition.partition)
        with self.turns.first():
            stood = self.standing([where])
            self._seek(where, partition)
            self._sought.update(stood)

    def _seek(self, where: TopicPartition, partition: ck.TopicPartition) -> None:
        if self.arrow is None:
            (found,) = self._found([partition])
            self.handle.seek(found)
            self._starts[where] = found.offset
            self.ahead.forget([where])
            self._carried.pop(where, None)
        else:
            check_seek(partition, self.assigned)
            self.arrow.seek(where, partition.offset)

    def rewind(self, taken: list[ck.Message] | pa.RecordBatch) -> None:
        """These records are not handed out after all: read each partition again from its first one."""
        first = _first_of_messages(taken) if isinstance(taken, list) else _first_of_rows(taken)
        for where, offset in sorted(first.items()):
            if where in self.assigned:
                self._seek(where, ck.TopicPartition(where.topic, where.partition, offset))
                self._sought[where] = OffsetEntry(offset)

    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        """Stop reading these. A partition that was never read is not paused, as with librdkafka. So the first on_assign
        can pause its partitions only after it has assigned them itself."""
        with self.turns.first():
            named = {TopicPartition(p.topic, p.partition) for p in partitions} & self._known
            if self.arrow is None:
                self.handle.pause(_listed(named))
                self.ahead.set_aside(named)
                self._paused |= named
            else:
                self.arrow.pause(named)

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        named = {TopicPartition(p.topic, p.partition) for p in partitions}
        with self.turns.first():
            if self.arrow is None:
                self.handle.resume(partitions)
                self.ahead.bring_back(named)
                self._paused -= named
            else:
                self.arrow.resume(named)

    # -- where it stands

    def position(self, partitions: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
        """The same partitions, each with one past the last record that was handed out."""
        reached = self.positions(TopicPartition(p.topic, p.partition) for p in partitions)
        named = (TopicPartition(p.topic, p.partition) for p in partitions)
        return [as_listed(where, reached.get(where, NOWHERE)) for where in named]

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        """Where the application stands: one past the last record it got, with that record's leader epoch if known.
        Partitions of which it got nothing are left out."""
        asked = sorted(set(partitions) & self.assigned)
        if self.arrow is not None:
            reached = {p: at for p in asked if (at := self.arrow.position(p)) is not None}
            return {p: OffsetEntry(at, self.arrow.epoch_before(p, at)) for p, at in reached.items()}
        if not asked:
            return {}
        found = {p: OffsetEntry(self._carried[p]) for p in asked if p in self._carried}
        unread, theirs = self._of_librdkafka(asked)
        return found | theirs | {p: entry for p in unread if (entry := self.ahead.reached(p)) is not None}

    def _of_librdkafka(
        self, asked: Collection[TopicPartition]
    ) -> tuple[Collection[TopicPartition], dict[TopicPartition, OffsetEntry]]:
        """The partitions with unread records, and librdkafka's positions in the others.

        Its positions are past every record it returns, also past records that are still on their way into `ahead`. So
        they don't count while it is being asked for records (then one of its callbacks asks, or another thread polls),
        nor if it was asked for records in between. While it is being asked, all partitions count as unread.
        """
        ahead = self.ahead
        while not ahead.filling:
            fills = ahead.fills
            unread = sorted(ahead.unread().keys() & asked) if ahead else []
            theirs = self._given(set(asked).difference(unread))
            if ahead.fills == fills:
                return unread, theirs
        return asked, {}

    def _given(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        """librdkafka's position: one past the last record it returned, for partitions where it returned one."""
        listed = _listed(partitions)
        if not listed:
            return {}
        with self.turns.first():
            found = self.handle.position(listed)
        return {
            TopicPartition(p.topic, p.partition): OffsetEntry(p.offset, epoch_of(p))
            for p in found
            if p.error is None and p.offset >= 0
        }

    def standing(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        """Where a commit would be made: the position, or after a seek the one before it until a new record came."""
        asked = set(partitions)
        before = {p: entry for p, entry in self._sought.items() if p in asked}
        return {**before, **self.positions(asked)}

    def watermarks(self, partition: TopicPartition) -> tuple[int, int] | None:
        """The low and high watermark that its reader has last seen."""
        if self.arrow is not None:
            return self.arrow.watermarks(partition)
        low, high = self.handle.get_watermark_offsets(
            ck.TopicPartition(partition.topic, partition.partition), cached=True
        )
        return (low, high) if high >= 0 else None

    def lag_max(self) -> int | None:
        """The largest lag: from a position to the high watermark that the partition's reader has last seen."""
        lags = []
        for partition, position in self.positions(self.assigned).items():
            seen = self.watermarks(partition)
            if seen is not None:
                lags.append(max(0, seen[1] - position.offset))
        return max(lags, default=None)

    # -- who reads

    def to_arrow(self) -> ArrowPlane:
        """Let our own fetcher read, from where the application stands."""
        if self.arrow is None:
            arrow = self._idle_arrow or self._open_arrow()
            self._idle_arrow = None
            reached = {p: entry.offset for p, entry in self.positions(self.assigned).items()}
            starts = self._starts_now({**self.ahead.unread(), **reached})
            self.ahead.forget(self.assigned)
            arrow.add(starts, read=reached, paused=self._paused)
            self.arrow = arrow
            self._starts, self._carried, self._paused = {}, {}, set()
        now = time.monotonic()
        if now >= self._serve_at:
            self._serve_at = now + SERVE_EVERY_S
            self.handle.poll(0)  # nothing is assigned to librdkafka now: it only makes callbacks
        return self.arrow

    def to_records(self) -> cimpl.Consumer:
        """Let librdkafka read again, from where the application stands."""
        if self.arrow is not None:
            self._hand_back(self.arrow)
        return self.handle

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
        ahead = self.ahead
        self.turns.take_last()
        try:
            ahead.begin()
            message = self.handle.poll(0)
            doubted = ahead.put([message]) if message is not None else ()
            ahead.filling = False
            if doubted:
                self._read_anew(doubted)
        except BaseException:  # Ctrl-C on the way from librdkafka to here
            ahead.filling = False
            self._take_back()
            raise
        finally:
            self.turns.give_back()
        return message is None and self.raised.first is None

    def _fill(self, wait_s: float, slices: int, calm: Callable[[], bool]) -> None:
        with self.turns.last():
            handle, ahead = self.to_records(), self.ahead
            if self._beside:
                ahead.stands(self.positions(self.assigned))
                self._beside = False
            ahead.begin()
            try:
                if self._flows and not ahead.ready:
                    doubted = ahead.put(handle.consume(ahead.wanted, 0))
                else:
                    wait_s = 0 if ahead.ready else wait_s
                    message = handle.poll(wait_s)
                    while message is None and (slices := slices - 1) > 0 and calm() and not self._interrupted():
                        message = handle.poll(wait_s)
                    doubted = ahead.put([] if message is None else [message])
            except BaseException:  # Ctrl-C on the way from librdkafka to here
                ahead.filling = False
                self._take_back()
                raise
            ahead.filling = False
            self._read_anew(doubted)
            self._flows = bool(ahead.ready)

    def _interrupted(self) -> bool:
        """Whether there is something to do before a record comes: a callback raised, or another thread waits."""
        return self.raised.first is not None or self.turns.wanted

    def _read_anew(self, doubted: Iterable[TopicPartition]) -> None:
        """A callback changed the position of these while librdkafka returned records. Nothing tells whether the
        records are from before or after that, so they are read again from the new position."""
        for partition in sorted(set(doubted) & self.assigned):
            at = self._starts.get(partition, ck.OFFSET_INVALID)
            if at not in AS_COMMITTED:
                self._seek(partition, ck.TopicPartition(partition.topic, partition.partition, at))

    def _take_back(self) -> None:
        """Records that librdkafka returned may be lost: read again from the application's position."""
        for partition, given in sorted(self._given(self.assigned).items()):
            stands = self.ahead.reached(partition)
            reached = self._carried.get(partition) if stands is None else stands.offset
            at = self._starts.get(partition, ck.OFFSET_INVALID) if reached is None else reached
            if at != given.offset and (at >= 0 or at == ck.OFFSET_BEGINNING):
                self._seek(partition, ck.TopicPartition(partition.topic, partition.partition, at))
                if reached is not None:
                    self._carried[partition] = reached

    def consume(self, count: int, wait_s: float) -> list[ck.Message]:
        """Hand out up to `count` records."""
        with self.turns.last():
            handle = self.to_records()
            rows = self.ahead.take(count)
            if len(rows) < count:
                self._beside = True
                rows += handle.consume(count - len(rows), 0 if rows else wait_s)
        return rows

    def _hand_back(self, arrow: ArrowPlane) -> None:
        partitions = sorted(self.assigned)
        starts = {p: arrow.goes_on(p) for p in partitions}
        self._carried = {p: at for p in partitions if (at := arrow.position(p)) is not None}
        self._paused = arrow.paused
        self.ahead.paused_now(self._paused)
        arrow.drop(partitions)
        arrow.resume(self._paused)
        self.arrow, self._idle_arrow = None, arrow
        if partitions:
            found = self._found(ck.TopicPartition(p.topic, p.partition, starts[p]) for p in partitions)
            self.handle.incremental_assign(found)
            self._starts = _starts(found)
        self.handle.pause(_listed(self._paused))
        self.handle.resume(_listed(self._known - self._paused))

    def _starts_now(self, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Unassign everything from librdkafka, and return where each partition goes on.

        A partition that was to start at the end and has delivered nothing yet started at an offset that we were not
        told. If records came since, the first one in librdkafka's queue is at that offset. If none came, the end has
        not moved.
        """
        starts = self._as_committed({p: reached.get(p, self._starts.get(p, self._reset)) for p in self.assigned})
        open_ends = {p for p, at in starts.items() if at == ck.OFFSET_END or at <= TAIL}
        self._unassign(self.assigned - open_ends)
        looking = bool(open_ends)
        seen: dict[TopicPartition, int] = {}
        while looking:
            messages = self.handle.consume(LOOK_AT, 0)
            for message in messages:
                if message.error() is None:
                    where = TopicPartition(message.topic() or "", message.partition() or 0)
                    seen.setdefault(where, message.offset() or 0)
            looking = bool(messages) and len(seen) < len(open_ends)
        for partition in sorted(open_ends):
            marks = self.watermarks(partition)
            if partition in seen:
                starts[partition] = seen[partition]
            elif marks is not None and starts[partition] == ck.OFFSET_END:
                starts[partition] = marks[1]
        self._unassign(open_ends)
        return starts

    def _as_committed(self, starts: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The same with committed offsets where no offset was named: librdkafka looks them up, our fetcher can't."""
        unnamed = [p for p, at in starts.items() if at in AS_COMMITTED]
        if not unnamed:
            return starts
        found = self.handle.committed(_listed(unnamed), timeout=COMMITTED_S)
        known = {TopicPartition(p.topic, p.partition): p.offset for p in found if p.error is None and p.offset >= 0}
        return {**starts, **{p: known.get(p, self._reset) for p in unnamed}}

    def _unassign(self, partitions: Iterable[TopicPartition]) -> None:
        gone = _listed(partitions)
        if gone:
            self.handle.incremental_unassign(gone)

    # -- inside

    def _found(self, partitions: Iterable[ck.TopicPartition]) -> list[ck.TopicPartition]:
        """The same with numbers in place of "the beginning" and "the end", if the cluster answers in time.

        librdkafka could look them up itself. But if the partition is unassigned during the look-up, librdkafka repeats
        it half a second later, even if the partition was assigned again with another offset meanwhile. One that came
        back at its 300th record would start again at the beginning.
        """
        wanted = list(partitions)
        asked = [ck.TopicPartition(p.topic, p.partition, p.offset) for p in wanted if p.offset in LOOKED_UP]
        if not asked:
            return wanted
        try:
            answers = self.handle.offsets_for_times(asked, LOOK_UP_S)  # ListOffsets takes both as special timestamps
        except ck.KafkaException:
            return wanted
        known = {(p.topic, p.partition): p.offset for p in answers if p.error is None and p.offset >= 0}
        return [
            ck.TopicPartition(p.topic, p.partition, known.get((p.topic, p.partition), p.offset))
            if p.offset in LOOKED_UP
            else p
            for p in wanted
        ]

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = list(partitions)
        for partition in gone:
            self._starts.pop(partition, None)
            self._carried.pop(partition, None)
            self._sought.pop(partition, None)
        self.ahead.forget(gone)

    def close(self) -> None:
        self.assigned = set()
        for arrow in (self.arrow, self._idle_arrow):
            if arrow is not None:
                arrow.close()
        self.arrow = self._idle_arrow = None
        self.ahead.ready.clear()
        with self.turns.first():
            self.handle.close()
        self.raised.raise_first()


NOWHERE = OffsetEntry(ck.OFFSET_INVALID)


def _first_of_messages(messages: list[ck.Message]) -> dict[TopicPartition, int]:
    first: dict[TopicPartition, int] = {}
    for message in messages:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if message.error() is None and topic is not None and partition is not None and offset is not None:
            first.setdefault(TopicPartition(topic, partition), offset)
    return first


def _first_of_rows(batch: pa.RecordBatch) -> dict[TopicPartition, int]:
    """Row by row, which is slow; needed only after the process was frozen."""
    columns = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    first: dict[TopicPartition, int] = {}
    for topic, partition, offset in zip(*columns, strict=True):
        first.setdefault(TopicPartition(topic, partition), offset)
    return first


def epoch_of(partition: ck.TopicPartition) -> int:
    """Its leader epoch; -1 for none."""
    epoch: int | None = partition.leader_epoch  # None where there is none; the type stub does not say so
    return -1 if epoch is None else epoch


def as_listed(partition: TopicPartition, entry: OffsetEntry) -> ck.TopicPartition:
    """An offset as confluent-kafka shows it: without metadata or epoch, that field is None."""
    topic, number = partition.topic, partition.partition
    if entry.metadata:
        return ck.TopicPartition(topic, number, entry.offset, entry.metadata, entry.leader_epoch)
    return ck.TopicPartition(
        topic, number, entry.offset, leader_epoch=entry.leader_epoch
    )  # metadata can only be left out: None is not accepted


def librdkafka(config: Mapping[str, Any], *, logger: Any = None) -> cimpl.Consumer:
    """confluent-kafka's consumer, which we use only to fetch."""
    try:
        return cimpl.Consumer(dict(config), logger=logger) if logger is not None else cimpl.Consumer(dict(config))
    except ck.KafkaException as error:
        raise as_config_error(error, config) from None
    except SystemError as error:
        # Without a first token confluent-kafka sets its exception and then destroys the handle. If error_cb is called
        # meanwhile, the exception is lost; and there is always an error_cb of ours.
        if not callable(config.get("oauth_cb")):
            raise
        text = "OAuth token not set within 10 seconds timeout: oauth_cb raised, or returned no token"
        raise ck.KafkaException(ck.KafkaError(ck.KafkaError.SASL_AUTHENTICATION_FAILED, text)) from error


def _listed(partitions: Iterable[TopicPartition]) -> list[ck.TopicPartition]:
    return [ck.TopicPartition(p.topic, p.partition) for p in sorted(partitions)]


def _starts(partitions: Iterable[ck.TopicPartition]) -> dict[TopicPartition, int]:
    return {TopicPartition(p.topic, p.partition): p.offset for p in partitions}
