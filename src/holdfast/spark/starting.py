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
        self._mark = digest(options.topics)
        """The subscription's short name in notes."""
        self._memory = Memory()
        self._begun: Mapping[str, str] = {}
        self._known: dict[str, int] | None = None
        """By topic: how many partitions existed when the group began. Others are newer."""
        self._committed: Collection[TopicPartition] = ()
        self._strange: frozenset[TopicPartition] = frozenset()
        """Partitions whose offset was not committed by one of our queries, but for example by an operator."""
        self._former = BatchOffset()
        """The positions in the checkpoint, as a batch that reads nothing."""
        self.topics: Mapping[str, Seen] = {}
        """The subscribed topics, as last seen."""
        self._last_seen: dict[str, Seen] = {}
        """The same, including topics that are gone now."""
        self._recreated: set[str] = set()

    async def prepare(self, former: BatchOffset) -> Collection[TopicPartition]:
        """Learn what the group remembers and which topics exist. `former` is where the query's last run ended. Returns
        the partitions whose offset in the group is of a topic that was deleted and recreated since."""
        if self._known is not None:
            return ()
        await self.look()
        missing = sorted(t for t in self._options.topics if not t.startswith("^") and t not in self.topics)
        if missing and self._options.fail_on_data_loss:
            raise loss.no_such_topics(missing)
        entries = await self._admin.committed(self._options.group)
        self._strange = frozenset(p for p, entry in entries.items() if not is_note(entry.metadata))
        self._former = former
        outdated = {p for p, entry in entries.items() if self._is_of_former(p.topic, entry)}
        self._committed = entries.keys() - outdated
        self._tell_recreated()
        if self._options.assigned:
            counts = {p.topic: p.partition + 1 for p in sorted(self._options.assigned)}
            self._known = {} if former.has_history else counts
            return outdated
        memory = read_notes(entries.values())
        counts = {topic: seen.partitions for topic, seen in self.topics.items()}
        there = digest_of_counts(counts)
        begins = not former.has_history and (not memory.has_begun(self._mark) or memory.begun.get(self._mark) == there)
        anew = {p.topic for p in outdated}  # newer than the group: from the beginning
        known = (counts if begins else {}) | dict(memory.known)
        self._known = {topic: count for topic, count in known.items() if topic not in anew}
        self._memory, self._begun = memory, memory.with_begun(self._mark, there if begins else "")
        return outdated

    def _tell_recreated(self) -> None:
        anew = [topic for topic in sorted(self._former.topics) if topic in self.topics and not self._same(topic)]
        if anew:
            loss.tell(loss.topics_recreated(anew), fails=self._options.fail_on_data_loss)

    def _is_of_former(self, topic: str, entry: OffsetEntry) -> bool:
        """Whether an offset was committed for the topic that the checkpoint knows, which was recreated since. A query
        that had not noticed it yet has read on where it stood, and committed that."""
        recreated = topic in self._former.topics and topic in self.topics and not self._same(topic)
        return recreated and topic_id_in(entry.metadata) == self._former.topics[topic].topic_id

    def _same(self, topic: str) -> bool:
        """Whether a topic is still the one in the checkpoint. Brokers before 2.8 can't tell."""
        before, now = self._former.topics.get(topic), self.topics.get(topic)
        return before is not None and now is not None and before.is_same(now)

    def note(self, topic: str) -> str:
        """The metadata of every commit for this topic."""
        if self._known is None or self._options.assigned:
            return ""
        seen = self.topics.get(topic)
        return write_note(topic, self._known.get(topic, 0), self._begun, seen.topic_id if seen is not None else "")

    # -- what the checkpoint knows

    def recall(self) -> dict[TopicPartition, int]:
        """The positions of the query's last run, for topics that are still the same."""
        return {p: at for p, at in sorted(self._former.stands.items()) if self._same(p.topic)}

    def forgotten(self) -> dict[TopicPartition, int]:
        """Those for which the group has no offset. They are committed, so that others continue there too."""
        return {p: at for p, at in self.recall().items() if p not in self._committed}

    def trusted(self, done: BatchOffset) -> BatchOffset:
        """Without topics that were recreated since, because the new topic has other records."""
        ranges = {p: each for p, each in done.ranges.items() if self._known_as_it_is(p.topic)}
        stands = {p: at for p, at in done.stands.items() if self._known_as_it_is(p.topic)}
        return replace(done, ranges=ranges, stands=stands)

    def counted(self, done: BatchOffset) -> BatchOffset:
        """What the last run has done and may not have committed. Without partitions whose offset somebody has set
        since: even if it was set to where the last batch began, those records are to be read again."""
        done = self.trusted(done)
        if self._options.assigned:  # with `assign`, commits have no notes
            return done
        return replace(done, ranges={p: each for p, each in done.ranges.items() if p not in self._strange})

    def _known_as_it_is(self, topic: str) -> bool:
        return topic not in self._former.topics or self._same(topic)

    # -- from where

    async def find(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where these partitions begin, which have no committed offset."""
        await self.look()
        stood = self.recall()
        found = {p: stood[p] for p in sorted(partitions) if p in stood}
        wanted = [p for p in sorted(partitions) if p not in found]
        lost = [p for p in wanted if self._is_lost(p)]
        if lost:
            raise loss.offsets_lost(self._options.group, lost)
        known = self._known or {}
        later = [p for p in wanted if p.partition >= known.get(p.topic, 0)]
        first = [p for p in wanted if p.partition < known.get(p.topic, 0)]
        found |= await self._resolve(EARLIEST, later)
        if first:
            found |= await self._resolve(self._places(first[0]), first)
        return dict(sorted(found.items()))

    def _is_lost(self, partition: TopicPartition) -> bool:
        """Whether it existed in the query's last run, and the group has forgotten everything about its topic."""
        if not self._former.has_history or self._memory.has_begun(self._mark) or partition.topic in self._memory.known:
            return False
        if not self._former.topics:  # written by an older version, which did not store them
            return not self._committed
        return self._same(partition.topic) and partition.partition < self._former.topics[partition.topic].partitions

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
