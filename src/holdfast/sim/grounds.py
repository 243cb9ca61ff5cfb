"""Worlds with enough faults for every mutation to show. Sound machines survive them without a violation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.sim.config import MemberPlan, WorldConfig
from holdfast.sim.happenings import parse_happenings
from holdfast.sim.network import NetworkProfile


def _members(count: int, **options: Any) -> tuple[MemberPlan, ...]:
    common: dict[str, Any] = {
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 1_000,
        "max_poll_interval_ms": 8_000,
    }
    plans = [MemberPlan(name=f"c{number}", **{**common, **options}) for number in range(count)]
    if options.get("instance_id"):
        plans = [replace(plan, instance_id=f"i-{plan.name}") for plan in plans]
    return tuple(plans)


PROVING_GROUND = WorldConfig(
    members=_members(3, batch_ms=200.0),
    happenings=parse_happenings(
        "join@3s,join@6s,freeze:c0@10s+9s,broker-crash@20s+200ms,hang:c1@22s+10s,leave:c2@24s,crash:c3@26s,join@28s"
    ),
    duration_ms=40_000,
    heals=True,
)
"""Joins, a zombie, a broker that dies, a hung application, a leave, a crash."""

WAITING_GROUND = replace(
    PROVING_GROUND,
    members=_members(3, instant_rejoin=False, hot_heartbeats=False),
    happenings=parse_happenings("join@3s,join@6s"),
    duration_ms=12_000,
)
"""Without instant rejoins: the member that revoked has to start the next round."""

LARGE_GROUND = replace(PROVING_GROUND, short_notes=True, plan_ms=100.0)
"""The notes and slow rounds of a large group, in which members read on for a while what a round took from them."""

POKING_GROUND = replace(
    LARGE_GROUND,
    members=_members(8, pokes=True),
    happenings=parse_happenings("join@3s,leave:c1@6s,join@9s"),
    duration_ms=14_000,
    network=NetworkProfile(jitter_ms=10.0),
    plan_ms=1.0,
)
"""The pokes of a large group, which are passed on from member to member."""

STATIC_GROUND = WorldConfig(
    members=_members(3, instance_id="yes", commit_interval_ms=500.0),
    happenings=parse_happenings("freeze:c0@8s+4s,twin:c0@9s,bounce:c1@16s+1s,broker-crash@20s+200ms,leave:c2@24s"),
    duration_ms=36_000,
    heals=True,
)
"""Static members: two processes with one instance id, a restart, one that stays away."""

RESTART_GROUND = replace(STATIC_GROUND, happenings=parse_happenings("join@5s,restart:c3@12s+1s"), duration_ms=20_000)
"""A static member gets partitions of others, works on them, and restarts."""

OWED_GROUND = replace(
    STATIC_GROUND,
    members=_members(3, instance_id="yes", listener_ms=300.0, instant_rejoin=False, hot_heartbeats=False),
    happenings=parse_happenings("join@3s,bounce:c2@3.08s+100ms"),
    duration_ms=14_000,
)
"""A static member dies with a partition that another one waits for, and comes back without it. Nobody rejoins by
itself."""

CRASH_GROUND = replace(PROVING_GROUND, happenings=parse_happenings("crash:c0@5s"), duration_ms=12_000)
"""Nothing but one crash, which only the session timeout detects."""

SILENT_GROUND = replace(
    PROVING_GROUND,
    members=_members(3),
    happenings=parse_happenings("cut:c0@4s+9s,freeze:c1@20s+9s"),
    duration_ms=34_000,
)
"""One member can't reach the broker for longer than its session, and another's process is stopped for as long."""

CUT_GROUND = replace(PROVING_GROUND, happenings=parse_happenings("cut:c0@4s+4s"), duration_ms=12_000)
"""A member that can't reach the broker for a while."""

