"""Heartbeats, ticks, and what can make a member want another round."""

from __future__ import annotations

from holdfast.group.member import adapting, aside
from holdfast.group.member.effects import ForgetCoordinator
from holdfast.group.member.events import (
    CommitAnswered,
    Enforce,
    HeartbeatAnswered,
    MetadataChanged,
    Poked,
    RequestFailed,
    Subscribe,
)
from holdfast.group.member.joining import (
    REBALANCING_REASON,
    back_off,
    join_again,
    lose_membership,
    prepare,
    retry_join,
    vanished,
)
from holdfast.group.member.leaving import evict, leave_again, leave_failed, leave_now, leave_overdue
from holdfast.group.member.parts import NO_TROUBLE, Owed
from holdfast.group.member.state import MemberState, Phase
from holdfast.group.member.trouble import back_off_ms, clear_trouble, judge, troubled
from holdfast.group.member.turn import Turn
from holdfast.group.verdicts import Ask, Verdict, refusal, verdict
from holdfast.model import ErrorCode, HoldfastError

BUSY = frozenset({Phase.PREPARING, Phase.JOINING, Phase.PLANNING, Phase.SYNCING, Phase.APPLYING})
"""Phases in which a rejoin waits for the round under way."""

HEARTBEATING = frozenset({Phase.PREPARING, Phase.PLANNING, Phase.SYNCING, Phase.APPLYING, Phase.STABLE, Phase.LEAVING})
MUST_POLL = BUSY | {Phase.STABLE}
DRAINING = frozenset({Phase.JOINING, Phase.PLANNING, Phase.SYNCING, Phase.STABLE})
"""Phases in which a drain that takes too long ends. In others the listener is called first."""

RETRYING = frozenset({Phase.JOINING, Phase.LEAVING})
"""Phases in which a failed request is sent again after a back-off."""

POKABLE = frozenset({Phase.STABLE, Phase.APPLYING})
"""Phases in which a poke makes us heartbeat; in others a round is under way already."""

LOOK_MS = 50.0
"""How often we check for a poll while a round waits for it. It delays the round's first half, which stops nobody."""

POKE_SPACING_MS = 10.0
"""Shortest time between two heartbeats caused by pokes, whoever sends them."""

EARLY_MS = 100.0
"""Under a foreign leader we send an extra heartbeat this long before the normal tick. It is more than other clients'
clocks drift in one interval plus the length of a round, and so little that hardly any round begins in between."""

LOOKS_A_SESSION = 4
"""How often we look at the clock while a join waits for its answer."""

COMMIT_DOUBTS = frozenset({Verdict.REBALANCE, Verdict.OUTDATED, Verdict.EXPELLED})

REPLAN_REASON = "the last plan failed"
KEPT_BACK_REASON = "partitions are still kept back, and nobody asked for the round that gives them away"


def next_deadline(state: MemberState) -> float | None:
    """When this member needs its next Tick."""
    times: list[float | None] = []
    if state.requests.heartbeat is None and state.phase in HEARTBEATING and state.membership.joined:
        times += (state.beats.next_at, state.beats.hot_at)
    if _must_poll(state):
        times.append(state.last_polled_at + state.config.max_poll_interval_ms)
    if state.leaving.at is not None and _may_leave(state):
        times.append(state.leaving.at)
    if state.phase in DRAINING:
        times.append(state.drain.until)
    if state.phase is Phase.STABLE:
        look_at = None if state.owed is None else state.owed.look_at
        times += (state.planning.again_at, look_at, aside.due_at(state), adapting.due_at(state))
    elif state.phase in RETRYING:
        times.append(state.requests.retry_at)
        if _works_while_joining(state):
            times.append(state.requests.looked_at + state.config.session_timeout_ms / LOOKS_A_SESSION)
    return min([at for at in times if at is not None], default=None)


