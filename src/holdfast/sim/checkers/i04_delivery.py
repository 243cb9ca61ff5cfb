"""I4: every acknowledged record is delivered at least once.

During a run: no offset is committed beyond what was delivered without a hole. At the end of a healed world: everything
produced was delivered, and is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.model import TopicPartition, TraceRecord
from holdfast.sim.checkers.base import Checker, Watch
from holdfast.sim.config import GROUP

if TYPE_CHECKING:
    from holdfast.sim.world import World


class Coverage:
    """Which offsets of one partition were delivered: everything below `solid`, and ranges above."""

    __slots__ = ("_above", "open", "solid")

    def __init__(self) -> None:
        self.solid = 0
        self._above: list[tuple[int, int]] = []
        self.open: dict[tuple[str, object], int] = {}
        """Lanes at work -> where they started."""

    def add(self, first: int, end: int) -> None:
        self._above.append((first, end))
        self._above.sort()
        while self._above and self._above[0][0] <= self.solid:
            self.solid = max(self.solid, self._above.pop(0)[1])

    def reaches(self, offset: int) -> bool:
        """Whether everything below may have been delivered. A lane at work may have come any distance."""
        return offset <= self.solid or any(start <= self.solid for start in self.open.values())


class DeliveredAtLeastOnce(Checker):
    """Keeps what was delivered, by the lanes' own records."""

    invariant = "I4"

    def __init__(self) -> None:
        super().__init__()
        self._coverage: dict[str, Coverage] = {}

    def watches(self) -> Mapping[str, Watch]:
        return {
            "lane-opened": self._on_opened,
            "lane-stopped": self._on_stopped,
            "commit-taken": self._on_taken,
        }

    def _of(self, record: TraceRecord) -> Coverage:
        return self._coverage.setdefault(f"{record.data['topic']}-{record.data['partition']}", Coverage())

    def _on_opened(self, record: TraceRecord) -> None:
        position = record.data["position"]
        assert isinstance(position, int)
        self._of(record).open[record.member, record.data["life"]] = position

    def _on_stopped(self, record: TraceRecord) -> None:
        coverage = self._of(record)
        end = record.data["position"]
        start = coverage.open.pop((record.member, record.data["life"]), end)
        assert isinstance(end, int) and isinstance(start, int)
        coverage.add(start, end)

    def _on_taken(self, record: TraceRecord) -> None:
        offsets = record.data["offsets"]
        assert isinstance(offsets, dict)
        for partition, offset in offsets.items():
            assert isinstance(offset, int)
            coverage = self._coverage.setdefault(partition, Coverage())
            if not coverage.reaches(offset):
                self.violated(
                    record.at,
                    f"{record.member} committed {partition} at {offset}, but records from {coverage.solid} on "
                    "were not delivered",
                )

    def satisfied(self, world: World) -> bool:
        return self._first_missing(world) is None

    def finish(self, world: World) -> None:
        missing = self._first_missing(world) if world.config.heals and world.alive else None
        if missing is not None:
            self.violated(world.clock.now, missing)

    def _first_missing(self, world: World) -> str | None:
        group = world.broker.coordinator.group(GROUP)
        if group is None:
            return "the group is gone"
        now = world.clock.now
        wanted = {topic for member in world.alive for topic in member.state.topics}
        for partition, log in sorted(world.broker.logs.items()):
            if partition.topic not in wanted:
                continue
            end = log.end(now)
            record = group.roster.offsets.get(partition)
            committed = 0 if record is None else record.offset
            if committed < end:
                return f"{partition} has {end} records, committed are {committed}"
            if not self._delivered(world, partition, end):
                return f"{partition} has {end} records, not all of which were delivered"
        return None

    def _delivered(self, world: World, partition: TopicPartition, end: int) -> bool:
        coverage = self._coverage.get(str(partition))
        if coverage is None:
            return end == 0
        solid = coverage.solid
        for member in world.alive:
            lane = member.app.lanes.get(partition)
            if lane is not None and coverage.open.get((member.name, member.incarnation), end) <= solid:
                solid = max(solid, lane.position(world.clock.now))
        return solid >= end
