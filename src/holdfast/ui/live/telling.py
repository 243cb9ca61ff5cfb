"""Turns evidence about a live group into the records that a story is made of.

There are three sources, and each is used for what it knows best. Members' traces: what each works on, to the
millisecond. The coordinator's trace: rounds, with cause and culprit. Looks from outside (DescribeGroups): everything
else, as coarse as the time between two looks. If two disagree, the trace is believed, unless it was silent for
`STALE_MS`: then it has ended, and the look is right.

Pure. Times are milliseconds on the story's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.model import TopicPartition, TraceRecord, by_topic
from holdfast.observe.history import History, Rebalance
from holdfast.observe.snapshot import IN_A_ROUND, STABLE, GroupSnapshot, is_cooperative, is_cooperative_assignor
from holdfast.ui.lanes import partitions_of
from holdfast.ui.live.lives import Life
from holdfast.ui.live.standing import STALE_MS, Standing
from holdfast.ui.rounds import STATES

GONE = frozenset({"member-left", "member-expired", "member-expelled"})
OF_A_MEMBER = frozenset(
    {"join-sent", "joined", "sync-sent", "synced", "revoking", "assigned", "stable", "leave-sent", "poll-expired"}
    | {"membership-lost"}
)
"""Steps of a member's own trace that a story uses."""
OUT = frozenset({"poll-expired", "membership-lost", "left"})
OF_A_STARTER = frozenset(
    {"process-started", "process-died", "process-ended", "application-hung", "application-returned", "happened"}
)
"""Steps in the trace of the members' starter, for example `holdfast demo --live`."""
NAMED_CHANGES = 3
"""How many changes are named for a rebalance that was only seen from outside."""


@dataclass(frozen=True, slots=True)
class Look:
    """A group as it was seen from outside."""

    at: float
    seen: GroupSnapshot


@dataclass(frozen=True, slots=True)
class Traced:
    """A trace record, with its time on the story's clock."""

    at: float
    record: TraceRecord


Evidence = Look | Traced


