"""Worlds with enough trouble for every mutation to show; sound machines come through them unharmed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.sim.config import MemberPlan, WorldConfig
from holdfast.sim.happenings import parse_happenings


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
"""Without instant rejoins: whoever revoked has to start the next round."""

STATIC_GROUND = WorldConfig(
    members=_members(3, instance_id="yes", commit_interval_ms=500.0),
    happenings=parse_happenings("freeze:c0@8s+4s,twin:c0@9s,bounce:c1@16s+1s,broker-crash@20s+200ms,leave:c2@24s"),
    duration_ms=36_000,
    heals=True,
)
"""Static members: two processes with one instance id, a restart, one that stays away."""

CRASH_GROUND = replace(PROVING_GROUND, happenings=parse_happenings("crash:c0@5s"), duration_ms=12_000)
"""Nothing but one crash: only the session timeout can tell."""

CUT_GROUND = replace(PROVING_GROUND, happenings=parse_happenings("cut:c0@4s+4s"), duration_ms=12_000)
"""A member that can't reach the broker for a while."""
