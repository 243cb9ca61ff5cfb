"""The fast reader of the data plane: our own fetcher, decoding straight into Arrow without an object per record.

    plane = open_arrow(config)
    plane.add({TopicPartition("orders", 0): 42})
    batch = plane.take(10_000)                       # None: nothing is there yet

Rules
- When drop, pause or seek returns, no row from before it will be handed out. There is one lock, held while a batch is
  decoded: one thread may read while another changes what is read.
- A partition's position is one past the last row that was handed out, and past rows that were filtered out after it.
  How far fetching runs ahead of it does not matter to anybody.
- For a batch that can't be read `take` raises, and the position stays before it: the same error comes again until
  somebody seeks past it.

It must not know the group; `data_plane` decides which reader reads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.client.config.keys import read_committed
from holdfast.client.config.settings import ConsumerConfig
from holdfast.client.member import engine as engines
from holdfast.client.reading.epochs import Epochs
from holdfast.model import TopicPartition
from holdfast.net.cluster import Address
from holdfast.net.config import ClientConfig, client_config, unpack_limits
from holdfast.net.errors import NetError
from holdfast.net.fetching import Fetcher
from holdfast.net.flows import BEGINNING, END, KIB, NO_END, NOWHERE, Fetched, FetchSettings, Flow, Trouble
from holdfast.net.metadata import ClusterInfo
from holdfast.records.batch import Unreadable
from holdfast.records.compression import LIMITS, Limits

if TYPE_CHECKING:
    import pyarrow as pa

CLOSE_S = 5.0
"""How long closing connections may take."""


class ArrowPlane:
    """Partitions read by our own fetcher."""

    def __init__(
        self,
        config: ClientConfig,
        settings: FetchSettings,
        *,
        check_crcs: bool = True,
        limits: Limits = LIMITS,
        wake: Callable[[], None] | None = None,
        throttled: Callable[[int, int], None] = lambda _node, _ms: None,
    ) -> None:
        """`wake` is called from another thread when there is something to read; without it, use `wait`.

        `throttled` is called from another thread with the id of a broker that throttles us, and the milliseconds.
        """
        from holdfast.records.arrow import ArrowDecoder  # numpy and pyarrow load with the first use

        self._came = threading.Event()
        self._lock = threading.RLock()
        self._engine = engines.acquire()
        self._settings = settings
        self._decoder = ArrowDecoder(check_crcs=check_crcs, limits=limits)
        self._positions: dict[TopicPartition, int] = {}
        """Positions of partitions that were read before, and of which the decoder has nothing yet."""
        self._fed: dict[TopicPartition, deque[Fetched]] = {}
        self._fed_rows = 0
        self._starts: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._epochs = Epochs()
        self._eras: dict[TopicPartition, int] = {}
        self._throttled = throttled
        self._watchers: list[Callable[[Address, NetError | None], None]] = []
        self._fetcher = self._engine.call(self._open(config, wake or self._came.set))
        self._flows = self._fetcher.flows

    async def _open(self, config: ClientConfig, wake: Callable[[], None]) -> Fetcher:
        self._cluster = self._engine.cluster(config)
        return Fetcher(self._cluster, self._settings, wake=wake, throttled=self._throttled)

    def close(self) -> None:
        engine = self._engine
        self._starts, self._fed = {}, {}

        async def shut() -> None:
            self._cluster.watchers = [watcher for watcher in self._cluster.watchers if watcher not in self._watchers]
            await self._fetcher.close()
            await engine.let_go(self._cluster)

        engine.submit(shut()).result(CLOSE_S)  # what takes longer goes on
        engines.release(engine)

    # -- the cluster, as our connections see it

    def watch(self, watcher: Callable[[Address, NetError | None], None]) -> None:
        """Call this, on another thread, with the result of every attempt to connect."""
        self._watchers.append(watcher)
        self._engine.loop.call_soon_threadsafe(self._cluster.watchers.append, watcher)

    @property
    def info(self) -> ClusterInfo:
        """Immutable and replaced as a whole, so any thread may read it."""
        return self._cluster.info

    def addresses(self) -> list[Address]:
        return self._cluster.addresses()

    def broker_name(self, node: int) -> str:
        broker = self.info.brokers.get(node)
        return f"{node}" if broker is None else f"{broker.host}:{broker.port}/{node}"

    def flows(self) -> list[Flow]:
        """The fetcher's state of each partition, for statistics."""
        with self._flows.lock:
            return [flow for _, flow in sorted(self._flows.flows.items())]

    # -- what is read

    @property
    def assigned(self) -> set[TopicPartition]:
        return set(self._starts)

    @property
    def paused(self) -> set[TopicPartition]:
        return set(self._paused)

    def add(
        self,
        starts: Mapping[TopicPartition, int],
        *,
        read: Mapping[TopicPartition, int] | None = None,
        paused: Iterable[TopicPartition] = (),
    ) -> None:
        """Read these from an offset, or a symbolic one that is looked up. `read` are positions that another reader has
        reached."""
        with self._lock:
            self._starts.update(starts)
            self._positions.update(read or {})
            self._paused |= set(paused)
            self._flows.add(dict(sorted(starts.items())), paused=self._paused)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            gone = sorted(set(partitions) & self._starts.keys())
            self._flows.drop(gone)
            for partition in gone:
                self._forget(partition)
                self._epochs.forget(partition)
                del self._starts[partition]
                self._eras.pop(partition, None)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        with self._lock:
            self._forget(partition)
            self._starts[partition] = offset
            self._flows.seek(partition, offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these until they are resumed. Answers that are not handed out yet are kept, and those that still
        arrive are held back too."""
        with self._lock:
            named = set(partitions) - self._paused
            self._paused |= named
            for partition in sorted(named & self._starts.keys()):
                position = self._decoder.position(partition)
                self._decoder.discard(partition.topic, partition.partition)
                if position is not None and position > self._starts[partition]:
                    self._positions[partition] = position
                self._flows.pause(partition, self._fed.pop(partition, ()))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for partition in sorted(set(partitions) & self._paused):
                self._paused.discard(partition)
                self._flows.resume(partition)

    def _forget(self, partition: TopicPartition) -> None:
        self._decoder.discard(partition.topic, partition.partition)
        self._fed.pop(partition, None)
        self._positions.pop(partition, None)

    # -- where it stands

    def position(self, partition: TopicPartition) -> int | None:
        """One past the last row that was handed out; None before the first."""
        with self._lock:
            found = self._decoder.position(partition)
            if found is not None and found > self._starts.get(partition, 0):
                return found
            return self._positions.get(partition)

    def epoch_before(self, partition: TopicPartition, offset: int) -> int:
        """The leader epoch of the record before this offset; -1 if it is not known."""
        with self._lock:
            return self._epochs.one(partition, offset - 1)

    def goes_on(self, partition: TopicPartition) -> int:
        """Where another reader has to continue: the position, or else the start."""
        with self._lock:
            position = self.position(partition)
            if position is not None:
                return position
            if partition in self._fed:
                return self._starts[partition]
            placed = self._flows.unread_from(partition)
            return self._starts[partition] if placed is None else placed

    def watermarks(self, partition: TopicPartition) -> tuple[int, int] | None:
        return self._flows.watermarks(partition)

    # -- records

    def take(self, max_rows: int, *, include_headers: bool = False) -> pa.RecordBatch | None:
        """The next rows, at most `max_rows`; None when none are there yet. Does not wait."""
        with self._lock:
            self._came.clear()
            while True:
                while (trouble := self._flows.error()) is not None:
                    self._troubled(trouble)
                more = self._feed(max_rows)
                try:
                    batch = self._decoder.take(max_rows=max_rows, include_headers=include_headers)
                except Unreadable as error:
                    self._step_back()
                    self._troubled(Trouble(error, error.partition, error.offset))
                    continue
                self._let_go()
                if batch is not None or not more:
                    return batch

    def wait(self, timeout_s: float) -> None:
        """Wait until something came, or the time is up."""
        self._came.wait(timeout_s)

    def _feed(self, max_rows: int) -> bool:
        """Feed the decoder enough for a batch, one answer of each partition in turn. False when there was nothing."""
        fed = False
        while self._fed_rows < max_rows:
            found = self._flows.next_answer()
            if found is None:
                break
            flow, answer = found
            where = flow.partition
            if answer.end != NO_END:
                if self._decoder.waits(where.topic, where.partition):
                    self._flows.put_back(flow, answer)
                    break  # the rows before the end come first
                self._ended(where, answer)
                continue
            if answer.era != self._eras.get(where, 0):
                if self._decoder.waits(where.topic, where.partition):
                    self._flows.put_back(flow, answer)
                    break  # the rows from before the reset come first
                self._decoder.discard(where.topic, where.partition)
                self._positions.pop(where, None)
                self._eras[where], self._starts[where] = answer.era, answer.start
            if self._starts[where] < 0:
                self._starts[where] = answer.start  # a symbolic offset that has been looked up
            self._decoder.feed(
                answer.records,
                topic=where.topic,
                partition=where.partition,
                lo=max(answer.start, self._positions.get(where, answer.start)),
                aborted=answer.aborted,
            )
            self._fed.setdefault(where, deque()).append(answer)
            self._fed_rows += answer.rows
            self._epochs.note(where, answer.epochs)
            fed = True
        return fed

    def _troubled(self, trouble: Trouble) -> None:
        """Something can't be read: raise it. `RowPlane` returns it as a message instead."""
        raise trouble.error

    def _ended(self, partition: TopicPartition, answer: Fetched) -> None:
        """A partition was read to its end. Nothing to do for Arrow batches; `RowPlane` returns a message."""

    def _let_go(self) -> None:
        """Release answers of which every row was handed out, so that more can be fetched."""
        for partition, answers in list(self._fed.items()):
            waits = self._decoder.waits(partition.topic, partition.partition)
            position = self._decoder.position(partition)
            while answers and (not waits or (position is not None and answers[0].next_offset <= position)):
                self._flows.read(partition, answers.popleft().size)
            if not answers:
                del self._fed[partition]
        self._fed_rows = sum(answer.rows for answers in self._fed.values() for answer in answers)

    def _step_back(self) -> None:
        """A batch could not be read: its partition is fetched again from there, after a pause."""
        later = time.monotonic() + self._settings.error_backoff_s
        for partition, answers in list(self._fed.items()):
            position = self._decoder.position(partition)
            unread = position is None or position < answers[-1].next_offset
            if unread and not self._decoder.waits(partition.topic, partition.partition):
                start = self._starts[partition] if position is None else position
                del self._fed[partition]
                self._flows.seek(partition, start, not_before=later)
        self._let_go()


RESETS = {"earliest": BEGINNING, "latest": END, "error": NOWHERE}


def fetch_settings(config: ConsumerConfig) -> FetchSettings:
    """librdkafka's keys, with its defaults, for our own fetcher."""
    raw, default = config.raw, FetchSettings()

    def number(default_value: int, *keys: str) -> int:
        return next((int(raw[key]) for key in keys if raw.get(key) is not None), default_value)

    return FetchSettings(
        wait_ms=number(default.wait_ms, "fetch.wait.max.ms"),
        idle_wait_ms=number(default.idle_wait_ms, "fetch.wait.max.ms"),
        min_bytes=number(default.min_bytes, "fetch.min.bytes"),
        max_bytes=number(default.max_bytes, "fetch.max.bytes"),
        partition_bytes=number(default.partition_bytes, "max.partition.fetch.bytes", "fetch.message.max.bytes"),
        queued_bytes=KIB * number(default.queued_bytes // KIB, "queued.max.messages.kbytes"),
        read_committed=read_committed(raw),
        rack=config.rack or "",
        reset=RESETS[config.auto_offset_reset],
        backoff_s=config.retry_backoff_ms / 1_000.0,
        error_backoff_s=number(int(default.error_backoff_s * 1_000), "fetch.error.backoff.ms") / 1_000.0,
        replica_age_s=config.metadata_max_age_ms / 1_000.0,
    )


def wants_crcs(config: ConsumerConfig) -> bool:
    """Checksums are verified unless check.crcs is false: in hardware they cost next to nothing."""
    return str(config.raw.get("check.crcs", True)).lower() not in ("false", "0", "f", "no")


def open_arrow(config: ConsumerConfig) -> ArrowPlane:
    """The fast reader for a consumer with this configuration."""
    return ArrowPlane(
        client_config(config.raw),
        fetch_settings(config),
        check_crcs=wants_crcs(config),
        limits=unpack_limits(config.raw),
    )
