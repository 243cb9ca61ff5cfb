"""A member's state: an immutable value. The handlers in this package make the next one from it.

What it consists of is in `parts`, by what it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from holdfast.group.member.parts import (
    Adapting,
    Beats,
    Draining,
    Held,
    LeaderSaid,
    Leaving,
    Owed,
    Planning,
    Pokes,
    Requests,
    Round,
    Trouble,
)
from holdfast.group.user_data import Endpoint
from holdfast.model import (
    NOBODY,
    Assignor,
    HoldfastError,
    Membership,
    RebalanceProtocol,
    TopicPartition,
)

INT32_MAX = 2**31 - 1
"""Kafka's timeouts are int32 milliseconds; "for ever" must not overflow them (KAFKA-13126)."""


class Phase(Enum):
    """Where a member stands."""

    # An enum's members are singletons, so hashing by identity is right, and faster than Enum's hash, written in Python.
    __hash__ = object.__hash__

    UNSUBSCRIBED = "unsubscribed"
    """Wants nothing.

    Replies: ignores the group.
    Transitions: Subscribe -> JOINING; Close or Drain -> CLOSED.
    """
    PREPARING = "preparing"
    """Revoking or losing before a join (KIP-429 1a–1d), and the listener has not returned yet.

    Replies: heartbeats go on while the membership is good.
    Transitions: Notified -> JOINING; Close or Unsubscribe -> LEAVING; the application stops polling -> EVICTED; a fatal
    answer -> FAILED.
    """
    JOINING = "joining"
    """A JoinGroup is under way, or waits for its retry.

    Replies: none; a parked join keeps the membership alive by itself.
    Transitions: answered, leading -> PLANNING; answered, following -> SYNCING; membership lost, or something to revoke
    before the next try -> PREPARING; a refused try to make the group cooperative -> STABLE; Close, Unsubscribe or a
    drain that takes too long -> LEAVING, or without an id yet at once -> CLOSED or UNSUBSCRIBED; the application stops
    polling -> EVICTED; a fatal answer -> FAILED.
    """
    PLANNING = "planning"
    """We lead, and the assignor is at work.

    Replies: heartbeats (KAFKA-10134), whose REBALANCE_IN_PROGRESS waits until the round is through.
    Transitions: Planned -> SYNCING; PlanFailed -> SYNCING, every member keeping its partitions, or on with planning;
    membership lost, or the round is over -> PREPARING or JOINING; Close, Unsubscribe or a drain that takes too long ->
    LEAVING, or for a static member CLOSED or UNSUBSCRIBED; the application stops polling -> EVICTED; a fatal answer ->
    FAILED.
    """
    SYNCING = "syncing"
    """A SyncGroup is under way.

    Replies: heartbeats, as in PLANNING.
    Transitions: answered -> APPLYING; REBALANCE_IN_PROGRESS -> JOINING with the generation kept (KAFKA-13891), or
    PREPARING if something must be given up first; a result that does not fit -> JOINING, or STABLE after too many
    rounds in a row; Close, Unsubscribe or a drain that takes too long -> LEAVING, or for a static member CLOSED or
    UNSUBSCRIBED; the application stops polling -> EVICTED; a fatal answer -> FAILED.
    """
    APPLYING = "applying"
    """The round's result is known, and the listener is being told (KIP-429 3a–3d).

    Replies: heartbeats; a new rebalance is noted and taken up afterwards.
    Transitions: Notified -> STABLE, or JOINING when something was revoked or withheld, or PREPARING when something was
    lost; Close, Unsubscribe or a drain that is done -> LEAVING, or CLOSED if it has no membership left; the application
    stops polling -> EVICTED; a fatal answer -> FAILED.
    """
    STABLE = "stable"
    """Nothing to do but work and heartbeat.

    Replies: heartbeats.
    Transitions: any reason to rejoin -> PREPARING or JOINING; Close, Unsubscribe or Drain -> LEAVING, or for a static
    member that owns nothing CLOSED or UNSUBSCRIBED; the application stops polling -> EVICTED; a fatal answer -> FAILED.
    """
    EVICTED = "evicted"
    """The application did not poll in time, so we left by ourselves and wait for it to come back.

    Replies: none.
    Transitions: Polled -> PREPARING (everything owned is lost), or JOINING if nothing was; Close, Drain or Unsubscribe
    -> LEAVING, or CLOSED or UNSUBSCRIBED if nothing was.
    """
    LEAVING = "leaving"
    """The last revoke, then LeaveGroup.

    Replies: heartbeats until the listener has returned.
    Transitions: Notified, then answered or failed -> CLOSED, or UNSUBSCRIBED after Unsubscribe, or JOINING if
    subscribed again meanwhile; a fatal answer -> FAILED.
    """
    FAILED = "failed"
    """Something that can't pass: another process took our group.instance.id. Every poll says so.

    Replies: none.
    Transitions: Close -> CLOSED.
    """
    CLOSED = "closed"
    """The end.

    Replies: none.
    Transitions: none.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """How this member behaves. Times are milliseconds, defaults are Kafka's."""

    group: str
    assignors: tuple[Assignor, ...]
    protocol: RebalanceProtocol
    """The protocol that `select_protocol` chose from the assignors."""
    eager_assignors: tuple[Assignor, ...] = ()
    """What to list in a group that is not cooperative: see `adapting`. If empty, always `assignors`."""
    cooperative_after_ms: float | None = 600_000.0
    """How long all members must have listed a cooperative assignor before we make an eager group cooperative; None for
    never."""
    name: str = ""
    """What traces call the member before it has an id."""
    client_id: str = ""
    instance_id: str | None = None
    rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    """The back-off doubles with each failure in a row, up to this."""
    retry_spread: float = 1.0
    """A factor on every back-off, chosen at random outside, so that members refused together don't come back together.
    """
    instant_rejoin: bool = True
    """Follow the leader's mark at once instead of waiting for a heartbeat."""
    hand_over_offsets: bool = True
    """Send final positions with the join that follows a revoke."""
    hot_heartbeats: bool = True
    """Heartbeat quickly for a while after a round under a leader that can't mark."""
    endpoint: Endpoint | None = None
    """Where a poke reaches us."""
    responsive_ms: float | None = None
    """Join a round only if the application has polled within this time, else wait for its poll. None: join at once.

    A handover takes two rounds. What is revoked in the first is read by nobody until the second, which needs every
    member's listener to return. An application that hangs would keep others' partitions unread for as long as it hangs.
    """

    @property
    def rebalance_timeout_ms(self) -> int:
        return min(self.max_poll_interval_ms, INT32_MAX)

    def called(self, membership: Membership) -> str:
        """What traces call the member."""
        return membership.member_id or self.name or self.client_id


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What every handler needs to know. Without slots, for the reason that `turn.changed` gives."""

    phase: Phase = Phase.UNSUBSCRIBED
    membership: Membership = NOBODY
    lost: bool = False
    """Whether the membership was taken away: what is owned must be lost, not revoked."""
    topics: frozenset[str] = frozenset()
    owned: frozenset[TopicPartition] = frozenset()
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """The number of partitions of each topic, as last seen."""
    last_polled_at: float = 0.0
    """When the application last polled."""
    doubted: frozenset[str] = frozenset()
    """Members whose invalid notes or claims were reported already."""
    error: HoldfastError | None = None
    """Why we have failed, if we have."""
    owed: Owed | None = None
    serial: int = 0
    """The last number given to a request or notification. By it an answer to an old one is recognised (KAFKA-9823)."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The rest, by what it is about."""

    held: Held = field(default_factory=Held)
    round: Round = field(default_factory=Round)
    said: LeaderSaid = field(default_factory=LeaderSaid)
    pokes: Pokes = field(default_factory=Pokes)
    requests: Requests = field(default_factory=Requests)
    beats: Beats = field(default_factory=Beats)
    trouble: Trouble = field(default_factory=Trouble)
    planning: Planning = field(default_factory=Planning)
    adapting: Adapting = field(default_factory=Adapting)
    drain: Draining = field(default_factory=Draining)
    leaving: Leaving = field(default_factory=Leaving)


@dataclass(frozen=True, kw_only=True)
class MemberState(Facts, Parts):
    """Everything a member knows: an immutable value, which any thread may read."""

    config: MemberConfig

    @property
    def draining(self) -> str | None:
        """Why we drain; None if we don't."""
        return self.drain.reason

    @property
    def rejoin(self) -> str | None:
        """Why we owe another round; None if we don't."""
        return None if self.owed is None else self.owed.reason

    @property
    def static(self) -> bool:
        return self.config.instance_id is not None

    @property
    def assignors(self) -> tuple[Assignor, ...]:
        """What our joins list."""
        return self.config.eager_assignors if self.adapting.eager else self.config.assignors

    @property
    def cooperative(self) -> bool:
        return not self.adapting.eager and self.config.protocol is RebalanceProtocol.COOPERATIVE

    @property
    def name(self) -> str:
        return self.config.called(self.membership)
