"""From the plan to the new assignment: SyncGroup's answers and KIP-429's 3a–3d."""

from __future__ import annotations

from dataclasses import replace

from holdfast.group.member import adapting
from holdfast.group.member.effects import Assigned, Call, CountMembers, OnAssignment, Revoked
from holdfast.group.member.events import GroupSized, Notified, PlanFailed, Planned, SyncAnswered
from holdfast.group.member.joining import (
    MARKED_REASON,
    join_again,
    lose_membership,
    part,
    prepare,
    send_sync,
)
from holdfast.group.member.leaving import drain_after_round
from holdfast.group.member.parts import LeaderSaid, Owed
from holdfast.group.member.state import MemberState, Phase
from holdfast.group.member.trouble import clear_trouble, judge, troubled
from holdfast.group.member.turn import Turn, as_value
from holdfast.group.short_notes import examine_leader_note, without_note
from holdfast.group.user_data import LeaderNote
from holdfast.group.verdicts import Ask, Verdict, refusal
from holdfast.model import Assignment, HoldfastError, TopicPartition
from holdfast.model.consumer_protocol import decode_assignment

MAX_HURRIED = 8
"""How many rounds in a row we ask for by ourselves. A sound plan needs one, and a few more when members come and go. A
leader that marks every round, or changes its plan each time, would keep the group rebalancing for ever. Beyond this
number the mark is not followed, and a rejoin that is owed waits for our next heartbeat."""

MAX_NEWER_TOLD = 5
"""How many members with a newer assignor one trace line names."""

MAX_DOUBTED = 64
"""How many members with invalid notes are reported. Their ids change when they restart."""

HOT_WINDOW_MS = 1_000.0
"""How long we heartbeat quickly after a round under a leader that can't mark: a second round follows within it."""

HOT_INTERVAL_MS = 25.0
COORDINATOR_BUDGET_PER_S = 4_000
"""Quick heartbeats of a whole group per second: as many as a coordinator serves without noticeable load."""

COUNT_STANDS_MS_PER_MEMBER = 10.0
"""How long a count of the members is used, for each member. The answer takes about 300 bytes per member, so the larger
the group, the less often we ask: every 2 s in a group of 200, where each member then receives 30 KB a second."""

REPLAN_MS = 1_000.0
REPLAN_MAX_MS = 60_000.0
"""A leader whose plan failed tries another round after 1, 2, 4 … 60 s. Nobody stops working meanwhile, and once the
assignor works again it takes at most a minute until it is used."""

OWED_BEATS = 2
"""After how many heartbeat intervals a leader that withholds partitions asks for the next round itself. Normally the
member that revokes asks for it at once. But a static member that restarted in between owns nothing and has nothing to
revoke, and the partition would stay unassigned for good."""

READ_ON_HALVES = 2.0
"""How long we go on reading partitions that were taken from us: this many times the time from our join's answer to our
sync's answer. In both halves of a round every member sends one request and gets one answer, so they take about as long.
But a member that is answered late in the first half and early in the second sees only part of that time. With 400
members on a busy machine the last join came after 0.7 to 1.8 times as long. Too long is better than too short: only the
new owner waits, and the partition is read meanwhile."""

REVOKED_REASON = "revoked partitions that others wait for"


def planned(turn: Turn, event: Planned) -> None:
    counts = dict(event.partition_counts)
    turn.set(partition_counts={**turn.state.partition_counts, **counts})
    owed_at = turn.now + OWED_BEATS * turn.state.config.heartbeat_interval_ms
    again_at = owed_at if event.withheld else None
    turn.set_planning(counts=counts, failed=0, again_at=again_at, hands_over=event.hands_over)
    adapting.planned(turn, event)
    turn.trace("planned", members=len(event.assignments))
    for member, what in event.doubts.items():
        _doubt(turn, member, what)
    _tell_newer(turn, event)
    send_sync(turn, turn.state.membership, turn.state.round.protocol, dict(event.assignments))


def _doubt(turn: Turn, member: str, what: str) -> None:
    """A member's note or claim is invalid. Trace it once per member; it is ignored, and nothing else changes."""
    doubted = turn.state.doubted
    if member not in doubted and len(doubted) < MAX_DOUBTED:
        turn.set(doubted=doubted | {member})
        turn.trace("note-ignored", cause=what, culprit=member)


def _tell_newer(turn: Turn, event: Planned) -> None:
    """Members have a newer version of the assignor than we, who plan: a deploy is under way, or was forgotten here.
    Traced when it changes."""
    newer = tuple(sorted(event.newer.items()))
    if newer != turn.state.planning.newer:
        turn.set_planning(newer=newer)
        if newer:
            versions = ", ".join(f"{member} has {version}" for member, version in newer[:MAX_NEWER_TOLD])
            turn.trace(
                "newer-assignor",
                cause=f"members have a newer version of the assignor, and the leader plans by its own: {versions}",
                culprit=turn.state.name,
                members=len(newer),
            )


