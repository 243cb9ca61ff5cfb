"""A consumer's trace: records of the machine and of the consumer, which are counted, logged and written to a file
or a topic."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from holdfast.client.config.settings import ConsumerConfig
from holdfast.client.telemetry.logs import TraceLog
from holdfast.client.telemetry.metrics import GroupMetrics
from holdfast.client.telemetry.trace_topic import TraceTopic
from holdfast.group.member import MemberState
from holdfast.model import TopicPartition, TraceRecord, Value, by_topic
from holdfast.trace import TraceFile


class ConsumerTrace:
    """Writes from two threads, the polling and the control one; a lock keeps lines whole."""

    def __init__(self, file: TraceFile | None, metrics: GroupMetrics, topic: TraceTopic | None = None) -> None:
        self.metrics = metrics
        self._file = file
        self._topic = topic
        self._log = TraceLog()
        self._lock = threading.Lock()

    def write(self, record: TraceRecord) -> None:
        with self._lock:
            self.metrics.observe(record)
            if self._file is not None:
                self._file.write(record)
            if self._topic is not None:
                self._topic.write(record)
        self._log.write(record)  # outside the lock: a log handler of the application may call us

    def callback(
        self,
        step: str,
        at: float,
        state: MemberState,
        partitions: Iterable[TopicPartition],
        took_ms: float,
        *,
        listener_ms: float,
    ) -> None:
        """Trace one call of the listener.

        `listener_ms` is the time in the listener alone; `took_ms` includes the commits of a revoke and the start of
        reading.
        """
        named: Value = {topic: list(numbers) for topic, numbers in by_topic(partitions).items()}
        self.write(
            TraceRecord(
                at=at,
                source="consumer",
                step=f"callback-{step}",
                group=state.config.group,
                member=state.name,
                generation=state.membership.generation,
                data={"partitions": named, "took_ms": round(took_ms, 3), "listener_ms": round(listener_ms, 3)},
            )
        )

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
            topic, self._file, self._topic = self._topic, None, None
        if topic is not None:
            topic.close()


def open_trace(config: ConsumerConfig) -> ConsumerTrace:
    topic = TraceTopic(config.trace_topic, config.librdkafka()) if config.trace_topic else None
    file = TraceFile(Path(config.trace_file)) if config.trace_file else None  # last: it has to be closed
    if topic is not None and config.login is not None:
        config.login.tell(topic.log_in_as)
    return ConsumerTrace(file, GroupMetrics(), topic)
