"""Checks of requests. Nothing here changes the group, so a refused request changes nothing.

Each check returns the error to answer with, or None. The order of checks is Kafka's where clients can tell.
"""

from __future__ import annotations

from holdfast.group.coordinator.events import Joined, Rejoined, Returned
from holdfast.group.coordinator.requests import (
    AdminAnswer,
    AdminRequest,
    DeleteGroupAnswer,
    DeleteGroupRequest,
    DeleteOffsetsAnswer,
    DeleteOffsetsRequest,
)
from holdfast.group.coordinator.roster import Member, Roster, member_weight, offset_weight
from holdfast.group.coordinator.settings import CoordinatorSettings
from holdfast.group.coordinator.states import State
from holdfast.group.messages import (
    Answer,
    CommitAnswer,
    CommitRequest,
    FetchOffsetsAnswer,
    FetchOffsetsRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    Request,
    SyncAnswer,
    SyncRequest,
)
from holdfast.model import ErrorCode, Membership


def refusal(request: Request | AdminRequest, error: ErrorCode) -> Answer | AdminAnswer:
    """The answer that refuses any request. Drivers use it too: after a failed append, or when permission is missing."""
    match request:
        case JoinRequest():
            return JoinAnswer(error=error, membership=Membership(request.membership.member_id))
        case SyncRequest():
            return SyncAnswer(error=error)
        case HeartbeatRequest():
            return HeartbeatAnswer(error=error)
        case LeaveRequest():
            return LeaveAnswer(error=error)
        case CommitRequest():
            return CommitAnswer(errors=dict.fromkeys(sorted(request.offsets), error))
        case FetchOffsetsRequest():
            return FetchOffsetsAnswer(error=error)
        case DeleteGroupRequest():
            return DeleteGroupAnswer(error=error)
        case DeleteOffsetsRequest():
            return DeleteOffsetsAnswer(error=error)


def growth(roster: Roster | None, request: Request | AdminRequest) -> tuple[ErrorCode, int]:
    """About how much memory a request adds to its group, and the error to answer if the broker has no more. Clients
    don't retry these errors."""
    match request:
        case JoinRequest():
            before = None if roster is None else roster.members.get(request.membership.member_id)
            if before is None and roster is not None and request.instance_id is not None:
                before = roster.members.get(roster.static.get(request.instance_id, ""))
            more = member_weight(request.protocols)
            return ErrorCode.POLICY_VIOLATION, more - (0 if before is None else before.weight)
        case SyncRequest():
            plan = sum(len(part) for part in request.assignments.values())
            return ErrorCode.UNKNOWN_SERVER_ERROR, plan - (0 if roster is None else roster.plan_weight)
        case CommitRequest():
            known = {} if roster is None else roster.offsets
            more = 0
            for partition, entry in request.offsets.items():
                more += offset_weight(entry.metadata)
                if partition in known:
                    more -= offset_weight(known[partition].metadata)
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE, more
        case _:
            return ErrorCode.NONE, 0


def membership_error(roster: Roster, member_id: str, instance_id: str | None) -> ErrorCode | None:
    """Whether the sender is the member it says it is. An instance id has one holder; other processes are fenced."""
    if instance_id is not None:
        holder = roster.static.get(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return None if member_id in roster.members else ErrorCode.UNKNOWN_MEMBER_ID


def generation_error(roster: Roster, membership: Membership, instance_id: str | None) -> ErrorCode | None:
    """Whether a request comes from a member in the current generation."""
    error = membership_error(roster, membership.member_id, instance_id)
    if error is None and membership.generation != roster.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def sync_error(roster: Roster, request: SyncRequest) -> ErrorCode | None:
    error = generation_error(roster, request.membership, request.instance_id)
    if error is not None:
        return error
    if request.protocol_type not in (None, roster.protocol_type) or request.protocol not in (None, roster.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return None


def commit_error(roster: Roster, request: CommitRequest) -> ErrorCode | None:
    """Members commit in their generation; clients outside the group only while it is empty."""
    member = request.membership
    if roster.state is State.EMPTY and member.generation < 0:
        return None
    if member.generation < 0 and not member.known and request.instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return generation_error(roster, member, request.instance_id)


def join_error(roster: Roster, event: Joined | Returned | Rejoined) -> ErrorCode | None:
    """Whether a join may go ahead, the group's size aside."""
    request = event.request
    error = shape_error(request, roster.settings)
    if error is not None:
        return error
    if isinstance(event, Rejoined):
        error = membership_error(roster, request.membership.member_id, request.instance_id)
        if error is not None:
            return error
    if not roster.supports(request.protocol_type, [name for name, _ in request.protocols]):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return metadata_error(roster, event)


def shape_error(request: JoinRequest, settings: CoordinatorSettings) -> ErrorCode | None:
    """What is wrong with a join in any group, for instance an empty list of protocols (KAFKA-6005)."""
    if not settings.group_min_session_timeout_ms <= request.session_timeout_ms <= settings.group_max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if request.instance_id is not None and not 0 < len(request.instance_id) <= settings.max_id_length:
        return ErrorCode.INVALID_CONFIG
    if not request.protocol_type or not request.protocols:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return None


def metadata_error(roster: Roster, event: Joined | Returned | Rejoined) -> ErrorCode | None:
    """Whether a member's metadata fits, alone and together with that of the others."""
    size = sum(len(metadata) for _, metadata in event.request.protocols)
    known = known_member(roster, event)
    others = roster.metadata_bytes - (known.metadata_bytes if known is not None else 0)
    fits = size <= roster.settings.max_member_metadata_bytes
    fits_all = others + size <= roster.settings.max_group_metadata_bytes
    return None if fits and fits_all else ErrorCode.MESSAGE_TOO_LARGE


def known_member(roster: Roster, event: Joined | Returned | Rejoined) -> Member | None:
    """The member that a join comes from, if it is a member already."""
    if isinstance(event, Returned):
        return roster.members[roster.static[event.request.instance_id or ""]]
    return roster.members.get(event.request.membership.member_id)


def has_room(roster: Roster, member: Member | None) -> bool:
    """Whether a join keeps within the group's size. The last to come are the ones refused (KAFKA-9885).

    While the join barrier is up, members that have not joined yet don't count: they may never come, and this way a
    group shrinks to a limit that was lowered. Absent static members do count, because they keep their place; a process
    that takes over such a place needs no new one.
    """
    limit = roster.settings.group_max_size
    if roster.state is not State.PREPARING:
        return member is not None or len(roster.members) < limit
    if len(roster.members) < limit or (member is not None and member.member_id not in roster.awaited):
        return True
    joined = len(roster.members) - len(roster.awaited)
    if member is not None and member.is_static:
        return joined < limit
    return joined + sum(each in roster.awaited for each in roster.static.values()) < limit