ORDERLY_GROUND = replace(
    PROVING_GROUND,
    members=_members(3, commit_interval_ms=10.0),
    happenings=parse_happenings("join@3s,drain:c1@6s,join@9s,leave:c0@12s,join@15s,drain:c3@18s"),
    duration_ms=22_000,
    network=NetworkProfile(jitter_ms=10.0),
)
"""Members come, drain, leave and restart, and nothing breaks: nothing may be done twice."""

LISTENING_GROUND = replace(ORDERLY_GROUND, members=_members(3, commit_interval_ms=10.0, listener_ms=300.0))
"""The same with listeners that take their time."""

BUSY_COMMITS_GROUND = replace(
    ORDERLY_GROUND, seed=22, network=NetworkProfile(jitter_ms=40.0), short_notes=True, plan_ms=50.0
)
"""The same in a large group on a slow network: revokes come while commits are under way."""

STATIC_NEWCOMERS_GROUND = replace(
    ORDERLY_GROUND,
    members=tuple(
        replace(plan, instance_id=f"i-{plan.name}" if number > 1 else None, start_ms=1_000.0 * number)
        for number, plan in enumerate(_members(8, commit_interval_ms=20_000.0, hot_heartbeats=False))
    ),
    topics=(("orders", 24),),
    happenings=(),
    short_notes=True,
    plan_ms=400.0,
)
"""Static members come one after the other, into rounds of a large group in which others still give partitions up. Each
asks for the committed offsets of what it gets first: it can't know how old its first note is."""

RARE_GROUND = replace(
    ORDERLY_GROUND,
    members=_members(3, commit_interval_ms=20_000.0, commits_ahead=False),
    topics=(("orders", 24),),
    network=NetworkProfile(jitter_ms=40.0),
)
"""The same with rare commits on a slow network, and joins that overtake them: a position that is lost in a handover
costs seconds of work."""

TIGHT_GROUND = replace(RARE_GROUND, seed=3, notes_bytes=100)
"""The same under leaders with next to no room for notes."""

INTERRUPTED_GROUND = replace(
    RARE_GROUND,
    seed=6,
    topics=(("orders", 6),),
    happenings=parse_happenings("join@3s,join@3.58s"),
    duration_ms=14_000,
    plan_ms=100.0,
)
"""A member joins in the middle of the round that hands partitions over to another newcomer."""

NEWCOMERS_GROUND = replace(
    INTERRUPTED_GROUND, seed=0, happenings=parse_happenings("join@3s,join@3.3s,join@3.5s,join@3.7s,join@3.9s")
)
"""The same, and more of them join before the first has a round's result."""

MISPLANNED_GROUND = replace(
    INTERRUPTED_GROUND,
    seed=4,
    topics=(("orders", 24),),
    happenings=parse_happenings("join@3s,misplan:c0@3.7s+500ms,misplan:c1@3.7s+500ms,misplan:c2@3.7s+500ms"),
)
"""The leader's assignor fails in the round that hands partitions over to a newcomer."""

MISPLANNED_LEADING_OUT_GROUND = replace(
    MISPLANNED_GROUND,
    seed=29,
    happenings=parse_happenings("join@3s,drain:c1@3.75s,misplan:c0@3.7s+1s,misplan:c1@3.7s+1s,misplan:c2@3.7s+1s"),
)
"""The same, and the leader drains."""

MIDDLE_GROUND = replace(
    RARE_GROUND,
    topics=(("orders", 6),),
    happenings=parse_happenings("join@3s,leave:c0@3.3s"),
    duration_ms=14_000,
    network=NetworkProfile(),
    plan_ms=200.0,
)
"""A member leaves in the middle of a round, between the join's answer and the sync's."""

MIXED_GROUND = replace(
    ORDERLY_GROUND,
    members=(replace(_members(1)[0], name="f0", foreign=True), *_members(3, commits_ahead=False)),
    happenings=parse_happenings("join:c5@3s,drain:c1@8s,join:c6@12s,leave:c0@16s,drain:c2@20s"),
    duration_ms=26_000,
    network=NetworkProfile(jitter_ms=10.0),
)
"""The same under a foreign leader, which passes no positions on: what is not committed in time is done again."""

