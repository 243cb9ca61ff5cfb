"""What happens to a member. The driver turns clocks, sockets and users into these values; nothing else gets in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.group.messages import HeartbeatAnswer, JoinAnswer, LeaveAnswer, SyncAnswer
from holdfast.model import ClusterView, ErrorCode, HoldfastError, Membership, TopicPartition


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The user wants these topics. A pattern is resolved by the driver, which says so anew when it matches others."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """The user wants nothing any more, but keeps the consumer."""


@dataclass(frozen=True, slots=True)
class MetadataChanged:
    """The cluster's topics look different now."""

    cluster: ClusterView


@dataclass(frozen=True, slots=True)
class JoinAnswered:
    serial: int
    answer: JoinAnswer


@dataclass(frozen=True, slots=True)
class Planned:
    """The leader's plan is ready: member id -> assignment bytes."""

    serial: int
    assignments: Mapping[str, bytes]
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """The topics it was made by: when they change, the plan is out of date."""


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """The assignor raised. The group can't go on with this leader."""

    serial: int
    error: HoldfastError


@dataclass(frozen=True, slots=True)
class SyncAnswered:
    serial: int
    answer: SyncAnswer


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    serial: int
    answer: HeartbeatAnswer


@dataclass(frozen=True, slots=True)
class LeaveAnswered:
    serial: int
    answer: LeaveAnswer


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """A commit sent with `membership` was answered. It never makes us rejoin by itself; it may make us ask."""

    membership: Membership
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """No answer will come: disconnected, timed out, no coordinator found."""

    serial: int
    reason: str


@dataclass(frozen=True, slots=True)
class Notified:
    """The driver has made all calls of one `Notify`. Listener errors are the driver's to raise; they change nothing."""

    serial: int
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Final positions of the revoked partitions, to be handed over with the next join."""


@dataclass(frozen=True, slots=True)
class Polled:
    """The application asked for records: it is alive."""


@dataclass(frozen=True, slots=True)
class Poked:
    """Somebody says that the group is moving. Trusted for nothing but asking the coordinator."""

    token: str


@dataclass(frozen=True, slots=True)
class GroupSized:
    """How many members the group has, so that quick heartbeats stay within the coordinator's budget."""

    members: int


@dataclass(frozen=True, slots=True)
class Enforce:
    """The user asks for a rebalance."""

    reason: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Hand over everything while still working, then leave."""

    reason: str


@dataclass(frozen=True, slots=True)
class Close:
    """Revoke, leave (unless static) and end."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """The deadline the machine asked for has come, or any other moment: ticks are never wrong."""


Event = (
    Subscribe
    | Unsubscribe
    | MetadataChanged
    | JoinAnswered
    | Planned
    | PlanFailed
    | SyncAnswered
    | HeartbeatAnswered
    | LeaveAnswered
    | CommitAnswered
    | RequestFailed
    | Notified
    | Polled
    | Poked
    | GroupSized
    | Enforce
    | Drain
    | Close
    | Tick
)
