"""The coordinator's machine as data: what every event does in every state.

Everything that decides which handler runs is in this file. A request that the state allows may still be refused by its
handler (wrong generation, unknown member): the checks are in `checks`. The picture in docs/coordinator-states.md is
drawn from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.group.coordinator import ending, joining, leaving, offsets, syncing
from holdfast.group.coordinator.effects import Step
from holdfast.group.coordinator.events import (
    EVENTS,
    CheckDue,
    Committed,
    Deleted,
    Heartbeat,
    IdWanted,
    JoinDue,
    Joined,
    Left,
    OffsetsAsked,
    OffsetsDeleted,
    PartitionsDropped,
    PendingExpired,
    Rejoined,
    Returned,
    SessionExpired,
    SyncDue,
    Synced,
    Unloaded,
    WaiterGone,
)
from holdfast.group.coordinator.roster import Roster
from holdfast.group.coordinator.states import State
from holdfast.group.table import Entry, Handled, Ignored, Illegal

Handler = Callable[[Roster, Any, Step], None]
"""The event's type is given by its place in the table, which a type checker can't see: hence Any."""

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = State

_NOBODY = Illegal("an empty group has no members")
_NO_BARRIER = Illegal("the join barrier has a deadline only while it is up")
_NO_SYNC = Illegal("the sync barrier has a deadline only from a generation until all have synced")
_TIMERS_GONE = Illegal("a dead group has no deadlines")
_UNLOAD: Handled[State, Handler] = Handled(ending.unload, (DEAD,))
_PENDING: Handled[State, Handler] = Handled(leaving.expire_pending)
_GONE: Handled[State, Handler] = Handled(ending.refuse_unavailable)

_EMPTY: dict[type, Entry[State, Handler]] = {
    IdWanted: Handled(joining.give_id),
    Joined: Handled(joining.admit, (PREPARING, COMPLETING)),
    Returned: _NOBODY,
    Rejoined: Handled(ending.refuse_unknown),
    Synced: Handled(ending.refuse_unknown),
    Heartbeat: Handled(ending.refuse_unknown),
    Left: Handled(leaving.leave, says="Takes back ids given out; everybody else is answered UNKNOWN_MEMBER_ID."),
    Committed: Handled(offsets.commit, says="Writes offsets that come from outside, then answers."),
    OffsetsAsked: Handled(offsets.show_offsets),
    OffsetsDeleted: Handled(offsets.delete_offsets),
    Deleted: Handled(offsets.delete_group, (DEAD,)),
    SessionExpired: _NOBODY,
    PendingExpired: _PENDING,
    JoinDue: _NO_BARRIER,
    SyncDue: _NO_SYNC,
    CheckDue: Handled(offsets.expire_offsets, (DEAD,)),
    PartitionsDropped: Handled(offsets.drop_partitions),
    WaiterGone: Ignored("nobody waits in an empty group"),
    Unloaded: _UNLOAD,
}

_PREPARING: dict[type, Entry[State, Handler]] = {
    IdWanted: Handled(joining.give_id),
    Joined: Handled(joining.admit, (COMPLETING,)),
    Returned: Handled(joining.return_to_barrier, (COMPLETING,)),
    Rejoined: Handled(joining.rejoin_barrier, (COMPLETING,)),
    Synced: Handled(syncing.sync_in_preparing),
    Heartbeat: Handled(syncing.beat_in_preparing),
    Left: Handled(leaving.leave, (COMPLETING, EMPTY)),
    Committed: Handled(offsets.commit),
    OffsetsAsked: Handled(offsets.show_offsets),
    OffsetsDeleted: Handled(offsets.delete_offsets),
    Deleted: Handled(offsets.keep_group),
    SessionExpired: Handled(leaving.expire_session, (COMPLETING, EMPTY)),
    PendingExpired: Handled(leaving.expire_pending, (COMPLETING,)),
    JoinDue: Handled(leaving.join_due, (COMPLETING, EMPTY)),
    SyncDue: _NO_SYNC,
    CheckDue: Handled(offsets.expire_offsets, says="Expires nothing: the members may still need their offsets."),
    PartitionsDropped: Handled(offsets.drop_partitions),
    WaiterGone: Handled(leaving.waiter_gone, (EMPTY,)),
    Unloaded: _UNLOAD,
}

_COMPLETING: dict[type, Entry[State, Handler]] = {
    IdWanted: Handled(joining.give_id),
    Joined: Handled(joining.admit, (PREPARING,)),
    Returned: Handled(joining.return_completing, (PREPARING,)),
    Rejoined: Handled(joining.rejoin_completing, (PREPARING,)),
    Synced: Handled(syncing.sync_in_completing, (STABLE,)),
    Heartbeat: Handled(syncing.beat_in_generation),
    Left: Handled(leaving.leave, (PREPARING, EMPTY)),
    Committed: Handled(offsets.commit_in_completing),
    OffsetsAsked: Handled(offsets.show_offsets),
    OffsetsDeleted: Handled(offsets.delete_offsets),
    Deleted: Handled(offsets.keep_group),
    SessionExpired: Handled(leaving.expire_session, (PREPARING, EMPTY)),
    PendingExpired: _PENDING,
    JoinDue: _NO_BARRIER,
    SyncDue: Handled(syncing.expel_unsynced, (PREPARING, EMPTY)),
    CheckDue: Handled(offsets.expire_offsets, says="Expires nothing: the members may still need their offsets."),
    PartitionsDropped: Handled(offsets.drop_partitions),
    WaiterGone: Handled(leaving.waiter_gone),
    Unloaded: _UNLOAD,
}

_STABLE: dict[type, Entry[State, Handler]] = {
    IdWanted: Handled(joining.give_id),
    Joined: Handled(joining.admit, (PREPARING,)),
    Returned: Handled(joining.return_stable, (PREPARING, COMPLETING)),
    Rejoined: Handled(joining.rejoin_stable, (PREPARING, COMPLETING)),
    Synced: Handled(syncing.sync_in_stable),
    Heartbeat: Handled(syncing.beat_in_generation),
    Left: Handled(leaving.leave, (PREPARING, EMPTY)),
    Committed: Handled(offsets.commit),
    OffsetsAsked: Handled(offsets.show_offsets),
    OffsetsDeleted: Handled(offsets.delete_offsets),
    Deleted: Handled(offsets.keep_group),
    SessionExpired: Handled(leaving.expire_session, (PREPARING, EMPTY)),
    PendingExpired: _PENDING,
    JoinDue: _NO_BARRIER,
    SyncDue: Handled(syncing.expel_unsynced, (PREPARING,)),
    CheckDue: Handled(offsets.expire_offsets, says="Forgets expired offsets of topics that nobody subscribes to."),
    PartitionsDropped: Handled(offsets.drop_partitions),
    WaiterGone: Ignored("nobody waits in a stable group"),
    Unloaded: _UNLOAD,
}

_DEAD: dict[type, Entry[State, Handler]] = {
    IdWanted: _GONE,
    Joined: _GONE,
    Returned: _GONE,
    Rejoined: _GONE,
    Synced: _GONE,
    Heartbeat: _GONE,
    Left: _GONE,
    Committed: _GONE,
    OffsetsAsked: Handled(ending.show_nothing),
    OffsetsDeleted: Handled(ending.refuse_not_found),
    Deleted: Handled(ending.refuse_not_found),
    SessionExpired: _TIMERS_GONE,
    PendingExpired: _TIMERS_GONE,
    JoinDue: _TIMERS_GONE,
    SyncDue: _TIMERS_GONE,
    CheckDue: _TIMERS_GONE,
    PartitionsDropped: Ignored("a dead group has no offsets left to forget"),
    WaiterGone: Ignored("everybody was answered when the group ended"),
    Unloaded: Ignored("it has ended already"),
}

_ROWS = {EMPTY: _EMPTY, PREPARING: _PREPARING, COMPLETING: _COMPLETING, STABLE: _STABLE, DEAD: _DEAD}
TABLE: dict[tuple[State, type], Entry[State, Handler]] = {
    (state, event): _ROWS[state][event] for state in State for event in EVENTS
}
