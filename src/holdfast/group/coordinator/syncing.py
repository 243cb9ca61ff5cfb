"""SyncGroup and Heartbeat: the sync barrier, and keeping sessions alive."""

from __future__ import annotations

from holdfast.group.coordinator.checks import generation_error, refusal, sync_error
from holdfast.group.coordinator.effects import Step
from holdfast.group.coordinator.events import Heartbeat, SyncDue, Synced
from holdfast.group.coordinator.roster import SYNC_KEY, Member, Roster
from holdfast.group.coordinator.rounds import answer_parked, in_order, member_gone, take_out
from holdfast.group.coordinator.states import State
from holdfast.group.coordinator.tracing import trace_refusal
from holdfast.group.messages import HeartbeatAnswer, SyncAnswer
from holdfast.model import ErrorCode


def sync_in_preparing(roster: Roster, event: Synced, step: Step) -> None:
    """Tells the member to join again: REBALANCE_IN_PROGRESS."""
    refuse_sync(roster, event, step, sync_error(roster, event.request) or ErrorCode.REBALANCE_IN_PROGRESS)


def sync_in_completing(roster: Roster, event: Synced, step: Step) -> None:
    """Lets the sync wait for the leader's; the leader's plan answers everybody."""
    error = sync_error(roster, event.request)
    if error is not None:
        refuse_sync(roster, event, step, error)
        return
    member = roster.members[event.request.membership.member_id]
    answer_parked(roster, step, member, ErrorCode.REBALANCE_IN_PROGRESS)
    roster.park_sync(member, event.token)
    roster.watch(member, step.now)
    mark_synced(roster, member)
    if member.member_id == roster.leader:
        adopt_plan(roster, event, step)


def sync_in_stable(roster: Roster, event: Synced, step: Step) -> None:
    """Answers the stored part of the plan."""
    error = sync_error(roster, event.request)
    if error is not None:
        refuse_sync(roster, event, step, error)
        return
    member = roster.members[event.request.membership.member_id]
    mark_synced(roster, member)
    roster.watch(member, step.now)
    step.reply(event.token, part_of_plan(roster, member))


def adopt_plan(roster: Roster, event: Synced, step: Step) -> None:
    """The leader's plan has arrived: persist it, then hand it out. A member that it leaves out gets 0 bytes."""
    plan = event.request.assignments
    for member in roster.members.values():
        member.assignment = plan.get(member.member_id, b"")
    roster.move(State.STABLE, step.now)
    step.trace(
        "stable",
        member=roster.leader,
        generation=roster.generation,
        members=len(roster.members),
        took_ms=step.now - roster.round_since_ms,
    )
    step.persist(roster.record())
    for member in in_order(roster):
        token = roster.take_sync_token(member)
        if token is not None:
            step.reply(token, part_of_plan(roster, member))
            roster.watch(member, step.now)


def part_of_plan(roster: Roster, member: Member) -> SyncAnswer:
    return SyncAnswer(protocol_type=roster.protocol_type, protocol=roster.protocol, assignment=member.assignment)


def mark_synced(roster: Roster, member: Member) -> None:
    roster.unsynced.discard(member.member_id)
    if not roster.unsynced:
        roster.deadlines.clear(SYNC_KEY)


def expel_unsynced(roster: Roster, event: SyncDue, step: Step) -> None:
    """Expels the members that took the generation and never synced, and starts a round without them."""
    late = sorted(roster.unsynced)
    for member_id in late:
        member = roster.members[member_id]
        cause = f"{member.name} joined and did not sync within the rebalance timeout"
        take_out(roster, step, member, what="member-expelled", cause=cause)
    if late:
        member_gone(roster, step, cause=f"{late[0]} joined and did not sync", culprit=late[0])


def beat_in_preparing(roster: Roster, event: Heartbeat, step: Step) -> None:
    """Keeps the session alive and asks to join again: REBALANCE_IN_PROGRESS."""
    beat(roster, event, step, ErrorCode.REBALANCE_IN_PROGRESS)


def beat_in_generation(roster: Roster, event: Heartbeat, step: Step) -> None:
    """Keeps the session alive: 0."""
    beat(roster, event, step, ErrorCode.NONE)


def beat(roster: Roster, event: Heartbeat, step: Step, verdict: ErrorCode) -> None:
    request = event.request
    error = generation_error(roster, request.membership, request.instance_id)
    if error is None:
        roster.watch(roster.members[request.membership.member_id], step.now)
        step.reply(event.token, HeartbeatAnswer(error=verdict))
        return
    if error is ErrorCode.FENCED_INSTANCE_ID:
        trace_refusal(roster, step, "heartbeat-refused", request.membership, request.instance_id, error)
    step.reply(event.token, HeartbeatAnswer(error=error))


def refuse_sync(roster: Roster, event: Synced, step: Step, error: ErrorCode) -> None:
    request = event.request
    trace_refusal(roster, step, "sync-refused", request.membership, request.instance_id, error)
    step.reply(event.token, refusal(request, error))
