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
day, which may be set back; durations are measured by a clock that never goes back. Most methods hand on to what does
the work (`topics`, `log`, `journal`, `sync`, `mend`, `space`), and callers need not know which.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from holdfast.broker.storage.config import parse
from holdfast.broker.storage.errors import Recovery, StorageError
from holdfast.broker.storage.files import Files, RealFiles
from holdfast.broker.storage.journal import COMPACT_MIN_BYTES, Journal
from holdfast.broker.storage.log import Log
from holdfast.broker.storage.logs import Logs
from holdfast.broker.storage.memory import MemoryFiles
from holdfast.broker.storage.mend import Mend, Mender
from holdfast.broker.storage.pool import FilePool, open_files_allowed
from holdfast.broker.storage.producer_ids import ProducerIds
from holdfast.broker.storage.retention import CHECK_MS, Retention
from holdfast.broker.storage.space import Space, all_of
from holdfast.broker.storage.sweep import Sweeper
from holdfast.broker.storage.sync import DEFAULT_INTERVAL_MS, Failures, FlushPolicy, Syncer, SyncRound
from holdfast.broker.storage.topics import TOPICS_FOLDER, Catalog, Plan, Topic, grown_topic, new_topic
from holdfast.broker.storage.trash import Trash
from holdfast.broker.storage.work import run_here
from holdfast.model import ErrorCode, TopicPartition

_CLEAN = "clean"


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


def steady_clock() -> float:
    return time.monotonic() * 1000.0


class Store:
    """Open with `Store(directory)` or `Store(None)` for memory; close with `close()`. Not thread-safe, except for the
    `run` of what is taken.
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
        retention_check_ms: int = CHECK_MS,
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
        self._mender = Mender(self._syncer, steady=steady)
        self._journals: dict[str, Journal] = {}
        self._retention_check_ms = retention_check_ms
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
        self._producer_ids = ProducerIds(self._catalog)
        trash = Trash(self._syncer)
        self._logs = Logs(
            self._catalog,
            self._pool,
            self._syncer,
            clock=self._clock,
            steady=self._steady,
            report=self._found,
            trash=trash,
        )
        retention = Retention(self._logs, steady=self._steady, every_ms=self._retention_check_ms)
        self.space = Space(Sweeper(self._pool, self._catalog), trash, retention, self._logs, self._catalog)
        with contextlib.suppress(StorageError):  # what the disk refuses now is tried again with the ticks
            self.space.sweep()
        if not clean:
            self._logs.repair()

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
        return self._logs.topics()

    def colliding_topic(self, name: str) -> str | None:
        """A topic whose name differs from this one in "." and "_" alone."""
        return self._catalog.colliding(name)

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
        topic = new_topic(self._catalog, self._new_id(), name, partitions, configs=configs, replicas=replicas)
        if not validate_only:
            self._catalog.put(topic)
        return topic

    def grow_topic(
        self, name: str, partitions: int, *, replicas: Sequence[Sequence[int]] = (), validate_only: bool = False
    ) -> Topic:
        """Raise a topic's number of partitions to `partitions`; `replicas` are those of the new ones."""
        grown = grown_topic(self._catalog.existing(name), partitions, replicas)
        if not validate_only:
            self._catalog.put(grown)
        return grown

    def configure_topic(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> Topic:
        """Replace a topic's settings; what is not in `configs` goes back to its default."""
        topic = replace(self._catalog.existing(name), configs=dict(configs))
        config = parse(configs)
        if not validate_only:
            self._catalog.put(topic)
            self._catalog.when_written(lambda: self._logs.configure(topic, config))
        return topic

    def delete_topic(self, name: str) -> Topic:
        """Forget a topic at once. Its files go now if they are few, else with the next ticks or the next start; or with
        the next removals, if those are taken."""
        topic = self._catalog.existing(name)
        self._catalog.begin_delete(topic)
        self._catalog.when_written(lambda: self.space.topic_deleted(topic))
        return topic

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

    # Partitions

    def log(self, topic: str, partition: int) -> Log:
        """The log of one partition, opened on first use. UNKNOWN_TOPIC_OR_PARTITION if there is none."""
        return self.log_of(self._catalog.existing(topic), partition)

    def log_of(self, topic: Topic, partition: int) -> Log:
        return self._logs.of(topic, partition)

    def open_partitions(self) -> list[TopicPartition]:
        """Those opened so far."""
        return self._logs.opened()

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
        return self._producer_ids.next()

    @property
    def has_producer_id(self) -> bool:
        """Whether the next producer id needs nothing to be written."""
        return self._producer_ids.at_hand

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
        return self._mender.take(self._logs.mends())

    def finish_mend(self, mend: Mend) -> None:
        """Raises if the disk refused again; `take_mend` then returns the file again after a while."""
        self._mender.finish(mend)
        self._logs.use_mended(mend)

    # Housekeeping

    def apply_retention(self) -> int:
        """All of it now; returns how many segments went."""
        return sum(run_here(self._logs.retention(topic, number)) for topic, number in self._logs.with_data())

    def tick(self) -> None:
        """Do all that is due, on this thread. For callers without a loop; the broker has a `Flusher` and a `Cleaner`.

        One thing that fails does not keep the others from being done; the first failure is raised at the end.
        """
        if self.sync_due():
            self._syncer.sync()
        mend = self.take_mend()
        if mend is not None:
            self.finish_mend(mend.run())
        all_of(self.space.sweep, self.space.empty_trash, self.space.retain, self.keep_house)

    def keep_house(self) -> None:
        """Call every second or so: compacts journals."""
        work = [journal.compact_if_due for journal in self._journals.values() if journal.housekept]
        if not self._catalog.writing:
            work.append(self._catalog_journal.compact_if_due)
        all_of(*work)

    def close(self) -> None:
        """Sync everything, leave indexes behind and mark the folder as stopped in order."""
        journals = (self._catalog_journal, *self._journals.values())
        try:
            for journal in journals:
                journal.make_sure()
            self._mender.hurry()
            while (mend := self.take_mend()) is not None:
                self.finish_mend(mend.run())
            with contextlib.suppress(StorageError):  # what the disk refuses is found again by the next start
                self.space.empty_trash()
            self._syncer.sync()
            self._logs.close()
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
