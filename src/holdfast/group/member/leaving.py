"""Ways out: close, unsubscribe, drain, and being evicted for not polling."""

from __future__ import annotations

from holdfast.group.member import aside
from holdfast.group.member.effects import Closed
from holdfast.group.member.events import Close, Drain, LeaveAnswered, Notified
from holdfast.group.member.joining import part, prepare
from holdfast.group.member.parts import NO_PLAN, NO_TROUBLE, Aside, Held, LeaderSaid, Owed, Pokes
from holdfast.group.member.state import Phase
from holdfast.group.member.trouble import REFUSED, back_off_ms, judge, tell
from holdfast.group.member.turn import Turn, as_value
from holdfast.group.messages import Leaver, LeaveRequest, cut_reason
from holdfast.group.verdicts import Ask
from holdfast.model import NOBODY, ErrorCode, HoldfastError

LEAVE_LEAD_MS = 45.0
"""Under a leader that does not plan draining members away, a member leaves this long before everybody's next heartbeat:
so late that others hardly wait, and early enough that the coordinator has the leave when they ask."""

LISTENING = frozenset({Phase.PREPARING, Phase.APPLYING, Phase.EVICTED})
"""Phases in which `pending` may be listener's calls under way."""

JOIN_WAIT_MS = 250.0
"""How long a member that wants to leave waits for the answer to a join under way. Members that poke each other have all
joined by then. If it takes longer, the group waits for heartbeats of others, and until the last of them has joined
commits under the old generation are still accepted."""

MAX_STAYED = 8
"""For how many more rounds a leader that drains stays so that members get what it hands over: as many as the rounds in
a row that members ask for by themselves (`syncing.MAX_HURRIED`). Usually one is enough. A member that never gets a
result, or a group that others join all the time, must not keep the leader from leaving."""

MAX_LEAVES = 3
"""How often a leave is sent. A coordinator that moved is found by the second, and close() must not wait for ever."""

RETURNED_REASON = "the application polls again"
UNSUBSCRIBED_REASON = "the consumer unsubscribed from all topics"


def close(turn: Turn, event: Close) -> None:
    turn.set_leaving(closing=event.reason)
    _leave(turn)


def unsubscribe(turn: Turn, _event: object) -> None:
    turn.set(topics=frozenset())
    _leave(turn)


def close_after_round(turn: Turn, event: Close) -> None:
    """In the middle of a round: leave as soon as our work can be committed."""
    turn.set_leaving(closing=event.reason)
    _leave_after_round(turn)


def unsubscribe_after_round(turn: Turn, _event: object) -> None:
    """The same for an unsubscribe: the member may subscribe again."""
    turn.set(topics=frozenset())
    _leave_after_round(turn)


def _leave_after_round(turn: Turn) -> None:
    """Between the join's answer and the sync's the coordinator refuses commits. A member that owned something and left
    then could not commit, and the next owner would repeat its work. So wait for the end of the round first, but not for
    long, in case the group hangs."""
    state = turn.state
    under_way = state.requests.pending is not None and state.membership.joined and not state.lost
    if not state.owned or not under_way:
        _leave(turn)
    elif not state.leaving.after_round:
        joining = state.phase is Phase.JOINING
        wait_ms = JOIN_WAIT_MS if joining else state.config.heartbeat_interval_ms
        turn.set_leaving(after_round=True, at=turn.now + wait_ms)
        turn.trace("leave-after-round", cause=state.leaving.closing or state.draining or UNSUBSCRIBED_REASON)


def _leave(turn: Turn) -> None:
    """Have everything revoked while we are still a member and may commit (KAFKA-8972), then send the leave."""
    state = turn.state
    listening = state.requests.pending is not None and state.phase in LISTENING
    pending = state.requests.pending if listening else None
    if not listening and state.owned:
        part(turn)
        return
    turn.set(phase=Phase.LEAVING, owed=None)
    turn.set_requests(retry_at=None, pending=pending)
    turn.set_drain(aside=Aside.NO)
    turn.set_leaving(at=None)
    if not listening:  # otherwise `let_go` continues when the calls under way have returned
        _send_leave(turn)


def let_go(turn: Turn, _event: Notified) -> None:
    """The listener has returned, from the last revoke or from calls that were under way when we wanted to leave."""
    turn.set(owned=turn.state.held.then_owned)
    turn.set_requests(pending=None)
    if turn.state.owned:
        _leave(turn)
    else:
        _send_leave(turn)


def _send_leave(turn: Turn) -> None:
    state = turn.state
    reason = state.leaving.closing or state.draining or UNSUBSCRIBED_REASON
    # A static member stays in the group while it restarts; only an explicit drain takes it out.
    stays = state.static and state.draining is None
    if stays or not state.membership.known or state.lost:
        turn.trace("stayed" if stays else "left", cause=reason)
        gone(turn, forget=not stays)
        return
    leaver = Leaver(
        member_id=state.membership.member_id, instance_id=state.config.instance_id, reason=cut_reason(reason)
    )
    turn.send(LeaveRequest(group=state.config.group, members=(*aside.herald_leaver(state), leaver)))
    turn.trace("leave-sent", cause=reason)


