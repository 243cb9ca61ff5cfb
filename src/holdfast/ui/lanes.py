"""Every partition's lane: who works on it, or why nobody does, and how many records wait.

Rules. A lane is lit while a member works on it. While its old owner's listener runs it is being revoked. Then it is
dark until it is assigned to a member, which may first have to fetch a position or restore state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.model import TopicPartition, TraceRecord
from holdfast.ui.names import Names

WAITING, WORKING, REVOKING, DARK, TAKEN, STALLED = "waiting", "working", "revoking", "dark", "taken", "stalled"
ZOMBIE = "zombie"

LEGEND: Mapping[str, tuple[str, str, float]] = {
    WAITING: ("◌", "the group has not begun", 0.0),
    WORKING: ("●", "processing", 1.0),
    REVOKING: ("◐", "revoking: commits and closes", 0.55),
    DARK: ("✕", "dark: nobody has it", 0.12),
    TAKEN: ("◔", "assigned, not processing yet", 0.55),
    STALLED: ("‖", "owned, but its owner stands still", 0.3),
    ZOMBIE: ("◍", "worked on, but in vain", 0.75),
}
"""Each state's sign, its meaning, and how much of its row it fills, so that colours are not needed."""

OWNS = frozenset({WORKING, REVOKING, TAKEN, STALLED})
"""States in which the member that a lane names owns the partition."""

MAX_PARTITIONS = 100_000
"""The most of one topic: a record with a larger number is damaged."""

HANDED_BACK = frozenset({"revoked", "left"})
STANDS_STILL = frozenset({"hung", "frozen", "unsure"})
CAME_BACK = frozenset({"returned", "woke"})
LISTENER_DONE = frozenset({"join-sent", "leave-sent", "assigned"})


@dataclass(slots=True)
class Lane:
    """One partition's history: spans without gaps, and points of lag with straight lines between them."""

    spans: list[tuple[float, str, str, str]] = field(default_factory=list)
    """(from, state, member, why)"""
    lag: list[tuple[float, float]] = field(default_factory=list)
    working: list[str] = field(default_factory=list)
    """Who works on it, the newest last: a zombie may still work on it."""
    out: set[str] = field(default_factory=set)
    """Those of them that are out of the group."""
    begun_ms: float = 0.0
    per_ms: float = 0.0
    caught_up_ms: float | None = None

    @property
    def now(self) -> tuple[float, str, str, str]:
        return self.spans[-1]

    def change(self, at: float, state: str, member: str, why: str) -> None:
        if self.now[1:] == (state, member, why):
            return
        if self.now[0] == at:
            self.spans.pop()
        if not self.spans or self.now[1:] != (state, member, why):
            self.spans.append((at, state, member, why))

    def end(self, at: float) -> float:
        """The log's end, for a producer with a constant rate."""
        return (at - self.begun_ms) * self.per_ms

    def opened(self, at: float, position: float, speed: float) -> None:
        """Lag falls from here at the reader's speed, until the reader has caught up."""
        lag = max(0.0, self.end(at) - position)
        if self.caught_up_ms is None:  # lag grew until here; from a committed offset some work is done again
            last, had = self.lag[-1]
            self.lag.append((at, had + (at - last) * self.per_ms))
        self._settle(at)
        self.lag.append((at, lag))
        gain = (speed - 1.0) * self.per_ms
        self.caught_up_ms = at + lag / gain if gain > 0 else None

    def stopped(self, at: float, position: float) -> None:
        """Lag grows from here."""
        self._settle(at)
        self.lag.append((at, max(0.0, self.end(at) - position)))
        self.caught_up_ms = None

    def _settle(self, at: float) -> None:
        if self.caught_up_ms is not None and self.caught_up_ms < at:
            self.lag.append((self.caught_up_ms, 0.0))
        self.caught_up_ms = None

    def finish(self, end_ms: float) -> None:
        if self.caught_up_ms is not None:
            self._settle(end_ms)
            self.lag.append((end_ms, 0.0))
        elif self.lag and not self.working:
            last, lag = self.lag[-1]
            self.lag.append((end_ms, lag + (end_ms - last) * self.per_ms))


