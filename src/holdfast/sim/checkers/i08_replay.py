"""I8: state replayed from the log equals the live state.

Offsets and the written generation always; members, leader and assignments whenever the group is stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.sim.checkers.base import Checker
from holdfast.sim.config import GROUP

if TYPE_CHECKING:
    from holdfast.sim.world import World

EVERY = 4
"""Looks between two replays: a replay costs as much as the log is long."""


class ReplayEqualsLive(Checker):
    """Replays the broker's log now and then."""

    invariant = "I8"

    def __init__(self) -> None:
        super().__init__()
        self._looks = 0

    def look(self, world: World) -> None:
        self._looks += 1
        if self._looks % EVERY == 0:
            self._compare(world)

    def _compare(self, world: World) -> None:
        broker = world.broker
        if not broker.up:
            return
        live, again = broker.coordinator, broker.replayed()
        if live.records() != again.records():
            self.violated(world.clock.now, "the records that a replay gives are not those of the live coordinator")
            return
        view = live.describe(GROUP)
        if view.state == "Stable" and view != again.describe(GROUP):
            self.violated(world.clock.now, f"a replay gives another group: {again.describe(GROUP)} instead of {view}")

    def finish(self, world: World) -> None:
        self._compare(world)
