"""What happens to a member. The driver turns clocks, sockets and users into these values; nothing else gets in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.group.messages import HeartbeatAnswer, JoinAnswer, LeaveAnswer, SyncAnswer
from holdfast.group.user_data import Positions
from holdfast.model import ClusterView, ErrorCode, HoldfastError, Membership


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The user wants these topics. A pattern is resolved by the driver, which says so anew when it matches others."""

    topics: frozenset[str]
    runs: str | None = None
    """The assignor that the group runs: empty where nobody is in it, None where that is not known."""


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
    all_list: frozenset[str] = frozenset()
    """Assignors that every member says it lists. Members of other makes say nothing."""
    doubts: Mapping[str, str] = field(default_factory=dict)
    """Members that said what can't be true, and what."""
    withheld: bool = False
    """Whether it keeps partitions back until somebody has revoked them."""


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """No plan came of it: the assignor raised or gave one that can't be used, or the topics can't be looked up."""

    serial: int
    error: HoldfastError
    kept: Mapping[str, bytes] | None = None
    """What leaves everybody with what he has, if that is known. None: the driver goes on trying to plan."""


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
    code: ErrorCode | None = None
    """What the search for the coordinator was refused with, if it was."""
    error: HoldfastError | None = None
    """What the application should hear at once: a failure that may not pass by itself, like a wrong password."""


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
    """Somebody says that the group is moving. Trusted for nothing but asking the coordinator, and for passing on."""

    token: str
    """What the datagram said: a token, and behind a space which poke of its generation it is, where pokes are passed
    on."""


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