def gone(turn: Turn, *, forget: bool = True) -> None:
    """We are out of the group: for good after a close or a drain, otherwise until the next subscribe (KAFKA-20985)."""
    state = turn.state
    turn.set(membership=NOBODY if forget else state.membership, owned=frozenset(), lost=False, owed=None)
    turn.replace(held=Held(), said=LeaderSaid(), planning=NO_PLAN, trouble=NO_TROUBLE)
    turn.replace(pokes=Pokes(heeded_at=state.pokes.heeded_at))
    turn.set_round(in_a_row=0, leads=False, drains=False)
    turn.set_requests(pending=None, heartbeat=None, retry_at=None)
    turn.set_beats(next_at=None, hot_at=None)
    turn.set_drain(aside=Aside.NO, herald=None, herald_id="", dismissal=None)
    turn.set_leaving(after_round=False, failed=0)
    if state.leaving.closing is not None or state.draining is not None:
        turn.set(phase=Phase.CLOSED)
        turn.trace("closed", cause=state.leaving.closing or state.draining)
        turn.do(Closed())
    elif state.topics:  # subscribed again before the leave was answered
        prepare(turn, "subscribed")
    else:
        turn.set(phase=Phase.UNSUBSCRIBED)


def drain(turn: Turn, event: Drain) -> None:
    """From STABLE: have the leader plan our partitions away, or start a round that waits for us; work goes on."""
    if turn.state.drain.aside is not Aside.NO:
        return  # asked twice
    _begin_draining(turn, event)
    if turn.state.rejoin is None and aside.fits(turn.state):
        aside.begin(turn)
    elif turn.state.cooperative:
        prepare(turn, _why_draining(event.reason))
    else:
        _leave(turn)


def note_drain(turn: Turn, event: Drain) -> None:
    """In the middle of a round: the next join carries the drain flag."""
    turn.set(owed=Owed(_why_draining(event.reason)))
    _begin_draining(turn, event)


def _begin_draining(turn: Turn, event: Drain) -> None:
    """No round takes longer than the rebalance timeout: the coordinator goes on without whoever is missing then. So a
    drain that takes longer waits for something that may never come."""
    state = turn.state
    first = state.draining is None
    until = turn.now + state.config.rebalance_timeout_ms if first else state.drain.until
    turn.set_drain(reason=event.reason, until=until)
    turn.trace("draining", cause=event.reason, owned=as_value(state.owned))


def _why_draining(reason: str | None) -> str:
    return f"draining: {reason}"


def drain_after_round(turn: Turn) -> bool:
    """A draining member has applied a round: leave, or schedule the leave. False when another round is still owed."""
    state = turn.state
    if state.rejoin in (None, _why_draining(state.draining)) and aside.fits(state):
        aside.begin(turn)
        return True
    if not state.round.drains:
        return False
    if state.held.positions and state.said.positions_reach and not state.lost:
        return False  # one more round, which hands our positions to the next owners; after it we own nothing and leave
    if state.round.leads and state.round.promised and state.planning.hands_over:
        # Our leave would cut this round. Whoever has not got its result by then would never get the positions in it,
        # because only we can hand them over again. So another round comes first: who joins that one has got them.
        if state.drain.stayed < MAX_STAYED:
            return _stay(turn)
        _tell_overdue(turn, f"in {MAX_STAYED} more rounds some members may not have got what we hand over")
    if not state.owned or state.said.drains:
        _leave(turn)
        return True
    if state.rejoin is not None:
        return False
    # The leader or another member is foreign, and no herald was accepted. Leaving just before their next heartbeat
    # costs tens of milliseconds instead of up to a whole interval. Java's heartbeat clock restarts with the sync.
    # librdkafka's runs on from the heartbeat that told it of this round, right before the join was answered. So we
    # count from that answer.
    turn.set_leaving(at=state.round.joined_at + max(0.0, state.config.heartbeat_interval_ms - LEAVE_LEAD_MS))
    turn.trace("leave-aligned", cause="not every member follows a leader's mark", at=turn.state.leaving.at or 0.0)
    return True


def _stay(turn: Turn) -> bool:
    """Ask for one more round. True if it is put off: if the first one at once was cut too, somebody is slower than our
    joins, and gets the result only if we wait."""
    state = turn.state
    turn.set_drain(stayed=state.drain.stayed + 1)
    if state.owed is not None or state.drain.stayed == 0:
        turn.set(owed=state.owed or Owed(_why_draining(state.draining)))
        return False
    later = turn.now + state.config.heartbeat_interval_ms
    turn.set(owed=Owed(_why_draining(state.draining), look_at=later, put_off_until=later))
    turn.trace("rejoin-put-off", cause="some member may not have got what we hand over", owned=as_value(state.owned))
    return True


