"""The member's machine as a table: (phase, event) -> handler. Everything that changes a member's phase is reached from
here. Every pair is present: handled, ignored with a reason, or illegal.

Events that answer something carry a serial, which is checked first: an answer that the phase does not wait for is stale
and changes nothing (KAFKA-9823).

An entry declares every phase that it may lead to. `strict_step`, with which tests and the simulator play, refuses any
other, so the page that is drawn from this table (docs/member-states.md) is what the machine does. `step` traces it and
goes on: a member of a running service must not die of a missing word in a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.group.member import aside, joining, leaving, stable, syncing
from holdfast.group.member import events as ev
from holdfast.group.member.effects import Effect, Emit
from holdfast.group.member.state import MemberState, Phase
from holdfast.group.member.turn import Turn
from holdfast.group.table import Entry, Handled, Ignored, Illegal

Row = Mapping[Phase, Entry[Phase, Callable[[Turn, Any], None]]]

P = Phase
ALL = tuple(Phase)
ALIVE = (P.PREPARING, P.JOINING, P.PLANNING, P.SYNCING, P.APPLYING, P.STABLE)
MID_ROUND = (P.PREPARING, P.JOINING, P.PLANNING, P.SYNCING, P.APPLYING)
UNDER_WAY = (P.JOINING, P.PLANNING, P.SYNCING)
OVER = (P.FAILED, P.CLOSED)

STALE = Ignored("stale: this phase waits for no such answer")
ENDED = Ignored("the member has ended")


def row(default: Any, *parts: tuple[tuple[Phase, ...], Any]) -> Row:
    """One event's entries: the default for every phase, overridden by the parts, of which later ones win."""
    entries = dict.fromkeys(ALL, default)
    for phases, entry in parts:
        entries.update(dict.fromkeys(phases, entry))
    return entries


BEFORE_A_JOIN = (P.PREPARING, P.JOINING)
"""Where `joining.prepare` leads: to the listener, if something must be given up first, or to the join at once."""

ENDS = (P.CLOSED, P.UNSUBSCRIBED, P.JOINING)
"""Where `leaving.gone` leads: closed or drained, unsubscribed, or subscribed again meanwhile."""

