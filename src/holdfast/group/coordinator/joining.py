"""JoinGroup: requests for an id, new members, static members that return, and members that join again."""

from __future__ import annotations

from holdfast.group.coordinator.checks import has_room, join_error, known_member, refusal, shape_error
from holdfast.group.coordinator.effects import Step
from holdfast.group.coordinator.events import IdWanted, Joined, Rejoined, Returned
from holdfast.group.coordinator.ids import fresh_member_id
from holdfast.group.coordinator.roster import PENDING, Member, Roster
from holdfast.group.coordinator.rounds import (
    answer_parked,
    everybody,
    generation_answer,
    maybe_complete_join,
    park,
    start_round,
    take_out,
)
from holdfast.group.coordinator.states import State
from holdfast.group.coordinator.subscriptions import topics_of
from holdfast.group.coordinator.tracing import trace_refusal
from holdfast.group.messages import JoinAnswer, JoinRequest, cut_reason
from holdfast.model import ErrorCode, Membership


def give_id(roster: Roster, event: IdWanted, step: Step) -> None:
    """Gives out a member id: MEMBER_ID_REQUIRED."""
    request = event.request
    error = shape_error(request, roster.settings)
    if error is None and not roster.supports(request.protocol_type, [name for name, _ in request.protocols]):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error is None and not (has_room(roster, None) and len(roster.pending) < roster.settings.max_pending_members):
        error = ErrorCode.GROUP_MAX_SIZE_REACHED
    if error is not None:
        refuse_join(roster, event, step, error)
        return
    member_id = fresh_member_id(roster, request)
    roster.pending.add(member_id)
    roster.deadlines.set((PENDING, member_id), step.now + request.session_timeout_ms)
    step.reply(event.token, JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, membership=Membership(member_id)))


def admit(roster: Roster, event: Joined, step: Step) -> None:
    """Adds a new member and lets its join wait for the others."""
    if refuse_if_invalid(roster, event, step):
        return
    request = event.request
    member = Member(
        member_id=request.membership.member_id or fresh_member_id(roster, request),
        instance_id=request.instance_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=0,
        protocols=(),
        is_new=True,
        knows_its_id=request.membership.known,
    )
    if not roster.members:
        roster.protocol_type = request.protocol_type
    roster.add(member)
    update(roster, member, request)
    park(roster, step, member, event.token)
    roster.newcomers = True
    if roster.state is State.PREPARING:
        maybe_complete_join(roster, step)
        return
    start_round(roster, step, cause=f"{member.name} joined{because(request)}", culprit=member.member_id)
    maybe_complete_join(roster, step)


def rejoin_barrier(roster: Roster, event: Rejoined, step: Step) -> None:
    """Lets the join wait for the others."""
    if refuse_if_invalid(roster, event, step):
        return
    member = roster.members[event.request.membership.member_id]
    update(roster, member, event.request)
    park(roster, step, member, event.token)
    maybe_complete_join(roster, step)


def rejoin_completing(roster: Roster, event: Rejoined, step: Step) -> None:
    """Answers the round once more; a changed subscription starts a new one."""
    if refuse_if_invalid(roster, event, step):
        return
    member = roster.members[event.request.membership.member_id]
    if member.protocols == unique_protocols(event.request):
        # Nothing has changed: it may have missed the previous answer.
        answer_again(roster, event, step, member)
    else:
        rejoin_with(roster, event, step, member, f"subscription of {member.name} changed{because(event.request)}")


def rejoin_stable(roster: Roster, event: Rejoined, step: Step) -> None:
    """Starts a round if the leader joins or the subscription changed; else answers the current generation."""
    if refuse_if_invalid(roster, event, step):
        return
    member = roster.members[event.request.membership.member_id]
    if member.protocols != unique_protocols(event.request):
        rejoin_with(roster, event, step, member, f"subscription of {member.name} changed{because(event.request)}")
    elif member.member_id == roster.leader:
        # The leader asks for a round when it sees what the coordinator can't, such as new partitions of a topic.
        rejoin_with(roster, event, step, member, f"leader {member.name} asked for a round{because(event.request)}")
    else:
        answer_again(roster, event, step, member)


def rejoin_with(roster: Roster, event: Rejoined, step: Step, member: Member, cause: str) -> None:
    update(roster, member, event.request)
    park(roster, step, member, event.token)
    start_round(roster, step, cause=cause, culprit=member.member_id)
    maybe_complete_join(roster, step)


def answer_again(roster: Roster, event: Rejoined, step: Step, member: Member) -> None:
    roster.watch(member, step.now)
    answer = generation_answer(roster, member)
    step.reply(event.token, answer)


