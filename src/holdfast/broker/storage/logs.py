"""The partitions that are open: each log is opened on first use, and there is one for each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from uuid import UUID

from holdfast.broker.storage.config import LogConfig, parse
from holdfast.broker.storage.errors import Recovery, StorageError
from holdfast.broker.storage.log import Log
from holdfast.broker.storage.mend import Mend
from holdfast.broker.storage.pool import FilePool
from holdfast.broker.storage.sync import Syncer
from holdfast.broker.storage.topics import Catalog, Topic, partitions_on_disk, topic_folder
from holdfast.broker.storage.trash import Trash
from holdfast.broker.storage.work import Work
from holdfast.model import ErrorCode, TopicPartition


class Logs:
    """The open logs of a store."""

    def __init__(
        self,
        catalog: Catalog,
        pool: FilePool,
        syncer: Syncer,
        *,
        clock: Callable[[], int],
        steady: Callable[[], float],
        report: Callable[[Recovery], None],
        trash: Trash,
    ) -> None:
        self._catalog = catalog
        self._pool = pool
        self._syncer = syncer
        self._clock = clock
        self._steady = steady
        self._report = report
        self._trash = trash
        self._open: dict[tuple[UUID, int], Log] = {}

    def of(self, topic: Topic, partition: int) -> Log:
        """A partition's log. UNKNOWN_TOPIC_OR_PARTITION if it is not in the catalog any more."""
        log = self._open.get((topic.topic_id, partition))
        if log is not None:
            return log
        current = self._catalog.by_id.get(topic.topic_id)
        if current is None or not 0 <= partition < current.partitions:
            what = f"Topic {topic.name!r} has no partition {partition}."
            raise StorageError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what, "Look up the topic again.")
        return self.open(current, partition)

    def open(self, topic: Topic, partition: int) -> Log:
        log = Log(
            topic=topic.name,
            partition=partition,
            folder=f"{topic_folder(topic)}/{partition}",
            pool=self._pool,
            syncer=self._syncer,
            clock=self._clock,
            steady=self._steady,
            config=parse(topic.configs),
            report=self._report,
            trash=self._trash,
        )
        self._open[topic.topic_id, partition] = log
        return log

    def opened(self) -> list[TopicPartition]:
        return sorted(TopicPartition(log.topic, log.partition) for log in self._open.values())

    def with_data(self) -> Iterator[tuple[Topic, int]]:
        """The partitions that ever held a record, open or not."""
        return ((topic, partition) for topic in self.topics() for partition in self.look_up(topic)())

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        return [topic for _, topic in sorted(self._catalog.by_name.items())]

    def look_up(self, topic: Topic) -> Callable[[], list[int]]:
        """Work for any thread: which of a topic's partitions ever held a record."""
        return partial(partitions_on_disk, self._pool.files, topic)

    def repair(self) -> None:
        """After a crash: open all partitions with data. One that can't be opened does not keep the others from being
        served."""
        for topic, partition in self.with_data():
            try:
                self.open(topic, partition)
            except StorageError as error:
                folder = f"{topic_folder(topic)}/{partition}"
                self._report(Recovery.unopenable(topic.name, partition, folder, error.what))

    # What happens to a topic

    def configure(self, topic: Topic, config: LogConfig) -> None:
        for (topic_id, _), log in self._open.items():
            if topic_id == topic.topic_id:
                log.config = config

    def forget(self, topic: Topic) -> list[Log]:
        """Returns its open logs, which are not used any more."""
        keys = ((topic.topic_id, partition) for partition in range(topic.partitions))
        logs = [log for key in keys if (log := self._open.pop(key, None)) is not None]
        for log in logs:
            log.retired = True
        return logs

    def retention(self, topic: Topic, partition: int) -> Work[int]:
        """Returns how many segments went."""
        if topic.topic_id not in self._catalog.by_id:
            return 0  # deleted since it was queued
        return (yield from self.of(topic, partition).retention())

    # After a failed fsync

    def mends(self) -> Iterator[Mend]:
        """The files that must be rewritten before they can be relied on."""
        return (mend for log in self._open.values() for mend in log.mends())

    def use_mended(self, mend: Mend) -> None:
        for (topic_id, partition), log in list(self._open.items()):
            if log.owns(mend.path) and not log.use_mended(mend):
                log.retired = True
                del self._open[topic_id, partition]
                self.open(self._catalog.by_id[topic_id], partition)  # now, so that what is missing is reported now

    def close(self) -> None:
        """The caller has synced them before."""
        for log in self._open.values():
            log.close()
