"""Records one by one from the fast side: confluent-kafka's messages, made a few hundred at a time.

For whoever has no librdkafka under it: `AsyncConsumer`. A row that was made and not yet handed out counts as unread: it
goes when its partition goes, and the position is in front of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from holdfast.client.arrow import ArrowPlane
from holdfast.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 500
"""Rows made at a time: enough to hide the cost of a batch, and a millisecond or two of an event loop's time."""

NO_TIMESTAMP = (ck.TIMESTAMP_NOT_AVAILABLE, 0)


class RowPlane(ArrowPlane):
    """An `ArrowPlane` that also gives messages."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._rows: deque[ck.Message] = deque()
        super().__init__(*args, **options)

    def ready(self, wanted: int) -> int:
        """How many messages can be handed out at once, up to what is wanted. Makes them if need be."""
        with self._lock:
            while len(self._rows) < wanted:
                batch = super().take(CHUNK, include_headers=True)
                if batch is None:
                    break
                self._rows.extend(messages(batch))
            return min(wanted, len(self._rows))

    def rows(self, count: int) -> list[ck.Message]:
        """Hand out so many of them."""
        with self._lock:
            return [self._rows.popleft() for _ in range(count)]

    def take(self, max_rows: int, *, include_headers: bool = False) -> pa.RecordBatch | None:
        with self._lock:
            for partition, offset in self._unread().items():
                self._rewind(partition, offset)
            return super().take(max_rows, include_headers=include_headers)

    def position(self, partition: TopicPartition) -> int | None:
        with self._lock:
            at = self._unread().get(partition)
            if at is None:
                return super().position(partition)
            return at if at > self._starts.get(partition, 0) else self._positions.get(partition)

    def goes_on(self, partition: TopicPartition) -> int:
        with self._lock:
            at = self._unread().get(partition)
            return super().goes_on(partition) if at is None else at

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            wanted = set(partitions)
            for partition, offset in self._unread().items():
                if partition in wanted:
                    self._rewind(partition, offset)
            super().pause(wanted)

    def _forget(self, partition: TopicPartition) -> None:
        super()._forget(partition)
        self._rows = deque(row for row in self._rows if _where(row) != partition)

    def _unread(self) -> dict[TopicPartition, int]:
        """The first row of each partition that was made and not handed out."""
        found: dict[TopicPartition, int] = {}
        for row in self._rows:
            found.setdefault(_where(row), row.offset() or 0)
        return found

    def _rewind(self, partition: TopicPartition, offset: int) -> None:
        """Fetch this again, without a word to anybody: the position stays where it is."""
        position = self.position(partition)
        self._forget(partition)
        self._flows.seek(partition, offset)
        if position is not None:
            self._positions[partition] = position


def _where(row: ck.Message) -> TopicPartition:
    return TopicPartition(row.topic() or "", row.partition() or 0)


def messages(batch: pa.RecordBatch) -> list[ck.Message]:
    """The rows of a batch with headers, as confluent-kafka would give them."""
    import pyarrow as pa

    keys, values, topics, partitions, offsets = (batch.column(number).to_pylist() for number in range(5))
    micros = batch.column(5).view(pa.int64()).to_pylist()
    kinds = batch.column(6).to_pylist()
    column = batch.column(7)
    headers = [None] * batch.num_rows if column.null_count == batch.num_rows else column.to_pylist()
    return [
        ck.Message(
            topic=topic,
            partition=partition,
            offset=offset,
            key=key,
            value=value,
            headers=None if pairs is None else [(pair["key"], pair["value"]) for pair in pairs],
            timestamp=NO_TIMESTAMP if at < 0 else (ck.TIMESTAMP_CREATE_TIME + kind, at // 1_000),
        )
        for topic, partition, offset, key, value, pairs, at, kind in zip(
            topics, partitions, offsets, keys, values, headers, micros, kinds, strict=True
        )
    ]
