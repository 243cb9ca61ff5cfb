"""How members leave: by LeaveGroup, by silence, by losing their connection; and what the barriers' deadlines do."""

from __future__ import annotations

from holdfast.group.coordinator.checks import membership_error
from holdfast.group.coordinator.effects import Step
from holdfast.group.coordinator.events import JoinDue, Left, PendingExpired, SessionExpired, WaiterGone
from holdfast.group.coordinator.roster import JOIN_KEY, Member, Roster
from holdfast.group.coordinator.rounds import complete_join, maybe_complete_join, member_gone, take_out
from holdfast.group.messages import LeaveAnswer, Leaver, cut_reason
from holdfast.model import ErrorCode


def leave(roster: Roster, event: Left, step: Step) -> None:
    """Removes the members that may go, answers each; a round starts for those that are left."""
    first: Member | None = None
    cause = ""
    verdicts: list[tuple[Leaver, ErrorCode]] = []
    for leaver in event.request.members:
        error = leave_error(roster, leaver)
        verdicts.append((leaver, error or ErrorCode.NONE))
        if error is not None:
            continue
        if leaver.member_id in roster.pending:
            roster.drop_pending(leaver.member_id)
            continue
        member = roster.members[leaver.member_id or roster.static[leaver.instance_id or ""]]
        words = f"{member.name} left: {cut_reason(leaver.reason or 'no reason given')}"
        take_out(roster, step, member, what="member-left", cause=words)
        if first is None:
            first, cause = member, words
    if first is not None:
        member_gone(roster, step, cause=cause, culprit=first.member_id)
    maybe_complete_join(roster, step)
    step.reply(event.token, LeaveAnswer(members=tuple(verdicts)))


def leave_error(roster: Roster, leaver: Leaver) -> ErrorCode | None:
    """A static member may be named by its instance id alone: that is how administrators remove it."""
    if not leaver.member_id:
        named = leaver.instance_id is not None and leaver.instance_id in roster.static
        return None if named else ErrorCode.UNKNOWN_MEMBER_ID
    if leaver.member_id in roster.pending:
        return None
    return membership_error(roster, leaver.member_id, leaver.instance_id)


def expire_session(roster: Roster, event: SessionExpired, step: Step) -> None:
    """Removes a member that was silent for its session timeout; a round starts for the others."""
    member = roster.members.get(event.member_id)
    if member is None:
        return  # the timer of a member that is already gone (KAFKA-8896)
    if member.is_parked:
        cause = f"{member.name}'s join was parked for longer than a new member may wait"
    else:
        cause = f"{member.name}'s session expired: nothing heard for {member.session_timeout_ms} ms"
    take_out(roster, step, member, what="member-expired", cause=cause)
    member_gone(roster, step, cause=cause, culprit=member.member_id)


def expire_pending(roster: Roster, event: PendingExpired, step: Step) -> None:
    """Takes back an id that nobody used; the join barrier no longer waits for it."""
    if event.member_id not in roster.pending:
        return
    roster.drop_pending(event.member_id)
    step.trace(
        "member-expired",
        member=event.member_id,
        generation=roster.generation,
        cause=f"{event.member_id} was given its id and never came back with it",
        culprit=event.member_id,
    )
    maybe_complete_join(roster, step)


def join_due(roster: Roster, event: JoinDue, step: Step) -> None:
    """Completes the join barrier with those who came; an initial delay is extended while newcomers come."""
    until = roster.initial_until
    if until is not None and roster.newcomers and step.now < until:
        roster.newcomers = False
        delay = roster.settings.group_initial_rebalance_delay_ms
        roster.deadlines.set(JOIN_KEY, min(step.now + delay, until))
        return
    complete_join(roster, step)


def waiter_gone(roster: Roster, event: WaiterGone, step: Step) -> None:
    """Forgets the waiting client. Its member stays, and is expected back within its session timeout.

    What the client said still stands: it has joined, or synced. But a new member that was never told its id can never
    come back as itself; keeping it would only grow the group (KAFKA-7610).
    """
    member_id = roster.waiting.pop(event.token, None)
    if member_id is None:
        return
    member = roster.members[member_id]
    if member.join_token == event.token:
        member.join_token = None
    else:
        member.sync_token = None
    if member.knows_its_id or member.is_static:
        roster.watch(member, step.now)
        return
    cause = f"{member.name} went away before it was told its id"
    take_out(roster, step, member, what="member-left", cause=cause)
    member_gone(roster, step, cause=cause, culprit=member_id)
