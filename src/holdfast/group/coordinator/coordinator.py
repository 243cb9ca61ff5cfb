"""All groups of one coordinator: finds the group, keeps their number within bounds, keeps one timer for all.

Rules as for `group`. This file must not know what a request means to its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.group.coordinator.checks import growth, refusal
from holdfast.group.coordinator.deadlines import Deadlines
from holdfast.group.coordinator.effects import Effect, Persist, Reply, Token
from holdfast.group.coordinator.group import Group
from holdfast.group.coordinator.records import GroupRecord, GroupTombstone, OffsetRecord, OffsetTombstone, Record
from holdfast.group.coordinator.requests import (
    AdminAnswer,
    AdminRequest,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    GroupListing,
    GroupView,
)
from holdfast.group.coordinator.settings import CoordinatorSettings
from holdfast.group.coordinator.states import State
from holdfast.group.messages import (
    Answer,
    CommitRequest,
    FetchOffsetsAnswer,
    FetchOffsetsRequest,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    Request,
)
from holdfast.model import ErrorCode, TopicPartition


class Coordinator:
    """The group coordinator of a broker, or of a simulated world."""

    __slots__ = ("_closed", "_deadlines", "_groups", "_new_member_id", "_parked", "_settings", "_weight", "_weights")

    def __init__(self, settings: CoordinatorSettings, new_member_id: Callable[[str], str]) -> None:
        """`new_member_id` makes a unique id from a client's name: `f"{name}-{uuid4()}"` in a broker."""
        self._settings = settings
        self._new_member_id = new_member_id
        self._groups: dict[str, Group] = {}
        self._deadlines: Deadlines[str] = Deadlines()
        self._parked: dict[Token, str] = {}
        """Waiting clients -> group."""
        self._closed = False
        self._weights: dict[str, int] = {}
        self._weight = 0
        """About how much memory each group takes, and all of them together."""

    @classmethod
    def replay(
        cls,
        records: Iterable[Record],
        now: float,
        *,
        settings: CoordinatorSettings,
        new_member_id: Callable[[str], str],
    ) -> Coordinator:
        """A coordinator that continues from its log. All or nothing: an unreadable record leaves no half of one.

        Records may come in any state of compaction: offsets before their group, tombstones for what was never there.
        """
        coordinator = cls(settings, new_member_id)
        for record in records:
            coordinator._load(record, now)
        for group_id in list(coordinator._groups):
            coordinator._groups[group_id].wake(now)
            coordinator._track(group_id)
        return coordinator

    # What happens

    def handle(self, token: Token, request: Request | AdminRequest, now: float) -> list[Effect]:
        """A client asks; `token` stands for it until its `Reply`, which comes now or with a later call's effects."""
        group_id = request.group
        group = self._groups.get(group_id)
        if group is None:
            answer = self._refuse_absent(request)
            if answer is not None:
                return [Reply(token, answer)]
        refused = self._refuse_growth(group, request)
        if refused is not None:
            return [Reply(token, refusal(request, refused))]
        if group is None:
            group = self._groups[group_id] = Group(group_id, self._settings, self._new_member_id, now)
        effects = group.handle(token, request, now)
        if group.is_waiting(token):
            self._parked[token] = group_id
        return self._done(group_id, effects)

    def tick(self, now: float) -> list[Effect]:
        """Do what is due by now. A tick at any other moment does nothing."""
        effects: list[Effect] = []
        while (group_id := self._deadlines.pop_due(now)) is not None:
            effects += self._done(group_id, self._groups[group_id].tick(now))
        return effects

    def next_deadline(self) -> float | None:
        """When `tick` should be called next; None if there is nothing to wait for."""
        return self._deadlines.next()

    def disconnected(self, token: Token, now: float) -> list[Effect]:
        """A client went away. Fine to call for one that was not waiting."""
        group_id = self._parked.pop(token, None)
        if group_id is None:
            return []
        return self._done(group_id, self._groups[group_id].disconnected(token, now))

    def drop_partitions(self, partitions: Iterable[TopicPartition], now: float) -> list[Effect]:
        """These partitions were deleted: their offsets mean nothing any more."""
        gone = frozenset(partitions)
        effects: list[Effect] = []
        for group_id in self.group_ids():
            if self.committed_among(group_id, gone):  # usually by none of thousands of groups
                effects += self.drop_partitions_of(group_id, gone, now)
        return effects

    def drop_partitions_of(self, group_id: str, partitions: Iterable[TopicPartition], now: float) -> list[Effect]:
        """The same for one group, for a driver that pauses between groups and within a large one."""
        group = self._groups.get(group_id)
        return [] if group is None else self._done(group_id, group.drop_partitions(frozenset(partitions), now))

    def close(self, now: float) -> list[Effect]:
        """Stop serving. Waiting clients are answered NOT_COORDINATOR, later ones COORDINATOR_NOT_AVAILABLE."""
        self._closed = True
        effects: list[Effect] = []
        for group_id in sorted(self._groups):
            effects += self._done(group_id, self._groups[group_id].unload(now))
        return effects

    def reload(self, group_id: str, records: Iterable[Record], now: float) -> list[Effect]:
        """Reset one group to what its log says, because its changes could not be written. Members that wait for an
        answer get NOT_COORDINATOR; other groups are not affected.
        """
        group = self._groups.get(group_id)
        effects = [] if group is None else self._done(group_id, group.unload(now))
        for record in records:
            self._load(record, now)
        if group_id in self._groups:
            self._groups[group_id].wake(now)
            self._track(group_id)
        return effects

    # What it shows

    def describe(self, group_id: str) -> GroupView:
        """One group; "Dead" if there is none."""
        group = self._groups.get(group_id)
        return GroupView(group=group_id, state=State.DEAD.value) if group is None else group.describe()

    def list_groups(self) -> list[GroupListing]:
        """All groups, by name."""
        return [self._groups[group_id].listing() for group_id in sorted(self._groups)]

    def group_ids(self) -> list[str]:
        return sorted(self._groups)

    def committed_among(self, group_id: str, partitions: frozenset[TopicPartition]) -> list[TopicPartition]:
        """Those for which the group has committed an offset."""
        group = self._groups.get(group_id)
        return [] if group is None else group.roster.committed_among(partitions)

    def committed(self) -> set[TopicPartition]:
        """All partitions for which any group has committed an offset."""
        return {partition for group in self._groups.values() for partition in group.roster.offsets}

    def group(self, group_id: str) -> Group | None:
        """For tests and checkers: the group itself."""
        return self._groups.get(group_id)

    def records(self) -> list[Record]:
        """The durable state as the shortest log that gives it: what a compacted log holds."""
        compacted: list[Record] = []
        for group_id in sorted(self._groups):
            roster = self._groups[group_id].roster
            if roster.durable is not None:
                compacted.append(roster.durable)
            compacted += [roster.offsets[partition] for partition in sorted(roster.offsets)]
        return compacted

    @property
    def weight(self) -> int:
        """About how much memory all groups take."""
        return self._weight

    @property
    def waiting(self) -> int:
        """How many clients are parked."""
        return len(self._parked)

    # Bookkeeping

    def _refuse_absent(self, request: Request | AdminRequest) -> Answer | AdminAnswer | None:
        """The answer for a group that does not exist, unless the request may create it."""
        if self._closed:
            return refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not 0 < len(request.group) <= self._settings.max_id_length:
            return refusal(request, ErrorCode.INVALID_GROUP_ID)
        match request:
            case JoinRequest() if not request.membership.known:
                return self._refuse_crowd(request)
            case CommitRequest() if request.membership.generation < 0:
                return self._refuse_crowd(request)
            case CommitRequest():
                return refusal(request, ErrorCode.ILLEGAL_GENERATION)
            case FetchOffsetsRequest():
                return FetchOffsetsAnswer()
            case LeaveRequest():
                unknown = ErrorCode.UNKNOWN_MEMBER_ID
                return LeaveAnswer(members=tuple((leaver, unknown) for leaver in request.members))
            case DeleteGroupRequest() | DeleteOffsetsRequest():
                return refusal(request, ErrorCode.GROUP_ID_NOT_FOUND)
            case _:
                return refusal(request, ErrorCode.UNKNOWN_MEMBER_ID)

    def _refuse_crowd(self, request: JoinRequest | CommitRequest) -> Answer | AdminAnswer | None:
        """No more groups than we can keep. Waiting would not help the client: the answer is one it does not retry."""
        full = len(self._groups) >= self._settings.max_groups
        return refusal(request, ErrorCode.POLICY_VIOLATION) if full else None

    def _refuse_growth(self, group: Group | None, request: Request | AdminRequest) -> ErrorCode | None:
        """The error for a request that needs more memory than is left. Existing members stay, and may repeat what they
        sent before."""
        error, more = growth(None if group is None else group.roster, request)
        full = more > 0 and self._weight + more > self._settings.max_groups_bytes
        return error if full else None

    def _done(self, group_id: str, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Reply):
                self._parked.pop(effect.token, None)
        self._track(group_id)
        return effects

    def _track(self, group_id: str) -> None:
        """After any change of a group: forget it if it is gone, else note its next deadline and its weight."""
        group = self._groups[group_id]
        deadline = group.next_deadline()
        if group.roster.state is State.DEAD or group.roster.is_worthless or deadline is None:
            del self._groups[group_id]
            self._deadlines.clear(group_id)
            self._weigh(group_id, 0)
        else:
            self._deadlines.set(group_id, deadline)
            self._weigh(group_id, group.roster.weight)

    def _weigh(self, group_id: str, weight: int) -> None:
        before = self._weights.pop(group_id, 0)
        self._weight += weight - before
        if weight:
            self._weights[group_id] = weight

    def _load(self, record: Record, now: float) -> None:
        group = self._groups.get(record.group)
        if group is None:
            if isinstance(record, GroupTombstone | OffsetTombstone):
                return
            group = self._groups[record.group] = Group(record.group, self._settings, self._new_member_id, now)
        match record:
            case GroupRecord():
                group.load(record)
            case GroupTombstone():
                group.load(None)
            case OffsetRecord():
                group.load_offset(record.partition, record)
            case OffsetTombstone():
                group.load_offset(record.partition, None)
        if group.roster.is_worthless:
            del self._groups[record.group]


def records_of(effects: Iterable[Effect]) -> list[Record]:
    """All records to be appended, in order."""
    return [record for effect in effects if isinstance(effect, Persist) for record in effect.records]