def return_to_barrier(roster: Roster, event: Returned, step: Step) -> None:
    """Takes over the static member's place, fences the former holder, waits for the others."""
    if refuse_if_invalid(roster, event, step):
        return
    member = replace_static(roster, event, step)
    park(roster, step, member, event.token)
    maybe_complete_join(roster, step)


def return_completing(roster: Roster, event: Returned, step: Step) -> None:
    """Takes over the static member's place and starts a new round: the plan under way names the old id."""
    if refuse_if_invalid(roster, event, step):
        return
    member = replace_static(roster, event, step)
    park(roster, step, member, event.token)
    cause = f"static member {member.instance_id} returned before the plan was there{because(event.request)}"
    start_round(roster, step, cause=cause, culprit=member.member_id)
    maybe_complete_join(roster, step)


def return_stable(roster: Roster, event: Returned, step: Step) -> None:
    """Takes over the static member's place without a round, unless its subscription or the protocol changed."""
    if refuse_if_invalid(roster, event, step):
        return
    old_leader = roster.leader
    topics_before = topics_of(roster, known_member(roster, event))
    member = replace_static(roster, event, step)
    if topics_of(roster, member) != topics_before or roster.vote() != roster.protocol:
        park(roster, step, member, event.token)
        cause = f"static member {member.instance_id} returned with another subscription{because(event.request)}"
        start_round(roster, step, cause=cause, culprit=member.member_id)
        maybe_complete_join(roster, step)
        return
    step.persist(roster.record())
    roster.watch(member, step.now)
    leads = member.member_id == roster.leader
    skips = leads and event.request.supports_skipping_assignment
    answer = JoinAnswer(
        membership=Membership(member.member_id, roster.generation),
        protocol_type=roster.protocol_type,
        protocol=roster.protocol,
        # A leader that can't be told to skip planning is not told that it leads (KIP-814).
        leader=roster.leader if skips or not leads else old_leader,
        skip_assignment=skips,
        members=everybody(roster) if skips else (),
    )
    step.reply(event.token, answer)


def replace_static(roster: Roster, event: Returned, step: Step) -> Member:
    """A new process takes the place of the old one, whose requests are fenced: a parked one now, later ones as they
    come."""
    member = known_member(roster, event)
    assert member is not None
    old_id = member.member_id
    answer_parked(roster, step, member, ErrorCode.FENCED_INSTANCE_ID)
    roster.rename(member, fresh_member_id(roster, event.request))
    update(roster, member, event.request)
    step.trace(
        "member-replaced",
        member=member.member_id,
        generation=roster.generation,
        cause=f"static member {member.instance_id} returned{because(event.request)}",
        culprit=member.member_id,
        fenced=old_id,
    )
    return member


def update(roster: Roster, member: Member, request: JoinRequest) -> None:
    """Take over what a join brings: subscription, timeouts (KAFKA-14009), client id and host."""
    longest = roster.settings.max_id_length
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = max(request.rebalance_timeout_ms, 0)
    member.client_id = request.client_id[:longest]
    member.client_host = request.client_host[:longest]
    roster.set_protocols(member, unique_protocols(request))


def unique_protocols(request: JoinRequest) -> tuple[tuple[str, bytes], ...]:
    """The protocols in order of preference, each name once."""
    first: dict[str, bytes] = {}
    for name, metadata in request.protocols:
        first.setdefault(name, metadata)
    return tuple(first.items())


def refuse_if_invalid(roster: Roster, event: Joined | Returned | Rejoined, step: Step) -> bool:
    """Refuse a join that can't go ahead, and return True. One that finds the group full loses the place it may have."""
    error = join_error(roster, event)
    if error is None and not has_room(roster, known_member(roster, event)):
        error = ErrorCode.GROUP_MAX_SIZE_REACHED
    if error is None:
        return False
    refuse_join(roster, event, step, error)
    if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
        give_up_place(roster, event, step)
    return True


def refuse_join(roster: Roster, event: IdWanted | Joined | Returned | Rejoined, step: Step, error: ErrorCode) -> None:
    trace_refusal(roster, step, "join-refused", event.request.membership, event.request.instance_id, error)
    step.reply(event.token, refusal(event.request, error))


def give_up_place(roster: Roster, event: Joined | Returned | Rejoined, step: Step) -> None:
    """Stop waiting for a member, or for the holder of an id, that was refused for good."""
    roster.drop_pending(event.request.membership.member_id)
    member = known_member(roster, event)
    if member is not None:
        take_out(roster, step, member, what="member-expelled", cause=f"{member.name} came when the group was full")
    maybe_complete_join(roster, step)


def because(request: JoinRequest) -> str:
    """The client's own reason, as part of a cause."""
    return f" (reason: {cut_reason(request.reason)})" if request.reason else ""
