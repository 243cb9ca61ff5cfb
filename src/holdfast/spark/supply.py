"""What there is to read: where partitions begin, where they end now, what is missing, and whether it is enough for a
batch.

It asks the brokers between batches, on the member's loop. It knows nothing of the group: `member` and `work` know which
partitions are ours and what is done with them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.net import admin as net
from holdfast.net.cluster import Cluster
from holdfast.net.errors import BrokerError
from holdfast.spark import loss
from holdfast.spark.offsets import Ranges
from holdfast.spark.options import SourceOptions
from holdfast.spark.starting import Starting

LOOK_EVERY_S = 0.01
"""How often the ends of partitions are asked for while idle. Spark itself asks every 12 ms."""

RENEW_EVERY_S = 30.0
"""How often at least the topics' metadata is refreshed: a recreated topic has another id. metadata.max.age.ms can make
it more often."""


class Supply:
    """One query's view of its topics."""

    def __init__(self, options: SourceOptions, cluster: Cluster, starting: Starting) -> None:
        self.ends: dict[TopicPartition, int] = {}
        """The last known ends of partitions."""
        self.bounded = False
        """Whether nothing produced from now on is read (AvailableNow)."""
        self._options = options
        self._cluster = cluster
        self._admin = net.Admin(cluster)
        self._starting = starting
        self._target: dict[TopicPartition, int] = {}
        self._gone: set[str] = set()
        self._looked_at = 0.0
        self._planned_at = 0.0
        """When the last batch was planned; before the first, when there was something to read at first. 0: never."""
        age_s = cluster.config.metadata_max_age_s
        self._renew_every_s = min(age_s, RENEW_EVERY_S) if age_s > 0 else RENEW_EVERY_S
        self._renewed_at = time.monotonic()

    def look_again(self) -> None:
        """The assignment has changed: a topic that was gone may be back."""
        self._gone.clear()

    def there(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those whose topic is not known to be gone."""
        return [partition for partition in partitions if partition.topic not in self._gone]

    async def bound(self) -> None:
        """Fix the current ends, of every partition that may become ours, as the last offsets to read."""
        partitions = self._options.assigned or await self._starting.partitions()
        self._target = await self._list(partitions, net.LATEST)
        self.bounded = True

    async def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions without a committed offset begin; without those whose topic is gone."""
        wanted = self.there(partitions)
        try:
            return await self._starting.find(wanted) if wanted else {}
        except BrokerError as error:
            await self._look_for_topics(wanted, error)
            return {}

    async def look(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Update `ends`. Returns new positions for partitions whose log was recreated or truncated."""
        now = time.monotonic()
        await self._renew(now)
        wanted = self.there(positions)
        if not wanted or (now - self._looked_at < LOOK_EVERY_S and self.ends.keys() >= set(wanted)):
            return {}
        self._looked_at = now
        try:
            self.ends = await self._list(wanted, net.LATEST)
            behind = await self._regressed(positions)
        except BrokerError as error:
            await self._look_for_topics(wanted, error)
            return {}
        anew = self._recreated()
        behind = {p: end for p, end in behind.items() if p.topic not in anew}
        for partition, end in behind.items():
            self._tell(loss.log_regressed(partition, positions[partition], end))
        return await self._list([p for p in wanted if p in behind or p.topic in anew], net.EARLIEST)

    async def _regressed(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The ends of logs that end before our positions. With read_committed, `ends` are where open transactions
        begin, and a position may be beyond that; only the end of the log counts."""
        behind = sorted(p for p, end in self.ends.items() if end < positions[p])
        if not behind or not self._options.read_committed:
            return {p: self.ends[p] for p in behind}
        found = await self._admin.list_offsets(dict.fromkeys(behind, net.LATEST))
        return {p: at.offset for p, at in found.items() if at.offset < positions[p]}

    async def _renew(self, now: float) -> None:
        """Refresh the topics' metadata when that is due. A topic that was gone may be back, under another id."""
        if now - self._renewed_at < self._renew_every_s:
            return
        self._renewed_at = now
        try:
            await self._starting.look()
        except BrokerError as error:
            if not error.retriable:
                raise
            return  # the next refresh tries again; until then the old metadata holds
        self._gone -= self._starting.topics.keys()

    def _recreated(self) -> set[str]:
        """Topics that were recreated since the last call."""
        anew = self._starting.take_recreated()
        if anew:
            self._tell(loss.topics_recreated(anew))
        return anew

    def reachable(self) -> Mapping[TopicPartition, int]:
        """The offsets up to which a batch may read."""
        if not self.bounded:
            return self.ends
        return {p: min(end, self._target.get(p, 0)) for p, end in self.ends.items()}

    def enough(self, ranges: Ranges, at_least: int | None) -> bool:
        """Whether these are enough records for a batch (minOffsetsPerTrigger), or have waited for others long enough
        (maxTriggerDelay)."""
        now = time.monotonic()
        self._planned_at = self._planned_at or now
        if at_least is None or self.bounded or now - self._planned_at >= self._options.max_delay_s:
            return True
        return sum(end - start for start, end in ranges.values()) >= at_least

    def note_planned(self) -> None:
        """A batch is planned: the wait for enough records begins again."""
        self._planned_at = time.monotonic()

    async def _list(self, partitions: Iterable[TopicPartition], where: int) -> dict[TopicPartition, int]:
        asked = dict.fromkeys(partitions, where)
        if not asked:
            return {}
        found = await self._admin.list_offsets(asked, read_committed=self._options.read_committed)
        return {partition: at.offset for partition, at in found.items()}

    async def _look_for_topics(self, partitions: Iterable[TopicPartition], error: BrokerError) -> None:
        """If the error means that topics are gone, report that; otherwise raise it."""
        topics = {partition.topic for partition in partitions}
        known = (await self._cluster.refresh(topics)).topics
        gone = {t for t in topics if t not in known or known[t].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        if not gone:
            raise error
        self._tell(loss.topics_deleted(gone))
        self._gone |= gone

    def _tell(self, lost: HoldfastError) -> None:
        loss.tell(lost, fails=self._options.fail_on_data_loss)