def may_process(state: MemberState, now: float) -> bool:
    """Whether what we own may still be processed: as far as we can know, no other member has been given it.

    Not after the membership was lost or given up, even if the listener has not been told yet. And not if the
    coordinator has acknowledged nothing that we sent within the last session timeout. Then it may have expelled us and
    assigned everything to others, because the network is cut or this process was frozen.

    While a join is parked no answer is expected, so silence does not count. It does count after a request has failed,
    and if this process was frozen for a session timeout: then the answer may be long there, and the round over. That is
    noticed here even before the tick that it missed. An application that is busy for as long is not frozen.
    """
    if state.lost or state.phase is Phase.EVICTED:
        return False
    requests = state.requests
    silent = now - requests.vouched_at > state.config.session_timeout_ms
    expects_answers = state.phase in HEARTBEATING or requests.unheard or _frozen(state, now)
    return not (state.membership.joined and expects_answers and silent)


def _works_while_joining(state: MemberState) -> bool:
    return state.phase is Phase.JOINING and bool(state.owned) and state.membership.joined


def _frozen(state: MemberState, now: float) -> bool:
    """Whether this process has missed the ticks of a session timeout while a join waited."""
    return _works_while_joining(state) and now - state.requests.looked_at > state.config.session_timeout_ms


def tick(turn: Turn, _event: object) -> None:
    if _works_while_joining(turn.state):
        turn.set_requests(looked_at=turn.now, unheard=turn.state.requests.unheard or _frozen(turn.state, turn.now))
    state = turn.state
    if _must_poll(state) and turn.now >= state.last_polled_at + state.config.max_poll_interval_ms:
        evict(turn)
    elif state.leaving.at is not None and turn.now >= state.leaving.at and _may_leave(state):
        leave_now(turn)
    elif (until := state.drain.until) is not None and turn.now >= until and state.phase in DRAINING:
        leave_overdue(turn)
    elif state.owed is not None and state.phase is Phase.STABLE and _looks_now(state.owed, turn.now):
        _join_when_polled(turn, state.owed.reason)
    elif (aside_at := aside.due_at(state)) is not None and turn.now >= aside_at:
        aside.ask(turn)
    elif state.phase in RETRYING and (retry_at := state.requests.retry_at) is not None and turn.now >= retry_at:
        retry_join(turn) if state.phase is Phase.JOINING else leave_again(turn)
    elif state.phase is Phase.STABLE and (plan_at := state.planning.again_at) is not None and turn.now >= plan_at:
        turn.set_planning(again_at=None)
        _want_round(turn, REPLAN_REASON if state.planning.failed else KEPT_BACK_REASON)
    elif (upgrade_at := adapting.due_at(state)) is not None and turn.now >= upgrade_at:
        adapting.begin(turn)
        prepare(turn, adapting.UPGRADE_REASON)
    elif state.phase in HEARTBEATING and state.membership.joined:
        _heartbeat_if_due(turn)


def _looks_now(owed: Owed, now: float) -> bool:
    """Whether it is time to check if the application polls, so that we can join the round that is owed."""
    return owed.look_at is not None and now >= owed.look_at


def _must_poll(state: MemberState) -> bool:
    """Whether max.poll.interval.ms applies. Not to a member that is about to leave: it polls no more."""
    return state.phase in MUST_POLL and not state.leaving.after_round


def _may_leave(state: MemberState) -> bool:
    return state.phase is Phase.STABLE or (state.leaving.after_round and state.phase in BUSY)


