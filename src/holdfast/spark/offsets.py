"""A batch's offset: the list of its ranges. Spark stores it as JSON and compares it as a string.

`partitions(start, end)` needs only `end`, whatever happens in the group between planning and reading. The same batch
always gives the same text, because keys are sorted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.model import HoldfastError, TopicPartition

VERSION = 1

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""partition -> [from, to)."""

Positions = Mapping[TopicPartition, int]
"""partition -> next offset."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A topic as a query saw it."""

    partitions: int
    topic_id: str = ""
    """Changes when the topic is recreated; empty if the brokers don't tell it (before 2.8)."""

    def is_same(self, now: Seen) -> bool:
        return not (self.topic_id and now.topic_id) or self.topic_id == now.topic_id


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOffset:
    """What one batch reads, planned in this generation. `number` tells two equal plans apart.

    It also holds the positions of the query's other partitions, so that the checkpoint knows where to continue if the
    group has forgotten them (`starting`).
    """

    number: int = 0
    generation: int = -1
    ranges: Ranges = field(default_factory=dict)
    ranges_before: Ranges = field(default_factory=dict)
    """Only in a rehearsal: what the batch before it read, which may not be committed yet."""
    stands: Positions = field(default_factory=dict)
    """Where the query's other partitions stand: those from which this batch reads nothing."""
    topics: Mapping[str, Seen] = field(default_factory=dict)
    """The subscribed topics. Empty before the query has joined for the first time, and in older checkpoints."""

    def to_json(self) -> dict[str, Any]:
        found = {"v": VERSION, "batch": self.number, "generation": self.generation, "ranges": _by_topic(self.ranges)}
        if self.ranges_before:
            found["behind"] = _by_topic(self.ranges_before)
        if self.topics:
            found["topics"] = {name: [seen.partitions, seen.topic_id] for name, seen in sorted(self.topics.items())}
            found["stands"] = _by_topic(self.stands)
        return found

    def rehearsal(self) -> BatchOffset:
        """An empty batch after this one, which remembers what this one read."""
        return replace(self, number=self.number + 1, ranges={}, ranges_before=self.ranges or self.ranges_before)

    def without_rehearsal(self) -> BatchOffset:
        """This batch; or, if it is a rehearsal, which read nothing, with the ranges of the batch before it."""
        return replace(self, ranges=self.ranges or self.ranges_before, ranges_before={})

    @property
    def has_history(self) -> bool:
        """Whether, by its checkpoint, the query has run before."""
        return bool(self.topics or self.ranges or self.ranges_before)

    def with_starts(self) -> BatchOffset:
        """The same with all of the query's positions in `stands`, as they are before this batch."""
        return replace(self, stands={**self.stands, **{p: start for p, (start, _) in self.ranges.items()}})

    def with_ends(self) -> BatchOffset:
        """The same with all of the query's positions in `stands`, as they are after this batch."""
        return replace(self, stands={**self.stands, **{p: end for p, (_, end) in self.ranges.items()}})

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> BatchOffset:
        try:
            if data["v"] != VERSION:
                raise _foreign(f"version {data['v']}")
            return BatchOffset(
                number=int(data["batch"]),
                generation=int(data["generation"]),
                ranges=_ranges(data["ranges"]),
                ranges_before=_ranges(data.get("behind", {})),
                stands=_positions(data.get("stands", {})),
                topics={str(name): Seen(int(n), str(id_)) for name, (n, id_) in data.get("topics", {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise _foreign("something else") from None

    @property
    def records(self) -> int:
        """How many offsets the ranges span; with gaps in the log there are fewer records."""
        return sum(end - start for start, end in self.ranges.values())


def _by_topic(found: Mapping[TopicPartition, Any]) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for (topic, partition), value in sorted(found.items()):
        topics.setdefault(topic, {})[str(partition)] = list(value) if isinstance(value, tuple) else value
    return topics


def _positions(topics: Mapping[str, Any]) -> Positions:
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
