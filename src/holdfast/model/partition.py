"""A partition of a topic, and how sets of them are written down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol


class TopicPartition(NamedTuple):
    """One partition of one topic. A tuple, so that it sorts by topic, then partition, and hashes fast."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class AnyPartition(Protocol):
    """A partition of any class: ours, or confluent-kafka's, which is the one that programs know."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group by topic, both sorted: the form in which Kafka's messages and our traces carry partitions."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return grouped


def flatten(grouped: Mapping[str, Iterable[int]]) -> frozenset[TopicPartition]:
    """The inverse of `by_topic`."""
    return frozenset(TopicPartition(topic, partition) for topic, numbers in grouped.items() for partition in numbers)