TABLE: Mapping[type[Any], Row] = {
    ev.Subscribe: row(
        Handled(stable.subscribe_again),
        ((P.UNSUBSCRIBED,), Handled(stable.subscribe_first, (P.JOINING,))),
        ((P.STABLE,), Handled(stable.subscribe_again, BEFORE_A_JOIN)),
        ((P.CLOSED,), Illegal("a closed consumer can't subscribe")),
        ((P.FAILED,), ENDED),
    ),
    ev.Unsubscribe: row(
        Handled(leaving.unsubscribe, (P.LEAVING,)),
        ((P.STABLE,), Handled(leaving.unsubscribe, (P.LEAVING, P.UNSUBSCRIBED))),
        (UNDER_WAY, Handled(leaving.unsubscribe_after_round, (P.LEAVING, P.UNSUBSCRIBED))),
        # Closed, if the member was told to drain before.
        ((P.JOINING,), Handled(leaving.unsubscribe_after_round, (P.LEAVING, P.UNSUBSCRIBED, P.CLOSED))),
        ((P.EVICTED,), Handled(leaving.unsubscribe, (P.LEAVING, P.UNSUBSCRIBED, P.CLOSED))),
        ((P.UNSUBSCRIBED,), Ignored("nothing is subscribed")),
        ((P.LEAVING,), Handled(leaving.want_nothing)),
        (OVER, ENDED),
    ),
    ev.MetadataChanged: row(
        Handled(stable.note_metadata),
        (MID_ROUND, Handled(stable.metadata_changed)),
        ((P.STABLE,), Handled(stable.metadata_changed, BEFORE_A_JOIN)),
        (OVER, ENDED),
    ),
    ev.JoinAnswered: row(
        STALE,
        (
            (P.JOINING,),
            # Stable, if a leader's try to make its group cooperative was refused.
            Handled(joining.join_answered, (P.PLANNING, P.SYNCING, P.PREPARING, P.LEAVING, P.STABLE, P.FAILED)),
        ),
    ),
    ev.Planned: row(STALE, ((P.PLANNING,), Handled(syncing.planned, (P.SYNCING,)))),
    ev.PlanFailed: row(STALE, ((P.PLANNING,), Handled(syncing.plan_failed, (P.SYNCING,)))),
    ev.SyncAnswered: row(
        STALE,
        (
            (P.SYNCING,),
            # Stable, if the result does not fit our subscription and there were too many rounds in a row.
            Handled(syncing.sync_answered, (P.APPLYING, *BEFORE_A_JOIN, P.STABLE, P.LEAVING, P.FAILED)),
        ),
    ),
    ev.HeartbeatAnswered: row(
        Handled(stable.heartbeat_answered, (P.FAILED,)),
        ((P.STABLE,), Handled(stable.heartbeat_answered, (*BEFORE_A_JOIN, P.FAILED))),
        ((P.PLANNING, P.SYNCING), Handled(stable.heartbeat_answered, (*BEFORE_A_JOIN, P.LEAVING, P.FAILED))),
        ((P.UNSUBSCRIBED, P.JOINING, P.EVICTED, *OVER), STALE),
    ),
    ev.LeaveAnswered: row(STALE, ((P.LEAVING,), Handled(leaving.left, ENDS))),
    ev.CommitAnswered: row(Handled(stable.commit_answered, (P.FAILED,)), ((P.UNSUBSCRIBED, P.EVICTED, *OVER), STALE)),
    ev.RequestFailed: row(
        Handled(stable.request_failed),
        ((P.JOINING,), Handled(stable.request_failed, (P.LEAVING,))),
        ((P.SYNCING,), Handled(stable.request_failed, (*BEFORE_A_JOIN, P.LEAVING))),
        ((P.LEAVING,), Handled(stable.request_failed, ENDS)),
        ((P.UNSUBSCRIBED, P.EVICTED, *OVER), STALE),
    ),
    ev.Notified: row(
        STALE,
        ((P.PREPARING,), Handled(joining.prepared, (P.JOINING,))),
        # Closed, if a draining member that owns nothing has lost its membership meanwhile.
        ((P.APPLYING,), Handled(syncing.applied, (P.STABLE, *BEFORE_A_JOIN, P.LEAVING, P.CLOSED))),
        ((P.LEAVING,), Handled(leaving.let_go, ENDS)),
        ((P.EVICTED,), Handled(leaving.caught_up, BEFORE_A_JOIN)),
    ),
    ev.Polled: row(
        Handled(stable.polled),
        ((P.EVICTED,), Handled(leaving.returned, BEFORE_A_JOIN)),
        (OVER, ENDED),
    ),
    ev.Poked: row(
        Ignored("there is no membership that others could be told of"),
        (ALIVE, Handled(stable.poked)),
    ),
    ev.GroupSized: row(Handled(syncing.group_sized), (OVER, ENDED)),
    ev.Enforce: row(
        Handled(stable.enforce),
        ((P.STABLE,), Handled(stable.enforce, BEFORE_A_JOIN)),
        ((P.UNSUBSCRIBED, P.EVICTED, P.LEAVING), Ignored("there is no membership to rebalance")),
        (OVER, ENDED),
    ),
    ev.Drain: row(
        Handled(leaving.note_drain),
        ((P.STABLE,), Handled(leaving.drain, (*BEFORE_A_JOIN, P.LEAVING))),
        ((P.UNSUBSCRIBED,), Handled(leaving.drain_by_closing, (P.CLOSED,))),
        ((P.EVICTED,), Handled(leaving.drain_by_closing, (P.LEAVING, P.CLOSED))),
        ((P.LEAVING,), Ignored("already leaving")),
        (OVER, ENDED),
    ),
    ev.Close: row(
        Handled(leaving.close, (P.LEAVING,)),
        ((P.STABLE, P.EVICTED), Handled(leaving.close, (P.LEAVING, P.CLOSED))),
        ((P.UNSUBSCRIBED,), Handled(leaving.close, (P.CLOSED,))),
        (UNDER_WAY, Handled(leaving.close_after_round, (P.LEAVING, P.CLOSED))),
        ((P.LEAVING,), Handled(leaving.close_when_left)),
        ((P.FAILED,), Handled(leaving.close_after_failure, (P.CLOSED,))),
        ((P.CLOSED,), Ignored("closed already")),
    ),
    ev.Tick: row(
        Handled(stable.tick, (P.EVICTED,)),
        # Closed, if a drain takes too long and the member has lost its membership meanwhile.
        ((P.JOINING,), Handled(stable.tick, (P.PREPARING, P.EVICTED, P.LEAVING, P.CLOSED))),
        ((P.PLANNING, P.SYNCING), Handled(stable.tick, (P.EVICTED, P.LEAVING))),
        ((P.STABLE,), Handled(stable.tick, (*BEFORE_A_JOIN, P.EVICTED, P.LEAVING))),
        ((P.LEAVING,), Handled(stable.tick, ENDS)),
        ((P.UNSUBSCRIBED, P.EVICTED, *OVER), Ignored("no clock runs in this phase")),
    ),
    ev.HeraldAnswered: row(
        Handled(aside.herald_answered),
        ((P.STABLE,), Handled(aside.herald_answered, BEFORE_A_JOIN)),
    ),
}