def _heartbeat_if_due(turn: Turn) -> None:
    beats = turn.state.beats
    next_at, hot_at = beats.next_at, beats.hot_at
    interval_ms = turn.state.config.heartbeat_interval_ms
    if next_at is not None and turn.now >= next_at:
        # Always whole intervals after the sync: quick heartbeats in between don't shift the normal tick.
        next_at += (int((turn.now - next_at) // interval_ms) + 1) * interval_ms
    if hot_at is not None and turn.now >= hot_at:
        again = turn.now + beats.hot_interval_ms
        hot_at = again if again < beats.hot_until else _before_the_tick(next_at, interval_ms, turn.now)
    if next_at != beats.next_at or hot_at != beats.hot_at:
        turn.send_heartbeat()
        turn.set_beats(next_at=next_at, hot_at=hot_at)


def _before_the_tick(next_at: float | None, interval_ms: float, now: float) -> float | None:
    """Under a foreign leader: when to send an extra heartbeat shortly before the tick, so that we join a round before
    the others do.

    librdkafka's heartbeat clock runs on through a round, ours restarts with its sync. If we joined last, each round
    would move our tick further behind theirs, and the leave of a drain, which is timed by the ticks, would come too
    late.
    """
    if next_at is None or interval_ms <= 2 * EARLY_MS:
        return None
    early = next_at - EARLY_MS
    return early if early > now else early + interval_ms


def heartbeat_answered(turn: Turn, event: HeartbeatAnswered) -> None:
    state = turn.state
    error = event.answer.error
    found = judge(turn, Ask.HEARTBEAT, error)
    if found is Verdict.FATAL:
        return
    if found in (Verdict.FINE, Verdict.REBALANCE):
        turn.vouched(state.requests.heartbeat_at)
        if state.trouble is not NO_TROUBLE and state.phase is Phase.STABLE and not state.planning.failed:
            clear_trouble(turn)
    turn.set_requests(heartbeat=None)
    if found is Verdict.REBALANCE:  # 1c
        _round_without_us(turn)
    elif found in (Verdict.EXPELLED, Verdict.OUTDATED):  # 1d
        _membership_refused(turn, error)
    elif found is Verdict.FINE:
        if state.draining is not None:
            aside.at_rest(turn)
    else:
        _heartbeat_again(turn)


def _heartbeat_again(turn: Turn) -> None:
    """A heartbeat was refused or not answered: send the next one after the back-off, but within the interval."""
    state = turn.state
    turn.set_beats(next_at=turn.now + min(back_off_ms(state), state.config.heartbeat_interval_ms))


def _round_without_us(turn: Turn) -> None:
    """A round is under way that we have not joined: the coordinator waits for our join."""
    if aside.let_wait(turn):
        return
    state = turn.state
    if state.held.taken and state.owed is not None and turn.now < state.owed.put_off_until:
        return  # we join this round late on purpose (`syncing._read_on`)
    if state.phase is Phase.STABLE:
        _join_when_polled(turn, state.rejoin or REBALANCING_REASON, now=True)
    elif state.phase is Phase.APPLYING and state.rejoin is None:
        turn.set(owed=Owed(REBALANCING_REASON))
    elif state.phase is Phase.PLANNING and state.planning.failed:  # it keeps failing, and the round is over anyway
        turn.set_requests(pending=None)
        prepare(turn, REBALANCING_REASON)


def _join_when_polled(turn: Turn, reason: str, *, now: bool = False) -> None:
    """Join the round if the application has polled recently, since its listener may have to be called. Otherwise check
    again every LOOK_MS.

    With `now` the first check is at once: the driver reports polls only when it feeds an event.
    """
    state = turn.state
    limit = state.config.responsive_ms
    if limit is None or turn.now - state.last_polled_at <= limit:
        prepare(turn, reason)
        return
    owed = state.owed
    if owed is None:
        turn.trace("waiting-for-poll", cause=f"no poll for {turn.now - state.last_polled_at:.0f} ms")
    look_at = turn.now if now and (owed is None or owed.look_at is None) else turn.now + LOOK_MS
    turn.set(owed=Owed(reason, look_at, 0.0 if owed is None else owed.put_off_until))


def _membership_refused(turn: Turn, error: ErrorCode) -> None:
    phase = turn.state.phase
    lose_membership(turn, error)
    why = f"the coordinator answered {error.name} to our heartbeat"
    if phase in (Phase.STABLE, Phase.PLANNING, Phase.SYNCING):
        turn.set_requests(pending=None)
        prepare(turn, why)
    else:
        # Listener's calls are under way; what it holds is lost when they have returned (KAFKA-8104).
        turn.set(owed=Owed(why))


def commit_answered(turn: Turn, event: CommitAnswered) -> None:
    """A commit never makes us rejoin. If its answer puts the membership in doubt, heartbeat (librdkafka 4059)."""
    state = turn.state
    if event.membership != state.membership:
        return
    found = verdict(Ask.COMMIT, event.error)
    if found is Verdict.FINE:
        turn.heard()
    elif found is Verdict.FATAL:
        turn.fail(refusal(Ask.COMMIT, event.error))
    elif found in COMMIT_DOUBTS and state.phase is Phase.STABLE:
        turn.send_heartbeat()


def request_failed(turn: Turn, event: RequestFailed) -> None:
    """Disconnected or timed out: keep the member id (KAFKA-13214), look the coordinator up again, and go on."""
    state = turn.state
    turn.do(ForgetCoordinator())
    if event.code is not None:
        judge(turn, Ask.FIND_COORDINATOR, event.code)
    else:
        unanswered = HoldfastError("DISCONNECTED", event.reason, "Check that the brokers run and can be reached.")
        troubled(turn, event.error or unanswered, loud=event.error is not None)
    if event.serial == state.requests.heartbeat:
        turn.set_requests(heartbeat=None)
        _heartbeat_again(turn)
        turn.trace("heartbeat-failed", cause=event.reason)
    elif state.phase is Phase.JOINING:
        back_off(turn, event.reason)
    elif state.phase is Phase.SYNCING:
        turn.set_requests(pending=None)
        join_again(turn, f"our sync failed: {event.reason}")
    elif state.phase is Phase.LEAVING:
        leave_failed(turn, f"the leave was not answered: {event.reason}")


def poked(turn: Turn, event: Poked) -> None:
    """Heartbeat if no round is under way. In a large group pass the poke on to our peers.

    Without a token of this generation nothing counts as a poke, not even an empty datagram.
    """
    state = turn.state
    token, _, word = event.token.partition(" ")
    if not state.pokes.token or token != state.pokes.token:
        return
    turn.pass_on(word)
    if state.phase in POKABLE and turn.now - state.pokes.heeded_at >= POKE_SPACING_MS:
        turn.set_pokes(heeded_at=turn.now)
        turn.send_heartbeat()


def polled(turn: Turn, _event: object) -> None:
    turn.set(last_polled_at=turn.now)
    owed = turn.state.owed
    if owed is None or owed.look_at is None or turn.state.phase is not Phase.STABLE:
        return
    if turn.now >= owed.put_off_until:
        turn.set(owed=Owed(owed.reason, turn.now, owed.put_off_until))


def subscribe_first(turn: Turn, event: Subscribe) -> None:
    turn.set(topics=event.topics, last_polled_at=turn.now)
    turn.heard()
    adapting.choose(turn, event)
    prepare(turn, "subscribed")


def subscribe_again(turn: Turn, event: Subscribe) -> None:
    """1a: in STABLE rejoin at once, in the middle of a round after it."""
    state = turn.state
    if event.topics == state.topics:
        return
    turn.set(topics=event.topics)
    _want_round(turn, "the subscription changed")


def metadata_changed(turn: Turn, event: MetadataChanged) -> None:
    """1b: an owner gives up partitions that no longer exist; a leader whose plan is out of date asks for a round."""
    note_metadata(turn, event)
    state = turn.state
    counts, planned = state.partition_counts, state.planning.counts
    outdated = (
        state.round.leads
        and planned is not None
        and any(counts.get(topic, 0) != planned.get(topic, 0) for topic in {*planned, *state.topics})
    )
    if vanished(state):
        _want_round(turn, "owned partitions no longer exist")
    elif outdated:
        _want_round(turn, "topics or partitions were added or removed")


def note_metadata(turn: Turn, event: MetadataChanged) -> None:
    turn.set(partition_counts={name: topic.partitions for name, topic in event.cluster.topics.items()})


def enforce(turn: Turn, event: Enforce) -> None:
    _want_round(turn, event.reason)


def _want_round(turn: Turn, reason: str) -> None:
    if turn.state.phase is Phase.STABLE:
        _join_when_polled(turn, reason, now=True)
    elif turn.state.phase in BUSY:
        turn.set(owed=Owed(reason))
