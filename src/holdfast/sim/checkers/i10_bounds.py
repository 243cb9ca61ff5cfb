"""I10: memory, tasks, timers and pokes are bounded by a small multiple of the processes and of what happens to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.model import TraceRecord
from holdfast.sim.checkers.base import Checker, Watch
from holdfast.sim.config import GROUP

if TYPE_CHECKING:
    from holdfast.sim.world import World

PER_PROCESS = 64
"""Questions, calls and timers of one process that may be under way; for a stopped one, also those that wait for it."""

BASE = 64

NEWS = ("join-sent", "left", "poll-expired", "process-died")
"""What a process may poke its peers for."""
PER_NEWS = 2
"""Datagrams to each peer: where the coordinator may not know yet, the first may come too early."""
PASSED_ON = 9
"""Datagrams that a process may pass on in one generation of a large group: three words to three peers."""


class Bounded(Checker):
    """Counts what waits."""

    invariant = "I10"

    def __init__(self) -> None:
        super().__init__()
        self._news = 0
        self._rounds = 1

    def watches(self) -> Mapping[str, Watch]:
        return {**dict.fromkeys(NEWS, self._on_news), "generation": self._on_generation}

    def _on_news(self, _record: TraceRecord) -> None:
        self._news += 1

    def _on_generation(self, _record: TraceRecord) -> None:
        self._rounds += 1

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
        datagrams = (PER_NEWS * self._news + PASSED_ON * self._rounds) * len(world.processes)
        if world.pokes > datagrams:
            self.violated(now, f"{world.pokes} pokes in {self._rounds} generations: they go round")
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