WAITED_FOR = (ev.JoinAnswered, ev.Planned, ev.PlanFailed, ev.SyncAnswered, ev.LeaveAnswered, ev.Notified)

ANSWERS = frozenset({*WAITED_FOR, ev.HeartbeatAnswered, ev.RequestFailed})
"""Events that answer something, and carry its serial."""

HERALDED = (ev.JoinAnswered, ev.LeaveAnswered, ev.RequestFailed)
"""Events that may be answers to the herald (`aside`)."""


class IllegalEvent(Exception):
    """The driver fed an event that can't happen in this phase: a defect of the driver, not of the group."""


class UndeclaredTransition(Exception):
    """A handler led to a phase that its entry in the table does not declare: a defect of this machine."""


UNDECLARED = "undeclared-transition"
"""The step of the trace that tells so."""


def step(state: MemberState, event: ev.Event, now: float) -> tuple[MemberState, tuple[Effect, ...]]:
    """Handle one event at `now` (milliseconds). Returns the next state and the effects. Pure."""
    kind: type[Any] = type(event)
    answers = kind in ANSWERS
    if answers:
        kind = kind_of(state, event)
    entry = TABLE[kind][state.phase]
    if isinstance(entry, Illegal):
        raise IllegalEvent(f"{type(event).__name__} in {state.phase.value}: {entry.reason}")
    if isinstance(entry, Ignored) or (answers and kind is not ev.HeraldAnswered and is_stale(state, event)):
        return state, ()
    turn = Turn(state, now)
    entry.handler(turn, event)
    after = turn.state
    if after.phase is not state.phase and after.phase not in entry.to:
        turn.trace(UNDECLARED, cause=f"{kind.__name__} in the phase {state.phase.value} led to {after.phase.value}")
    return after, tuple(turn.effects)


def strict_step(state: MemberState, event: ev.Event, now: float) -> tuple[MemberState, tuple[Effect, ...]]:
    """As `step`, and raises UndeclaredTransition."""
    after, effects = step(state, event, now)
    if effects and isinstance(last := effects[-1], Emit) and last.record.step == UNDECLARED:
        raise UndeclaredTransition(last.record.cause)
    return after, effects


def kind_of(state: MemberState, event: ev.Event) -> type[Any]:
    """The row that an event belongs to: its own type, or the herald's row if it answers the herald's join or leave."""
    if isinstance(event, HERALDED) and event.serial in (state.drain.herald, state.drain.dismissal):
        return ev.HeraldAnswered
    return type(event)


def is_stale(state: MemberState, event: ev.Event) -> bool:
    """Whether it answers something we no longer wait for."""
    if isinstance(event, ev.HeartbeatAnswered):
        return event.serial != state.requests.heartbeat
    if isinstance(event, ev.RequestFailed):
        return event.serial not in (state.requests.pending, state.requests.heartbeat)
    return isinstance(event, WAITED_FOR) and event.serial != state.requests.pending
