"""The data plane: two readers of the same partitions, of which one reads at a time.

librdkafka in manual-assign mode, with explicit offsets and no group behaviour of its own, is behind poll() and
consume(). Our own fetcher (`arrow`) is behind consume_arrow(). A call of the other kind hands every partition over at
the application's position, so that a program may mix them: nothing is lost and nothing comes twice.

All calls come from the thread that polls: confluent-kafka's handle starves calls from a second thread for up to a
second while one loops in poll. What may be delivered is decided by what is assigned here; a partition that is taken
away is gone from either reader before this returns.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from holdfast.model import TopicPartition
from holdfast.net.flows import TAIL

if TYPE_CHECKING:
    from holdfast.client.arrow import ArrowPlane

LOOKED_UP = (ck.OFFSET_BEGINNING, ck.OFFSET_END)
RESET = {"earliest": ck.OFFSET_BEGINNING, "latest": ck.OFFSET_END, "error": ck.OFFSET_INVALID}

SERVE_EVERY_S = 0.1
"""How often librdkafka's own callbacks (statistics, errors, tokens) are served while the other side reads."""

LOOK_AT = 10_000
"""Records taken from librdkafka's queue at a time when it is asked where "the end" was."""


LOOK_UP_S = 1.0
"""For finding out where partitions begin or end: two milliseconds, unless their leaders are gone."""

WARM_S = 0.2
"""For one look-up at subscribing; on a healthy cluster it takes two milliseconds."""

WARM_SINGLY = 8
"""More topics than these, or a pattern, are looked up with all others in one request."""