def leave_now(turn: Turn) -> None:
    """`leave_at` has come."""
    _leave(turn)


def leave_overdue(turn: Turn) -> None:
    """The drain has lasted as long as it may, whatever it waits for: rounds that are cut, members that come all the
    time, an owner that is gone. What is left is committed and given up, as at a close."""
    state = turn.state
    turn.set_drain(until=None)
    _tell_overdue(turn, f"the drain was not done within {state.config.rebalance_timeout_ms} ms")
    if state.phase is Phase.STABLE:
        _leave(turn)
    else:
        _leave_after_round(turn)


def _tell_overdue(turn: Turn, cause: str) -> None:
    turn.trace("leave-overdue", cause=cause, owned=as_value(turn.state.owned))


def evict(turn: Turn) -> None:
    """The application has not polled for max.poll.interval.ms: leave, so that others can go on with its partitions."""
    state = turn.state
    silent_ms = turn.now - state.last_polled_at
    turn.trace(
        "poll-expired",
        cause=f"no poll for {silent_ms:.0f} ms, max.poll.interval.ms is {state.config.max_poll_interval_ms}",
        culprit=state.name,
        owned=as_value(state.owned),
    )
    over_ms = silent_ms - state.config.max_poll_interval_ms
    error = HoldfastError(
        "MAX_POLL_EXCEEDED",
        f"Application maximum poll interval ({state.config.max_poll_interval_ms}ms) exceeded by {over_ms:.0f}ms.",
        "Poll more often, do less between two polls, or raise max.poll.interval.ms.",
    )
    tell(turn, error)
    if not state.static and state.membership.known:
        leaver = Leaver(member_id=state.membership.member_id, reason="the application did not poll in time")
        turn.send_and_forget(LeaveRequest(group=state.config.group, members=(leaver,)))
        turn.poke(known=False)
    # A static member keeps its id and stays silent: the session timeout decides, as for any other silence.
    kept = state.membership.without_generation() if state.static else NOBODY
    listening = state.phase in (Phase.PREPARING, Phase.APPLYING)
    turn.set(phase=Phase.EVICTED, membership=kept, lost=True, owed=None)
    turn.set_round(leads=False)
    turn.set_requests(pending=state.requests.pending if listening else None, heartbeat=None, retry_at=None)
    turn.set_beats(next_at=None, hot_at=None)
    turn.set_drain(aside=Aside.NO)


def returned(turn: Turn, _event: object) -> None:
    """The application polls again after an eviction: everything it owned is lost, and it joins again."""
    turn.set(last_polled_at=turn.now)
    if turn.state.requests.pending is None:
        prepare(turn, RETURNED_REASON)
    else:  # the listener's calls under way come first
        turn.set(owed=Owed(RETURNED_REASON))


def caught_up(turn: Turn, _event: Notified) -> None:
    """Listener's calls that were under way at the eviction have returned: what is owned after them is lost."""
    turn.set(owned=turn.state.held.then_owned)
    turn.set_requests(pending=None)
    if turn.state.rejoin is not None:
        prepare(turn, turn.state.rejoin)


def leave_failed(turn: Turn, cause: str) -> None:
    """Our leave was refused or not answered. Others would wait for the session timeout, so repeat it a few times."""
    turn.set_leaving(failed=turn.state.leaving.failed + 1)
    if turn.state.leaving.failed < MAX_LEAVES:
        turn.set_requests(pending=None, retry_at=turn.now + back_off_ms(turn.state))
        turn.trace("leave-retry", cause=cause)
    else:
        turn.trace("left", cause=cause)
        gone(turn)


def leave_again(turn: Turn) -> None:
    """The back-off is over."""
    _send_leave(turn)


def want_nothing(turn: Turn, _event: object) -> None:
    """Unsubscribed while leaving: cancels a subscribe that came in between."""
    turn.set(topics=frozenset())


def close_after_failure(turn: Turn, event: Close) -> None:
    """We have nothing any more that others could wait for."""
    turn.set_leaving(closing=event.reason)
    gone(turn)


def close_when_left(turn: Turn, event: Close) -> None:
    """Already on the way out."""
    turn.set_leaving(closing=event.reason)


def drain_by_closing(turn: Turn, event: Drain) -> None:
    """Nothing is owned that could be handed over: just close."""
    turn.set_leaving(closing=event.reason)
    _leave(turn)


def left(turn: Turn, event: LeaveAnswered) -> None:
    turn.set_requests(pending=None)
    if judge(turn, Ask.LEAVE, event.answer.error) in REFUSED:
        leave_failed(turn, f"the coordinator answered {event.answer.error.name} to our leave")
        return
    refused = {} if event.answer.error is ErrorCode.NONE else {"error": event.answer.error.name}
    turn.trace("left", cause=turn.state.leaving.closing or turn.state.draining, **refused)
    turn.poke(known=True)
    gone(turn)
