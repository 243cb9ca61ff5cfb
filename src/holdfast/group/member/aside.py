"""A drain where not everybody follows a leader's mark: call a round, work on while the others come to it, leave last.

Members of other makes come to a round on their next heartbeat. Whoever leaves first and lets the others come then
leaves its partitions dark for as long as that takes, up to a heartbeat interval. A round does not complete while one
member is missing, and until then everybody works on and may commit. So the one who drains is that member: when the
others have had time to come, it stops, commits and leaves, and the round completes at once, without it.

The round must be called by somebody else, because whoever calls it has come to it. That is the *herald*: a member of
no topics that joins in our name and is taken out again as soon as the round has begun. No round ever completes with
it; should this process die in between, no leader gives anything to a member without topics.

Where no herald is let in, `leaving.drain_after_round` has another way.
"""

from __future__ import annotations

from holdfast.group.member.effects import ForgetCoordinator, Send
from holdfast.group.member.events import JoinAnswered, LeaveAnswered, RequestFailed
from holdfast.group.member.joining import prepare
from holdfast.group.member.state import Aside, MemberConfig, MemberState, Phase
from holdfast.group.member.turn import Turn, as_value
from holdfast.group.messages import JoinRequest, Leaver, LeaveRequest, cut_reason
from holdfast.group.verdicts import Ask, Verdict, verdict
from holdfast.model import NOBODY, ErrorCode, Membership, Subscription
from holdfast.model.consumer_protocol import encode_subscription

USUAL_HEARTBEAT_MS = 3_000.0
"""Every client's default of heartbeat.interval.ms. Nobody tells what others have set."""

LATE_MS = 1_100.0
"""How much later than its interval a heartbeat may come: librdkafka looks at its clock when something wakes it, which
is once a second at least, and a busy machine adds to it."""

CONFIRM_MS = 10.0
"""How often we ask whether the herald's join has reached the coordinator."""

HERALD_REASON = "a member drains and calls a round for it"


def wait_ms(config: MemberConfig) -> float:
    """How long the others are given to come."""
    return max(config.heartbeat_interval_ms, USUAL_HEARTBEAT_MS) + LATE_MS


def fits(state: MemberState) -> bool:
    """Whether this is the way to drain, now that the group is at rest.

    Not where the leader plans our partitions away; not in the middle of something (a rebalance's second half is waited
    for by partitions that nobody has); and not if the coordinator might lose its patience with us.
    """
    at_rest = state.membership.joined and not state.lost and state.hurried == 0
    patient = 2 * wait_ms(state.config) <= state.config.rebalance_timeout_ms
    asked_for = state.cooperative and not state.leader_drains and not state.herald_refused
    return asked_for and at_rest and patient and bool(state.owned)


def begin(turn: Turn) -> None:
    """As soon as the last rebalance is surely over: within its quick heartbeats a second round may still follow."""
    state = turn.state
    turn.set(aside=Aside.RESTING, aside_at=max(turn.now, state.hot_until), rejoin=None)
    if turn.now >= state.hot_until:
        ask(turn)


def due_at(state: MemberState) -> float | None:
    """When to ask, if that is what we wait for."""
    return state.aside_at if state.aside is Aside.RESTING and state.phase is Phase.STABLE else None


def ask(turn: Turn) -> None:
    """Ask whether the group is at rest. If it isn't, somebody may wait for this round: it is not ours to hold up."""
    turn.set(aside=Aside.ASKING, aside_at=None)
    turn.send_heartbeat()


def at_rest(turn: Turn) -> None:
    """A heartbeat was answered, and no round is under way."""
    state = turn.state
    _dismiss_if_owed(turn)
    if state.aside is Aside.ASKING:
        turn.set(aside=Aside.CALLING)
        turn.trace("round-called", cause=state.draining, owned=as_value(state.owned))
        _send_herald(turn, NOBODY)
    elif state.aside is Aside.CALLING:
        turn.set(next_hot_at=turn.now + CONFIRM_MS)


def let_wait(turn: Turn) -> bool:
    """A round is under way. True when it is the one we called: then we work on, and let it wait for us."""
    state = turn.state
    if state.phase is Phase.STABLE and state.aside is Aside.CALLING and state.herald_id:
        turn.set(aside=Aside.WAITED_FOR, leave_at=turn.now + wait_ms(state.config))
        turn.trace(
            "leave-last",
            cause="not everybody follows a leader's mark, and the others come first",
            at=turn.state.leave_at or 0.0,
        )
    _dismiss_if_owed(turn)
    return turn.state.aside is Aside.WAITED_FOR


def herald_answered(turn: Turn, event: JoinAnswered | LeaveAnswered | RequestFailed) -> None:
    """What the coordinator says to the herald's join or leave, or that nothing came of it."""
    state = turn.state
    if isinstance(event, RequestFailed):
        turn.do(ForgetCoordinator())
    if event.serial == state.dismissal:
        turn.set(dismissal=None)
        if isinstance(event, LeaveAnswered) and verdict(Ask.LEAVE, event.answer.error) is Verdict.FINE:
            turn.set(herald_id="")
        return
    turn.set(herald=None)
    if isinstance(event, JoinAnswered) and event.answer.error is ErrorCode.MEMBER_ID_REQUIRED and not state.herald_id:
        turn.set(herald_id=event.answer.membership.member_id)
        if state.aside is Aside.CALLING:
            _send_herald(turn, event.answer.membership.without_generation())
            turn.set(next_hot_at=turn.now + CONFIRM_MS)
        else:  # we take part in somebody else's round, which would wait for whoever was given an id
            _dismiss_if_owed(turn)
    elif isinstance(event, JoinAnswered):
        _not_called(turn, f"the coordinator answered {event.answer.error.name} to a join in our name")
    elif isinstance(event, RequestFailed):
        _not_called(turn, event.reason)


def herald_leaver(state: MemberState) -> tuple[Leaver, ...]:
    """The herald, as long as the coordinator has not said that it is out."""
    return (Leaver(member_id=state.herald_id, reason=cut_reason(HERALD_REASON)),) if state.herald_id else ()


def _not_called(turn: Turn, cause: str) -> None:
    """No herald gets in. The drain goes on in the other way."""
    if turn.state.phase is Phase.STABLE and turn.state.aside is Aside.CALLING:
        turn.set(herald_refused=True)
        turn.trace("round-not-called", cause=cause)
        prepare(turn, f"draining: {turn.state.draining}")
    _dismiss_if_owed(turn)


def _send_herald(turn: Turn, membership: Membership) -> None:
    state = turn.state
    nothing = encode_subscription(Subscription(topics=()))
    serial = turn.next_serial()
    turn.set(herald=serial)
    request = JoinRequest(
        group=state.config.group,
        membership=membership,
        session_timeout_ms=state.config.session_timeout_ms,
        rebalance_timeout_ms=state.config.rebalance_timeout_ms,
        protocols=tuple((assignor.name, nothing) for assignor in state.assignors),
        reason=cut_reason(HERALD_REASON),
        client_id=state.config.client_id,
    )
    turn.do(Send(serial, request))


def _dismiss_if_owed(turn: Turn) -> None:
    """Take the herald out. Said again with every heartbeat until it is heard: a round waits for every id given out."""
    state = turn.state
    if not state.herald_id or state.aside is Aside.CALLING or state.dismissal is not None:
        return
    serial = turn.next_serial()
    turn.set(herald=None, dismissal=serial)
    turn.do(Send(serial, LeaveRequest(group=state.config.group, members=herald_leaver(state))))
