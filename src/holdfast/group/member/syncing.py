"""From the plan to the new assignment: SyncGroup's answers and KIP-429's 3a–3d."""

from __future__ import annotations

from holdfast.group.member.effects import Assigned, Call, CountMembers, ForgetCoordinator, OnAssignment, Revoked
from holdfast.group.member.events import GroupSized, Notified, PlanFailed, Planned, SyncAnswered
from holdfast.group.member.joining import (
    MARKED_REASON,
    MOVED,
    RETRIABLE,
    fatal_error,
    lose_membership,
    part,
    prepare,
    send_sync,
)
from holdfast.group.member.leaving import drain_after_round
from holdfast.group.member.state import MemberState, Phase
from holdfast.group.member.turn import Turn, as_value
from holdfast.group.user_data import LeaderNote, read_leader_note
from holdfast.model import Assignment, ErrorCode, HoldfastError
from holdfast.model.consumer_protocol import decode_assignment

MAX_MARKS_IN_A_ROW = 8
"""Instant rejoins one after another. A sound plan needs one; a leader that marks for ever would spin the group."""

HOT_WINDOW_MS = 1_000.0
"""How long we heartbeat quickly after a round under a leader that can't mark: a second round follows within it."""

HOT_INTERVAL_MS = 25.0
COORDINATOR_BUDGET_PER_S = 4_000
"""Quick heartbeats of a whole group, as many as a coordinator serves without being noticed."""

COUNT_STANDS_MS_PER_MEMBER = 10.0
"""How long a count of the members is good for. The answer describes every member in some 300 bytes, so the larger the
group the seldomer it is asked for: every 2 s in a group of 200, whose members then receive 30 KB a second each."""

REVOKED_REASON = "revoked partitions that others wait for"


def planned(turn: Turn, event: Planned) -> None:
    counts = dict(event.partition_counts)
    turn.set(planned_counts=counts, partition_counts={**turn.state.partition_counts, **counts})
    turn.trace("planned", members=len(event.assignments))
    send_sync(turn, dict(event.assignments))


def plan_failed(turn: Turn, event: PlanFailed) -> None:
    turn.fail(event.error)


def sync_answered(turn: Turn, event: SyncAnswered) -> None:
    answer = event.answer
    turn.set(pending=None)
    turn.answered(answer.error)
    if answer.error is ErrorCode.NONE:
        _synced(turn, answer.assignment)
    elif answer.error is ErrorCode.REBALANCE_IN_PROGRESS:
        prepare(turn, "the group started another round before we synced")
    elif answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        lose_membership(turn, answer.error)
        prepare(turn, f"the coordinator answered {answer.error.name} to our sync")
    elif answer.error in RETRIABLE:
        if answer.error in MOVED:
            turn.do(ForgetCoordinator())
        prepare(turn, f"the coordinator answered {answer.error.name} to our sync")
    else:
        turn.fail(fatal_error(answer.error))


def _synced(turn: Turn, data: bytes) -> None:
    try:
        assignment = decode_assignment(data)
    except HoldfastError as error:
        turn.fail(
            HoldfastError("BAD_ASSIGNMENT", f"the leader sent an assignment we can't read ({error.what})", error.do)
        )
        return
    state = turn.state
    note = read_leader_note(assignment.user_data)
    turn.set(
        synced_at=turn.now,
        next_heartbeat_at=turn.now + state.config.heartbeat_interval_ms,
        next_hot_at=None,
        peers=note.peers if note else (),
        poke_token=note.token if note else "",
        leader_drains=note is not None and note.knows_drain,
        positions_reach=note is not None and note.all_read,
    )
    if state.leave_after_round:  # the group has a generation again, in which everything can be committed
        part(turn)
        return
    _maybe_heat(turn, note)
    if any(partition.topic not in state.topics for partition in assignment.partitions):
        # The subscription changed since this round was joined: its result is for another member (KAFKA-7961).
        turn.trace("assignment-ignored", assigned=as_value(assignment.partitions))
        prepare(turn, "the subscription changed during the round")
        return
    _apply(turn, assignment, note)


def _maybe_heat(turn: Turn, note: LeaderNote | None) -> None:
    """Under a foreign leader nobody marks: ask often for a while instead, within the coordinator's budget."""
    state = turn.state
    if note is not None or not state.cooperative or not state.config.hot_heartbeats:
        turn.set(hot_until=turn.now)
        return
    if turn.now >= state.count_again_at:
        turn.set(count_again_at=turn.now + HOT_WINDOW_MS)
        turn.do(CountMembers())
    turn.set(hot_until=turn.now + HOT_WINDOW_MS)
    _pace(turn)


