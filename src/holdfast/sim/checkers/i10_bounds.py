"""I10: memory, tasks and timers are bounded: what waits is a small multiple of who is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.sim.checkers.base import Checker
from holdfast.sim.config import GROUP

if TYPE_CHECKING:
    from holdfast.sim.world import World

PER_PROCESS = 64
"""Questions, calls and timers under way of one process: a stopped one finds its timers waiting, no more."""

BASE = 64


class Bounded(Checker):
    """Counts what waits."""

    invariant = "I10"

    def look(self, world: World) -> None:
        now = world.clock.now
        alive = len(world.alive)
        bound = BASE + PER_PROCESS * alive + len(world.config.happenings) + len(world.config.members)
        waiting = world.clock.agenda_length
        if waiting > bound:
            self.violated(now, f"{waiting} timers and messages wait, for {alive} processes")
        for member in world.alive:
            if member.pending > PER_PROCESS:
                self.violated(now, f"{member.name} has {member.pending} questions and calls under way")
        group = world.broker.coordinator.group(GROUP)
        if group is None or not world.broker.up:
            return
        roster = group.roster
        members = len(roster.members) + len(roster.pending)
        if members > 2 * len(world.processes) + BASE:
            self.violated(now, f"the group has grown to {members} members and given ids")
        if len(roster.deadlines) > 4 + 2 * members:
            self.violated(now, f"the coordinator keeps {len(roster.deadlines)} timers for {members} members")
        if world.broker.coordinator.waiting > len(roster.members):
            self.violated(now, f"{world.broker.coordinator.waiting} clients are parked in a group of {members}")
