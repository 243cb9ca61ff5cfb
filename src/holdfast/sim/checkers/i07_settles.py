"""I7: after the faults stop, the group is Stable within two rebalance timeouts and four rounds.

The silence of a dead member is a fault that stops when its session has expired.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.model import TraceRecord
from holdfast.sim.checkers.base import Checker, Watch

if TYPE_CHECKING:
    from holdfast.sim.world import World

MAX_ROUNDS = 4


class Settles(Checker):
    """Counts rounds once all is quiet."""

    invariant = "I7"

    def __init__(self) -> None:
        super().__init__()
        self._rounds_at: list[float] = []

    def watches(self) -> Mapping[str, Watch]:
        return {"generation": self._on_generation}

    def _on_generation(self, record: TraceRecord) -> None:
        self._rounds_at.append(record.at)

    def look(self, world: World) -> None:
        if world.healed_at is None:
            return
        since = sum(1 for at in self._rounds_at if at > world.healed_at)
        if since > MAX_ROUNDS:
            self.violated(world.clock.now, f"{since} rounds since all faults stopped")

    def finish(self, world: World) -> None:
        if world.config.heals and not world.settled:
            phases = ", ".join(f"{m.name} {m.state.phase.value}" for m in world.alive)
            group = world.broker.coordinator.describe("group-a")
            self.violated(
                world.clock.now,
                f"not settled: the group is {group.state} in generation {group.generation} with "
                f"{len(group.members)} members; {phases or 'nobody is alive'}",
            )
