"""How a simulated process is set up: its plan as the configuration of the production machine."""

from __future__ import annotations

from dataclasses import replace

from holdfast.assign import by_name
from holdfast.group.member import MemberConfig, select_protocol
from holdfast.group.user_data import Endpoint
from holdfast.sim.config import GROUP, MemberPlan

POKE_PORT = 9_000
"""The port on which every process hears pokes; each has its own address."""


def address(incarnation: int) -> Endpoint:
    """Where pokes reach the process that was started as the nth."""
    return Endpoint(f"10.0.{incarnation // 256}.{incarnation % 256}", POKE_PORT)


def member_config(plan: MemberPlan, incarnation: int) -> MemberConfig:
    assignors = tuple(by_name(name) for name in plan.assignors)
    ours = not plan.foreign
    config = MemberConfig(
        group=GROUP,
        assignors=assignors,
        protocol=select_protocol(assignors),
        eager_assignors=tuple(by_name(name) for name in plan.eager_assignors),
        cooperative_after_ms=plan.cooperative_after_ms,
        name=plan.name,
        client_id=plan.name,
        instance_id=plan.instance_id,
        session_timeout_ms=plan.session_timeout_ms,
        heartbeat_interval_ms=plan.heartbeat_interval_ms,
        max_poll_interval_ms=plan.max_poll_interval_ms,
        instant_rejoin=ours and plan.instant_rejoin,
        hand_over_offsets=ours and plan.hand_over_offsets,
        hot_heartbeats=ours and plan.hot_heartbeats,
        responsive_ms=plan.responsive_ms,
    )
    return replace(config, endpoint=address(incarnation)) if ours and plan.pokes else config
