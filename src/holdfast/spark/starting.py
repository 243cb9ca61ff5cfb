"""Where a partition begins. The order of precedence is documented in docs/spark.md:

1. the group's committed offset, which is not asked for here;
2. without one, the position in the query's checkpoint, if it is still the same topic;
3. the beginning, for what is newer than the group; otherwise records would be lost, as in Spark's own source;
4. the options, for what existed when the group began;
5. otherwise an error: the query has run before, and the group has forgotten its offsets. We do not guess.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from holdfast.client.config.settings import ConsumerConfig
from holdfast.group.messages import OffsetEntry
from holdfast.model import ErrorCode, TopicPartition
from holdfast.net.admin import Admin
from holdfast.net.cluster import Cluster
from holdfast.net.errors import BrokerError
from holdfast.net.metadata import TopicInfo
from holdfast.spark import loss
from holdfast.spark.notes import Memory, digest, digest_of_counts, is_note, read_notes, topic_id_in, write_note
from holdfast.spark.offsets import BatchOffset, Seen
from holdfast.spark.options import SourceOptions
from holdfast.spark.places import COMMITTED, EARLIEST, LATEST, Places, no_committed_offset, resolve

LOOK_LIMIT_S = 10.0
"""How long to retry a topic whose metadata has a temporary error: a new leader is elected within seconds."""


class Starting:
    """Where one query's partitions begin. Call `prepare` once, when it has joined."""

    def __init__(self, options: SourceOptions, config: ConsumerConfig, cluster: Cluster) -> None:
        self._options = options
        self._reset_given = "auto.offset.reset" in options.kafka
        self._reset = config.auto_offset_reset
        self._admin = Admin(cluster)
        self._cluster = cluster
        self._subscription = digest(options.topics)
        """The subscription's short name in notes."""
        self._memory = Memory()
        self._begun: Mapping[str, str] = {}
        self._old_counts: dict[str, int] | None = None
        """By topic: how many partitions existed when the group began; those beyond are newer. None: not asked yet."""
        self._committed: Collection[TopicPartition] = ()
        self._set_by_others: frozenset[TopicPartition] = frozenset()
        """Partitions whose offset was not committed by one of our queries, but for example by an operator."""
        self._former = BatchOffset()
        """Where the query's last run ended, by its checkpoint: `stands` has all of its positions."""
        self.topics: Mapping[str, Seen] = {}
        """The subscribed topics, as last seen."""
        self._last_seen: dict[str, Seen] = {}
        """The same, including topics that are gone now."""
        self._recreated: set[str] = set()

    async def prepare(self, former: BatchOffset) -> Collection[TopicPartition]:
        """Learn what the group remembers and which topics exist. `former`: see `_former`. Returns the partitions whose
        offset in the group is of a topic that was deleted and recreated since."""
        if self._old_counts is not None:
            return ()
        await self.look()
        missing = sorted(t for t in self._options.topics if not t.startswith("^") and t not in self.topics)
        if missing and self._options.fail_on_data_loss:
            raise loss.no_such_topics(missing, streaming=True)
        entries = await self._admin.committed(self._options.group)
        self._set_by_others = frozenset(p for p, entry in entries.items() if not is_note(entry.metadata))
        self._former = former
        outdated = {p for p, entry in entries.items() if self._is_of_former(p.topic, entry)}
        self._committed = entries.keys() - outdated
        self._tell_recreated()
        if self._options.assigned:
            self._old_counts = {} if former.has_history else counts_up_to(self._options.assigned)
            return outdated
        self._memory = memory = read_notes(entries.values())
        counts = {topic: seen.partitions for topic, seen in self.topics.items()}
        there = digest_of_counts(counts)
        begins = not former.has_history and self._begins_with(there)
        anew = {p.topic for p in outdated}  # newer than the group: from the beginning
        known = (counts if begins else {}) | dict(memory.known)
        self._old_counts = {topic: count for topic, count in known.items() if topic not in anew}
        self._begun = memory.with_begun(self._subscription, there if begins else "")
        return outdated

    def _begins_with(self, there: str) -> bool:
        """Whether the group begins our subscription only now, or another member has just begun it with these topics."""
        return not self._memory.has_begun(self._subscription) or self._memory.begun.get(self._subscription) == there

    def _tell_recreated(self) -> None:
        anew = [topic for topic in sorted(self._former.topics) if topic in self.topics and not self._same(topic)]
        if anew:
            loss.tell(loss.topics_recreated(anew), fails=self._options.fail_on_data_loss)

    def _is_of_former(self, topic: str, entry: OffsetEntry) -> bool:
        """Whether an offset was committed for the topic that the checkpoint knows, which was recreated since. A query
        that had not noticed it yet has read on where it stood, and committed that."""
        recreated = topic in self.topics and self._is_recreated(topic)
        return recreated and topic_id_in(entry.metadata) == self._former.topics[topic].topic_id

    def _same(self, topic: str) -> bool:
        """Whether a topic is still the one in the checkpoint. Brokers before 2.8 can't tell."""
        before, now = self._former.topics.get(topic), self.topics.get(topic)
        return before is not None and now is not None and before.is_same(now)

    def note(self, topic: str) -> str:
        """The metadata of every commit for this topic."""
        if self._old_counts is None or self._options.assigned:
            return ""
        seen = self.topics.get(topic)
        count = self._old_counts.get(topic, 0)
        return write_note(topic, count, self._begun, seen.topic_id if seen is not None else "")

    # -- what the checkpoint knows

    def positions_before(self) -> dict[TopicPartition, int]:
        """The positions of the query's last run, for topics that are still the same."""
        return {p: at for p, at in sorted(self._former.stands.items()) if self._same(p.topic)}

    def forgotten_by_group(self) -> dict[TopicPartition, int]:
        """Those for which the group has no offset. They are committed, so that others continue there too."""
        return {p: at for p, at in self.positions_before().items() if p not in self._committed}

    def without_recreated(self, batch: BatchOffset) -> BatchOffset:
        """An earlier run's batch without the topics that were recreated since: the new topic has other records."""
        ranges = {p: each for p, each in batch.ranges.items() if not self._is_recreated(p.topic)}
        stands = {p: at for p, at in batch.stands.items() if not self._is_recreated(p.topic)}
        return replace(batch, ranges=ranges, stands=stands)

    def what_counts(self, done: BatchOffset) -> BatchOffset:
        """What of the last run's last batch counts as done, though it may not be committed. Not where somebody has set
        the offset since: even if it was set to where that batch began, those records are to be read again."""
        done = self.without_recreated(done)
        if self._options.assigned:  # with `assign`, commits have no notes
            return done
        return replace(done, ranges={p: each for p, each in done.ranges.items() if p not in self._set_by_others})

    def _is_recreated(self, topic: str) -> bool:
        """Whether the checkpoint has another topic of this name. One that is gone now is taken for recreated, too."""
        return topic in self._former.topics and not self._same(topic)

    # -- from where

    async def find(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where these partitions begin, which have no committed offset."""
        await self.look()
        before = self.positions_before()
        found = {p: before[p] for p in sorted(partitions) if p in before}
        others = [p for p in sorted(partitions) if p not in found]
        lost = [p for p in others if self._is_lost(p)]
        if lost:
            raise loss.offsets_lost(self._options.group, lost)
        counts = self._old_counts or {}
        newer = [p for p in others if p.partition >= counts.get(p.topic, 0)]
        old = [p for p in others if p.partition < counts.get(p.topic, 0)]
        found |= await self._resolve(EARLIEST, newer)
        if old:
            found |= await self._resolve(self._wanted_place(old[0]), old)
        return dict(sorted(found.items()))

    def _is_lost(self, partition: TopicPartition) -> bool:
        """Whether it existed in the query's last run, and the group has forgotten everything about its topic."""
        if not self._former.has_history:
            return False
        if self._memory.has_begun(self._subscription) or partition.topic in self._memory.known:
            return False
        if not self._former.topics:  # written by an older version, which did not store them
            return not self._committed
        return self._same(partition.topic) and partition.partition < self._former.topics[partition.topic].partitions

    def _wanted_place(self, example: TopicPartition) -> Places:
        """Where the options say. `example` is one of the partitions, for the error."""
        if self._options.starting != COMMITTED:
            return self._options.starting
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

    # -- what there is

    async def look(self) -> None:
        """Update `topics`. With `assign` only the topics' ids matter, because the user has named the partitions."""
        names = self._options.topics or tuple(sorted({p.topic for p in self._options.assigned}))
        found = await topics_seen(self._cluster, names)
        if self._options.assigned:
            found = {topic: replace(seen, partitions=0) for topic, seen in found.items()}
        self._recreated |= {t for t, seen in found.items() if not self._last_seen.get(t, seen).is_same(seen)}
        self._last_seen |= found
        self.topics = found

    def take_recreated(self) -> set[str]:
        """Topics that were recreated while the query runs; each is returned once."""
        anew, self._recreated = self._recreated, set()
        return anew

    async def partitions(self) -> tuple[TopicPartition, ...]:
        """All subscribed partitions that exist now."""
        await self.look()
        return tuple(TopicPartition(topic, n) for topic, seen in self.topics.items() for n in range(seen.partitions))


def counts_up_to(partitions: Iterable[TopicPartition]) -> dict[str, int]:
    """By topic: how many partitions it has at least, if it has these."""
    counts: dict[str, int] = {}
    for topic, number in sorted(partitions):
        counts[topic] = number + 1
    return counts


async def topics_seen(cluster: Cluster, topics: tuple[str, ...]) -> dict[str, Seen]:
    """The existing topics that match these names or patterns, sorted.

    A pattern matches no internal topics, as in Spark's own source: `__consumer_offsets` must be named.
    """
    patterns = [re.compile(topic) for topic in topics if topic.startswith("^")]
    deadline = time.monotonic() + LOOK_LIMIT_S
    while True:
        info = await cluster.refresh(None if patterns else topics)
        meant = {
            name: topic
            for name, topic in sorted(info.topics.items())
            if name in topics or (not topic.internal and any(p.search(name) for p in patterns))
        }
        trouble = next((_trouble(name, topic.error) for name, topic in meant.items() if _is_trouble(topic.error)), None)
        if trouble is None:
            return {
                name: Seen(max(topic.partitions, default=-1) + 1, _id(topic))
                for name, topic in meant.items()
                if topic.error is ErrorCode.NONE
            }
        if not trouble.retriable or time.monotonic() > deadline:
            raise trouble
        await asyncio.sleep(cluster.config.backoff_s)


def _is_trouble(error: ErrorCode) -> bool:
    """Whether it is neither success nor a missing topic: a topic whose metadata failed may well exist."""
    return error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _trouble(topic: str, error: ErrorCode) -> BrokerError:
    return BrokerError(error, f"The topic {topic} can't be looked at.")


def _id(topic: TopicInfo) -> str:
    return topic.topic_id.hex if topic.topic_id is not None and topic.topic_id.int else ""