@dataclass(slots=True)
class Teller:
    """Takes evidence in order of time and returns records. A copy can continue from the middle."""

    now: Standing = field(default_factory=Standing)
    protocol: str = ""
    cooperative: bool | None = None
    told_ms: float = float("-inf")
    """The time of the coordinator's last trace record."""
    members_trace: bool = False
    history: History = field(default_factory=History)

    def take(self, seen: Evidence) -> list[TraceRecord]:
        if isinstance(seen, Look):
            self._look(seen.at, seen.seen)
        elif seen.record.source == "coordinator":
            self._coordinator(seen.at, seen.record)
        elif seen.record.source == "member":
            self._member(seen.at, seen.record)
        elif seen.record.source == "consumer":
            self._consumer(seen.at, seen.record)
        elif seen.record.step in OF_A_STARTER:
            self._starter(seen.at, seen.record)
        return self.now.take_records()

    # -- traces

    def _coordinator(self, at: float, record: TraceRecord) -> None:
        self.told_ms = at
        if record.generation is not None:
            self.now.generation = record.generation
        if record.step in GONE:
            self._taken_out(at, record)
        elif record.step in STATES:
            self.now.state = STATES[record.step]
            if record.step == "generation":
                self.protocol = str(record.data.get("protocol") or self.protocol)
                self.cooperative = is_cooperative_assignor(self.protocol) if self.protocol else self.cooperative
            culprit = record.culprit and self.now.lives.called(record.culprit)
            cause = self.now.lives.in_words(record.cause)
            self.now.pass_on(replace(record, at=at, member="", culprit=culprit, cause=cause))
            if record.step == "stable":
                self.now.mark_all_in(at)

    def _taken_out(self, at: float, record: TraceRecord) -> None:
        life = self.now.lives.known(record.member)
        cause = self.now.lives.in_words(record.cause)
        if life is None or life.member_id != record.member:
            # An earlier membership of a member that is back, or one that never had partitions.
            name = f"{self.now.lives.called(record.member)} (before)"
            self.now.pass_on(replace(record, at=at, member=name, culprit=None, cause=cause))
            return
        self.now.end_membership(at, life)
        self.now.pass_on(replace(record, at=at, member=life.name, culprit=life.name, cause=cause))

    def _member(self, at: float, record: TraceRecord) -> None:
        life = self.now.seen_alive(at, record.member)
        life.traced_ms, self.members_trace = at, True
        step, data = record.step, record.data
        if step in ("revoking", "losing"):
            why = "revoked" if step == "revoking" else "lost"
            self.now.stop(at, life, partitions_of(data.get("partitions")), why, listener=True)
        elif step in ("assigned", "stable"):
            self.now.set_owned(at, life, frozenset(partitions_of(data.get("owned"))))
        if step in OUT:
            life.where, life.member_id = "out", None
        elif step == "join-sent":
            life.where = "joining"
        elif step == "stable":
            life.where = "in"
        if step in OF_A_MEMBER:
            self.now.pass_on(replace(record, at=at, member=life.name, culprit=None))
        elif step == "closed":
            self.now.ended(at, life, "process-ended", why="left")

    def _consumer(self, at: float, record: TraceRecord) -> None:
        life = self.now.seen_alive(at, record.member)
        life.traced_ms, self.members_trace = at, True
        partitions = partitions_of(record.data.get("partitions"))
        if record.step == "callback-assigned":
            self.now.open(at, life, partitions)
        elif record.step in ("callback-revoked", "callback-lost"):
            self.now.stop(at, life, partitions, record.step.removeprefix("callback-"))

    def _starter(self, at: float, record: TraceRecord) -> None:
        step = record.step
        if step == "happened":
            self.now.pass_on(replace(record, at=at))
            return
        if step == "process-started":
            static = record.data.get("static")
            self.now.started(at, record.member, static if isinstance(static, str) else None)
            return
        life = self.now.lives.by_name.get(record.member)
        if life is None or not life.alive:
            return
        if step in ("process-died", "process-ended"):
            self.now.ended(at, life, step, why="crashed" if step == "process-died" else "left")
        else:
            self.now.set_hung(at, life, hung=step == "application-hung")

    # -- looks

    def _look(self, at: float, look: GroupSnapshot) -> None:
        described = look.described
        self.protocol = described.protocol or self.protocol
        told = is_cooperative(described)
        self.cooperative = self.cooperative if told is None else told
        self._topics(at, look)
        lives = self._members(at, look)
        ended = self.history.see(look, at)
        if described.state != self.now.state and at - self.told_ms > STALE_MS:
            self.now.generation = max(self.now.generation, described.generation)
            self.now.state_seen(at, described.state)
        self._owners(at, look, lives)
        if described.state == STABLE:
            self.now.mark_all_in(at)
        if ended is not None and self.told_ms == float("-inf"):
            self._rebalanced(at, ended)

    def _rebalanced(self, at: float, ended: Rebalance) -> None:
        """Report a rebalance that is known only from looks."""
        self.now.tell(
            at,
            "coordinator",
            "rebalance-seen",
            cause=", ".join(map(str, ended.changes[:NAMED_CHANGES])) or "nobody came or went",
            culprit=ended.culprit or None,
            generation=self.now.generation,
            began=ended.began_ms if ended.seen else at,
            rounds=ended.rounds,
            moved=_grouped(self.now.moved),
        )
        self.now.moved.clear()

    def _topics(self, at: float, look: GroupSnapshot) -> None:
        """Offsets may exist for topics that the group no longer reads; those get no lanes."""
        named = {topic for member in look.described.members for topic in member.topics}
        counts: dict[str, int] = {}
        for partition in (*look.offsets, *look.owners):
            if not named or partition.topic in named or partition in self.now.held:
                counts[partition.topic] = max(counts.get(partition.topic, 0), partition.partition + 1)
        for topic, count in sorted(counts.items()):
            self.now.add_topic(at, topic, count)

    def _members(self, at: float, look: GroupSnapshot) -> dict[str, Life]:
        found = {
            member.member_id: self.now.seen_alive(
                at, member.member_id, member.instance_id or member.client_id, member.instance_id
            )
            for member in look.described.members
        }
        for life in list(self.now.lives.by_name.values()):
            quiet = at - max(life.traced_ms, self.told_ms) > STALE_MS
            if life.alive and life.member_id is not None and life.member_id not in found and quiet:
                self.now.end_membership(at, life)
        return found

    def _owners(self, at: float, look: GroupSnapshot, lives: Mapping[str, Life]) -> None:
        described, now = look.described, self.now
        if described.state in IN_A_ROUND and described.kind != "consumer":
            if self.cooperative is False:  # in an eager round nobody keeps anything
                for partition, held in sorted(now.held.items()):
                    if not now.traced(at, held.name):
                        now.stop(at, now.lives.by_name[held.name], [partition], "revoked")
            return
        owners = {partition: lives[member.member_id] for partition, member in look.owners.items()}
        for partition, held in sorted(now.held.items()):
            owner = owners.get(partition)
            if (owner is None or owner.name != held.name) and not now.traced(at, held.name):
                now.stop(at, now.lives.by_name[held.name], [partition], "revoked")
        for partition, owner in sorted(owners.items()):
            if partition not in now.held and not now.traced(at, owner.name):
                now.open(at, owner, [partition])


def _grouped(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    return {topic: list(numbers) for topic, numbers in by_topic(partitions).items()}
