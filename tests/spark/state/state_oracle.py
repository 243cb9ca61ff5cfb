"""The operators as anyone would write them: one record at a time, in dictionaries. Slow, and easy to believe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Row = tuple[Any, int | None, int | None]
"""Key, time in microseconds, number."""
LONG_AGO = -(2**62)


@dataclass
class Watermark:
    delay: int
    now: int = LONG_AGO

    def move(self, at: int) -> None:
        self.now = max(self.now, at - self.delay)


@dataclass
class WindowOracle:
    size: int
    slide: int
    delay: int
    closed: dict[tuple[Any, int], list[int]] = field(default_factory=dict)
    open: dict[tuple[Any, int], list[int]] = field(default_factory=dict)
    late: int = 0

    def run(self, rows: list[Row]) -> WindowOracle:
        mark = Watermark(self.delay)
        for key, at, number in rows:
            if at is None:
                self.late += 1  # it counts for nothing
                continue
            counted = 0
            start = at // self.slide * self.slide
            while start + self.size > at:
                if start + self.size > mark.now:
                    counted += 1
                    found = self.open.setdefault((key, start), [0, 0])
                    found[0] += 1
                    found[1] += number or 0
                start -= self.slide
            self.late += not counted
            mark.move(at)
            for name in [name for name in self.open if name[1] + self.size <= mark.now]:
                assert name not in self.closed
                self.closed[name] = self.open.pop(name)
        return self


@dataclass
class SessionOracle:
    gap: int
    delay: int
    closed: list[tuple[Any, int, int, int, int]] = field(default_factory=list)
    open: list[tuple[Any, int, int, int, int]] = field(default_factory=list)
    late: int = 0

    def run(self, rows: list[Row]) -> SessionOracle:
        mark = Watermark(self.delay)
        for key, at, number in rows:
            if at is None:
                self.late += 1  # it counts for nothing
                continue
            if at < mark.now:
                self.late += 1
            else:
                new = (key, at, at + self.gap, 1, number or 0)
                for one in [one for one in self.open if one[0] == key and one[1] <= new[2] and new[1] <= one[2]]:
                    self.open.remove(one)
                    new = (key, min(one[1], new[1]), max(one[2], new[2]), one[3] + new[3], one[4] + new[4])
                self.open.append(new)
            mark.move(at)
            for one in [one for one in self.open if one[2] < mark.now]:
                self.open.remove(one)
                self.closed.append(one)
        return self


@dataclass
class DistinctOracle:
    delay: int
    passed: list[int] = field(default_factory=list)
    held: dict[Any, int] = field(default_factory=dict)
    late: int = 0

    def run(self, rows: list[Row]) -> DistinctOracle:
        mark = Watermark(self.delay)
        for number, (key, at, _) in enumerate(rows):
            if at is None:
                self.late += 1  # it counts for nothing
                continue
            if at < mark.now:
                self.late += 1
            elif self.held.get(key, LONG_AGO) <= mark.now:
                self.held[key] = at + self.delay
                self.passed.append(number)
            mark.move(at)
        return self