class DataPlane:
    """Who reads which partitions, from where."""

    def __init__(self, handle: ck.Consumer, *, reset: str, open_arrow: Callable[[], ArrowPlane]) -> None:
        self.handle = handle
        self.assigned: set[TopicPartition] = set()
        self.arrow: ArrowPlane | None = None
        """The other reader, while it reads."""
        self._reset = RESET[reset]
        self._open_arrow = open_arrow
        self._idle_arrow: ArrowPlane | None = None
        self._starts: dict[TopicPartition, int] = {}
        """Where librdkafka was told to read from: what counts as long as it has delivered nothing."""
        self._carried: dict[TopicPartition, int] = {}
        """Positions that were reached by the other reader, until librdkafka has one of its own."""
        self._paused: set[TopicPartition] = set()
        self._serve_at = 0.0

    # -- what is assigned

    def warm(self, topics: Sequence[str]) -> None:
        """Let librdkafka look these topics up before they are needed: an unknown one costs half a second later.

        Called by the polling thread: beside one that polls this call would wait until that one stops.
        """
        if self.arrow is not None:
            return
        one_by_one = len(topics) <= WARM_SINGLY and not any(topic.startswith("^") for topic in topics)
        with contextlib.suppress(ck.KafkaException):  # not reachable yet: then it is looked up when needed
            for topic in topics if one_by_one else [None]:
                found = self.handle.list_topics(topic, timeout=WARM_S).topics
                if one_by_one:
                    self._connect(found)

    def _connect(self, topics: Mapping[str, Any]) -> None:
        """Ask the leaders something small: librdkafka connects to them then, and not when the first fetch waits."""
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
        if self.arrow is None:
            self.handle.incremental_assign(wanted)
            self._starts.update(starts)
        elif self.assigned.isdisjoint(starts):
            self.arrow.add(starts)
        else:
            twice = ", ".join(map(str, sorted(self.assigned & starts.keys())))
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._CONFLICT, f"{twice}: already assigned"))
        self.assigned |= set(starts)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
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
        if self.arrow is not None:
            self.arrow.drop(self.assigned)
            self.arrow.add(starts)
        else:
            self.handle.assign(wanted)
        self._forget(self.assigned)
        self.assigned = set(starts)
        if self.arrow is None:
            self._starts = dict(starts)

    def assignment(self) -> list[ck.TopicPartition]:
        return list(self.handle.assignment()) if self.arrow is None else _listed(self.assigned)

    def seek(self, partition: ck.TopicPartition) -> None:
        where = TopicPartition(partition.topic, partition.partition)
        if self.arrow is None:
            (found,) = self._found([partition])
            self.handle.seek(found)
            self._starts[where] = found.offset
            self._carried.pop(where, None)
        elif where in self.assigned:
            self.arrow.seek(where, partition.offset)
        else:
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._STATE, f"{where} is not assigned to this consumer"))

    def rewind(self, messages: list[ck.Message]) -> None:
        """What librdkafka returned is not handed out after all: fetch it again, from the first of each partition."""
        first: dict[TopicPartition, int] = {}
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if message.error() is None and topic is not None and partition is not None and offset is not None:
                first.setdefault(TopicPartition(topic, partition), offset)
        for where, offset in sorted(first.items()):
            if where in self.assigned:
                self.seek(ck.TopicPartition(where.topic, where.partition, offset))

    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        named = {TopicPartition(p.topic, p.partition) for p in partitions}
        if self.arrow is None:
            self.handle.pause(partitions)
            self._paused |= named & self.assigned
        else:
            self.arrow.pause(named)

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        named = {TopicPartition(p.topic, p.partition) for p in partitions}
        if self.arrow is None:
            self.handle.resume(partitions)
            self._paused -= named
        else:
            self.arrow.resume(named)

    # -- where it stands

    def position(self, partitions: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
        """The same partitions, each with one past the last record that was returned."""
        reached = self.positions(TopicPartition(p.topic, p.partition) for p in partitions)
        found = (reached.get(TopicPartition(p.topic, p.partition), ck.OFFSET_INVALID) for p in partitions)
        return [ck.TopicPartition(p.topic, p.partition, at) for p, at in zip(partitions, found, strict=True)]

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the application stands: one past the last record it got. Partitions it got nothing of are absent."""
        asked = sorted(set(partitions) & self.assigned)
        if self.arrow is not None:
            return {p: at for p in asked if (at := self.arrow.position(p)) is not None}
        if not asked:
            return {}
        found = {p: self._carried[p] for p in asked if p in self._carried}
        for p in self.handle.position(_listed(asked)):
            if p.error is None and p.offset >= 0:
                found[TopicPartition(p.topic, p.partition)] = p.offset
        return found

    def watermarks(self, partition: TopicPartition) -> tuple[int, int] | None:
        """Where it begins and ends, as far as its reader has seen."""
        if self.arrow is not None:
            return self.arrow.watermarks(partition)
        low, high = self.handle.get_watermark_offsets(
            ck.TopicPartition(partition.topic, partition.partition), cached=True
        )
        return (low, high) if high >= 0 else None

    def lag_max(self) -> int | None:
        """The largest distance between a position and the end of its partition, as far as its reader has seen it."""
        lags = []
        for partition, position in self.positions(self.assigned).items():
            seen = self.watermarks(partition)
            if seen is not None:
                lags.append(max(0, seen[1] - position))
        return max(lags, default=None)

    # -- who reads

    def to_arrow(self) -> ArrowPlane:
        """Let our own fetcher read, from where the application stands."""
        if self.arrow is None:
            arrow = self._idle_arrow or self._open_arrow()
            self._idle_arrow = None
            reached = self.positions(self.assigned)
            starts = self._starts_now(reached)
            arrow.add(starts, read=reached, paused=self._paused)
            self.arrow = arrow
            self._starts, self._carried, self._paused = {}, {}, set()
        now = time.monotonic()
        if now >= self._serve_at:
            self._serve_at = now + SERVE_EVERY_S
            self.handle.poll(0)  # nothing is assigned there: only callbacks are made
        return self.arrow

    def to_records(self) -> ck.Consumer:
        """Let librdkafka read again, from where the application stands."""
        if self.arrow is not None:
            self._hand_back(self.arrow)
        return self.handle

    def _hand_back(self, arrow: ArrowPlane) -> None:
        partitions = sorted(self.assigned)
        starts = {p: arrow.goes_on(p) for p in partitions}
        self._carried = {p: at for p in partitions if (at := arrow.position(p)) is not None}
        self._paused = arrow.paused
        arrow.drop(partitions)
        self.arrow, self._idle_arrow = None, arrow
        if partitions:
            found = self._found(ck.TopicPartition(p.topic, p.partition, starts[p]) for p in partitions)
            self.handle.incremental_assign(found)
            self._starts = _starts(found)
            self.handle.pause(_listed(self._paused))
            self.handle.resume(_listed(self.assigned - self._paused))

    def _starts_now(self, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Take everything from librdkafka, and where each partition goes on.

        One that was to start at the end and has brought nothing yet has been at an end that nobody told us. What came
        since lies in librdkafka's queue, and its first record tells; if none does, the end has not moved.
        """
        starts = {p: reached.get(p, self._starts.get(p, self._reset)) for p in self.assigned}
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

    def _unassign(self, partitions: Iterable[TopicPartition]) -> None:
        gone = _listed(partitions)
        if gone:
            self.handle.incremental_unassign(gone)

    # -- inside

    def _found(self, partitions: Iterable[ck.TopicPartition]) -> list[ck.TopicPartition]:
        """The same, with offsets in place of "the beginning" and "the end", as far as the cluster tells in time.

        librdkafka would look them up itself. But if the partition is taken away while it does, it looks again half a
        second later, whatever it has been told since: a partition that came back at its 300th record begins anew.
        """
        wanted = list(partitions)
        asked = [ck.TopicPartition(p.topic, p.partition, p.offset) for p in wanted if p.offset in LOOKED_UP]
        if not asked:
            return wanted
        try:
            answers = self.handle.offsets_for_times(asked, LOOK_UP_S)  # these two are times of ListOffsets as well
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
        for partition in list(partitions):
            self._starts.pop(partition, None)
            self._carried.pop(partition, None)
            self._paused.discard(partition)

    def close(self) -> None:
        self.assigned = set()
        for arrow in (self.arrow, self._idle_arrow):
            if arrow is not None:
                arrow.close()
        self.arrow = self._idle_arrow = None
        self.handle.close()


def librdkafka(config: Mapping[str, Any], *, logger: Any = None) -> ck.Consumer:
    """confluent-kafka's consumer, as a fetcher."""
    return ck.Consumer(dict(config), logger=logger) if logger is not None else ck.Consumer(dict(config))


def _listed(partitions: Iterable[TopicPartition]) -> list[ck.TopicPartition]:
    return [ck.TopicPartition(p.topic, p.partition) for p in sorted(partitions)]


def _starts(partitions: Iterable[ck.TopicPartition]) -> dict[TopicPartition, int]:
    return {TopicPartition(p.topic, p.partition): p.offset for p in partitions}
