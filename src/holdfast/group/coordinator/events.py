"""What happens to a group: requests, sorted by what they mean to it, and deadlines.

A JoinGroup is four different events, depending on who sends it; the other requests are one each.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.group.coordinator.effects import Token
from holdfast.group.coordinator.requests import DeleteGroupRequest, DeleteOffsetsRequest
from holdfast.group.messages import (
    CommitRequest,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    SyncRequest,
)
from holdfast.model import TopicPartition


@dataclass(frozen=True, slots=True)
class IdWanted:
    """A new dynamic member joins without an id, and will come back with the one it is given (KIP-394)."""

    token: Token
    request: JoinRequest


@dataclass(frozen=True, slots=True)
class Joined:
    """A new member joins: with the id it was given, as a static member, or from a client too old for that."""

    token: Token
    request: JoinRequest


@dataclass(frozen=True, slots=True)
class Returned:
    """A static member that we know joins without an id: a new process takes over its place (KIP-345)."""

    token: Token
    request: JoinRequest


@dataclass(frozen=True, slots=True)
class Rejoined:
    """Somebody joins with a member id, as members of the group do."""

    token: Token
    request: JoinRequest


@dataclass(frozen=True, slots=True)
class Synced:
    """The leader brings its plan, or a member asks for its part of it."""

    token: Token
    request: SyncRequest


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member says that it is alive, and asks whether it should join again."""

    token: Token
    request: HeartbeatRequest


@dataclass(frozen=True, slots=True)
class Left:
    """Members leave, or are removed by an administrator."""

    token: Token
    request: LeaveRequest


@dataclass(frozen=True, slots=True)
class Committed:
    """Offsets are to be committed."""

    token: Token
    request: CommitRequest


@dataclass(frozen=True, slots=True)
class OffsetsAsked:
    """Somebody asks for committed offsets."""

    token: Token
    request: FetchOffsetsRequest


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """An administrator deletes offsets."""

    token: Token
    request: DeleteOffsetsRequest


@dataclass(frozen=True, slots=True)
class Deleted:
    """An administrator deletes the group."""

    token: Token
    request: DeleteGroupRequest


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """Nothing was heard from a member for its session timeout, or a new member's join was parked for too long."""

    member_id: str


@dataclass(frozen=True, slots=True)
class PendingExpired:
    """An id was given out, and nobody came back with it."""

    member_id: str


@dataclass(frozen=True, slots=True)
class JoinDue:
    """The join barrier's time is up: the initial delay, or the rebalance timeout."""


@dataclass(frozen=True, slots=True)
class SyncDue:
    """The sync barrier's time is up."""


@dataclass(frozen=True, slots=True)
class CheckDue:
    """Time to look for expired offsets."""


@dataclass(frozen=True, slots=True)
class PartitionsDropped:
    """Partitions were deleted from the cluster."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class WaiterGone:
    """The client behind a parked join or sync went away."""

    token: Token


@dataclass(frozen=True, slots=True)
class Unloaded:
    """This coordinator stops serving the group."""


Event = (
    IdWanted
    | Joined
    | Returned
    | Rejoined
    | Synced
    | Heartbeat
    | Left
    | Committed
    | OffsetsAsked
    | OffsetsDeleted
    | Deleted
    | SessionExpired
    | PendingExpired
    | JoinDue
    | SyncDue
    | CheckDue
    | PartitionsDropped
    | WaiterGone
    | Unloaded
)

EVENTS: tuple[type, ...] = (
    IdWanted,
    Joined,
    Returned,
    Rejoined,
    Synced,
    Heartbeat,
    Left,
    Committed,
    OffsetsAsked,
    OffsetsDeleted,
    Deleted,
    SessionExpired,
    PendingExpired,
    JoinDue,
    SyncDue,
    CheckDue,
    PartitionsDropped,
    WaiterGone,
    Unloaded,
)
"""The same in the order in which the documentation lists them."""
