"""Messages that are not records: poll returns them with an error, as confluent-kafka does.

As in librdkafka, their value is the error's text, and their timestamp is marked as not available.
"""

from __future__ import annotations

from dataclasses import dataclass

import confluent_kafka as ck

from holdfast.client.errors import as_kafka_error
from holdfast.client.reading.epochs import NO_EPOCH
from holdfast.model import HoldfastError, TopicPartition
from holdfast.net.flow_values import Trouble

NO_TIME = (ck.TIMESTAMP_NOT_AVAILABLE, -1)


def error_message(
    error: ck.KafkaError,
    partition: TopicPartition | None = None,
    offset: int | None = None,
    epoch: int | None = None,
) -> ck.Message:
    """An error of a partition, or of the whole group."""
    return ck.Message(
        topic=None if partition is None else partition.topic,
        partition=0 if partition is None else partition.partition,
        offset=ck.OFFSET_INVALID if offset is None else offset,
        value=(error.str() or "").encode(),
        error=error,
        timestamp=NO_TIME,
        leader_epoch=NO_EPOCH if epoch is None else epoch,
    )


@dataclass(frozen=True, slots=True)
class PollError:
    """An error for poll to return."""

    error: HoldfastError
    topic: str | None = None
    """The topic it is about, if it is about one."""

    def message(self) -> ck.Message:
        return error_message(as_kafka_error(self.error), None if self.topic is None else TopicPartition(self.topic, 0))


def fatal_error(error: HoldfastError) -> ck.KafkaError:
    """librdkafka's _FATAL error, with the reason in its text."""
    return ck.KafkaError(ck.KafkaError._FATAL, f"Fatal error: {error.code}: {error.what} {error.do}", True, False)


def fatal_message(error: HoldfastError) -> ck.Message:
    """What polls return once the membership has ended with a fatal error."""
    return error_message(fatal_error(error))


def trouble_message(trouble: Trouble, epoch: int | None) -> ck.Message:
    """The error of records that can't be read, returned in their place."""
    error = as_kafka_error(trouble.error)
    if trouble.number and trouble.number != error.code():
        error = ck.KafkaError(trouble.number, f"{trouble.error.what} {trouble.error.do}")
    return error_message(error, trouble.partition, trouble.offset, epoch)


def end_message(partition: TopicPartition, offset: int, high_watermark: int, epoch: int | None) -> ck.Message:
    """enable.partition.eof: everything before this offset was handed out."""
    text = f"{partition} was read to its end at offset {offset} (HighwaterMark {high_watermark})"
    return error_message(ck.KafkaError(ck.KafkaError._PARTITION_EOF, text), partition, offset, epoch)
