"""When retention looks at which partitions: all of them every five minutes, a few in each tick."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.broker.storage.errors import StorageError, disk_work
from holdfast.broker.storage.logs import Logs
from holdfast.broker.storage.topics import Topic
from holdfast.broker.storage.work import Work

CHECK_MS = 300_000
"""Kafka's log.retention.check.interval.ms."""
LOGS_PER_TICK = 64
"""Partitions looked at in one tick: about 10 ms, so that housekeeping takes little from clients."""


class Retention:
    def __init__(self, logs: Logs, *, steady: Callable[[], float], every_ms: int) -> None:
        self._logs = logs
        self._steady = steady
        self._every_ms = every_ms
        self._next = steady() + every_ms
        self._topics: deque[Topic] = deque()
        """Those not begun yet."""
        self._partitions: deque[tuple[Topic, int]] = deque()

    def due(self) -> bool:
        """Whether this tick has a share of the work."""
        if self._steady() >= self._next:
            self._next = self._steady() + self._every_ms
            self._topics = deque(self._logs.topics())
            self._partitions.clear()
        return bool(self._topics or self._partitions)

    def share(self) -> Work[None]:
        """This tick's share. A partition that fails does not keep the others from being looked at; the first failure is
        raised at the end."""
        failure: StorageError | None = None
        left = LOGS_PER_TICK
        while left > 0 and (self._topics or self._partitions):
            try:
                if self._partitions:
                    left -= 1
                    yield from self._logs.retention(*self._partitions.popleft())
                else:
                    yield from self._look_up(self._topics.popleft())
            except StorageError as error:
                failure = failure or error
            yield None
        if failure is not None:
            raise failure

    def _look_up(self, topic: Topic) -> Work[None]:
        with disk_work(f"Looking for old segments of {topic.name}"):
            numbers: list[int] = yield self._logs.look_up(topic)
        self._partitions.extend((topic, number) for number in numbers)