def plan_failed(turn: Turn, event: PlanFailed) -> None:
    """Planning failed. Every member keeps its partitions (`event.kept`), and another round is tried later.

    Without `kept` (an eager round has revoked everything already, or the topics can't be looked up) the driver goes on
    trying within the round.
    """
    state = turn.state
    turn.set_planning(failed=state.planning.failed + 1)
    troubled(turn, event.error, loud=True)
    turn.set_requests(unheard=state.requests.unheard)  # the coordinator had no part in it
    if event.kept is None:
        return
    wait_ms = min(REPLAN_MS * 2.0 ** min(state.planning.failed, 20), REPLAN_MAX_MS) * state.config.retry_spread
    again_at = turn.now + wait_ms
    turn.set_planning(counts=dict(state.partition_counts), again_at=again_at, hands_over=event.hands_over)
    turn.trace("plan-kept", cause=str(event.error), members=len(event.kept))
    send_sync(turn, state.membership, state.round.protocol, dict(event.kept))


def sync_answered(turn: Turn, event: SyncAnswered) -> None:
    answer = event.answer
    state = turn.state
    turn.set_requests(pending=None)
    found = judge(turn, Ask.SYNC, answer.error)
    why = f"the coordinator answered {answer.error.name} to our sync"
    if found is Verdict.FINE:
        turn.vouched(state.requests.sent_at)
        _synced(turn, state, answer.assignment)
    elif found is Verdict.REBALANCE:
        turn.vouched(state.requests.sent_at)
        prepare(turn, "the group started another round before we synced")
    elif found in (Verdict.EXPELLED, Verdict.OUTDATED):
        lose_membership(turn, answer.error)
        troubled(turn, refusal(Ask.SYNC, answer.error), loud=False)
        join_again(turn, why)
    elif found is not Verdict.FATAL:
        join_again(turn, why)


def _synced(turn: Turn, state: MemberState, data: bytes) -> None:
    """The round has a result. `state` is the one in which the sync was answered."""
    try:
        assignment = decode_assignment(data)
    except HoldfastError as error:
        bad = HoldfastError("BAD_ASSIGNMENT", f"the leader sent an assignment we can't read ({error.what})", error.do)
        troubled(turn, bad, loud=True)
        join_again(turn, bad.what)
        return
    if not state.planning.failed:  # a successful sync does not end the trouble of a leader whose plans fail
        clear_trouble(turn)
    note, fault = examine_leader_note(assignment.user_data)
    if fault is not None:
        _doubt(turn, state.round.leader_id, f"the leader's note can't be read: {fault}")
    turn.set_round(synced_at=turn.now)
    _remember(turn, note)
    turn.set_beats(next_at=turn.now + state.config.heartbeat_interval_ms, hot_at=None)
    if state.leaving.after_round:  # the new generation is in force, so everything can be committed
        part(turn)
        return
    _maybe_heat(turn, state, note)
    if any(partition.topic not in state.topics for partition in assignment.partitions):
        # The subscription changed since we joined this round, so its result does not fit (KAFKA-7961).
        turn.trace("assignment-ignored", assigned=as_value(assignment.partitions))
        turn.set(phase=Phase.STABLE)
        turn.set_round(in_a_row=state.round.in_a_row + 1)
        _join_again(turn, "the subscription changed during the round")
        return
    _apply(turn, state, assignment, note)


def _remember(turn: Turn, note: LeaderNote | None) -> None:
    """What the leader's note says counts until the next round's; a foreign leader writes none."""
    state = turn.state
    # Until a plan of ours hands nothing over any more, it is not known whether everybody had got the one before.
    turn.set_round(promised=state.said.positions_reach or (state.round.promised and state.planning.hands_over))
    if note is None:
        turn.replace(said=LeaderSaid())
        turn.set_pokes(peers=(), token="", passed_on=False, sent=frozenset())
        return
    turn.set_said(marked=note.withheld, drains=note.knows_drain, positions_reach=note.all_read, room=note.room)
    turn.set_pokes(peers=note.peers, token=note.token, passed_on=note.passed_on, sent=frozenset())


def _maybe_heat(turn: Turn, state: MemberState, note: LeaderNote | None) -> None:
    """A foreign leader does not mark: heartbeat quickly for a while instead, within the coordinator's budget."""
    if note is not None or not state.cooperative or not state.config.hot_heartbeats:
        turn.set_beats(hot_until=turn.now)
        return
    if turn.now >= state.beats.count_again_at:
        turn.set_beats(count_again_at=turn.now + HOT_WINDOW_MS)
        turn.do(CountMembers())
    turn.set_beats(hot_until=turn.now + HOT_WINDOW_MS)
    _pace(turn)


def _pace(turn: Turn) -> None:
    """Schedule the first quick heartbeat after a sync, unless normal ones are about as frequent."""
    state = turn.state
    worth_it = state.config.heartbeat_interval_ms > 2 * state.beats.hot_interval_ms
    turn.set_beats(hot_at=max(turn.now, state.round.synced_at + state.beats.hot_interval_ms) if worth_it else None)


