"""A batch's offset: the list of its ranges. Spark stores it as JSON and compares it as a string.

`partitions(start, end)` needs only `end`, whatever the group did between planning and reading. The same batch always
gives the same text: keys are sorted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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

    def to_json(self) -> dict[str, Any]:
        topics: dict[str, dict[str, list[int]]] = {}
        for (topic, partition), (start, end) in sorted(self.ranges.items()):
            topics.setdefault(topic, {})[str(partition)] = [start, end]
        return {"v": VERSION, "batch": self.number, "generation": self.generation, "ranges": topics}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> BatchOffset:
        try:
            if data["v"] != VERSION:
                raise _foreign(f"version {data['v']}")
            return BatchOffset(
                number=int(data["batch"]),
                generation=int(data["generation"]),
                ranges={
                    TopicPartition(topic, int(partition)): (int(start), int(end))
                    for topic, partitions in data["ranges"].items()
                    for partition, (start, end) in partitions.items()
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise _foreign("something else") from None

    @property
    def records(self) -> int:
        """How many offsets the ranges span; with gaps in the log there are fewer records."""
        return sum(end - start for start, end in self.ranges.values())


def _foreign(found: str) -> HoldfastError:
    return HoldfastError(
        "FOREIGN_CHECKPOINT",
        f"the checkpoint's offsets are not of this source: {found} where a list of ranges was expected.",
        "Start on a fresh checkpointLocation; `holdfast pipeline import-checkpoint` takes over the offsets of a job "
        "that ran on Spark's own Kafka source.",
    )
