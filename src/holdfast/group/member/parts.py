"""What a member knows, by what it is about. Each part is an immutable value; `state.MemberState` holds one of each.

`turn.Turn` has a method for each of them that changes some of its fields. All fields have defaults: those of a member
that has not joined yet. Without slots, for the reason that `turn.changed` gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from holdfast.group.user_data import Endpoint, Positions
from holdfast.model import TopicPartition

UNCOUNTED_INTERVAL_MS = 250.0
"""Interval of quick heartbeats while the group's size is not known: that of a group of a thousand."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """What our claims and hand-overs say, besides what we own."""

    generation: int = -1
    """The generation of the last round whose result we applied. Our claims are true for it (KAFKA-14639)."""
    assigned: frozenset[TopicPartition] = frozenset()
    """What that round assigned to us. Kept after an eager revoke, for assignors that are sticky by user data."""
    taken: frozenset[TopicPartition] = frozenset()
    """What that round took from us and we still read. Nobody gets it before our next join."""
    then_owned: frozenset[TopicPartition] = frozenset()
    """What will be owned when the listener's calls under way have returned."""
    positions: Positions = field(default_factory=dict)
    """Final positions of what we revoked, for the next join to hand over."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """The round under way, or the last one."""

    reason: str = ""
    """Why our join was sent."""
    drains: bool = False
    """Whether that join carried the drain flag."""
    leads: bool = False
    """Whether we lead."""
    leader_id: str = ""
    """Who leads, and wrote the notes."""
    protocol: str | None = None
    """The assignor the group chose."""
    joined_at: float = 0.0
    """When the join was answered: the last member had joined just before."""
    synced_at: float = 0.0
    promised: bool = False
    """Whether members gave partitions up for this round without waiting for their commits, because the leader of the
    round before had promised that their positions reach the next owners."""
    in_a_row: int = 0
    """How many rounds in a row made us rejoin by ourselves: for a mark, for a revoke, or for a result that did not fit.
    """


@dataclass(frozen=True)
class Owed:
    """Another round that we owe. It follows when the current step is done, or as put off."""

    reason: str
    look_at: float | None = None
    """When to check again whether the application polls, so that we can join."""
    put_off_until: float = 0.0
    """A poll does not make us join earlier than this."""


@dataclass(frozen=True, kw_only=True)
class LeaderSaid:
    """What the note of the last round's leader said; nothing, if the leader is foreign."""

    marked: bool = False
    """Whether it withheld partitions."""
    drains: bool = False
    """Whether it plans draining members' partitions away."""
    positions_reach: bool = False
    """Whether positions in our next join reach the new owners, because all members read them. Otherwise the new owners
    ask the coordinator, so we must commit before we join."""
    room: int = 0
    """How many bytes of positions, counted by `position_bytes`, our next join may carry so that the leader passes all
    of them on."""


@dataclass(frozen=True, kw_only=True)
class Pokes:
    """Whom to poke in this generation, and which pokes we have sent."""

    peers: tuple[Endpoint, ...] = ()
    token: str = ""
    """What a poke must carry in this generation; empty if there are no pokes."""
    passed_on: bool = False
    """Whether `peers` are only some of the members, so that pokes are passed on from member to member."""
    sent: frozenset[str] = frozenset()
    """Which pokes of this generation we have sent or passed on. Each is sent once, so that none circulates for ever."""
    heeded_at: float = 0.0
    """When a poke last made us heartbeat."""


@dataclass(frozen=True, kw_only=True)
class Requests:
    """What we have asked for, and what the coordinator has acknowledged."""

    pending: int | None = None
    """Serial of the join, plan, sync, leave or notification the phase waits for."""
    sent_at: float = 0.0
    """When the join, sync or leave under way was sent, or the last one."""
    retry_at: float | None = None
    """When a join or a leave that failed is sent again."""
    heartbeat: int | None = None
    """Serial of the heartbeat under way."""
    heartbeat_at: float = 0.0
    """When it was sent, or the last one."""
    heard_at: float = 0.0
    """When the coordinator last acknowledged a request of ours."""
    unheard: bool = False
    """Whether silence counts even while a join waits: a request has failed since then, or this process was frozen."""
    looked_at: float = 0.0
    """When the join that waits for its answer was sent, or the last tick since. They come `LOOKS_A_SESSION` times in a
    session, so that a process that was frozen for a session notices it."""
    vouched_at: float = 0.0
    """When the last acknowledged request was sent. The coordinator got it later than that, so our session lasts at
    least a session timeout from then on. When its answer was read does not matter: a frozen process reads it late."""


@dataclass(frozen=True, kw_only=True)
class Beats:
    """When heartbeats are due."""

    next_at: float | None = None
    """The normal tick: whole intervals after SyncGroup, at the same times as the other members of the group."""
    hot_at: float | None = None
    """The next quick or extra heartbeat."""
    hot_until: float = 0.0
    hot_interval_ms: float = UNCOUNTED_INTERVAL_MS
    count_again_at: float = 0.0
    """When the members should be counted again, for `hot_interval_ms`."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Failures in a row."""

    tries: int = 0
    """How many there were; the back-off grows with it."""
    since: float | None = None
    """When the first of them was."""
    told: str = ""
    """The code of the last error that was reported to the application."""
    told_at: float = 0.0


NO_TROUBLE = Trouble()


@dataclass(frozen=True, kw_only=True)
class Planning:
    """As the leader: our plan."""

    counts: Mapping[str, int] | None = None
    """The partition counts that it was made for. When they differ from the cluster's, the plan is out of date."""
    failed: int = 0
    """How many plans of ours failed in a row."""
    again_at: float | None = None
    """When we ask for another round: the plan failed, or it still withholds partitions."""
    hands_over: bool = False
    """Whether our plan hands positions over, or the next one will because this one failed."""
    newer: tuple[tuple[str, int], ...] = ()
    """Members with a newer version of the assignor that were reported, each with its version."""


NO_PLAN = Planning()


@dataclass(frozen=True, kw_only=True)
class Adapting:
    """Which protocol we join under, if we were told none (`adapting`)."""

    eager: bool = False
    """Whether we list `eager_assignors`, and so revoke everything before we join."""
    all_can: bool = False
    """As the leader of an eager group: whether every member of the last round lists our cooperative assignors."""
    upgrade_at: float | None = None
    """When the leader of an eager group tries to make it cooperative."""


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


@dataclass(frozen=True, kw_only=True)
class Draining:
    """A drain, and its herald if it has one (`aside`)."""

    reason: str | None = None
    """Why we drain, if we do."""
    until: float | None = None
    """When we stop waiting for others and leave."""
    stayed: int = 0
    """As the leader: how many rounds we have joined only because members may not have got what we hand over."""
    aside: Aside = Aside.NO
    rested_at: float | None = None
    """When the last rebalance is surely over."""
    herald: int | None = None
    """Serial of the herald's join."""
    herald_id: str = ""
    """The herald's member id, until the coordinator has confirmed its leave."""
    dismissal: int | None = None
    """Serial of its leave."""
    herald_refused: bool = False


@dataclass(frozen=True, kw_only=True)
class Leaving:
    """When and why we leave."""

    at: float | None = None
    """When a draining member leaves if the leader does not plan its partitions away. With `after_round`, when we leave
    at the latest."""
    after_round: bool = False
    """Whether we leave as soon as the round under way has completed."""
    closing: str | None = None
    """Why we leave for good."""
    failed: int = 0
    """How often our leave failed."""
