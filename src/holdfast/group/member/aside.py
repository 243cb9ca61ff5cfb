"""A drain in a group with foreign members: start a round, keep working while the others join it, and leave last.

Foreign members join a round on their next heartbeat. If a draining member left first, nobody would read its partitions
until the others have joined, which takes up to a heartbeat interval. But a round does not complete while one member is
missing, and until then everybody works and may commit. So the draining member is the one that is missing. When the
others have had time to join, it stops, commits and leaves, and the round completes at once without it.

Somebody else must start the round, because a member starts a round by joining it. That is the *herald*: a second member
without topics, which this process joins and takes out again as soon as the round has begun. No round completes with it.
Should this process die in between, no leader assigns anything to a member without topics.

If the coordinator does not accept a herald, `leaving.drain_after_round` has another way.
"""

from __future__ import annotations

from holdfast.group.member.effects import ForgetCoordinator, Send
from holdfast.group.member.events import JoinAnswered, LeaveAnswered, RequestFailed
from holdfast.group.member.joining import prepare
from holdfast.group.member.parts import Aside
from holdfast.group.member.state import MemberConfig, MemberState, Phase
from holdfast.group.member.turn import Turn, as_value
from holdfast.group.messages import JoinRequest, Leaver, LeaveRequest, cut_reason
from holdfast.group.verdicts import Ask, Verdict, verdict
from holdfast.model import NOBODY, ErrorCode, Membership, Subscription
from holdfast.model.consumer_protocol import encode_subscription

USUAL_HEARTBEAT_MS = 3_000.0
"""The default heartbeat.interval.ms of every client. What other members have set can't be known."""

LATE_MS = 1_100.0
"""How late a heartbeat may come: librdkafka checks its clock when something wakes it, which is at least once a second,
and a busy machine adds to that."""

CONFIRM_MS = 10.0
"""How often we ask, by a heartbeat, whether the herald's join has started a round."""

HERALD_REASON = "a member drains and calls a round for it"


def wait_ms(config: MemberConfig) -> float:
    """How long the other members get to join the round."""
    return max(config.heartbeat_interval_ms, USUAL_HEARTBEAT_MS) + LATE_MS


def fits(state: MemberState) -> bool:
    """Whether to drain in this way.

    Not if the leader plans draining members' partitions away by itself. Not in the middle of a rebalance: partitions
    that nobody owns wait for its next round. And not if the coordinator's rebalance timeout might expel us.
    """
    at_rest = state.membership.joined and not state.lost and state.round.in_a_row == 0
    patient = 2 * wait_ms(state.config) <= state.config.rebalance_timeout_ms
    asked_for = state.cooperative and not state.said.drains and not state.drain.herald_refused
    return asked_for and at_rest and patient and bool(state.owned)


def begin(turn: Turn) -> None:
    """Begin as soon as the last rebalance is surely over. While its quick heartbeats last, another round may follow."""
    state = turn.state
    turn.set(owed=None)
    turn.set_drain(aside=Aside.RESTING, rested_at=max(turn.now, state.beats.hot_until))
    if turn.now >= state.beats.hot_until:
        ask(turn)


def due_at(state: MemberState) -> float | None:
    """When to ask whether the group is at rest, if that is what we wait for."""
    return state.drain.rested_at if state.drain.aside is Aside.RESTING and state.phase is Phase.STABLE else None


def ask(turn: Turn) -> None:
    """Ask, by a heartbeat, whether the group is at rest. If a round is under way we must not delay it: others may be
    waiting for partitions."""
    turn.set_drain(aside=Aside.ASKING, rested_at=None)
    turn.send_heartbeat()


def at_rest(turn: Turn) -> None:
    """A heartbeat was answered: no round is under way."""
    state = turn.state
    _dismiss_if_owed(turn)
    if state.drain.aside is Aside.ASKING:
        turn.set_drain(aside=Aside.CALLING)
        turn.trace("round-called", cause=state.draining, owned=as_value(state.owned))
        _send_herald(turn, NOBODY)
    elif state.drain.aside is Aside.CALLING:
        turn.set_beats(hot_at=turn.now + CONFIRM_MS)


def let_wait(turn: Turn) -> bool:
    """A round is under way. True when it is the one that our herald started: it waits for us while we keep working."""
    state = turn.state
    if state.phase is Phase.STABLE and state.drain.aside is Aside.CALLING and state.drain.herald_id:
        turn.set_drain(aside=Aside.WAITED_FOR)
        turn.set_leaving(at=turn.now + wait_ms(state.config))
        turn.trace(
            "leave-last",
            cause="not every member follows a leader's mark, so the others join first",
            at=turn.state.leaving.at or 0.0,
        )
    _dismiss_if_owed(turn)
    return turn.state.drain.aside is Aside.WAITED_FOR


def herald_answered(turn: Turn, event: JoinAnswered | LeaveAnswered | RequestFailed) -> None:
    """The herald's join or leave was answered, or failed."""
    state = turn.state
    if isinstance(event, RequestFailed):
        turn.do(ForgetCoordinator())
    if event.serial == state.drain.dismissal:
        turn.set_drain(dismissal=None)
        if isinstance(event, LeaveAnswered) and verdict(Ask.LEAVE, event.answer.error) is Verdict.FINE:
            turn.set_drain(herald_id="")
        return
    turn.set_drain(herald=None)
    nameless = not state.drain.herald_id
    if isinstance(event, JoinAnswered) and event.answer.error is ErrorCode.MEMBER_ID_REQUIRED and nameless:
        turn.set_drain(herald_id=event.answer.membership.member_id)
        if state.drain.aside is Aside.CALLING:
            _send_herald(turn, event.answer.membership.without_generation())
            turn.set_beats(hot_at=turn.now + CONFIRM_MS)
        else:  # another round has begun meanwhile, and would wait for every id that was given out
            _dismiss_if_owed(turn)
    elif isinstance(event, JoinAnswered):
        _not_called(turn, f"the coordinator answered {event.answer.error.name} to a join in our name")
    elif isinstance(event, RequestFailed):
        _not_called(turn, event.reason)


def herald_leaver(state: MemberState) -> tuple[Leaver, ...]:
    """The herald as one of a leave's members, until the coordinator has confirmed that it is out."""
    herald_id = state.drain.herald_id
    return (Leaver(member_id=herald_id, reason=cut_reason(HERALD_REASON)),) if herald_id else ()


def _not_called(turn: Turn, cause: str) -> None:
    """The coordinator accepts no herald: drain in the other way."""
    if turn.state.phase is Phase.STABLE and turn.state.drain.aside is Aside.CALLING:
        turn.set_drain(herald_refused=True)
        turn.trace("round-not-called", cause=cause)
        prepare(turn, f"draining: {turn.state.draining}")
    _dismiss_if_owed(turn)


def _send_herald(turn: Turn, membership: Membership) -> None:
    state = turn.state
    nothing = encode_subscription(Subscription(topics=()))
    serial = turn.next_serial()
    turn.set_drain(herald=serial)
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
    """Send the herald's leave, unless one is under way. Repeated with every heartbeat until it is confirmed: a round
    waits for every id that was given out."""
    state = turn.state
    drain = state.drain
    if not drain.herald_id or drain.aside is Aside.CALLING or drain.dismissal is not None:
        return
    serial = turn.next_serial()
    turn.set_drain(herald=None, dismissal=serial)
    turn.do(Send(serial, LeaveRequest(group=state.config.group, members=herald_leaver(state))))
