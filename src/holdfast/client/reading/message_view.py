"""Messages as a view over our batches: confluent-kafka's messages, made from a batch a few hundred at a time.

For `AsyncConsumer`, which has no librdkafka. A message that was made and not yet handed out counts as unread: it is
dropped with its partition, and the position is before it. What was made as messages can still be taken as a batch.

Read errors, and partition ends if the application wants them, are messages with an error too, as in confluent-kafka.
They keep their place after the rows before them.

It must not know readers or locks: `batch_reader` puts batches in and takes messages or batches out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import confluent_kafka as ck

from holdfast.client.partitions import first_offsets, partition_of
from holdfast.client.reading.epochs import Epochs
from holdfast.model import TopicPartition

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

    def without(self, partition: TopicPartition) -> Chunk:
        if self.batch is None:
            return Chunk(None, [message for message in self.messages[self.at :] if partition_of(message) != partition])
        from holdfast.records.columns import row_numbers

        numbers = range(self.at, len(self.messages))
        kept = [number for number in numbers if partition_of(self.messages[number]) != partition]
        return Chunk(self.batch.take(row_numbers(kept)), [self.messages[number] for number in kept])


class MessageView:
    """What was decoded and not handed out yet, in order."""

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._left = 0

    def __len__(self) -> int:
        """How many messages there are."""
        return self._left

    def put(self, batch: pa.RecordBatch, epochs: Epochs) -> None:
        """Make messages of a batch that has headers."""
        self._append(Chunk(batch, messages(batch, epochs)))

    def put_error(self, message: ck.Message) -> None:
        """A message with an error, in its place after the rows before it."""
        self._append(Chunk(None, [message]))

    def take(self, count: int) -> list[ck.Message]:
        """Hand out `count` messages; there must be as many."""
        found: list[ck.Message] = []
        while len(found) < count:
            chunk = self._chunks[0]
            part = chunk.messages[chunk.at : chunk.at + count - len(found)]
            found += part
            self._passed(chunk, len(part))
        return found

    def take_batch(self, max_rows: int, *, include_headers: bool) -> pa.RecordBatch | None:
        """Hand out the next rows as a batch; None if there are none. An error that comes next is raised instead, and
        ends of partitions are skipped."""
        self._raise_first()
        if not self._chunks:
            return None
        chunk = self._chunks[0]
        assert chunk.batch is not None
        part = chunk.batch.slice(chunk.at, max_rows)
        self._passed(chunk, part.num_rows)
        return part if include_headers else part.select(range(part.num_columns - 1))

    def unread(self) -> dict[TopicPartition, int]:
        """The offset of the first unread record of each partition that has one."""
        found: dict[TopicPartition, int] = {}
        for chunk in self._chunks:
            found = first_offsets(chunk.messages[chunk.at :]) | found  # what comes earlier counts
        return found

    def forget(self, partition: TopicPartition) -> None:
        kept = (chunk.without(partition) for chunk in self._chunks)
        self._chunks = deque(chunk for chunk in kept if chunk.left)
        self._left = sum(chunk.left for chunk in self._chunks)

    def _append(self, chunk: Chunk) -> None:
        self._chunks.append(chunk)
        self._left += chunk.left

    def _raise_first(self) -> None:
        while self._chunks and self._chunks[0].batch is None:
            (message,) = self.take(1)
            error = message.error()
            assert error is not None
            if error.code() != ck.KafkaError._PARTITION_EOF:
                raise ck.KafkaException(error)

    def _passed(self, chunk: Chunk, count: int) -> None:
        chunk.at += count
        self._left -= count
        if not chunk.left:
            self._chunks.popleft()


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
