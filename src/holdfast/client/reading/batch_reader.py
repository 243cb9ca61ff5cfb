"""The reader of consume_arrow() and of `AsyncConsumer`: our own fetcher, decoding straight into Arrow.

    reader = open_batch_reader(config, Book())       # over a `feed`, which fetches
    reader.add([ck.TopicPartition("orders", 0, 42)])
    batch = reader.take_batch(10_000)                # None: nothing is there yet
    messages = reader.take(500, wait_s=0.1)          # the same rows as confluent-kafka's messages

Rules
- When drop, pause or seek returns, no row from before it will be handed out. There is one lock, held while a batch is
  decoded: one thread may read while another changes what is read.
- A partition's position is one past the last row that was handed out, and past rows that were filtered out after it.
  How far fetching is ahead of it does not matter.
- For a batch that can't be read `take_batch` raises, and the position stays before it: the same error comes again until
  the application seeks past it.

It must not know the group; `data_plane` decides which reader reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import confluent_kafka as ck

from holdfast.client.config.settings import ConsumerConfig
from holdfast.client.member.events import end_message, trouble_message
from holdfast.client.partitions import name_of, offsets_of
from holdfast.client.reading.answers import Answers, Stand
from holdfast.client.reading.book import Book
from holdfast.client.reading.feed import EngineFeed, Feed, Watcher
from holdfast.client.reading.fetch_settings import fetch_settings, wants_crcs
from holdfast.client.reading.message_view import CHUNK, MessageView
from holdfast.client.reading.start_offsets import check_seek, check_starts
from holdfast.group.messages import OffsetEntry
from holdfast.model import ErrorCode, TopicPartition
from holdfast.net.cluster import Address
from holdfast.net.config import client_config, unpack_limits
from holdfast.net.errors import BrokerError, NetError
from holdfast.net.fetched_bytes import FetchedBytes
from holdfast.net.flow_values import Fetched, FetchSettings, Trouble
from holdfast.net.flows import Flow
from holdfast.net.metadata import ClusterInfo
from holdfast.records.batch import Unreadable
from holdfast.records.compression import LIMITS, Limits

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader:
    """A `Reader` over our own fetcher."""

    finds_committed = False

    def __init__(
        self,
        feed: Callable[[Callable[[], None]], Feed],
        settings: FetchSettings,
        book: Book,
        *,
        check_crcs: bool = True,
        limits: Limits = LIMITS,
        wake: Callable[[], None] | None = None,
        tell: Callable[[ck.KafkaError], bool] | None = None,
        in_statistics: bool = False,
    ) -> None:
        """`feed` opens what fetches, and gets what it is to call when there is something to read: `wake`, from another
        thread; without it, use `wait`.

        With `tell`, errors are messages among the records, as in confluent-kafka, and `tell` reports those that it
        reports to error_cb; it returns False if the application has none. Without `tell`, errors are raised.
        """
        from holdfast.records.arrow import ArrowDecoder  # numpy and pyarrow load with the first use

        self.book = book
        self.in_statistics = in_statistics
        self._came = threading.Event()
        self._lock = threading.RLock()
        self._settings = settings
        self._tell = tell
        self._feed = feed(wake or self._came.set)
        self._flows = self._feed.flows
        self._decoder = partial(ArrowDecoder, check_crcs=check_crcs, limits=limits)
        self._begin_answers()

    def _begin_answers(self) -> None:
        """Nothing is fetched or decoded yet."""
        self._answers = Answers(self._decoder(), self._flows, self.book, ended=self._ended)
        self._view = MessageView()

    def close(self) -> None:
        self._feed.close()

    # -- the cluster, as our connections see it (see `Feed`)

    def watch(self, watcher: Watcher) -> None:
        self._feed.watch(watcher)

    @property
    def info(self) -> ClusterInfo:
        return self._feed.info

    def addresses(self) -> list[Address]:
        return self._feed.addresses()

    def broker_name(self, node: int) -> str:
        broker = self.info.brokers.get(node)
        return f"{node}" if broker is None else f"{broker.host}:{broker.port}/{node}"

    def flows(self) -> list[Flow]:
        """The fetcher's state of each partition, for statistics."""
        with self._flows.lock:
            return [flow for _, flow in sorted(self._flows.flows.items())]

    # -- what is read

    def add(self, partitions: Sequence[ck.TopicPartition]) -> None:
        check_starts(partitions, beside=self.book.assigned)
        self._begin(offsets_of(partitions))

    def _begin(self, starts: Mapping[TopicPartition, int]) -> None:
        with self._lock:
            self.book.begin(starts)
            self._flows.add(dict(sorted(starts.items())), paused=self.book.paused)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        with self._lock:
            self._stop(partitions)
            self.book.forget(partitions)

    def drop_again(self, partitions: Collection[TopicPartition]) -> None:
        self.drop(partitions)

    def replace(self, partitions: Sequence[ck.TopicPartition]) -> None:
        with self._lock:
            self.drop(list(self.book.assigned))
            self._begin(offsets_of(partitions))

    def seek(self, partition: ck.TopicPartition) -> None:
        with self._lock:
            check_seek(partition, self.book.assigned)
            where = name_of(partition)
            self._forget(where)
            self.book.restart(where, partition.offset)
            self._flows.seek(where, partition.offset)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        with self._lock:
            named = set(partitions) - self.book.paused
            self.book.paused |= named
            unread = self._view.unread()
            for partition in sorted(named & self.book.assigned):
                if partition in unread:
                    self._fetch_again(partition, unread[partition])
                self._answers.pause(partition)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        with self._lock:
            for partition in sorted(self.book.paused.intersection(partitions)):
                self.book.paused.discard(partition)
                self._flows.resume(partition)

    def _stop(self, partitions: Iterable[TopicPartition]) -> None:
        gone = sorted(partitions)
        self._flows.drop(gone)
        for partition in gone:
            self._answers.drop(partition)
            self._view.forget(partition)

    def _forget(self, partition: TopicPartition) -> None:
        self._answers.forget(partition)
        self._view.forget(partition)

    def _fetch_again(self, partition: TopicPartition, offset: int) -> None:
        """Fetch again from this offset. The application's position stays where it is."""
        stands = self.positions([partition])
        self._forget(partition)
        self._flows.seek(partition, offset)
        self.book.reached.update(stands)

    # -- where it stands

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        with self._lock:
            unread = self._view.unread()
            return {p: entry for p in partitions if (entry := self._position(p, unread.get(p))) is not None}

    def handed_out(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        return self.positions(partitions)

    def _position(self, partition: TopicPartition, unread: int | None) -> OffsetEntry | None:
        if unread is None:
            return self._answers.position(partition)
        if unread > self.book.starts.get(partition, 0):
            return self._answers.entry(partition, unread)
        return self.book.reached.get(partition)

    def watermarks(self, partition: TopicPartition) -> tuple[int, int] | None:
        return self._flows.watermarks(partition)

    # -- records

    def take(self, count: int, wait_s: float) -> list[ck.Message]:
        there = self.ready(count)
        if not there and wait_s > 0:
            self.wait(wait_s)
            there = self.ready(count)
        with self._lock:
            return self._view.take(min(there, len(self._view)))

    def ready(self, wanted: int) -> int:
        """How many messages can be handed out now, up to `wanted`. Makes them if need be."""
        with self._lock:
            while len(self._view) < wanted and (batch := self._decoded(CHUNK, include_headers=True)) is not None:
                self._view.put(batch, self._answers.epochs)
            return min(wanted, len(self._view))

    def take_batch(self, max_rows: int, *, include_headers: bool = False) -> pa.RecordBatch | None:
        """The next rows, at most `max_rows`; None when none are there yet. Does not wait. Errors are raised."""
        with self._lock:
            batch = self._view.take_batch(max_rows, include_headers=include_headers)
            if batch is None and (batch := self._decoded(max_rows, include_headers=include_headers)) is None:
                self._view.take_batch(max_rows, include_headers=include_headers)  # raises an error that came meanwhile
            return batch

    def stand(self) -> Stand:
        """Where the application stands, for `read_again`."""
        with self._lock:
            return self._answers.stand()

    def read_again(self, stood: Stand) -> None:
        """`take_batch` was interrupted, and nobody got the batch: begin again from where the application stood. What
        was fed or decoded meanwhile may be half done, so all of it is fetched again."""
        with self._lock:
            book, assigned = self.book, set(self.book.assigned)
            reached = {p: entry for p, entry in self._answers.positions_at(stood).items() if p in assigned}
            starts = {p: at for p, at in stood.starts.items() if p in assigned}
            book.starts.update({**starts, **{p: entry.offset for p, entry in reached.items()}})
            for partition in assigned - reached.keys():
                book.reached.pop(partition, None)
            book.reached.update(reached)
            self.stop()
            self._begin_answers()
            self.take_over()

    def wait(self, timeout_s: float) -> None:
        """Wait until something came, or the time is up."""
        self._came.wait(timeout_s)

    def _decoded(self, max_rows: int, *, include_headers: bool) -> pa.RecordBatch | None:
        self._came.clear()
        while True:
            while (trouble := self._flows.next_error()) is not None:
                self._troubled(trouble)
            more = self._answers.feed(max_rows)
            try:
                batch = self._answers.take(max_rows, include_headers=include_headers)
            except Unreadable as error:
                self._answers.step_back(self._settings.error_backoff_s)
                self._troubled(Trouble(error, error.partition, error.offset))
                continue
            if batch is not None or not more:
                return batch

    def _troubled(self, trouble: Trouble) -> None:
        """Something can't be read: raise it, or return it as a message in its place."""
        error = trouble.error
        if self._tell is None:
            raise error
        if isinstance(error, NetError) and not isinstance(error, BrokerError):
            return  # a broker that can't be reached: reported once for the whole client, to error_cb
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name and trouble.partition is not None:
            known = trouble.partition.topic in self.info.topics
            number = ck.KafkaError._UNKNOWN_PARTITION if known else ck.KafkaError.UNKNOWN_TOPIC_OR_PART
            if self._tell(ck.KafkaError(number, error.what)):
                return
            trouble = replace(trouble, number=number)
        self._view.put_error(trouble_message(trouble, self._flows.epoch(trouble.partition)))

    def _ended(self, partition: TopicPartition, answer: Fetched) -> None:
        """A partition was read to its end, and the settings say that the application wants to know."""
        self._view.put_error(end_message(partition, answer.start, answer.end, self._flows.epoch(partition)))

    # -- who reads

    def write_down(self) -> None:
        with self._lock:
            assigned = list(self.book.assigned)
            reached = self.positions(assigned)
            starts = {p: self._answers.resume_at(p) for p in assigned} | self._view.unread()
            self.book.reached.update(reached)
            self.book.starts.update(starts)

    def stop(self) -> None:
        with self._lock:
            self._stop(self.book.assigned)

    def take_over(self) -> None:
        self._begin(self.book.starts)


def open_batch_reader(
    config: ConsumerConfig,
    book: Book,
    *,
    tell_ends: bool = False,
    wake: Callable[[], None] | None = None,
    throttled: Callable[[int, int], None] = lambda _node, _ms: None,
    tell: Callable[[ck.KafkaError], bool] | None = None,
    in_statistics: bool = False,
    fetched: FetchedBytes | None = None,
) -> BatchReader:
    """The reader for a consumer with this configuration.

    `throttled` is called from another thread with the id of a broker that throttles us, and the milliseconds.
    """
    settings = replace(fetch_settings(config), tell_ends=tell_ends)

    def feed(wake: Callable[[], None]) -> Feed:
        return EngineFeed(client_config(config.raw), settings, wake=wake, throttled=throttled, fetched=fetched)

    return BatchReader(
        feed,
        settings,
        book,
        check_crcs=wants_crcs(config),
        limits=unpack_limits(config.raw),
        wake=wake,
        tell=tell,
        in_statistics=in_statistics,
    )
