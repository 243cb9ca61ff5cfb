"""The measured lag of every partition, as points with straight lines between them, and the producers' rate.

Bounded: points on a line between their neighbours are left out; if there are still too many, every second of the oldest
is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.model import TopicPartition
from holdfast.observe.snapshot import PartitionOffsets

MOST_POINTS = 80
"""The most of one partition: in ten minutes a point every few seconds, even if lag goes up and down all the time."""
RATE_MS = 5_000.0
"""The time over which the producers' rate is measured."""
NEAR = 0.02
"""How far a point may be from the line between its neighbours, as a share of the lag."""

Point = tuple[float, float]


@dataclass(slots=True)
class Lags:
    points: dict[TopicPartition, list[Point]] = field(default_factory=dict)
    _ends: deque[tuple[float, Mapping[TopicPartition, int]]] = field(default_factory=deque)

    def looked(self, at: float, offsets: Mapping[TopicPartition, PartitionOffsets]) -> None:
        for partition, one in offsets.items():
            if one.lag is not None:
                _add(self.points.setdefault(partition, []), (at, float(max(0, one.lag))))
        self._ends.append((at, {partition: one.end for partition, one in offsets.items() if one.end is not None}))
        while len(self._ends) > 2 and at - self._ends[1][0] >= RATE_MS:
            self._ends.popleft()

    def per_s(self) -> float | None:
        """Records a second written to the group's partitions; None before there are two looks."""
        if len(self._ends) < 2:
            return None
        (first_ms, first), (last_ms, last) = self._ends[0], self._ends[-1]
        grown = sum(end - first[partition] for partition, end in last.items() if partition in first)
        return max(0.0, grown * 1000.0 / (last_ms - first_ms)) if last_ms > first_ms else None

    def forget(self, before: float) -> None:
        """Drop older points, except for the last one, where the line begins."""
        for points in self.points.values():
            while len(points) > 1 and points[1][0] <= before:
                del points[0]


def _add(points: list[Point], point: Point) -> None:
    if len(points) >= 2 and _on_a_line(points[-2], points[-1], point):
        points.pop()
    points.append(point)
    if len(points) > MOST_POINTS:
        points[: MOST_POINTS // 2] = points[: MOST_POINTS // 2 : 2]


def _on_a_line(first: Point, middle: Point, last: Point) -> bool:
    if last[0] <= first[0]:
        return True
    there = first[1] + (last[1] - first[1]) * (middle[0] - first[0]) / (last[0] - first[0])
    return abs(there - middle[1]) <= max(1.0, NEAR * abs(middle[1]))
