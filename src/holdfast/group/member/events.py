"""What happens to a member. The driver turns clocks, sockets and users into these values; nothing else gets in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.group.messages import HeartbeatAnswer, JoinAnswer, LeaveAnswer, SyncAnswer
from holdfast.group.user_data import Positions
from holdfast.model import ClusterView, ErrorCode, HoldfastError, Membership


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The user subscribes to these topics. Patterns are resolved outside; a new match is another `Subscribe`."""

    topics: frozenset[str]
    runs: str | None = None
    """The assignor that the group runs; empty if the group is, None if not known."""


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
    """The partitions of each topic that it was made for: when they change, the plan is out of date."""
    all_list: frozenset[str] = frozenset()
    """Assignors that every member says it lists. Foreign members don't say."""
    doubts: Mapping[str, str] = field(default_factory=dict)
    """Members whose notes or claims were invalid, each with the reason."""
    withheld: bool = False
    """Whether partitions are withheld until their owners have revoked them."""
    newer: Mapping[str, int] = field(default_factory=dict)
    """Members with a newer version of the assignor than the leader's, each with its version."""
    hands_over: bool = False
    """Whether it hands positions over."""


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """Planning failed: the assignor raised or gave an unusable plan, or the topics can't be looked up."""

    serial: int
    error: HoldfastError
    kept: Mapping[str, bytes] | None = None
    """A plan by which every member keeps its partitions, if there can be one. None: the driver goes on trying to plan.
    """
    hands_over: bool = False
    """Whether the next plan hands over positions that this one should have."""


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
    """A commit sent with `membership` was answered. It never makes us rejoin, but it may make us heartbeat."""

    membership: Membership
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """No answer will come: disconnected, timed out, no coordinator found."""

    serial: int
    reason: str
    code: ErrorCode | None = None
    """The error that the look-up of the coordinator was refused with, if it was."""
    error: HoldfastError | None = None
    """An error that the application should be told at once, because it may need help, like a wrong password."""


@dataclass(frozen=True, slots=True)
class Notified:
    """The driver has made all calls of one `Notify`. Listener errors are the driver's to raise; they change nothing."""

    serial: int
    positions: Positions = field(default_factory=dict)
    """Final positions of the revoked partitions, to be handed over with the next join."""


@dataclass(frozen=True, slots=True)
class Polled:
    """The application asked for records: it is alive."""


@dataclass(frozen=True, slots=True)
class Poked:
    """A peer says that a rebalance has begun. Not trusted: it only makes us ask the coordinator, and pass it on."""

    token: str
    """The datagram's text: a token; in a large group, after a space, which poke of its generation it is."""


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


class HeraldAnswered:
    """The row of the table for answers to the herald's join or leave (`aside`), which come as `JoinAnswered`,
    `LeaveAnswered` or `RequestFailed` and are recognised by their serial."""


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