def hot_interval(members: int) -> float:
    """The interval of quick heartbeats for each member of a group of this size."""
    return max(HOT_INTERVAL_MS, members * 1_000.0 / COORDINATOR_BUDGET_PER_S)


def group_sized(turn: Turn, event: GroupSized) -> None:
    """The group was counted: adjust the interval of quick heartbeats to its size."""
    turn.set_beats(
        hot_interval_ms=hot_interval(event.members),
        count_again_at=turn.now + event.members * COUNT_STANDS_MS_PER_MEMBER,
    )
    if turn.now < turn.state.beats.hot_until:
        _pace(turn)


def _apply(turn: Turn, state: MemberState, assignment: Assignment, note: LeaderNote | None) -> None:
    """Have the listener told what changes for us."""
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
    reads_on = note is not None and note.read_on and withheld and state.round.in_a_row < MAX_HURRIED
    taken = revoked if reads_on else frozenset[TopicPartition]()
    if revoked and not taken:  # only for cooperative members: an eager one revoked everything before it joined
        calls.append(Revoked(revoked))
        turn.trace("revoking", partitions=as_value(revoked))
    said = replace(assignment, user_data=without_note(assignment.user_data))
    calls.append(OnAssignment(state.round.protocol or "", said, state.membership))
    # A static member that has just restarted may get an old assignment. The positions in its note may be outdated by
    # other members or by itself before the restart. So it asks for the committed offsets instead.
    fresh = not (state.static and state.held.generation < 0)
    offers = note.positions if note is not None and fresh else {}
    offsets = {p: offset for p, offset in offers.items() if p in added}
    calls.append(Assigned(added, offsets))
    again = state.rejoin or _why_again(state, revoked=bool(revoked), withheld=withheld) or _outdated(state, note)
    turn.set(phase=Phase.APPLYING, owed=None if again is None else Owed(again))
    turn.set_held(assigned=assigned, taken=taken, generation=state.membership.generation)
    turn.set_round(in_a_row=state.round.in_a_row + 1 if revoked or withheld else 0)
    if state.round.leads:
        turn.set_planning(counts=_planned_for(state, note))
    turn.notify(calls, then_owned=assigned | taken)


def _why_again(state: MemberState, *, revoked: bool, withheld: bool) -> str | None:
    if revoked:
        return REVOKED_REASON
    if withheld and state.config.instant_rejoin and state.round.in_a_row < MAX_HURRIED:
        return MARKED_REASON
    return None


def _planned_for(state: MemberState, note: LeaderNote | None) -> dict[str, int]:
    """As the leader: the partition counts that the current plan was made for."""
    if state.planning.counts is not None:
        return dict(state.planning.counts)
    known = note.planned_for if note is not None else None
    return dict(state.partition_counts if known is None else known)


def _outdated(state: MemberState, note: LeaderNote | None) -> str | None:
    """For a static leader that restarted and was told to skip planning: why the old plan is outdated, or None.

    Without a note from the old plan this can't be known, so a round is asked for.
    """
    if not state.round.leads or state.planning.counts is not None:
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
    """The listener has returned: what was assigned is owned now. If another round is owed, join it."""
    state = turn.state
    owned = state.held.then_owned
    turn.set_held(positions=turn.to_hand_over(event.positions))
    turn.set(owned=owned, phase=Phase.STABLE)
    turn.set_requests(pending=None)
    turn.trace("assigned", owned=as_value(owned))
    if state.held.taken:
        _read_on(turn)
        return
    if state.draining is not None and drain_after_round(turn):
        return
    if (owed := turn.state.owed) is not None:
        _join_again(turn, owed.reason)
        return
    turn.trace("stable", owned=as_value(owned))


def _read_on(turn: Turn) -> None:
    """Put off the revoke of what this round took from us, and go on reading it.

    From our revoke until the next round completes nobody reads these partitions, and that round completes only when the
    last of the other members has joined it. So we revoke when they probably have; the first half of this round shows
    how long that takes. If we are too late, the new owner waits a moment. If we are too early, the gap is what it would
    be without this.
    """
    state = turn.state
    half_ms = READ_ON_HALVES * (state.round.synced_at - state.round.joined_at)
    until = max(turn.now, state.round.synced_at + min(half_ms, state.config.heartbeat_interval_ms))
    turn.set(owed=Owed(state.rejoin or REVOKED_REASON, look_at=until, put_off_until=until))
    turn.trace("reading-on", cause=REVOKED_REASON, partitions=as_value(state.held.taken), for_ms=until - turn.now)


def _join_again(turn: Turn, reason: str) -> None:
    """Rejoin at once; after more than MAX_HURRIED such rounds in a row, only after a heartbeat interval."""
    state = turn.state
    if state.round.in_a_row <= MAX_HURRIED:
        prepare(turn, reason)
        return
    turn.trace(
        "rejoin-put-off",
        cause=f"{state.round.in_a_row} rounds in a row that led to another",
        owned=as_value(state.owned),
    )
    later = turn.now + state.config.heartbeat_interval_ms
    turn.set(owed=Owed(reason, look_at=later, put_off_until=later))
