"""Averages, maxima and rates over the last minute, computed as Kafka's Java client does.

A window has two samples of 30 s, Java's defaults (metrics.num.samples, metrics.sample.window.ms). An event is added to
the newer sample; a sample that is over is dropped. So a figure covers the last 30 to 60 seconds. If nothing happened in
them, averages and maxima are NaN, and a rate is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

SAMPLE_MS = 30_000.0
SAMPLES = 2
HOUR_MS = 3_600_000.0


@dataclass(slots=True)
class _Sample:
    began_at: float
    count: int = 0
    total: float = 0.0
    highest: float = -math.inf


@dataclass(slots=True)
class Window:
    """The last minute of one figure, and its count and sum since the start."""

    count: int = 0
    total: float = 0.0
    _samples: list[_Sample] = field(default_factory=list)

    def add(self, value: float, now: float) -> None:
        self.count += 1
        self.total += value
        self._samples = self._recent(now)
        if not self._samples or now - self._samples[-1].began_at >= SAMPLE_MS:
            self._samples.append(_Sample(now))
        sample = self._samples[-1]
        sample.count += 1
        sample.total += value
        sample.highest = max(sample.highest, value)

    def average(self, now: float) -> float:
        recent = self._recent(now)
        count = sum(sample.count for sample in recent)
        return sum(sample.total for sample in recent) / count if count else math.nan

    def highest(self, now: float) -> float:
        return max((sample.highest for sample in self._recent(now)), default=math.nan)

    def per_hour(self, now: float) -> float:
        """Events per hour, over the window.

        A window younger than one sample counts as one sample longer than it is, as in Java: one event in the first
        second must not show as 3,600 an hour.
        """
        recent = self._recent(now)
        if not recent:
            return 0.0
        elapsed = now - recent[0].began_at
        if elapsed < SAMPLE_MS * (SAMPLES - 1):
            elapsed += SAMPLE_MS * (SAMPLES - 1)
        return sum(sample.count for sample in recent) * HOUR_MS / elapsed

    def _recent(self, now: float) -> list[_Sample]:
        """Leaves the window as it is: it is read by other threads than the one that adds."""
        return [s for s in self._samples if now - s.began_at < SAMPLE_MS * SAMPLES][-SAMPLES:]
