"""Where a partition begins, and who is right about it. The order is documented in docs/spark.md:

1. the group's committed offset, which is not asked for here;
2. without one, where the query's checkpoint says that it stood, if it is still the same topic;
3. the beginning, for what came later than the group: or records would be lost, as in Spark's own source;
4. the options, for what was there when the group began;
5. nobody knows: the query has been at work before, and the group has forgotten. That is refused, not guessed.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from holdfast.client.config.settings import ConsumerConfig
from holdfast.model import ErrorCode, TopicPartition
from holdfast.net.admin import Admin
from holdfast.net.cluster import Cluster
from holdfast.net.errors import BrokerError
from holdfast.net.metadata import TopicInfo
from holdfast.spark import loss
from holdfast.spark.notes import Memory, digest, digest_of_counts, is_note, read_notes, write_note
from holdfast.spark.offsets import BatchOffset, Seen
from holdfast.spark.options import SourceOptions
from holdfast.spark.places import COMMITTED, EARLIEST, LATEST, Places, no_committed_offset, resolve

LOOK_LIMIT_S = 10.0
"""How long a topic is asked for again whose metadata is an error that passes: a new leader is there within seconds."""


class Starting:
    """One query's answer to "from where?". Call `prepare` once, when it has joined."""

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
        """Partitions of each topic that the options decide about; those that are not here came later."""
        self._committed: Collection[TopicPartition] = ()
        self._strange: frozenset[TopicPartition] = frozenset()
        """Where the group's offset was set by somebody else than a query of ours: an operator, for one."""
        self._former = BatchOffset()
        """Where the checkpoint says that the query stood: a batch that reads nothing."""
        self.topics: Mapping[str, Seen] = {}
        """What is subscribed to, as last seen."""
        self._last_seen: dict[str, Seen] = {}
        """The same, with topics that have gone since."""
        self._recreated: set[str] = set()

    async def prepare(self, former: BatchOffset) -> None:
        """Learn what the group remembers and what there is. `former` is where the query's last life ended."""
        if self._known is not None:
            return
        await self.look()
        missing = sorted(t for t in self._options.topics if not t.startswith("^") and t not in self.topics)
        if missing and self._options.fail_on_data_loss:
            raise loss.no_such_topics(missing)
        entries = await self._admin.committed(self._options.group)
        self._committed = entries.keys()
        self._strange = frozenset(p for p, entry in entries.items() if not is_note(entry.metadata))
        self._former = former
        self._tell_recreated()
        if self._options.assigned:
            counts = {p.topic: p.partition + 1 for p in sorted(self._options.assigned)}
            self._known = {} if former.has_history else counts
            return
        memory = read_notes(entries.values())
        counts = {topic: seen.partitions for topic, seen in self.topics.items()}
        there = digest_of_counts(counts)
        begins = not former.has_history and (not memory.has_begun(self._mark) or memory.begun.get(self._mark) == there)
        self._known = (counts if begins else {}) | dict(memory.known)
        self._memory, self._begun = memory, memory.with_begun(self._mark, there if begins else "")

    def _tell_recreated(self) -> None:
        anew = [topic for topic in sorted(self._former.topics) if topic in self.topics and not self._same(topic)]
        if anew:
            loss.tell(loss.topics_recreated(anew), fails=self._options.fail_on_data_loss)

    def _same(self, topic: str) -> bool:
        """Whether a topic is the one that the checkpoint speaks of. Brokers before 2.8 can't tell."""
        before, now = self._former.topics.get(topic), self.topics.get(topic)
        return before is not None and now is not None and before.is_same(now)

    def note(self, topic: str) -> str:
        """Goes into the metadata of every commit of this topic."""
        if self._known is None or self._options.assigned:
            return ""
        return write_note(topic, self._known.get(topic, 0), self._begun)

    # -- what the checkpoint knows

    def recall(self) -> dict[TopicPartition, int]:
        """Where the query stood in its last life, of the topics that are still the same."""
        return {p: at for p, at in sorted(self._former.stands.items()) if self._same(p.topic)}

    def forgotten(self) -> dict[TopicPartition, int]:
        """Of that, what the group has no offset for. It is told, so that others go on from there too."""
        return {p: at for p, at in self.recall().items() if p not in self._committed}

    def trusted(self, done: BatchOffset) -> BatchOffset:
        """Without what it says of topics that were made anew since: the new topic's records are other ones."""
        ranges = {p: each for p, each in done.ranges.items() if self._known_as_it_is(p.topic)}
        stands = {p: at for p, at in done.stands.items() if self._known_as_it_is(p.topic)}
        return replace(done, ranges=ranges, stands=stands)

    def counted(self, done: BatchOffset) -> BatchOffset:
        """What the last life has done, and may not have told the group. Not where somebody has set the group's offset
        since: if that is just where the last batch began, it is to be read again."""
        done = self.trusted(done)
        if self._options.assigned:  # commits of partitions by hand carry no note
            return done
        return replace(done, ranges={p: each for p, each in done.ranges.items() if p not in self._strange})

    def _known_as_it_is(self, topic: str) -> bool:
        return topic not in self._former.topics or self._same(topic)

    # -- from where

    async def find(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where these begin, for which the group has no offset."""
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
        """Whether it was there in the query's last life, and the group has forgotten everything about its topic."""
        if not self._former.has_history or self._memory.has_begun(self._mark) or partition.topic in self._memory.known:
            return False
        if not self._former.topics:  # written by a version that did not note them
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
        """Renew `topics`. Of partitions by hand only the topics' ids matter: who names them knows which there are."""
        names = self._options.topics or tuple(sorted({p.topic for p in self._options.assigned}))
        found = await topics_seen(self._cluster, names)
        if self._options.assigned:
            found = {topic: replace(seen, partitions=0) for topic, seen in found.items()}
        self._recreated |= {t for t, seen in found.items() if not self._last_seen.get(t, seen).is_same(seen)}
        self._last_seen |= found
        self.topics = found

    def take_recreated(self) -> set[str]:
        """Topics that were made anew while the query runs, each told once."""
        anew, self._recreated = self._recreated, set()
        return anew

    async def partitions(self) -> tuple[TopicPartition, ...]:
        """Everything that is subscribed to, as it is now."""
        await self.look()
        return tuple(TopicPartition(topic, n) for topic, seen in self.topics.items() for n in range(seen.partitions))


async def topics_seen(cluster: Cluster, topics: tuple[str, ...]) -> dict[str, Seen]:
    """The topics that these names or patterns mean, sorted; what does not exist is left out.

    A pattern means no internal topics, as in Spark's own source: whoever wants `__consumer_offsets` names it.
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
    """Anything but an answer: a topic that can't be told of now is not one that does not exist."""
    return error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _trouble(topic: str, error: ErrorCode) -> BrokerError:
    return BrokerError(error, f"The topic {topic} can't be looked at.")


def _id(topic: TopicInfo) -> str:
    return topic.topic_id.hex if topic.topic_id is not None and topic.topic_id.int else ""
