"""One group: takes requests and the time, returns what is to be done. `table` says what each of them means.

Rules. No clock, no random, no waiting: time comes with each call, ids from a source that is given, and a waiting client
is known by its token. This file must not know what any event does.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.group.coordinator.effects import Effect, Step, Token
from holdfast.group.coordinator.events import (
    CheckDue,
    Committed,
    Deleted,
    Event,
    Heartbeat,
    IdWanted,
    JoinDue,
    Joined,
    Left,
    OffsetsAsked,
    OffsetsDeleted,
    PartitionsDropped,
    PendingExpired,
    Rejoined,
    Returned,
    SessionExpired,
    SyncDue,
    Synced,
    Unloaded,
    WaiterGone,
)
from holdfast.group.coordinator.records import GroupRecord, OffsetRecord
from holdfast.group.coordinator.requests import (
    AdminRequest,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    GroupListing,
    GroupView,
    MemberView,
)
from holdfast.group.coordinator.roster import CHECK_KEY, JOIN, PENDING, SESSION, SYNC, SYNC_KEY, Member, Roster
from holdfast.group.coordinator.rounds import in_order
from holdfast.group.coordinator.settings import CoordinatorSettings
from holdfast.group.coordinator.states import State
from holdfast.group.coordinator.table import TABLE
from holdfast.group.messages import (
    CommitRequest,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    Request,
    SyncRequest,
)
from holdfast.group.table import Handled, Ignored
from holdfast.model import HoldfastError, TopicPartition


class Group:
    """One group of a coordinator."""

    __slots__ = ("roster",)

    def __init__(
        self, group_id: str, settings: CoordinatorSettings, new_member_id: Callable[[str], str], now: float
    ) -> None:
        self.roster = Roster(group_id=group_id, settings=settings, new_member_id=new_member_id, since_ms=now)
        self.roster.deadlines.set(CHECK_KEY, now + settings.offsets_retention_check_interval_ms)

    # What happens

    def handle(self, token: Token, request: Request | AdminRequest, now: float) -> list[Effect]:
        """A client asks. A join or sync may be parked: its `Reply` comes with a later call's effects."""
        return self.happen(event_of(self.roster, token, request), now)

    def tick(self, now: float) -> list[Effect]:
        """Do what is due by now. A tick at any other moment does nothing."""
        effects: list[Effect] = []
        while (key := self.roster.deadlines.pop_due(now)) is not None:
            effects += self.happen(due_event(key), now)
        return effects

    def disconnected(self, token: Token, now: float) -> list[Effect]:
        """The client behind a parked request went away: it is not answered any more."""
        return self.happen(WaiterGone(token), now)

    def drop_partitions(self, partitions: frozenset[TopicPartition], now: float) -> list[Effect]:
        """These partitions no longer exist."""
        return self.happen(PartitionsDropped(partitions), now)

    def unload(self, now: float) -> list[Effect]:
        """This coordinator stops serving the group."""
        return self.happen(Unloaded(), now)

    def happen(self, event: Event, now: float) -> list[Effect]:
        """Look up the event in the table and run its handler."""
        before = self.roster.state
        entry = TABLE[before, type(event)]
        if isinstance(entry, Ignored):
            return []
        if not isinstance(entry, Handled):
            raise HoldfastError(
                "ILLEGAL_GROUP_EVENT",
                f"{type(event).__name__} in state {before.value} of group {self.roster.group_id}: {entry.reason}.",
                "This is a bug in the coordinator or its driver: please report it.",
            )
        step = Step(self.roster.group_id, now)
        entry.handler(self.roster, event, step)
        after = self.roster.state
        assert after is before or after in entry.to, f"{before} × {event} led to {after}"
        return step.effects

    # What it shows

    def next_deadline(self) -> float | None:
        """When `tick` should be called next."""
        return self.roster.deadlines.next()

    def is_waiting(self, token: Token) -> bool:
        return token in self.roster.waiting

    def describe(self) -> GroupView:
        roster = self.roster
        return GroupView(
            group=roster.group_id,
            state=roster.state.value,
            protocol_type=roster.protocol_type or "",
            protocol=roster.protocol or "" if roster.state is State.STABLE else "",
            generation=roster.generation,
            leader=roster.leader,
            members=tuple(member_view(roster, member) for member in in_order(roster)),
        )

    def listing(self) -> GroupListing:
        roster = self.roster
        return GroupListing(group=roster.group_id, state=roster.state.value, protocol_type=roster.protocol_type or "")

    # From the log

    def load(self, record: GroupRecord | None) -> None:
        """Take over what the log says about members; None after a tombstone."""
        old = self.roster
        roster = self.roster = Roster(
            group_id=old.group_id, settings=old.settings, new_member_id=old.new_member_id, since_ms=old.since_ms
        )
        roster.take_offsets(old)
        if record is None:
            return
        roster.keep(record)
        roster.protocol_type = record.protocol_type
        for each in record.members:
            roster.add(
                Member(
                    member_id=each.member_id,
                    instance_id=each.instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    session_timeout_ms=each.session_timeout_ms,
                    rebalance_timeout_ms=each.rebalance_timeout_ms,
                    protocols=each.protocols,
                    assignment=each.assignment,
                )
            )
        roster.state = record.state
        roster.generation = record.generation
        roster.protocol = record.protocol
        roster.leader = record.leader
        roster.since_ms = record.since_ms

    def load_offset(self, partition: TopicPartition, record: OffsetRecord | None) -> None:
        """Take over what the log says about an offset; None after a tombstone."""
        if record is None:
            self.roster.drop_offset(partition)
        else:
            self.roster.set_offset(record)

    def wake(self, now: float) -> None:
        """After loading: every member gets a fresh session, and a round under way fresh time for its syncs."""
        roster = self.roster
        roster.deadlines.set(CHECK_KEY, now + roster.settings.offsets_retention_check_interval_ms)
        for member in roster.members.values():
            roster.watch(member, now)
        if roster.state is State.COMPLETING:
            roster.round_since_ms = now
            roster.unsynced = set(roster.members)
            roster.deadlines.set(SYNC_KEY, now + roster.rebalance_timeout_ms)


