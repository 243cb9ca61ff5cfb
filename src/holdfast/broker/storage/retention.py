"""When retention looks at which partitions: all of them every five minutes, a few in each tick."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from holdfast.broker.storage.logs import Logs
from holdfast.broker.storage.topics import Topic

CHECK_MS = 300_000
"""Kafka's log.retention.check.interval.ms."""
LOGS_PER_TICK = 64
"""Partitions looked at in one tick: about 10 ms at worst, so that thousands never stall the event loop."""


class Retention:
    def __init__(self, logs: Logs, *, steady: Callable[[], float], every_ms: int) -> None:
        self._logs = logs
        self._steady = steady
        self._every_ms = every_ms
        self._next = steady() + every_ms
        self._queue: Iterator[tuple[Topic, int]] = iter(())

    def due(self) -> list[Callable[[], object]]:
        """This tick's share of the work."""
        if self._steady() >= self._next:
            self._next = self._steady() + self._every_ms
            self._queue = self._logs.with_data()
        share = islice(self._queue, LOGS_PER_TICK)
        return [partial(self._logs.apply_retention, topic, partition) for topic, partition in share]
