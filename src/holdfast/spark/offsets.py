"""A batch's offset: the list of its ranges. Spark stores it as JSON and compares it as a string.

`partitions(start, end)` needs only `end`, whatever the group did between planning and reading. The same batch always
gives the same text: keys are sorted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.model import HoldfastError, TopicPartition

VERSION = 1

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""partition -> [from, to)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOffset:
    """What one batch reads, planned in this generation. `number` tells two equal plans apart."""

    number: int = 0
    generation: int = -1
    ranges: Ranges = field(default_factory=dict)
    behind: Ranges = field(default_factory=dict)
    """What the batch before a rehearsal read: the group may not have heard yet that it is done."""
    stands: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where all partitions stood when this was planned; of a query that keeps state and is alone in its group."""

    def to_json(self) -> dict[str, Any]:
        found = {"v": VERSION, "batch": self.number, "generation": self.generation, "ranges": _by_topic(self.ranges)}
        found |= {"behind": _by_topic(self.behind)} if self.behind else {}
        return found | ({"stands": _positions_by_topic(self.stands)} if self.stands else {})

    def rehearsal(self) -> BatchOffset:
        """A batch after this one that reads nothing, and remembers what this one read."""
        return replace(self, number=self.number + 1, ranges={}, behind=self.ranges or self.behind)

    def done(self) -> BatchOffset:
        """What is finished when this is: behind a rehearsal, the batch before it."""
        return replace(self, ranges=self.ranges or self.behind, behind={})

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> BatchOffset:
        try:
            if data["v"] != VERSION:
                raise _foreign(f"version {data['v']}")
            return BatchOffset(
                number=int(data["batch"]),
                generation=int(data["generation"]),
                ranges=_ranges(data["ranges"]),
                behind=_ranges(data.get("behind", {})),
                stands=_positions(data.get("stands", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise _foreign("something else") from None

    @property
    def records(self) -> int:
        """How many offsets the ranges span; with gaps in the log there are fewer records."""
        return sum(end - start for start, end in self.ranges.values())


def _by_topic(ranges: Ranges) -> dict[str, dict[str, list[int]]]:
    topics: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), (start, end) in sorted(ranges.items()):
        topics.setdefault(topic, {})[str(partition)] = [start, end]
    return topics


def _positions_by_topic(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def _positions(topics: Mapping[str, Any]) -> Mapping[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


def _ranges(topics: Mapping[str, Any]) -> Ranges:
    return {
        TopicPartition(topic, int(partition)): (int(start), int(end))
        for topic, partitions in topics.items()
        for partition, (start, end) in partitions.items()
    }


def _foreign(found: str) -> HoldfastError:
    return HoldfastError(
        "FOREIGN_CHECKPOINT",
        f"the checkpoint's offsets are not of this source: {found} where a list of ranges was expected.",
        "Start on a fresh checkpointLocation; `holdfast pipeline import-checkpoint` takes over the offsets of a job "
        "that ran on Spark's own Kafka source.",
    )
