"""A member's state: an immutable value. The handlers in this package make the next one from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from holdfast.group.user_data import Endpoint, Positions
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


UNCOUNTED_INTERVAL_MS = 250.0
"""Interval of quick heartbeats while the group's size is not known: that of a group of a thousand."""


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
    before the next try -> PREPARING; a refused try to make the group cooperative -> STABLE; Close or Unsubscribe ->
    LEAVING, or without an id yet at once -> CLOSED or UNSUBSCRIBED; the application stops polling -> EVICTED; a fatal
    answer -> FAILED.
    """
    PLANNING = "planning"
    """We lead, and the assignor is at work.

    Replies: heartbeats (KAFKA-10134), whose REBALANCE_IN_PROGRESS waits until the round is through.
    Transitions: Planned -> SYNCING; PlanFailed -> SYNCING with everybody keeping what he has, or on with planning;
    membership lost, or the round is over -> PREPARING or JOINING; Close or Unsubscribe -> LEAVING, or for a static
    member CLOSED or UNSUBSCRIBED; the application stops polling -> EVICTED; a fatal answer -> FAILED.
    """
    SYNCING = "syncing"
    """A SyncGroup is under way.

    Replies: heartbeats, as in PLANNING.
    Transitions: answered -> APPLYING; REBALANCE_IN_PROGRESS -> JOINING with the generation kept (KAFKA-13891), or
    PREPARING if something must be given up first; a result that does not fit -> JOINING, or STABLE after too many
    rounds in a row; Close or Unsubscribe -> LEAVING, or for a static member CLOSED or UNSUBSCRIBED; the application
    stops polling -> EVICTED; a fatal answer -> FAILED.
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


class Aside(Enum):
    """The steps of a drain that lets a round wait for it and leaves last: see `aside`."""

    NO = "no"
    RESTING = "resting"
    """We wait until the last rebalance is surely over."""
    ASKING = "asking"
    """A heartbeat asks whether the group is at rest."""
    CALLING = "calling"
    """The herald joins, which starts a round."""
    WAITED_FOR = "waited for"
    """The round has begun, and does not complete without us."""


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


@dataclass(frozen=True, kw_only=True)
class MemberState:
    """Everything a member knows. Without slots, because a dictionary is copied ten times as fast (`turn.changed`)."""

    config: MemberConfig
    phase: Phase = Phase.UNSUBSCRIBED
    membership: Membership = NOBODY
    topics: frozenset[str] = frozenset()
    owned: frozenset[TopicPartition] = frozenset()
    held_generation: int = -1
    """The generation of the last round whose result we applied. Our claims are true for it (KAFKA-14639)."""
    assigned: frozenset[TopicPartition] = frozenset()
    """What that round assigned to us. Kept after an eager revoke, for assignors that are sticky by user data."""
    leader: bool = False
    leader_id: str = ""
    """Who leads the current round, and wrote its notes."""
    doubted: frozenset[str] = frozenset()
    """Members whose invalid notes or claims were reported already."""
    newer: tuple[tuple[str, int], ...] = ()
    """As the leader: members with a newer version of the assignor that were reported, each with its version."""
    protocol: str | None = None
    """The assignor the group chose for the current round."""
    eager: bool = False
    """Whether we list `eager_assignors`, and so revoke everything before we join."""
    all_can: bool = False
    """As the leader of an eager group: whether every member of the last round lists our cooperative assignors."""
    upgrade_at: float | None = None
    """When the leader of an eager group tries to make it cooperative."""
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """The number of partitions of each topic, as last seen."""
    planned_counts: Mapping[str, int] | None = None
    """The counts that a leader planned for. When they differ from `partition_counts`, the plan is out of date."""

    serial: int = 0
    """The last number given to a request or notification. By it an answer to an old one is recognised (KAFKA-9823)."""
    pending: int | None = None
    """Serial of the join, plan, sync, leave or notification the phase waits for."""
    heartbeat: int | None = None
    """Serial of the heartbeat under way."""
    retry_at: float | None = None
    """When a join or a leave that failed is sent again."""
    tries: int = 0
    """How many failures there were in a row; the back-off grows with it."""
    troubled_at: float | None = None
    """When the first of them was."""
    told: str = ""
    """The code of the last error that was reported to the application."""
    told_at: float = 0.0
    leaves: int = 0
    """How often our leave failed."""
    bad_plans: int = 0
    """How many plans of ours failed in a row."""
    replan_at: float | None = None
    """When a leader asks for another round: its plan failed, or it still withholds partitions."""
    look_at: float | None = None
    """When to check again whether the application polls, so that we can join the round that is owed."""
    put_off_until: float = 0.0
    """The round that is owed was put off until then: a poll does not make us join earlier."""
    taken: frozenset[TopicPartition] = frozenset()
    """What the last round took from us and we still read. Nobody gets it before our next join."""
    next_phase_owned: frozenset[TopicPartition] = frozenset()
    """What will be owned when the listener's calls under way have returned."""

    join_reason: str = ""
    """Why the join under way was sent."""
    rejoin: str | None = None
    """Why we owe another round; None if we don't. It follows when the current step is done."""
    hurried: int = 0
    """How many rounds in a row made us rejoin by ourselves: for a mark, for a revoke, or for a result that did not fit.
    """
    marked: bool = False
    """Whether the last round's leader withheld partitions."""
    lost: bool = False
    """Whether the membership was taken away: what is owned must be lost, not revoked."""
    positions: Positions = field(default_factory=dict)
    """Final positions of what we revoked, for the next join to hand over."""

    last_heard_at: float = 0.0
    """When the coordinator last acknowledged a request of ours."""
    unheard: bool = False
    """Whether a request has failed since then."""
    asked_at: float = 0.0
    """When the join, sync or leave under way was sent, or the last one."""
    heartbeat_at: float = 0.0
    """The same for the heartbeat."""
    vouched_at: float = 0.0
    """When the last acknowledged request was sent. The coordinator got it later than that, so our session lasts at
    least a session timeout from then on. When its answer was read does not matter: a frozen process reads it late."""
    last_polled_at: float = 0.0
    next_heartbeat_at: float | None = None
    """The normal tick: whole intervals after SyncGroup, at the same times as the other members of the group."""
    hot_until: float = 0.0
    hot_interval_ms: float = UNCOUNTED_INTERVAL_MS
    next_hot_at: float | None = None
    count_again_at: float = 0.0
    """When the members should be counted again, for `hot_interval_ms`."""
    joined_at: float = 0.0
    """When the last join was answered: the last member had joined just before."""
    synced_at: float = 0.0

    draining: str | None = None
    """Why we drain, if we do."""
    drain_sent: bool = False
    """Whether the current round's join carried the drain flag."""
    positions_reach: bool = False
    """Whether positions in our next join reach the new owners: the leader said that all members read them. Otherwise
    the new owners ask the coordinator, so we must commit before we join."""
    room: int = 0
    """How many bytes of positions, counted by `position_bytes`, our next join may carry so that the leader passes all
    of them on."""
    leader_drains: bool = False
    """Whether the leader said that it plans draining members' partitions away."""
    aside: Aside = Aside.NO
    aside_at: float | None = None
    """When the last rebalance is surely over, for a drain (`aside`)."""
    herald: int | None = None
    """Serial of the herald's join."""
    herald_id: str = ""
    """The herald's member id, until the coordinator has confirmed its leave."""
    dismissal: int | None = None
    """Serial of its leave."""
    herald_refused: bool = False
    leave_at: float | None = None
    """When a draining member leaves if the leader does not plan its partitions away. With `leave_after_round`, when we
    leave at the latest."""
    leave_after_round: bool = False
    """Whether we leave as soon as the round under way has completed."""
    closing: str | None = None
    """Why we leave for good."""
    peers: tuple[Endpoint, ...] = ()
    poke_token: str = ""
    """What a poke must carry in this generation; empty if there are no pokes."""
    passed_on: bool = False
    """Whether `peers` are only some of the members, so that pokes are passed on from member to member."""
    poked_with: frozenset[str] = frozenset()
    """Which pokes of this generation we have sent or passed on. Each is sent once, so that none circulates for ever."""
    last_poke_at: float = 0.0
    error: HoldfastError | None = None

    @property
    def static(self) -> bool:
        return self.config.instance_id is not None

    @property
    def assignors(self) -> tuple[Assignor, ...]:
        """What our joins list."""
        return self.config.eager_assignors if self.eager else self.config.assignors

    @property
    def cooperative(self) -> bool:
        return not self.eager and self.config.protocol is RebalanceProtocol.COOPERATIVE

    @property
    def name(self) -> str:
        return self.membership.member_id or self.config.name or self.config.client_id