STORING_GROUND = replace(
    MIXED_GROUND,
    members=(MIXED_GROUND.members[0], *_members(3, commit_interval_ms=20_000.0, stores_in_listener=True)),
)
"""The same with applications that store how far they are when their listener is called."""

COMMITTING_GROUND = replace(
    MIXED_GROUND,
    members=(
        MIXED_GROUND.members[0],
        *_members(3, commit_interval_ms=20_000.0, commit_on_revoke=False, commits_in_listener=True),
    ),
)
"""The same with applications that commit by themselves when their listener is called."""

BUSY_APPLICATIONS_GROUND = replace(
    BUSY_COMMITS_GROUND,
    members=_members(3, commit_interval_ms=10.0, commit_on_revoke=False, commits_in_listener=True),
)
"""Such applications, and now and then they commit between two calls too, on a slow network."""

LEADING_OUT_GROUND = replace(
    RARE_GROUND,
    seed=130,
    members=tuple(
        replace(plan, topics=("parcels", "orders")[: number + 1], batch_ms=100.0, pokes=True)
        for number, plan in enumerate(_members(2, commit_interval_ms=20_000.0, commits_ahead=False))
    ),
    topics=(("orders", 4), ("parcels", 4)),
    happenings=parse_happenings("subscribe:c0=1@6s,drain:c0@6.02s"),
    duration_ms=10_000,
)
"""A leader gives up all it has, because it subscribes to something else, and drains: it leaves right after the round
that hands its positions over."""

SLOW_SYNC_GROUND = replace(
    ORDERLY_GROUND,
    members=(*_members(2, commit_interval_ms=20_000.0), replace(_members(3)[2], start_ms=3_000.0, sync_ms=200.0)),
    happenings=parse_happenings("drain:c0@3.05s"),
    duration_ms=6_000,
    network=NetworkProfile(),
)
"""A leader drains while it hands partitions over to a newcomer that is slower than the leader's next join."""

FROZEN_GROUND = replace(
    PROVING_GROUND,
    members=_members(3),
    happenings=parse_happenings("hang:c1@4s+30s,join@5s,freeze:c0@6s+16s"),
    duration_ms=34_000,
)
"""A process is stopped while its join waits for a member that hangs, and longer than that round and its session."""

_OLD = replace(_members(1)[0], assignors=("range", "roundrobin"), foreign=True)
DEPLOY_GROUND = WorldConfig(
    members=(
        _OLD,
        *(
            replace(
                plan,
                name=f"n{number}",
                start_ms=2_000.0 + number * 2_000.0,
                eager_assignors=("range", "roundrobin", "cooperative-sticky"),
                cooperative_after_ms=3_000.0,
            )
            for number, plan in enumerate(_members(3, batch_ms=200.0))
        ),
    ),
    happenings=parse_happenings("leave:c0@10s,join:c0@24s,join:n3@27s"),
    duration_ms=40_000,
    heals=True,
)
"""A deployment in which only the import changes. New members join an old one and adapt to it, the old one leaves, the
group becomes cooperative, and an old one comes back to it."""

WATCHED_GROUND = replace(
    PROVING_GROUND,
    members=_members(3, watchdog=True, pokes=True),
    happenings=parse_happenings("join@3s,crash:c0@8s,join@12s,crash:c1@16s,machine-crash:c2@20s"),
    duration_ms=28_000,
)
"""Members with watchdogs: two processes die, and a machine dies together with its watchdog."""

SLOW_GROUND = replace(
    PROVING_GROUND,
    members=(replace(_members(1)[0], batch_ms=60_000.0), *_members(3, pokes=True)[1:]),
    happenings=parse_happenings("join@45s"),
    duration_ms=70_000,
)
"""One application needs a minute for its batches, and polls only then; max.poll.interval.ms is 8 s."""
