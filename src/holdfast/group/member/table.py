"""The member's machine as a table: (phase, event) -> handler. Everything that changes a member's phase is reached from
here. Every pair is present: handled, ignored with a reason, or illegal.

Events that answer something carry a serial, which is checked first: an answer that the phase does not wait for is stale
and changes nothing (KAFKA-9823).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.group.member import aside, joining, leaving, stable, syncing
from holdfast.group.member import events as ev
from holdfast.group.member.effects import Effect
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


TABLE: Mapping[type[Any], Row] = {
    ev.Subscribe: row(
        Handled(stable.subscribe_again, (P.PREPARING, P.JOINING)),
        ((P.UNSUBSCRIBED,), Handled(stable.subscribe_first, (P.JOINING,))),
        ((P.CLOSED,), Illegal("a closed consumer can't subscribe")),
        ((P.FAILED,), ENDED),
    ),
    ev.Unsubscribe: row(
        Handled(leaving.unsubscribe, (P.LEAVING, P.UNSUBSCRIBED)),
        (UNDER_WAY, Handled(leaving.unsubscribe_after_round, (P.LEAVING, P.UNSUBSCRIBED))),
        ((P.UNSUBSCRIBED,), Ignored("nothing is subscribed")),
        ((P.LEAVING,), Handled(leaving.want_nothing)),
        (OVER, ENDED),
    ),
    ev.MetadataChanged: row(
        Handled(stable.note_metadata),
        (ALIVE, Handled(stable.metadata_changed, (P.PREPARING, P.JOINING))),
        (OVER, ENDED),
    ),
    ev.JoinAnswered: row(
        STALE,
        (
            (P.JOINING,),
            Handled(joining.join_answered, (P.JOINING, P.PLANNING, P.SYNCING, P.PREPARING, P.LEAVING, P.FAILED)),
        ),
    ),
    ev.Planned: row(STALE, ((P.PLANNING,), Handled(syncing.planned, (P.SYNCING,)))),
    ev.PlanFailed: row(STALE, ((P.PLANNING,), Handled(syncing.plan_failed, (P.SYNCING,)))),
    ev.SyncAnswered: row(
        STALE,
        (
            (P.SYNCING,),
            Handled(syncing.sync_answered, (P.APPLYING, P.STABLE, P.JOINING, P.PREPARING, P.LEAVING, P.FAILED)),
        ),
    ),
    ev.HeartbeatAnswered: row(
        Handled(stable.heartbeat_answered, (P.PREPARING, P.JOINING, P.LEAVING, P.FAILED)),
        ((P.UNSUBSCRIBED, P.JOINING, P.EVICTED, *OVER), STALE),
    ),
    ev.LeaveAnswered: row(STALE, ((P.LEAVING,), Handled(leaving.left, (P.CLOSED, P.UNSUBSCRIBED, P.JOINING)))),
    ev.CommitAnswered: row(Handled(stable.commit_answered, (P.FAILED,)), ((P.UNSUBSCRIBED, P.EVICTED, *OVER), STALE)),
    ev.RequestFailed: row(
        Handled(stable.request_failed, (P.JOINING, P.PREPARING, P.LEAVING, P.CLOSED, P.UNSUBSCRIBED)),
        ((P.UNSUBSCRIBED, P.EVICTED, *OVER), STALE),
    ),
    ev.Notified: row(
        STALE,
        ((P.PREPARING,), Handled(joining.prepared, (P.JOINING,))),
        ((P.APPLYING,), Handled(syncing.applied, (P.STABLE, P.PREPARING, P.JOINING, P.LEAVING))),
        ((P.LEAVING,), Handled(leaving.let_go, (P.CLOSED, P.UNSUBSCRIBED))),
        ((P.EVICTED,), Handled(leaving.caught_up, (P.PREPARING, P.JOINING))),
    ),
    ev.Polled: row(
        Handled(stable.polled),
        ((P.EVICTED,), Handled(leaving.returned, (P.PREPARING, P.JOINING))),
        (OVER, ENDED),
    ),
    ev.Poked: row(
        Ignored("there is no membership that others could be told of"),
        (ALIVE, Handled(stable.poked)),
    ),
    ev.GroupSized: row(Handled(syncing.group_sized), (OVER, ENDED)),
    ev.Enforce: row(
        Handled(stable.enforce, (P.PREPARING, P.JOINING)),
        ((P.UNSUBSCRIBED, P.EVICTED, P.LEAVING), Ignored("there is no membership to rebalance")),
        (OVER, ENDED),
    ),
    ev.Drain: row(
        Handled(leaving.note_drain),
        ((P.STABLE,), Handled(leaving.drain, (P.JOINING, P.LEAVING))),
        ((P.UNSUBSCRIBED, P.EVICTED), Handled(leaving.drain_by_closing, (P.LEAVING, P.CLOSED))),
        ((P.LEAVING,), Ignored("already leaving")),
        (OVER, ENDED),
    ),
    ev.Close: row(
        Handled(leaving.close, (P.LEAVING, P.CLOSED)),
        (UNDER_WAY, Handled(leaving.close_after_round, (P.LEAVING, P.CLOSED))),
        ((P.LEAVING,), Handled(leaving.close_when_left)),
        ((P.FAILED,), Handled(leaving.close_failed, (P.CLOSED,))),
        ((P.CLOSED,), Ignored("closed already")),
    ),
    ev.Tick: row(
        Handled(stable.tick),
        (ALIVE, Handled(stable.tick, (P.EVICTED,))),
        ((P.STABLE, *UNDER_WAY), Handled(stable.tick, (P.EVICTED, P.LEAVING))),
        ((P.UNSUBSCRIBED, P.EVICTED, *OVER), Ignored("no clock runs in this phase")),
    ),
}

WAITED_FOR = (ev.JoinAnswered, ev.Planned, ev.PlanFailed, ev.SyncAnswered, ev.LeaveAnswered, ev.Notified)


HERALDED = (ev.JoinAnswered, ev.LeaveAnswered, ev.RequestFailed)
"""Events that may be answers to the herald (`aside`)."""


class IllegalEvent(Exception):
    """The driver fed an event that can't happen in this phase: a defect of the driver, not of the group."""


def step(state: MemberState, event: ev.Event, now: float) -> tuple[MemberState, tuple[Effect, ...]]:
    """Handle one event at `now` (milliseconds). Returns the next state and the effects. Pure."""
    if isinstance(event, HERALDED) and event.serial in (state.herald, state.dismissal):
        turn = Turn(state, now)  # the herald's join and leave, in whatever phase we are ourselves
        aside.herald_answered(turn, event)
        return turn.state, tuple(turn.effects)
    entry = TABLE[type(event)][state.phase]
    if isinstance(entry, Illegal):
        raise IllegalEvent(f"{type(event).__name__} in {state.phase.value}: {entry.reason}")
    if isinstance(entry, Ignored) or is_stale(state, event):
        return state, ()
    turn = Turn(state, now)
    entry.handler(turn, event)
    return turn.state, tuple(turn.effects)


def is_stale(state: MemberState, event: ev.Event) -> bool:
    """Whether it answers something we no longer wait for."""
    if isinstance(event, ev.HeartbeatAnswered):
        return event.serial != state.heartbeat
    if isinstance(event, ev.RequestFailed):
        return event.serial not in (state.pending, state.heartbeat)
    return isinstance(event, WAITED_FOR) and event.serial != state.pending
