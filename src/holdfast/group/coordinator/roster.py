"""A group's data: members, ids given out, offsets, deadlines; and the bookkeeping that keeps them consistent.

Rules. Everything that changes who is in the group goes through the methods here, so that the static index, the protocol
counts and the two barriers' lists can't drift apart. Nothing here answers anybody, or decides when to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from holdfast.group.coordinator.deadlines import Deadlines
from holdfast.group.coordinator.effects import Token
from holdfast.group.coordinator.records import GroupRecord, MemberRecord, OffsetRecord
from holdfast.group.coordinator.settings import CoordinatorSettings
from holdfast.group.coordinator.states import State
from holdfast.model import TopicPartition

# Keys of a group's deadlines. Equal deadlines come up in this order.
JOIN, SYNC, SESSION, PENDING, CHECK = range(5)
JOIN_KEY, SYNC_KEY, CHECK_KEY = (JOIN, ""), (SYNC, ""), (CHECK, "")

# Memory that things take beside the bytes that clients sent: measured, with names of the greatest length, rounded up.
GROUP_BYTES, MEMBER_BYTES, OFFSET_BYTES, PENDING_BYTES = 4_000, 3_000, 600, 500


@dataclass(slots=True, kw_only=True)
class Member:
    """One member."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    join_token: Token | None = None
    """The client parked in the join barrier."""
    sync_token: Token | None = None
    """The client parked in the sync barrier."""
    is_new: bool = False
    """Not through any round yet: the session timeout does not count, the new-member timeout does."""
    knows_its_id: bool = True
    """False while a client too old for MEMBER_ID_REQUIRED waits for its first answer."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_parked(self) -> bool:
        return self.join_token is not None or self.sync_token is not None

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.member_id} (static {self.instance_id})" if self.instance_id is not None else self.member_id

    @property
    def metadata_bytes(self) -> int:
        return sum(len(metadata) for _, metadata in self.protocols)

    @property
    def weight(self) -> int:
        """About how much memory the member takes, without its assignment."""
        return member_weight(self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def record(self) -> MemberRecord:
        return MemberRecord(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            assignment=self.assignment,
        )


@dataclass(slots=True, kw_only=True)
class Roster:
    """All that is known about one group."""

    group_id: str
    settings: CoordinatorSettings
    new_member_id: Callable[[str], str]
    """Makes a member id from a name: the machine itself has no random source."""
    state: State = State.EMPTY
    since_ms: float = 0.0
    """When it came into this state."""
    generation: int = 0
    protocol_type: str | None = None
    """None for a simple group: one that has never had members."""
    protocol: str | None = None
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    """By member id, in order of joining: the first is the next to lead."""
    static: dict[str, str] = field(default_factory=dict)
    """Instance id -> member id."""
    pending: set[str] = field(default_factory=set)
    """Ids given out with MEMBER_ID_REQUIRED and not used yet."""
    awaited: set[str] = field(default_factory=set)
    """Members that the join barrier waits for."""
    unsynced: set[str] = field(default_factory=set)
    """Members that have the generation and owe a sync."""
    initial_until: float | None = None
    """While the first round is delayed for more members: until when at most."""
    newcomers: bool = False
    """Whether somebody came since the initial delay last began."""
    round_since_ms: float = 0.0
    """When the round under way was started."""
    offsets: dict[TopicPartition, OffsetRecord] = field(default_factory=dict)
    durable: GroupRecord | None = None
    """The group as last written down."""
    deadlines: Deadlines[tuple[int, str]] = field(default_factory=Deadlines)
    waiting: dict[Token, str] = field(default_factory=dict)
    """Parked clients -> member id."""
    _protocol_counts: Counter[str] = field(default_factory=Counter)
    _metadata_bytes: int = 0
    _member_weight: int = 0
    _offset_weight: int = 0
    _plan_weight: int = 0

    # Who is in the group

    def add(self, member: Member) -> None:
        assert member.member_id not in self.members, member.member_id
        if not self.members:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)
        self.deadlines.clear((PENDING, member.member_id))
        if member.instance_id is not None:
            assert member.instance_id not in self.static, member.instance_id
            self.static[member.instance_id] = member.member_id
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        """Remove a member. Its parked requests must have been answered before."""
        assert not member.is_parked, member.member_id
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.static[member.instance_id]
        self._count(member, -1)
        self._forget(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member's place to its successor: same place in line, same lead, a new id."""
        assert not member.is_parked, member.member_id
        old_id, member.member_id = member.member_id, member_id
        self.members = {each.member_id: each for each in self.members.values()}
        assert member.instance_id is not None
        self.static[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id
        for barrier in (self.awaited, self.unsynced):
            if old_id in barrier:
                barrier.add(member_id)
        self._forget(old_id)

    def set_protocols(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def drop_pending(self, member_id: str) -> None:
        self.pending.discard(member_id)
        self.deadlines.clear((PENDING, member_id))

    def _forget(self, member_id: str) -> None:
        self.awaited.discard(member_id)
        self.unsynced.discard(member_id)
        self.deadlines.clear((SESSION, member_id))

    def _count(self, member: Member, by: int) -> None:
        self._metadata_bytes += by * member.metadata_bytes
        self._member_weight += by * member.weight
        for name, _ in member.protocols:
            self._protocol_counts[name] += by
            if not self._protocol_counts[name]:
                del self._protocol_counts[name]

    # What is committed

    def set_offset(self, record: OffsetRecord) -> None:
        self.drop_offset(record.partition)
        self.offsets[record.partition] = record
        self._offset_weight += offset_weight(record.metadata)

    def drop_offset(self, partition: TopicPartition) -> None:
        before = self.offsets.pop(partition, None)
        if before is not None:
            self._offset_weight -= offset_weight(before.metadata)

    def committed_among(self, partitions: frozenset[TopicPartition]) -> list[TopicPartition]:
        """Those that have a committed offset. The smaller set is looked up in the larger one: a topic may have ten
        thousand partitions, and this is called for each of a broker's thousands of groups."""
        if len(partitions) < len(self.offsets):
            return [each for each in partitions if each in self.offsets]
        return [each for each in self.offsets if each in partitions]

    def take_offsets(self, other: Roster) -> None:
        self.offsets, self._offset_weight = other.offsets, other._offset_weight

    @property
    def weight(self) -> int:
        """About how much memory the group takes."""
        known = self._member_weight + self._offset_weight + self._plan_weight
        return GROUP_BYTES + known + PENDING_BYTES * len(self.pending)

    @property
    def plan_weight(self) -> int:
        """The part of `weight` that is the leader's plan."""
        return self._plan_weight

    # What the members have in common

    @property
    def metadata_bytes(self) -> int:
        return self._metadata_bytes

    @property
    def rebalance_timeout_ms(self) -> float:
        """The slowest member sets the pace."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member with these protocols fits in: one of them must be common to all."""
        if not self.members:
            return protocol_type != "" and any(True for _ in protocols)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(self._protocol_counts[n] == everybody for n in protocols)

    def vote(self) -> str:
        """The protocol of the next generation: of those that all list, each member votes for the one it lists first.

        A tie goes to the first in alphabetical order, so that the outcome depends on nothing else.
        """
        everybody = len(self.members)
        common = {name for name, count in self._protocol_counts.items() if count == everybody}
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self.members.values()
        )
        return min(votes, key=lambda name: (-votes[name], name))

    # Clients that wait

    def park_join(self, member: Member, token: Token) -> None:
        member.join_token = token
        self.waiting[token] = member.member_id
        self.awaited.discard(member.member_id)

    def park_sync(self, member: Member, token: Token) -> None:
        member.sync_token = token
        self.waiting[token] = member.member_id

    def take_join_token(self, member: Member) -> Token | None:
        token, member.join_token = member.join_token, None
        self.waiting.pop(token, None)
        return token

    def take_sync_token(self, member: Member) -> Token | None:
        token, member.sync_token = member.sync_token, None
        self.waiting.pop(token, None)
        return token

    # Sessions

    def watch(self, member: Member, now: float) -> None:
        """Restart the member's session timeout. A parked client can't heartbeat, so it has none; but a new member's
        client may have vanished unnoticed, so its join is parked for a bounded time only."""
        key = (SESSION, member.member_id)
        if not member.is_parked:
            self.deadlines.set(key, now + member.session_timeout_ms)
        elif not member.is_new:
            self.deadlines.clear(key)
        else:
            self.deadlines.set(key, now + self.settings.new_member_join_timeout_ms)

    # What is written down

    def move(self, state: State, now: float) -> None:
        self.state = state
        self.since_ms = now

    def snapshot(self) -> GroupRecord:
        """The group as it is now."""
        return GroupRecord(
            group=self.group_id,
            state=self.state,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            since_ms=self.since_ms,
            members=tuple(member.record() for member in self.members.values()),
        )

    def record(self) -> GroupRecord:
        """The group as it is to be written now."""
        self.keep(self.snapshot())
        assert self.durable is not None
        return self.durable

    def keep(self, record: GroupRecord) -> None:
        """Note the group's record as the one that is written to its log."""
        self.durable = record
        self._plan_weight = sum(len(member.assignment) for member in record.members)

    @property
    def is_worthless(self) -> bool:
        """Whether nothing would be lost with it: no members, no offsets, nobody expected, nothing written."""
        return (
            self.state is State.EMPTY
            and not self.pending
            and not self.offsets
            and self.durable is None
            and self.generation == 0
        )


def member_weight(protocols: Iterable[tuple[str, bytes]]) -> int:
    return MEMBER_BYTES + sum(len(name) + len(metadata) for name, metadata in protocols)


def offset_weight(metadata: str) -> int:
    return OFFSET_BYTES + len(metadata)