def _pace(turn: Turn) -> None:
    """The first quick heartbeat after a sync, unless the normal ones are about as quick."""
    state = turn.state
    worth_it = state.config.heartbeat_interval_ms > 2 * state.hot_interval_ms
    turn.set(next_hot_at=max(turn.now, state.synced_at + state.hot_interval_ms) if worth_it else None)


def hot_interval(members: int) -> float:
    """How often each of so many members may ask."""
    return max(HOT_INTERVAL_MS, members * 1_000.0 / COORDINATOR_BUDGET_PER_S)


def group_sized(turn: Turn, event: GroupSized) -> None:
    """The group was counted: quick heartbeats under way take the pace that this allows."""
    turn.set(
        hot_interval_ms=hot_interval(event.members),
        count_again_at=turn.now + event.members * COUNT_STANDS_MS_PER_MEMBER,
    )
    if turn.now < turn.state.hot_until:
        _pace(turn)


def _apply(turn: Turn, assignment: Assignment, note: LeaderNote | None) -> None:
    state = turn.state
    assigned = assignment.partitions
    added = assigned - state.owned
    revoked = state.owned - assigned
    withheld = note is not None and note.withheld
    turn.trace(
        "synced",
        owned=as_value(state.owned),
        assigned=as_value(assigned),
        added=as_value(added),
        revoked=as_value(revoked),
        withheld=withheld,
    )
    calls: list[Call] = []
    if revoked:  # an eager member revoked everything before it joined, so only a cooperative one gets here
        calls.append(Revoked(revoked))
        turn.trace("revoking", partitions=as_value(revoked))
    calls.append(OnAssignment(state.protocol or "", assignment, state.membership))
    # A static member without a past may be given an assignment of long ago, and offers in it that others, or its own
    # former self, have long gone beyond: it asks for the committed offsets instead.
    fresh = not (state.static and state.held_generation < 0)
    offers = note.positions if note is not None and fresh else {}
    offsets = {p: offset for p, offset in offers.items() if p in added}
    calls.append(Assigned(added, offsets))
    turn.set(
        phase=Phase.APPLYING,
        assigned=assigned,
        held_generation=state.membership.generation,
        rejoin=state.rejoin or _why_again(state, revoked=bool(revoked), withheld=withheld) or _outdated(state, note),
        planned_counts=_planned_for(state, note),
        marks_in_a_row=state.marks_in_a_row + 1 if withheld else 0,
    )
    turn.notify(calls, then_owned=assigned)


def _why_again(state: MemberState, *, revoked: bool, withheld: bool) -> str | None:
    if revoked:
        return REVOKED_REASON
    if withheld and state.config.instant_rejoin and state.marks_in_a_row < MAX_MARKS_IN_A_ROW:
        return MARKED_REASON
    return None


def _planned_for(state: MemberState, note: LeaderNote | None) -> dict[str, int] | None:
    """The topics that the plan in force was made by, if it is ours to watch them."""
    if not state.leader:
        return None
    if state.planned_counts is not None:
        return dict(state.planned_counts)
    known = note.planned_for if note is not None else None
    return dict(state.partition_counts if known is None else known)


def _outdated(state: MemberState, note: LeaderNote | None) -> str | None:
    """Whether a returning leader, told to skip planning, finds that topics have changed since its former self planned.

    Without a note from it nothing is known, and one round puts everything right.
    """
    if not state.leader or state.planned_counts is not None:
        return None
    expected = note.planned_for if note is not None else None
    if expected is None:
        return "the leader returned and can't tell what the plan was made for"
    seen = state.partition_counts
    watched = state.topics | (expected.keys() & seen.keys())
    if seen and any(seen.get(topic, 0) != expected.get(topic, 0) for topic in watched):
        return "topics or partitions were added or removed while the leader was away"
    return None


def applied(turn: Turn, event: Notified) -> None:
    """The listener has returned: what was assigned is owned, and either all is well or another round is owed."""
    state = turn.state
    turn.set(
        owned=state.next_phase_owned, pending=None, positions=turn.to_hand_over(event.positions), phase=Phase.STABLE
    )
    turn.trace("assigned", owned=as_value(turn.state.owned))
    if turn.state.draining is not None and drain_after_round(turn):
        return
    if turn.state.rejoin is not None:
        prepare(turn, turn.state.rejoin)
        return
    turn.trace("stable", owned=as_value(turn.state.owned))
