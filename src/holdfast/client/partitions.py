"""Partitions and offsets in the two forms a consumer has for them: confluent-kafka's objects, and ours.

confluent-kafka's `TopicPartition` carries an offset, metadata and more, and it is mutable. Ours only names a partition.
Applications give and get the former; inside everything is kept by the latter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import confluent_kafka as ck

from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

AS_COMMITTED = (ck.OFFSET_INVALID, ck.OFFSET_STORED)
"""No offset was named: reading starts at the group's committed offset."""

RESET = {"earliest": ck.OFFSET_BEGINNING, "latest": ck.OFFSET_END, "error": ck.OFFSET_INVALID}
"""Where each value of auto.offset.reset starts."""

NO_OFFSET = OffsetEntry(ck.OFFSET_INVALID)
"""No offset."""

METADATA_END = "\0"
"""confluent-kafka commits metadata with a zero byte at its end and counts on it when it reads: without one it returns
what lies behind in its memory, or raises UnicodeDecodeError. So ours has it too: old and new share a group."""


def name_of(partition: ck.TopicPartition) -> TopicPartition:
    """Which partition it is, without its offset."""
    return TopicPartition(partition.topic, partition.partition)


def names_of(partitions: Iterable[ck.TopicPartition]) -> set[TopicPartition]:
    return set(map(name_of, partitions))


def offsets_of(partitions: Iterable[ck.TopicPartition]) -> dict[TopicPartition, int]:
    """The offset that each of these names."""
    return {name_of(p): p.offset for p in partitions}


def epoch_of(partition: ck.TopicPartition) -> int:
    """Its leader epoch; -1 for none."""
    epoch: int | None = partition.leader_epoch  # None where there is none; the type stub does not say so
    return -1 if epoch is None else epoch


def entry_of(partition: ck.TopicPartition) -> OffsetEntry:
    """The offset that it names, with epoch and metadata."""
    text = partition.metadata
    return OffsetEntry(partition.offset, epoch_of(partition), "" if text is None else text + METADATA_END)


def metadata_shown(entry: OffsetEntry) -> str:
    """The metadata of an entry as an application gave it: what stands before the zero byte, if there is one."""
    return entry.metadata.partition(METADATA_END)[0]


def confluent_list(partitions: Iterable[TopicPartition]) -> list[ck.TopicPartition]:
    """These in confluent-kafka's form, in order and without offsets."""
    return [ck.TopicPartition(p.topic, p.partition) for p in sorted(partitions)]


def confluent_at(partition: TopicPartition, offset: int) -> ck.TopicPartition:
    return ck.TopicPartition(partition.topic, partition.partition, offset)


def confluent_entry(partition: TopicPartition, entry: OffsetEntry) -> ck.TopicPartition:
    """An offset as confluent-kafka shows it: without metadata or epoch, that field is None."""
    topic, number = partition.topic, partition.partition
    if entry.metadata:
        return ck.TopicPartition(topic, number, entry.offset, metadata_shown(entry), entry.leader_epoch)
    # Metadata can only be left out: None is not accepted.
    return ck.TopicPartition(topic, number, entry.offset, leader_epoch=entry.leader_epoch)


# -- records


def partition_of(message: ck.Message) -> TopicPartition:
    number = message.partition()
    return TopicPartition(message.topic() or "", -1 if number is None else number)


def after_record(message: ck.Message) -> OffsetEntry:
    """The position after a record, with the record's leader epoch."""
    epoch = message.leader_epoch()
    return OffsetEntry((message.offset() or 0) + 1, -1 if epoch is None else epoch)


def first_offsets(messages: Iterable[ck.Message]) -> dict[TopicPartition, int]:
    """The offset of each partition's first record among these. Errors and events are not records."""
    first: dict[TopicPartition, int] = {}
    for message in messages:
        if message.error() is None:
            first.setdefault(partition_of(message), message.offset() or 0)
    return first


def first_offsets_of_batch(batch: pa.RecordBatch) -> dict[TopicPartition, int]:
    """The same for an Arrow batch. Row by row, which is slow; needed only after the process was frozen."""
    columns = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    first: dict[TopicPartition, int] = {}
    for topic, partition, offset in zip(*columns, strict=True):
        first.setdefault(TopicPartition(topic, partition), offset)
    return first