def event_of(roster: Roster, token: Token, request: Request | AdminRequest) -> Event:
    """What a request means to this group."""
    match request:
        case HeartbeatRequest():
            return Heartbeat(token, request)
        case CommitRequest():
            return Committed(token, request)
        case JoinRequest():
            return join_event(roster, token, request)
        case SyncRequest():
            return Synced(token, request)
        case LeaveRequest():
            return Left(token, request)
        case FetchOffsetsRequest():
            return OffsetsAsked(token, request)
        case DeleteOffsetsRequest():
            return OffsetsDeleted(token, request)
        case DeleteGroupRequest():
            return Deleted(token, request)


def join_event(roster: Roster, token: Token, request: JoinRequest) -> Event:
    """Who is joining?"""
    static = request.instance_id is not None
    if request.membership.known:
        is_pending = request.membership.member_id in roster.pending and not static
        return Joined(token, request) if is_pending else Rejoined(token, request)
    if request.instance_id in roster.static:
        return Returned(token, request)
    if request.requires_known_member_id and not static:
        return IdWanted(token, request)
    return Joined(token, request)


def due_event(key: tuple[int, str]) -> Event:
    """What a deadline means."""
    kind, member_id = key
    if kind == SESSION:
        return SessionExpired(member_id)
    if kind == PENDING:
        return PendingExpired(member_id)
    if kind == JOIN:
        return JoinDue()
    return SyncDue() if kind == SYNC else CheckDue()


def member_view(roster: Roster, member: Member) -> MemberView:
    stable = roster.state is State.STABLE
    return MemberView(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        metadata=member.metadata(roster.protocol) if stable else b"",
        assignment=member.assignment if stable else b"",
    )
