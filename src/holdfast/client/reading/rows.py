"""Records one by one from our own fetcher: confluent-kafka's messages, made a few hundred at a time.

For `AsyncConsumer`, which has no librdkafka. A message that was made and not yet handed out counts as unread: it is
dropped with its partition, and the position is before it.

Read errors, and partition ends if the application wants them, are messages with an error too, as in confluent-kafka.
They keep their place after the rows before them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from holdfast.client.member.events import end_message, trouble_message
from holdfast.client.reading.arrow import ArrowPlane
from holdfast.client.reading.epochs import Epochs
from holdfast.model import ErrorCode, TopicPartition
from holdfast.net.errors import BrokerError, NetError
from holdfast.net.flows import Fetched, Trouble

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 500
"""Messages made at a time: enough to hide the fixed cost of a batch, in a millisecond or two of the event loop's time.
"""

NO_TIMESTAMP = (ck.TIMESTAMP_NOT_AVAILABLE, 0)


@dataclass(slots=True)
class Chunk:
    """Rows, both as a batch and as messages; the first `at` of them were handed out."""

    batch: pa.RecordBatch | None
    """None for a chunk with one message that is an error."""
    messages: list[ck.Message]
    at: int = 0

    @property
    def left(self) -> int:
        return len(self.messages) - self.at

    def unread(self) -> list[ck.Message]:
        return self.messages[self.at :] if self.batch is not None else []

    def without(self, partition: TopicPartition) -> Chunk:
        if self.batch is None:
            return Chunk(None, [message for message in self.messages[self.at :] if _where(message) != partition])
        from holdfast.records.columns import row_numbers

        kept = [number for number in range(self.at, len(self.messages)) if _where(self.messages[number]) != partition]
        return Chunk(self.batch.take(row_numbers(kept)), [self.messages[number] for number in kept])


class RowPlane(ArrowPlane):
    """An `ArrowPlane` that also gives messages."""

    def __init__(
        self, *args: Any, tell: Callable[[ck.KafkaError], bool] = lambda _error: False, **options: Any
    ) -> None:
        """`tell` reports errors that confluent-kafka reports to error_cb; False if the application has none."""
        self._chunks: deque[Chunk] = deque()
        self._tell = tell
        super().__init__(*args, **options)

    def ready(self, wanted: int) -> int:
        """How many messages can be handed out now, up to `wanted`. Makes them if need be."""
        with self._lock:
            there = sum(chunk.left for chunk in self._chunks)
            while there < wanted:
                before = len(self._chunks)
                batch = super().take(CHUNK, include_headers=True)
                there += len(self._chunks) - before
                if batch is None:
                    break
                self._chunks.append(Chunk(batch, messages(batch, self._epochs)))
                there += batch.num_rows
            return min(wanted, there)

    def rows(self, count: int) -> list[ck.Message]:
        """Hand out `count` messages; `ready` must have said that there are as many."""
        found: list[ck.Message] = []
        with self._lock:
            while len(found) < count:
                chunk = self._chunks[0]
                part = chunk.messages[chunk.at : chunk.at + count - len(found)]
                found += part
                self._passed(chunk, len(part))
        return found

    def take(self, max_rows: int, *, include_headers: bool = False) -> pa.RecordBatch | None:
        with self._lock:
            self._raise_first()
            if not self._chunks:
                batch = super().take(max_rows, include_headers=include_headers)
                if batch is None:
                    self._raise_first()
                return batch
            chunk = self._chunks[0]
            assert chunk.batch is not None
            part = chunk.batch.slice(chunk.at, max_rows)
            self._passed(chunk, part.num_rows)
            return part if include_headers else part.select(range(part.num_columns - 1))

    def _raise_first(self) -> None:
        """For batches: raise an error that comes next, and skip ends of partitions."""
        while self._chunks and self._chunks[0].batch is None:
            (message,) = self._chunks.popleft().messages
            error = message.error()
            assert error is not None
            if error.code() != ck.KafkaError._PARTITION_EOF:
                raise ck.KafkaException(error)

    # -- what is not a row

    def _troubled(self, trouble: Trouble) -> None:
        error = trouble.error
        if isinstance(error, NetError) and not isinstance(error, BrokerError):
            return  # a broker that can't be reached: reported once for the whole client, to error_cb
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name and trouble.partition is not None:
            known = trouble.partition.topic in self.info.topics
            number = ck.KafkaError._UNKNOWN_PARTITION if known else ck.KafkaError.UNKNOWN_TOPIC_OR_PART
            if self._tell(ck.KafkaError(number, error.what)):
                return
            trouble = replace(trouble, number=number)
        self._chunks.append(Chunk(None, [trouble_message(trouble, self._flows.epoch(trouble.partition))]))

    def _ended(self, partition: TopicPartition, answer: Fetched) -> None:
        message = end_message(partition, answer.start, answer.end, self._flows.epoch(partition))
        self._chunks.append(Chunk(None, [message]))

    def _passed(self, chunk: Chunk, count: int) -> None:
        chunk.at += count
        if not chunk.left:
            self._chunks.popleft()

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
        kept = (chunk.without(partition) for chunk in self._chunks)
        self._chunks = deque(chunk for chunk in kept if chunk.left)

    def _unread(self) -> dict[TopicPartition, int]:
        """The offset of the first unread message of each partition."""
        found: dict[TopicPartition, int] = {}
        for chunk in self._chunks:
            for row in chunk.unread():
                found.setdefault(_where(row), row.offset() or 0)
        return found

    def _rewind(self, partition: TopicPartition, offset: int) -> None:
        """Fetch again from this offset. The application's position stays where it is."""
        position = self.position(partition)
        self._forget(partition)
        self._flows.seek(partition, offset)
        if position is not None:
            self._positions[partition] = position


def _where(row: ck.Message) -> TopicPartition:
    return TopicPartition(row.topic() or "", row.partition() or 0)


def messages(batch: pa.RecordBatch, epochs: Epochs) -> list[ck.Message]:
    """The rows of a batch with headers, as confluent-kafka's messages."""
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
            leader_epoch=epoch,
        )
        for topic, partition, offset, key, value, pairs, at, kind, epoch in zip(
            topics,
            partitions,
            offsets,
            keys,
            values,
            headers,
            micros,
            kinds,
            epochs.of(topics, partitions, offsets),
            strict=True,
        )
    ]
