"""A batch's offset: the list of its ranges. Spark stores it as JSON and compares it as a string.

`partitions(start, end)` needs only `end`, whatever the group did between planning and reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.model import TopicPartition
from holdfast.net.reading import Range

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOffset:
    """What one batch reads, planned in this generation. `number` tells two equal plans apart."""

    number: int = 0
    generation: int = -1
    ranges: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        topics: dict[str, dict[str, list[int]]] = {}
        for (topic, partition), (start, end) in sorted(self.ranges.items()):
            topics.setdefault(topic, {})[str(partition)] = [start, end]
        return {"v": VERSION, "batch": self.number, "generation": self.generation, "ranges": topics}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> BatchOffset:
        return BatchOffset(
            number=int(data.get("batch", 0)),
            generation=int(data.get("generation", -1)),
            ranges={
                TopicPartition(topic, int(partition)): (int(start), int(end))
                for topic, partitions in data.get("ranges", {}).items()
                for partition, (start, end) in partitions.items()
            },
        )

    def as_ranges(self) -> list[Range]:
        return [Range(partition, start, end) for partition, (start, end) in sorted(self.ranges.items()) if end > start]
