"""Worlds written by hand: the scene of the command line, and the histories whose figures the tests assert."""

from __future__ import annotations

from holdfast.sim.config import MemberPlan, WorldConfig
from holdfast.sim.happenings import parse_happenings, parse_time

MIN_SESSION_MS = 6_000.0
"""The coordinator's group.min.session.timeout.ms."""


def scene_config(
    *,
    members: int = 4,
    partitions: int = 6,
    assignor: str = "cooperative-sticky",
    seed: int = 7,
    events: str = "",
    duration: str = "60s",
    static: bool = False,
    heartbeat: str = "3s",
    session: str = "10s",
    max_poll: str = "10s",
    batch: str = "200ms",
    listener: str = "100ms",
    poke: bool = False,
) -> WorldConfig:
    """So many members of one kind on one topic. Times as people write them."""
    plans = tuple(
        MemberPlan(
            name=f"c{number}",
            assignors=(assignor,),
            instance_id=f"i-c{number}" if static else None,
            heartbeat_interval_ms=int(parse_time(heartbeat)),
            session_timeout_ms=int(max(MIN_SESSION_MS, parse_time(session))),
            max_poll_interval_ms=int(parse_time(max_poll)),
            batch_ms=parse_time(batch),
            listener_ms=parse_time(listener),
            pokes=poke,
        )
        for number in range(members)
    )
    return WorldConfig(
        seed=seed,
        members=plans,
        topics=(("orders", partitions),),
        happenings=parse_happenings(events),
        duration_ms=parse_time(duration),
    )