class LaneReader:
    """Reads lanes out of a trace."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.lanes: dict[TopicPartition, Lane] = {}
        self._speeds: dict[str, float] = {}
        self._revoking: dict[str, set[TopicPartition]] = {}

    def read(self, records: Sequence[TraceRecord], end_ms: float) -> dict[TopicPartition, Lane]:
        for record in records:
            self._one(record)
        for lane in self.lanes.values():
            lane.finish(end_ms)
        return dict(sorted(self.lanes.items()))

    def _one(self, record: TraceRecord) -> None:
        step = record.step
        if step == "topic-changed":
            self._topic(record)
        elif step == "process-started":
            self._speeds[record.member] = _number(record.data.get("speed"), 4.0)
        elif step in ("lane-opened", "lane-restoring", "lane-stopped"):
            lane = self._lane(record)
            if lane is not None:
                getattr(self, f"_{step.removeprefix('lane-')}")(record, lane)
        elif step == "synced":
            self._synced(record)
        elif step == "given-up" or (step in LISTENER_DONE and record.source == "member"):
            self._listener_done(record)
        elif step == "process-ended":
            self._away(record)
        elif step in ("member-left", "member-expired", "member-expelled"):
            self._gone(record)

    def _topic(self, record: TraceRecord) -> None:
        topic, count = str(record.data.get("topic")), int(_number(record.data.get("partitions"), 0.0))
        for number in range(count):
            partition = TopicPartition(topic, number)
            if partition not in self.lanes:
                per_ms = _number(record.data.get("records_per_s"), 0.0) / 1000.0
                lane = Lane(begun_ms=record.at, per_ms=per_ms)
                lane.spans.append((0.0, WAITING, "", ""))  # from the story's beginning: any moment of it is asked for
                lane.lag.append((record.at, 0.0))
                self.lanes[partition] = lane

    def _lane(self, record: TraceRecord) -> Lane | None:
        topic, number = record.data.get("topic"), record.data.get("partition")
        return (
            self.lanes.get(TopicPartition(topic, number))
            if isinstance(topic, str) and isinstance(number, int)
            else None
        )

    def _opened(self, record: TraceRecord, lane: Lane) -> None:
        if lane.working and record.cause in CAME_BACK:  # a zombie that does not know it yet
            lane.working.insert(0, record.member)
            lane.out.add(record.member)
            return
        lane.working.append(record.member)
        lane.out.discard(record.member)
        lane.change(record.at, WORKING, record.member, record.cause or "")
        lane.opened(record.at, _number(record.data.get("position"), 0.0), self._speeds.get(record.member, 4.0))

    def _restoring(self, record: TraceRecord, lane: Lane) -> None:
        if not lane.working:
            lane.change(record.at, TAKEN, record.member, "restoring its state")

    def _stopped(self, record: TraceRecord, lane: Lane) -> None:
        why = record.cause or ""
        if record.member in lane.working:
            lane.working.remove(record.member)
        if lane.working:  # a zombie has stopped, or one goes on working
            if lane.now[2] != lane.working[-1]:
                self._goes_on(record.at, lane)
            return
        lane.stopped(record.at, _number(record.data.get("position"), 0.0))
        if why in HANDED_BACK:
            self._revoking.setdefault(record.member, set()).add(_partition(record))
            lane.change(record.at, REVOKING, record.member, why)
        elif why in STANDS_STILL:
            lane.change(record.at, STALLED, record.member, why)
        else:
            lane.change(record.at, DARK, record.member, why)

    def _goes_on(self, at: float, lane: Lane) -> None:
        member = lane.working[-1]
        if member in lane.out:
            lane.change(at, ZOMBIE, member, "out of the group")
        else:
            lane.change(at, WORKING, member, "")

    def _listener_done(self, record: TraceRecord) -> None:
        member = self._names.of(record.member)
        for partition in self._revoking.pop(member, ()):
            lane = self.lanes[partition]
            if lane.now[1] == REVOKING:
                lane.change(record.at, DARK, member, lane.now[3])

    def _away(self, record: TraceRecord) -> None:
        """A member that ends without leaving, as a static one in a deploy, keeps its partitions: no other gets them."""
        member = self._names.of(record.member)
        for partition in self._revoking.pop(member, ()):
            lane = self.lanes[partition]
            if lane.now[1] == REVOKING:
                lane.change(record.at, STALLED, member, "away")

    def _gone(self, record: TraceRecord) -> None:
        """A member is out of the group: its stalled lanes have no owner, and its work can't be committed."""
        member = self._names.of(record.member)
        for lane in self.lanes.values():
            if lane.now[2] != member:
                continue
            if lane.now[1] == STALLED:
                lane.change(record.at, DARK, member, lane.now[3])
            elif lane.now[1] == WORKING:
                lane.out.add(member)
                lane.change(record.at, ZOMBIE, member, "out of the group")

    def _synced(self, record: TraceRecord) -> None:
        member = self._names.of(record.member)
        for partition in partitions_of(record.data.get("added")):
            lane = self.lanes.get(partition)
            if lane is not None and not lane.working and lane.now[1] != WORKING:
                lane.change(record.at, TAKEN, member, "finding its position")


def moves(lanes: Mapping[TopicPartition, Lane]) -> list[tuple[float, TopicPartition]]:
    """When a partition got another worker than before, whether or not there was a gap between the two."""
    found = []
    for partition, lane in lanes.items():
        worker = ""
        for at, state, member, _ in lane.spans:
            if state == WORKING:
                if worker and member != worker:
                    found.append((at, partition))
                worker = member
    return found


def _partition(record: TraceRecord) -> TopicPartition:
    return TopicPartition(str(record.data["topic"]), int(_number(record.data["partition"], 0.0)))


def partitions_of(grouped: object) -> list[TopicPartition]:
    """The partitions in a record's data (topic -> numbers). A record may be foreign, so invalid values are dropped."""
    if not isinstance(grouped, dict):
        return []
    return [
        TopicPartition(topic, number)
        for topic, numbers in sorted(grouped.items())
        if isinstance(numbers, list)
        for number in numbers
        if type(number) is int and 0 <= number < MAX_PARTITIONS
    ]


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise
