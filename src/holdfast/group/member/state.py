"""A member's state: a value. Handlers in this package make the next one from it; nothing here acts."""

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
"""How often a member that does not know the group's size asks: as often as in a group of a thousand."""


class Phase(Enum):
    """Where a member stands."""

    # Members are single objects: their identity will do, and Enum's own hash is a call of Python's.
    __hash__ = object.__hash__

    UNSUBSCRIBED = "unsubscribed"
    """Wants nothing.

    Replies: ignores the group.
    Transitions: Subscribe -> JOINING; Close -> CLOSED.
    """
    PREPARING = "preparing"
    """Revoking or losing before a join (KIP-429 1a–1d), and the listener has not returned yet.

    Replies: heartbeats go on while the membership is good.
    Transitions: Notified -> JOINING; the application stops polling -> EVICTED.
    """
    JOINING = "joining"
    """A JoinGroup is under way, or waits for its retry.

    Replies: none; a parked join keeps the membership alive by itself.
    Transitions: answered, leading -> PLANNING; answered, following -> SYNCING; membership lost -> PREPARING.
    """
    PLANNING = "planning"
    """We lead, and the assignor is at work.

    Replies: heartbeats (KAFKA-10134), whose REBALANCE_IN_PROGRESS waits until the round is through.
    Transitions: Planned -> SYNCING; PlanFailed -> SYNCING with everybody keeping what he has, or on with planning.
    """
    SYNCING = "syncing"
    """A SyncGroup is under way.

    Replies: heartbeats, as in PLANNING.
    Transitions: answered -> APPLYING; REBALANCE_IN_PROGRESS -> JOINING with the generation kept (KAFKA-13891).
    """
    APPLYING = "applying"
    """The round's result is known, and the listener is being told (KIP-429 3a–3d).

    Replies: heartbeats; a new rebalance is noted and taken up afterwards.
    Transitions: Notified -> STABLE, or JOINING when something was revoked or withheld.
    """
    STABLE = "stable"
    """Nothing to do but work and heartbeat.

    Replies: heartbeats.
    Transitions: any reason to rejoin -> PREPARING or JOINING; Close, Drain done -> LEAVING.
    """
    EVICTED = "evicted"
    """The application did not poll in time, so we left by ourselves and wait for it to come back.

    Replies: none.
    Transitions: Polled -> PREPARING (everything owned is lost), then a new join.
    """
    LEAVING = "leaving"
    """The last revoke, then LeaveGroup.

    Replies: heartbeats until the listener has returned.
    Transitions: Notified, then answered or failed -> CLOSED, or UNSUBSCRIBED after Unsubscribe.
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
    """How far a draining member is that lets a round wait for it, and leaves last: see `aside`."""

    NO = "no"
    RESTING = "resting"
    """The last rebalance may not be over."""
    ASKING = "asking"
    """A heartbeat is to say whether the group is at rest."""
    CALLING = "calling"
    """The herald joins, so that there is a round."""
    WAITED_FOR = "waited for"
    """The round is there, and will not complete without us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """How this member behaves. Times are milliseconds, defaults are Kafka's."""

    group: str
    assignors: tuple[Assignor, ...]
    protocol: RebalanceProtocol
    """The one selected from all assignors, by `select_protocol`."""
    eager_assignors: tuple[Assignor, ...] = ()
    """What to list instead where the group is not cooperative: see `adapting`. Empty: `assignors`, whatever runs."""
    cooperative_after_ms: float | None = 600_000.0
    """How long all members must list a cooperative assignor before we make an eager group cooperative; None never."""
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
    """Each try in a row waits twice as long as the one before, up to this."""
    retry_spread: float = 1.0
    """A factor on every back-off. The driver draws it, so that members refused together don't come back together."""
    instant_rejoin: bool = True
    """Follow the leader's mark at once instead of waiting for a heartbeat."""
    hand_over_offsets: bool = True
    """Send final positions with the join that follows a revoke."""
    hot_heartbeats: bool = True
    """Heartbeat quickly for a while after a round under a leader that can't mark."""
    endpoint: Endpoint | None = None
    """Where a poke reaches us."""
    responsive_ms: float | None = None
    """Take part in a round only while the application has polled within this time; wait for its poll otherwise.

    A round has two halves: what is revoked in the first stands still until the second, which needs everybody's listener
    to return. An application that hangs would keep others' partitions dark for as long as it hangs. None joins at once.
    """

    @property
    def rebalance_timeout_ms(self) -> int:
        return min(self.max_poll_interval_ms, INT32_MAX)


@dataclass(frozen=True, kw_only=True)
class MemberState:
    """Everything a member knows. Without slots: a dictionary is copied in a tenth of the time (`turn.changed`)."""

    config: MemberConfig
    phase: Phase = Phase.UNSUBSCRIBED
    membership: Membership = NOBODY
    topics: frozenset[str] = frozenset()
    owned: frozenset[TopicPartition] = frozenset()
    held_generation: int = -1
    """The last round whose result we applied: the generation our claims are true for (KAFKA-14639)."""
    assigned: frozenset[TopicPartition] = frozenset()
    """What that round gave us; outlives an eager revoke, for assignors that are sticky by user data."""
    leader: bool = False
    leader_id: str = ""
    """Who leads the current round: whose notes these are."""
    doubted: frozenset[str] = frozenset()
    """Of whom it was told that they say what can't be true."""
    protocol: str | None = None
    """The assignor the group chose for the current round."""
    eager: bool = False
    """Whether we list `eager_assignors`, and so give everything up before we join."""
    all_can: bool = False
    """As the leader of an eager group: whether every member of the last round says that it lists our assignors."""
    upgrade_at: float | None = None
    """When the leader of an eager group tries to make it cooperative."""
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """The cluster's topics as last seen."""
    planned_counts: Mapping[str, int] | None = None
    """What a leader planned by; when it differs from what is seen now, the plan is out of date."""

    serial: int = 0
    """Numbers every request and notification, so that an answer to an old one is known as such (KAFKA-9823)."""
    pending: int | None = None
    """Serial of the join, plan, sync, leave or notification the phase waits for."""
    heartbeat: int | None = None
    """Serial of the heartbeat under way."""
    retry_at: float | None = None
    """When a join or a leave that failed is sent again."""
    tries: int = 0
    """How many things went wrong in a row; the back-off grows with it."""
    troubled_at: float | None = None
    """When the first of them did."""
    told: str = ""
    """The code of the error that the application was told last."""
    told_at: float = 0.0
    leaves: int = 0
    """How many leaves were not taken."""
    bad_plans: int = 0
    """How many plans of ours failed in a row."""
    replan_at: float | None = None
    """When a leader whose plan failed tries another round."""
    look_at: float | None = None
    """When to look again whether the application polls, so that a round can be joined that is owed."""
    put_off_until: float = 0.0
    """A poll is no reason to look earlier than this: the round that is owed was put off."""
    taken: frozenset[TopicPartition] = frozenset()
    """What the last round took from us and nobody gets before our next join. Until then we read on."""
    next_phase_owned: frozenset[TopicPartition] = frozenset()
    """What will be owned once the listener has returned."""

    join_reason: str = ""
    """Why the join under way was sent."""
    rejoin: str | None = None
    """Why another round is owed, once the current step is through."""
    hurried: int = 0
    """Rounds in a row after which we rejoined by ourselves: for a mark, for what we revoked, for a result that was not
    for us."""
    marked: bool = False
    """Whether the last round's leader kept partitions back."""
    lost: bool = False
    """Whether the membership was taken away: what is owned must be lost, not revoked."""
    positions: Positions = field(default_factory=dict)
    """Final positions of what we revoked, to be handed over with the next join."""

    last_heard_at: float = 0.0
    """When the coordinator last acknowledged us."""
    unheard: bool = False
    """Whether a request has failed since then."""
    asked_at: float = 0.0
    """When the join, sync or leave under way was sent, or the last one."""
    heartbeat_at: float = 0.0
    """The same of the heartbeat."""
    vouched_at: float = 0.0
    """When the last request was sent that the coordinator acknowledged. It got it later, so our session lasts a session
    timeout from here at least; when the answer was read says nothing, least of all in a process that was frozen."""
    last_polled_at: float = 0.0
    next_heartbeat_at: float | None = None
    """The normal tick: SyncGroup plus whole intervals, like everybody's in the group."""
    hot_until: float = 0.0
    hot_interval_ms: float = UNCOUNTED_INTERVAL_MS
    next_hot_at: float | None = None
    count_again_at: float = 0.0
    """Until when the count of members that the interval rests on is good enough."""
    joined_at: float = 0.0
    """When the last join was answered: everybody had joined just then."""
    synced_at: float = 0.0

    draining: str | None = None
    """Why we drain, if we do."""
    drain_sent: bool = False
    """Whether the current round's join carried the drain flag."""
    positions_reach: bool = False
    """Whether positions in our next join reach whoever gets the partitions: the leader said that all members read them.
    Otherwise the next owner asks the coordinator, and what it must find there has to be committed before we join."""
    room: int = 0
    """How many bytes of positions our next join may carry, by `position_bytes`: so many the leader passes on."""
    leader_drains: bool = False
    """Whether the leader said that it knows the drain flag."""
    aside: Aside = Aside.NO
    aside_at: float | None = None
    """When the last rebalance is surely over."""
    herald: int | None = None
    """Serial of the herald's join."""
    herald_id: str = ""
    """The id it was given, until the coordinator has taken it back."""
    dismissal: int | None = None
    """Serial of its leave."""
    herald_refused: bool = False
    leave_at: float | None = None
    """When a draining member leaves whose partitions the leader does not plan away; with `leave_after_round`, when we
    leave at the latest."""
    leave_after_round: bool = False
    """Whether we leave as soon as the round under way is through."""
    closing: str | None = None
    """Why we leave for good."""
    peers: tuple[Endpoint, ...] = ()
    poke_token: str = ""
    """What a poke says in this generation; empty where there are none."""
    passed_on: bool = False
    """Whether the peers are a few of many, so that pokes are passed on from member to member."""
    poked_with: frozenset[str] = frozenset()
    """Which pokes of this generation we have sent or passed on: each once, so that none goes round for ever."""
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
