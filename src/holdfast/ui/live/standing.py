"""The current state of a live group: who lives and is in it, who has which partition; and a record of every change.

`telling` decides which evidence to believe; this module knows neither traces nor looks. Times are milliseconds on the
story's clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from holdfast.model import TopicPartition, TraceRecord
from holdfast.ui.live.lives import Life, Lives

STALE_MS = 3_000.0
"""A trace that was silent for longer has ended: traces lag by milliseconds, looks by a broker's response time."""


@dataclass(slots=True)
class Held:
    """The owner of a partition, and whether it works on it."""

    name: str
    working: bool


@dataclass(slots=True)
class Standing:
    lives: Lives = field(default_factory=Lives)
    held: dict[TopicPartition, Held] = field(default_factory=dict)
    left: dict[TopicPartition, tuple[str, str]] = field(default_factory=dict)
    """Partitions without an owner: who had them last, and why that ended."""
    topics: dict[str, int] = field(default_factory=dict)
    state: str = ""
    """The coordinator's state; empty before it is known."""
    generation: int = -1
    """-1 if unknown."""
    moved: set[TopicPartition] = field(default_factory=set)
    """Partitions that have got another owner since the last rebalance was reported."""
    _told: list[TraceRecord] = field(default_factory=list)

    def take_records(self) -> list[TraceRecord]:
        """The new records since the last call."""
        told, self._told = self._told, []
        return told

    def opening(self, at: float) -> list[TraceRecord]:
        """The current state as records of one moment: the beginning of a story whose past is dropped."""
        for topic, count in sorted(self.topics.items()):
            self.tell(at, "live", "topic-changed", topic=topic, partitions=count)
        for life in self.lives.by_name.values():
            if life.alive:
                self._opening_life(at, life)
        for partition, (name, why) in sorted(self.left.items()):
            self._lane(at, "lane-opened", name, partition, "")
            self._lane(at, "lane-stopped", name, partition, why)
        for partition, held in sorted(self.held.items()):
            self._lane(at, "lane-opened", held.name, partition, "")
            if not held.working:
                self._lane(at, "lane-stopped", held.name, partition, "hung")
        if self.state:
            self.state_seen(at, self.state)
        return self.take_records()

    def _opening_life(self, at: float, life: Life) -> None:
        self.tell(at, "live", "process-started", life.name, static=life.static)
        if life.where == "in":
            self.tell(at, "member", "stable", life.name)
        elif life.where == "out":
            self.tell(at, "live", "left-group", life.name)
        if life.hung:
            self.tell(at, "live", "application-hung", life.name)

    # -- processes

    def seen_alive(self, at: float, member_id: str, base: str = "", static: str | None = None) -> Life:
        """The process with this member id; a record is made if it is new."""
        life, fresh = self.lives.life(member_id, base)
        if fresh or (static is not None and life.static != static):
            life.static = static
            self.tell(at, "live", "process-started", life.name, static=static)
            if life.where == "in":
                self.tell(at, "member", "stable", life.name)
        return life

    def started(self, at: float, name: str, static: str | None) -> None:
        """Its starter says that it has started, and will say when it ends."""
        life, _ = self.lives.named(name)
        life.stated, life.static = True, static
        self.tell(at, "live", "process-started", name, static=static)

    def mark_all_in(self, at: float) -> None:
        """The round is over: members without a trace of their own are in the group."""
        for life in self.lives.by_name.values():
            if life.alive and life.member_id is not None and life.where != "in" and not self.traced(at, life.name):
                life.where = "in"
                self.tell(at, "member", "stable", life.name)

    def traced(self, at: float, name: str) -> bool:
        """Whether its own trace is current. After a while of silence the trace has ended, and looks are believed."""
        life = self.lives.by_name.get(name)
        return life is not None and at - life.traced_ms <= STALE_MS

    def end_membership(self, at: float, life: Life) -> None:
        self.set_owned(at, life, frozenset(), why="out of the group")
        life.member_id = None
        if life.where != "out":
            life.where = "out"
            self.tell(at, "live", "left-group", life.name)
        # If neither its starter nor its own trace will tell its end, the next process of this name is another one.
        life.alive = life.stated or self.traced(at, life.name)

    def ended(self, at: float, life: Life, step: str, why: str) -> None:
        """The process ends. A static member that ends cleanly keeps its membership and its partitions."""
        stays = life.static is not None and step == "process-ended"
        mine = [partition for partition, held in self.held.items() if held.name == life.name]
        self.stop(at, life, mine, why, listener=stays)
        life.alive, life.member_id = False, None
        self.tell(at, "live", step, life.name)

    def set_hung(self, at: float, life: Life, *, hung: bool) -> None:
        """The application hangs or returns: its partitions stand still, or go on."""
        life.hung = hung
        self.tell(at, "live", "application-hung" if hung else "application-returned", life.name)
        for partition, held in sorted(self.held.items()):
            if held.name == life.name and held.working == hung:
                held.working = not hung
                self._lane(
                    at,
                    "lane-stopped" if hung else "lane-opened",
                    life.name,
                    partition,
                    "hung" if hung else "returned",
                )

    # -- partitions

    def add_topic(self, at: float, topic: str, partitions: int) -> None:
        if partitions > self.topics.get(topic, 0):
            self.topics[topic] = partitions
            self.tell(at, "live", "topic-changed", topic=topic, partitions=partitions)

    def set_owned(self, at: float, life: Life, owned: frozenset[TopicPartition], why: str = "revoked") -> None:
        """Make it own exactly these; `why` is the reason for those that it loses."""
        had = [partition for partition, held in self.held.items() if held.name == life.name and partition not in owned]
        self.stop(at, life, had, why)
        self.open(at, life, owned)

    def open(self, at: float, life: Life, partitions: Iterable[TopicPartition]) -> None:
        for partition in sorted(partitions):
            held = self.held.get(partition)
            if held is not None and held.name == life.name:
                continue
            if held is not None:  # the old owner's stop was not seen, but the partition has moved
                self.stop(at, self.lives.by_name[held.name], [partition], "revoked")
            self.add_topic(at, partition.topic, partition.partition + 1)
            before = self.left.pop(partition, None)
            if before is not None and before[0] != life.name:
                self.moved.add(partition)
            self.held[partition] = Held(life.name, working=not life.hung)
            self._lane(at, "lane-opened", life.name, partition, "")
            if life.hung:
                self._lane(at, "lane-stopped", life.name, partition, "hung")

    def stop(
        self, at: float, life: Life, partitions: Iterable[TopicPartition], why: str, *, listener: bool = False
    ) -> None:
        """`listener`: its listener is still running for them, and its trace will tell when it is done."""
        mine = [each for each in sorted(set(partitions)) if each in self.held and self.held[each].name == life.name]
        for partition in mine:
            held = self.held.pop(partition)
            self.left[partition] = (life.name, why)
            if not held.working:  # the lane was stalled; from now on it has no owner
                self._lane(at, "lane-opened", life.name, partition, "")
            self._lane(at, "lane-stopped", life.name, partition, why)
        if mine and not listener:
            self.tell(at, "live", "given-up", life.name)

    # -- records

    def state_seen(self, at: float, state: str) -> None:
        self.state = state
        self.tell(at, "coordinator", "state-seen", state=state, generation=self.generation)

    def _lane(self, at: float, step: str, name: str, partition: TopicPartition, why: str) -> None:
        topic, number = partition.topic, partition.partition
        self.tell(at, "live", step, name, cause=why or None, topic=topic, partition=number, position=0)

    def pass_on(self, record: TraceRecord) -> None:
        """Add a record from a trace."""
        self._told.append(record)

    def tell(
        self,
        at: float,
        source: str,
        step: str,
        member: str = "",
        *,
        cause: str | None = None,
        culprit: str | None = None,
        generation: int | None = None,
        **data: Any,
    ) -> None:
        self._told.append(
            TraceRecord(
                at=at,
                source=source,
                step=step,
                member=member,
                cause=cause,
                culprit=culprit,
                generation=generation,
                data=data,
            )
        )
