"""I12: a member that does not poll for max.poll.interval.ms is out of the group, and comes back with its next poll.

At the latest after its session timeout too, because its leave may be lost. A round under way may keep it for one
rebalance timeout more, and a broker that restarts gives every member a new session. A frozen process is excused until
it wakes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.model import TraceRecord
from holdfast.sim.checkers.base import Checker, Watch
from holdfast.sim.config import GROUP

if TYPE_CHECKING:
    from holdfast.sim.member import SimMember
    from holdfast.sim.world import World

SLACK_MS = 2_000.0
"""For messages under way."""


class PollsOrLeaves(Checker):
    """Compares the group's members with the last poll of each application."""

    invariant = "I12"

    def __init__(self) -> None:
        super().__init__()
        self._excused_at: dict[str, float] = {}
        """When each process last woke."""
        self._broker_at = 0.0

    def watches(self) -> Mapping[str, Watch]:
        return {"broker-started": self._on_broker, "process-woke": self._on_woke}

    def _on_broker(self, record: TraceRecord) -> None:
        self._broker_at = record.at

    def _on_woke(self, record: TraceRecord) -> None:
        self._excused_at[record.member] = record.at

    def look(self, world: World) -> None:
        group = world.broker.coordinator.group(GROUP)
        if group is None or not world.broker.up:
            return
        now = world.clock.now
        round_ms = max(plan.max_poll_interval_ms for plan in world.config.members)
        for member in world.alive:
            member_id = member.state.membership.member_id
            if member_id in group.roster.members and now > self._out_by(member, round_ms):
                silent_ms = now - member.polling.polled_at
                self.violated(now, f"{member_id} is in the group, and did not poll for {silent_ms:.0f} ms")

    def _out_by(self, member: SimMember, round_ms: float) -> float:
        """When it has to be out of the group, if it does not poll before."""
        if member.frozen:
            return float("inf")
        session_ms = member.plan.session_timeout_ms
        expired_at = member.polling.polled_at + member.plan.max_poll_interval_ms
        since = max(expired_at + round_ms, self._broker_at, self._excused_at.get(member.name, 0.0))
        return since + session_ms + SLACK_MS
