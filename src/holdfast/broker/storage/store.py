"""The store: one folder with everything a broker keeps, and the only door to it.

    lock                            one broker at a time
    clean                           there while no broker runs and the last one stopped in order
    catalog/                        journal of topics and properties
    journals/NAME/                  other journals, e.g. groups and offsets
    topics/TOPIC-ID/PARTITION/      segments of one partition; created with its first record

Rules: a change of the catalog is all or nothing, in memory, on disk and after a restart. Topics are named by id on
disk, so a topic that is deleted and created again never sees old files, and no name from the network becomes a path.
Partitions open on first use and share a bounded number of file handles, so thousands cost nothing until they are used.
After a crash those with data are opened at once, so that every repair is reported on start. Records carry the time of
day, which may be set back; durations are measured by a clock that never goes back.

More than 400 lines because it is the only door: most methods hand on to what does the work (`topics`, `log`,
`journal`, `sync`, `mend`), and callers need not know which.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import length_hint
from pathlib import Path
from uuid import UUID

from holdfast.broker.storage.config import LogConfig, parse
from holdfast.broker.storage.errors import Recovery, StorageError, disk_trouble
from holdfast.broker.storage.files import Files, RealFiles
from holdfast.broker.storage.journal import COMPACT_MIN_BYTES, Journal
from holdfast.broker.storage.log import Log
from holdfast.broker.storage.memory import MemoryFiles
from holdfast.broker.storage.mend import Mend
from holdfast.broker.storage.pool import FilePool, open_files_allowed
from holdfast.broker.storage.segment import INDEX_SUFFIX
from holdfast.broker.storage.sweep import Sweeper
from holdfast.broker.storage.sync import DEFAULT_INTERVAL_MS, Failures, FlushPolicy, Syncer, SyncRound
from holdfast.broker.storage.topics import (
    TOPICS_FOLDER,
    Catalog,
    Plan,
    Topic,
    check_name,
    check_partitions,
    partitions_on_disk,
    topic_folder,
)
from holdfast.model import ErrorCode, TopicPartition

RETENTION_CHECK_MS = 300_000
"""Kafka's log.retention.check.interval.ms."""
RETENTION_LOGS_PER_TICK = 64
"""Partitions looked at in one tick: about 10 ms at worst, so that thousands never stall the event loop."""
PRODUCER_ID_BLOCK = 1_000
"""Producer ids reserved by one catalog write, as in Kafka; what is left of a block at a restart is skipped."""

_CLEAN = "clean"


FIRST_MEND_AFTER_MS, LAST_MEND_AFTER_MS = 500, 30_000
"""First and longest wait before rewriting a file is tried again; it doubles each time. A file may have 64 MiB."""


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


def steady_clock() -> float:
    return time.monotonic() * 1000.0


