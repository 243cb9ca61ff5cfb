"""Where a partition begins that the group has committed nothing for.

The group's committed offset goes before everything. Without one the options decide, but only for what was there when
the group began: a partition or topic that came later is read from its beginning, or records would be lost, as in
Spark's own source. What was there at the beginning travels in every commit's metadata, so that all members know it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from holdfast.client.config import ConsumerConfig
from holdfast.group.messages import OffsetEntry
from holdfast.model import ErrorCode, TopicPartition
from holdfast.net.admin import Admin
from holdfast.net.cluster import Cluster
from holdfast.spark import loss
from holdfast.spark.options import SourceOptions
from holdfast.spark.places import COMMITTED, EARLIEST, LATEST, Places, no_committed_offset, resolve

NOTE = "holdfast"
VERSION = 1
MAX_NOTE_BYTES = 1_024
"""Brokers take 4,096 bytes of metadata a commit by default. With more topics than fit, nothing is noted."""


class Starting:
    """One query's answer to "from where?". Call `prepare` once, when it has joined."""

    def __init__(self, options: SourceOptions, config: ConsumerConfig, cluster: Cluster) -> None:
        self._options = options
        self._reset_given = "auto.offset.reset" in options.kafka
        self._reset = config.auto_offset_reset
        self._admin = Admin(cluster)
        self._cluster = cluster
        self._known: dict[str, int] | None = None
        self.note = ""
        """Goes into the metadata of every commit."""

    async def prepare(self) -> None:
        """Learn what was there when the group began, from anybody's commit; else it begins now, with what is there."""
        if self._known is not None or self._options.assigned:
            return
        counts = await self._counts()
        missing = sorted(t for t in self._options.topics if not t.startswith("^") and t not in counts)
        if missing and self._options.fail_on_data_loss:
            raise loss.no_such_topics(missing)
        entries = await self._admin.committed(self._options.group)
        self._known = read_notes(entries.values())
        if self._known is None:
            self._known = counts
        self.note = write_note(self._known)

    async def find(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = sorted(partitions)
        known = self._known if self.note else None
        later = [p for p in wanted if known is not None and p.partition >= known.get(p.topic, 0)]
        first = [p for p in wanted if p not in set(later)]
        found = await self._resolve(EARLIEST, later)
        if first:
            found |= await self._resolve(self._places(first[0]), first)
        return dict(sorted(found.items()))

    def _places(self, example: TopicPartition) -> Places:
        starting = self._options.starting
        if starting is not COMMITTED and starting != COMMITTED:
            return starting
        if not self._reset_given or self._reset == "error":
            raise no_committed_offset(example, self._options.group)
        return EARLIEST if self._reset == "earliest" else LATEST

    async def _resolve(self, places: Places, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        options = self._options
        return await resolve(
            self._admin, places, partitions, read_committed=options.read_committed, group=options.group
        )

    async def partitions(self) -> tuple[TopicPartition, ...]:
        """Everything that is subscribed to, as it is now."""
        counts = await self._counts()
        return tuple(TopicPartition(topic, n) for topic, count in counts.items() for n in range(count))

    async def _counts(self) -> dict[str, int]:
        return await topic_counts(self._cluster, self._options.topics)


async def topic_counts(cluster: Cluster, topics: tuple[str, ...]) -> dict[str, int]:
    """Partitions of each topic that these names or patterns mean, sorted; what does not exist is left out."""
    patterns = [re.compile(topic) for topic in topics if topic.startswith("^")]
    info = await cluster.refresh(None if patterns else topics)
    return {
        name: max(topic.partitions, default=-1) + 1
        for name, topic in sorted(info.topics.items())
        if topic.error is ErrorCode.NONE and (name in topics or any(p.search(name) for p in patterns))
    }


def write_note(known: Mapping[str, int]) -> str:
    text = json.dumps({NOTE: VERSION, "known": dict(sorted(known.items()))}, separators=(",", ":"))
    return text if len(text.encode()) <= MAX_NOTE_BYTES else ""


def read_notes(entries: Iterable[OffsetEntry]) -> dict[str, int] | None:
    """What the group's commits say was there at its beginning. The least of them, should they differ."""
    notes = [note for note in (_read(entry.metadata) for entry in entries) if note is not None]
    if not notes:
        return None
    topics = {topic for note in notes for topic in note}
    return {topic: min(note[topic] for note in notes if topic in note) for topic in sorted(topics)}


def _read(metadata: str) -> dict[str, int] | None:
    try:
        note = json.loads(metadata)
        if note[NOTE] != VERSION:
            return None
        return {str(topic): int(count) for topic, count in note["known"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # somebody else's metadata, or none
