"""I8: state replayed from the log equals the live state.

Offsets and the written generation always; members, leader and assignments whenever the group is stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.group.coordinator import Coordinator, OffsetRecord, OffsetTombstone, Record
from holdfast.sim.checkers.base import Checker
from holdfast.sim.config import GROUP

if TYPE_CHECKING:
    from holdfast.sim.world import World

EVERY = 4
"""Looks between two replays."""


class ReplayEqualsLive(Checker):
    """Replays the broker's log now and then.

    During a run it starts from the result of the last replay, like a compacted log, so that only new records cost. At
    the end it replays from the beginning.
    """

    invariant = "I8"

    def __init__(self) -> None:
        super().__init__()
        self._looks = 0
        self._compacted: list[Record] = []
        self._read = 0
        """How many records of the log were replayed."""

    def look(self, world: World) -> None:
        self._looks += 1
        if self._looks % EVERY == 0 and world.broker.up:
            log = world.broker.log
            again = world.broker.replayed(_compacted(self._compacted + log[self._read :]))
            self._compare(world, again)
            self._compacted, self._read = again.records(), len(log)

    def _compare(self, world: World, again: Coordinator) -> None:
        live = world.broker.coordinator
        if live.records() != again.records():
            self.violated(world.clock.now, "the records that a replay gives are not those of the live coordinator")
            return
        view = live.describe(GROUP)
        if view.state == "Stable" and view != again.describe(GROUP):
            self.violated(world.clock.now, f"a replay gives another group: {again.describe(GROUP)} instead of {view}")

    def finish(self, world: World) -> None:
        if world.broker.up:
            self._compare(world, world.broker.replayed(world.broker.log))


def _compacted(records: list[Record]) -> list[Record]:
    """The newest record of each key, as a compacted log keeps them: most are commits that later ones replaced."""
    newest: dict[object, Record] = {}
    for record in records:
        key: object = record.partition if isinstance(record, OffsetRecord | OffsetTombstone) else record.group
        newest.pop(key, None)
        newest[key] = record
    return list(newest.values())