class Store:
    """Open with `Store(directory)` or `Store(None)` for memory; close with `close()`. Not thread-safe, except for
    `SyncRound.run`.
    """

    def __init__(
        self,
        directory: str | Path | None,
        *,
        clock: Callable[[], int] = wall_clock,
        steady: Callable[[], float] = steady_clock,
        flush: FlushPolicy = FlushPolicy.OS,
        flush_interval_ms: int = DEFAULT_INTERVAL_MS,
        max_open_files: int | None = None,
        retention_check_ms: int = RETENTION_CHECK_MS,
        new_id: Callable[[], UUID] = uuid.uuid4,
        files: Files | None = None,
    ) -> None:
        self.recoveries: list[Recovery] = []
        """Every repair since opening, in order. The broker takes them from here, or watches with `on_recovery`."""
        self.on_recovery: Callable[[Recovery], None] | None = None
        self._in_memory = directory is None and files is None
        real = files or (MemoryFiles() if directory is None else RealFiles(directory))
        self._clock = clock
        self._steady = steady
        self._new_id = new_id
        self._lock = real.lock("lock")
        self._pool = FilePool(real, limit=max_open_files or open_files_allowed())
        self._files: Files = self._pool.files
        self._syncer = Syncer(self._files, policy=flush, interval_ms=flush_interval_ms, steady=steady)
        self._mend_at, self._mend_wait = 0.0, 0.0
        self._mending: set[str] = set()
        self._logs: dict[tuple[UUID, int], Log] = {}
        self._journals: dict[str, Journal] = {}
        self._retention_check_ms = retention_check_ms
        self._next_retention = steady() + retention_check_ms
        self._retention_queue: Iterator[tuple[Topic, int]] = iter(())
        self._producer_ids: Iterator[int] = iter(())
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise

    def _open(self) -> None:
        clean = self._unmark_clean()
        # The catalog is small, rarely written, and everything hangs on it: it is forced to disk whatever the policy.
        sure = Syncer(self._files, policy=FlushPolicy.ALWAYS, steady=self._steady)
        self._catalog_journal = self._new_journal("catalog", "catalog", sure, COMPACT_MIN_BYTES, keep_entries=True)
        self._catalog = Catalog(self._catalog_journal)
        if "cluster.id" not in self._catalog.properties:
            self._files.mkdir(TOPICS_FOLDER)
            self._catalog.set_property("cluster.id", str(self._new_id()))
        self._sweeper = Sweeper(self._pool, self._catalog)
        self._sweep()
        if not clean:
            self._repair()

    def _repair(self) -> None:
        """After a crash: open all partitions with data. One that can't be opened does not keep the others from being
        served."""
        for topic in self.topics():
            for partition in partitions_on_disk(self._files, topic):
                try:
                    self._log(topic, partition)
                except StorageError as error:
                    folder = f"{topic_folder(topic)}/{partition}"
                    self._found(
                        Recovery(
                            topic=topic.name,
                            partition=partition,
                            file=folder,
                            position=0,
                            cut_bytes=0,
                            unopened=True,
                            reason=f"can't be opened: {error.what}",
                        )
                    )

    def _unmark_clean(self) -> bool:
        try:
            self._files.unlink(_CLEAN)
        except FileNotFoundError:
            return False
        self._files.fsync_dir("")
        return True

    def _found(self, recovery: Recovery) -> None:
        self.recoveries.append(recovery)
        if self.on_recovery is not None:
            self.on_recovery(recovery)

    # Topics

    @property
    def in_memory(self) -> bool:
        """Whether writing takes no time and can't fail."""
        return self._in_memory

    @property
    def cluster_id(self) -> UUID:
        return UUID(self._catalog.properties["cluster.id"])

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        return [topic for _, topic in sorted(self._catalog.by_name.items())]

    def topic_names(self) -> Iterable[str]:
        """In no order."""
        return self._catalog.by_name.keys()

    def topic_count(self) -> int:
        return len(self._catalog.by_name)

    def partition_count(self) -> int:
        """Partitions of all topics."""
        return self._catalog.partitions

    def topic(self, name: str) -> Topic | None:
        return self._catalog.by_name.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        return self._catalog.by_id.get(topic_id)

    def create_topic(
        self,
        name: str,
        partitions: int,
        *,
        configs: Mapping[str, str] | None = None,
        replicas: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic, durably. With `validate_only` everything is checked and nothing done."""
        check_name(name)
        if name in self._catalog.by_name:
            what = f"Topic {name!r} exists already."
            raise StorageError(ErrorCode.TOPIC_ALREADY_EXISTS, what, "Use it, or choose another name.")
        check_partitions(partitions)
        _check_replicas(replicas, partitions)
        parse(configs or {})
        topic = Topic(
            name=name,
            topic_id=self._new_id(),
            partitions=partitions,
            configs=dict(configs or {}),
            replicas=tuple(tuple(ids) for ids in replicas),
        )
        if not validate_only:
            self._catalog.put(topic)
        return topic

    def grow_topic(
        self, name: str, partitions: int, *, replicas: Sequence[Sequence[int]] = (), validate_only: bool = False
    ) -> Topic:
        """Raise a topic's number of partitions to `partitions`; `replicas` are those of the new ones."""
        topic = self._existing(name)
        check_partitions(partitions, more_than=topic.partitions)
        _check_replicas(replicas, partitions - topic.partitions)
        added = tuple(tuple(ids) for ids in replicas)
        grown = replace(topic, partitions=partitions, replicas=topic.replicas + added if topic.replicas else ())
        if not validate_only:
            self._catalog.put(grown)
        return grown

    def configure_topic(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> Topic:
        """Replace a topic's settings; what is not in `configs` goes back to its default."""
        topic = replace(self._existing(name), configs=dict(configs))
        config = parse(configs)
        if not validate_only:
            self._catalog.put(topic)
            self._catalog.when_written(lambda: self._configure(topic, config))
        return topic

    def _configure(self, topic: Topic, config: LogConfig) -> None:
        for (topic_id, _), log in self._logs.items():
            if topic_id == topic.topic_id:
                log.config = config

    def delete_topic(self, name: str) -> Topic:
        """Forget a topic at once. Its files go now if they are few, else with the next ticks or the next start."""
        topic = self._existing(name)
        self._catalog.begin_delete(topic)
        self._catalog.when_written(lambda: self._forget(topic))
        return topic

    def _forget(self, topic: Topic) -> None:
        for key in [key for key in self._logs if key[0] == topic.topic_id]:
            del self._logs[key]
        self._sweeper.add(topic)
        self._sweep()

    def when_written(self, what: Callable[[], None]) -> None:
        """Call `what` when the changes just made to the catalog are on disk."""
        self._catalog.when_written(what)

    def planning(self) -> AbstractContextManager[Plan]:
        """Changes without blocking the loop: `with planning() as plan` let `plan.do(work)` change topics and
        properties, then `plan.run()` in a thread, then `finish_plan(plan)`, which raises if it could not be written.

        To everybody else the changes happen in `finish_plan`, or never. One plan at a time.
        """
        return self._catalog.planning()

    def finish_plan(self, plan: Plan) -> None:
        self._catalog.finish(plan)

    def _sweep(self) -> None:
        """What the disk refuses now is tried again with the ticks."""
        with contextlib.suppress(StorageError):
            self._sweep_some()

    def _sweep_some(self) -> None:
        if not self._catalog.writing:  # its journal would make us wait
            self._sweeper.run()

    def _existing(self, name: str) -> Topic:
        topic = self._catalog.by_name.get(name)
        if topic is None:
            what = f"There is no topic {name!r}."
            raise StorageError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what, "Create it first.")
        return topic

    # Partitions

    def log(self, topic: str, partition: int) -> Log:
        """The log of one partition, opened on first use. UNKNOWN_TOPIC_OR_PARTITION if there is none."""
        return self.log_of(self._existing(topic), partition)

    def log_of(self, topic: Topic, partition: int) -> Log:
        log = self._logs.get((topic.topic_id, partition))
        if log is not None:
            return log
        current = self._catalog.by_id.get(topic.topic_id)
        if current is None or not 0 <= partition < current.partitions:
            what = f"Topic {topic.name!r} has no partition {partition}."
            raise StorageError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what, "Look up the topic again.")
        return self._log(current, partition)

    def _log(self, topic: Topic, partition: int) -> Log:
        log = Log(
            topic=topic.name,
            partition=partition,
            folder=f"{topic_folder(topic)}/{partition}",
            pool=self._pool,
            syncer=self._syncer,
            clock=self._clock,
            steady=self._steady,
            config=parse(topic.configs),
            report=self._found,
        )
        self._logs[topic.topic_id, partition] = log
        return log

    def open_partitions(self) -> list[TopicPartition]:
        """Those opened so far."""
        return sorted(TopicPartition(log.topic, log.partition) for log in self._logs.values())

    # Journals, producer ids

    def journal(self, name: str, *, compact_min_bytes: int = COMPACT_MIN_BYTES) -> Journal:
        """The journal of that name (our own names only, never one from the network), created empty if need be."""
        journal = self._journals.get(name)
        if journal is None:
            journal = self._new_journal(name, f"journals/{name}", self._syncer, compact_min_bytes)
            self._journals[name] = journal
        return journal

    def _new_journal(
        self, name: str, folder: str, syncer: Syncer, compact_min_bytes: int, *, keep_entries: bool = False
    ) -> Journal:
        return Journal(
            name=name,
            folder=folder,
            files=self._files,
            syncer=syncer,
            report=self._found,
            compact_min_bytes=compact_min_bytes,
            keep_entries=keep_entries,
        )

    def next_producer_id(self) -> int:
        """A producer id that was never given out before, also across crashes."""
        number = next(self._producer_ids, None)
        if number is None:
            first = int(self._catalog.properties.get("producer.ids", "0"))
            self._catalog.set_property("producer.ids", str(first + PRODUCER_ID_BLOCK))
            self._catalog.when_written(lambda: self._reserved(first + 1, first + PRODUCER_ID_BLOCK))
            number = first
        return number

    def _reserved(self, first: int, end: int) -> None:
        self._producer_ids = iter(range(first, end))

    @property
    def has_producer_id(self) -> bool:
        """Whether the next producer id needs nothing to be written."""
        return length_hint(self._producer_ids) > 0

    # Durability and housekeeping

    @property
    def flush(self) -> FlushPolicy:
        return self._syncer.policy

    def commit(self) -> None:
        """Call between appends made with `commit=False` and their acknowledgement. Free unless the policy is
        `always`.
        """
        self._syncer.commit()

    def take_sync(self) -> SyncRound | None:
        """For syncs that don't block the loop: `taken = take_sync()`, `taken.run()` in a thread, then
        `finish_sync(taken)`.
        """
        return self._syncer.take()

    def finish_sync(self, taken: SyncRound) -> Failures:
        """What the disk refused: it must not be acknowledged."""
        return self._syncer.done(taken)

    def sync_due(self) -> bool:
        """Whether the interval policy wants a sync now."""
        return self._syncer.due()

    def take_mend(self) -> Mend | None:
        """A file to be rewritten because an fsync of it failed; None if there is none, or it is too early. Call its
        `run` in a thread, then `finish_mend`.
        """
        if not self._syncer.broken_files() or self._steady() < self._mend_at:
            return None
        for path in self._syncer.broken_files():
            if path.endswith(INDEX_SUFFIX):
                self._syncer.renewed(path)  # an index: it has a checksum, and can be rebuilt from the log
        wanted = (mend for log in self._logs.values() for mend in log.mends() if mend.path not in self._mending)
        mend = next(wanted, None)
        if mend is not None:
            self._mending.add(mend.path)
        return mend

    def finish_mend(self, mend: Mend) -> None:
        """Raises if the disk refused again; `take_mend` then returns the file again after a while."""
        self._mending.discard(mend.path)
        if mend.error is not None:
            self._mend_wait = min(max(FIRST_MEND_AFTER_MS, 2 * self._mend_wait), LAST_MEND_AFTER_MS)
            self._mend_at = self._steady() + self._mend_wait
            raise disk_trouble(f"Rewriting {mend.path}", mend.error)
        self._mend_wait = 0.0
        self._syncer.renewed(mend.path)
        for key, log in list(self._logs.items()):
            if log.owns(mend.path) and not log.use_mended(mend):
                del self._logs[key]
                self._log(self._catalog.by_id[key[0]], key[1])  # reopen now, so that what is missing is reported now

    def tick(self) -> None:
        """Do all that is due, on this thread: `keep_house`, syncs and mends."""
        if self.sync_due():
            self._syncer.sync()
        mend = self.take_mend()
        if mend is not None:
            self.finish_mend(mend.run())
        self.keep_house()

    def keep_house(self) -> None:
        """Call every second or so: a share of what frees space, then compaction of journals.

        One thing that fails does not keep the others from being done; the first failure is raised at the end.
        """
        work = [self._sweep_some, *self._due_retention()]
        work += [journal.compact_if_due for journal in self._journals.values() if journal.housekept]
        if not self._catalog.writing:
            work.append(self._catalog_journal.compact_if_due)
        failures: list[StorageError] = []
        for each in work:
            try:
                each()
            except StorageError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _due_retention(self) -> list[Callable[[], object]]:
        if self._steady() >= self._next_retention:
            self._next_retention = self._steady() + self._retention_check_ms
            self._retention_queue = self._partitions_with_data()
        share = islice(self._retention_queue, RETENTION_LOGS_PER_TICK)
        return [partial(self._apply_retention, topic, partition) for topic, partition in share]

    def _apply_retention(self, topic: Topic, partition: int) -> int:
        if topic.topic_id not in self._catalog.by_id:
            return 0  # deleted since it was queued
        return self.log_of(topic, partition).apply_retention()

    def _partitions_with_data(self) -> Iterator[tuple[Topic, int]]:
        for topic in self.topics():
            for partition in partitions_on_disk(self._files, topic):
                yield topic, partition

    def apply_retention(self) -> int:
        """All of it now; returns how many segments went."""
        return sum(self._apply_retention(topic, partition) for topic, partition in self._partitions_with_data())

    def close(self) -> None:
        """Sync everything, leave indexes behind and mark the folder as stopped in order."""
        journals = (self._catalog_journal, *self._journals.values())
        try:
            for journal in journals:
                journal.make_sure()
            self._mend_at = 0.0
            while (mend := self.take_mend()) is not None:
                self.finish_mend(mend.run())
            self._syncer.sync()
            for log in self._logs.values():
                log.close()
            self._files.open(_CLEAN, create=True).close()
            self._files.fsync_dir("")
        except (OSError, StorageError) as error:
            why = error.what.rstrip(".") if isinstance(error, StorageError) else error.strerror or error
            raise StorageError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"The store could not be closed in order: {why}.",
                "Free some space or check the disk; the next start looks at what is there, as after a crash.",
            ) from error
        finally:
            for journal in journals:
                with contextlib.suppress(OSError):
                    journal.close()
            self._pool.clear()
            self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_replicas(replicas: Sequence[Sequence[int]], partitions: int) -> None:
    if replicas and (len(replicas) != partitions or any(not ids for ids in replicas)):
        what = f"{len(replicas)} replica lists were given for {partitions} partitions."
        raise StorageError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what, "Give one list of brokers for each partition.")
