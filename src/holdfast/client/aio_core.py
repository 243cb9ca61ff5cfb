"""What is under an `AsyncConsumer`: the consumer itself, with nothing in it that has a thread or a process of its own.

Its control plane and its fetcher run on the shared engine; there is no librdkafka, and no watchdog unless asked for.
The listener's calls are made on a thread of a small pool, which waits while the application's loop runs the callback:
so a callback may be a coroutine, and what a consumer does around it is written once, in `consumer`.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import confluent_kafka as ck
from confluent_kafka.admin._metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata

from holdfast.client import engine as engines
from holdfast.client.arrow import fetch_settings, wants_crcs
from holdfast.client.consumer import Consumer
from holdfast.client.control import ControlPlane
from holdfast.client.data import DataPlane
from holdfast.client.errors import as_kafka_exception
from holdfast.client.listener import Listener
from holdfast.client.rows import RowPlane
from holdfast.client.warned import PitfallWarning
from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.net.admin import EARLIEST, LATEST, Admin
from holdfast.net.config import client_config

if TYPE_CHECKING:
    from holdfast.client.arrow import ArrowPlane

T = TypeVar("T")

POOL = ThreadPoolExecutor(32, "holdfast-aio")
"""For the listener's calls and what else waits. A thread is taken for as long as a callback runs; more than so many
callbacks that wait for each other would be needed to bring it to a halt."""

LOOK_S = 1.0
"""How often somebody who waits for a callback looks whether the application's loop is still there."""

LOOKUP_S = 60.0
"""For questions about the cluster without a limit of the caller's own."""

NEVER_CALLED = ("error_cb", "stats_cb", "throttle_cb")
CALLBACKS = (*NEVER_CALLED, "oauth_cb", "on_commit", "rack_cb", "logger")
_checked: set[frozenset[tuple[str, str]]] = set()


class Core(Consumer):
    """A consumer without librdkafka, on the engine. `wake` is called from other threads when there is work."""

    def __init__(self, config: Mapping[str, Any], *, wake: Callable[[], None]) -> None:
        self._on_wake = wake
        self.loop_thread: int | None = None
        """The thread of the application's loop, which must not wait for its own callbacks."""
        super().__init__({"holdfast.watchdog": False, **config})

    def _open_data(self, logger: Any) -> DataPlane:
        check_keys(self._config.librdkafka())
        self._engine = engines.acquire()
        self._answers = ClusterAnswers(self._engine, self._config.raw)
        # Of librdkafka's handle only the questions about the cluster are ever asked here.
        handle: Any = self._answers
        plane = DataPlane(handle, reset=self._config.auto_offset_reset, open_arrow=self._open_arrow)
        self.rows: RowPlane = plane.to_arrow()  # type: ignore[assignment]  # it is what _open_arrow made
        return plane

    def _open_arrow(self) -> ArrowPlane:
        return RowPlane(
            client_config(self._config.raw),
            fetch_settings(self._config),
            check_crcs=wants_crcs(self._config),
            wake=self._wake,
        )

    def _wake(self) -> None:
        self._on_wake()

    # -- what AsyncConsumer asks

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def calls_wait(self) -> bool:
        plane = self._control
        return plane is not None and bool(plane.calls) and plane.calls[0].ready and not self._serving

    def start(self, topics: list[str], listener: Listener) -> None:
        """Subscribe, and load what the first record would have to wait for. On a thread of the pool."""
        from holdfast.records.arrow import warm_up

        self.subscribe(topics, listener=listener)
        warm_up()

    def make_calls(self) -> None:
        """Make the listener's calls that wait. On a thread of the pool."""
        if self._control is not None:
            self._make_calls(self._control)

    def serve(self) -> None:
        """Everything else that a poll does. Does not wait."""
        self._serve()

    def _make_calls(self, plane: ControlPlane) -> bool:
        if threading.get_ident() == self.loop_thread:
            return False
        changed = super()._make_calls(plane)
        self._stuck.thread = self.loop_thread  # it is the application's loop that may hang
        return changed

    def may_process(self) -> bool:
        return self._may_process()

    def returned(self, messages: list[ck.Message]) -> None:
        self._returned(messages)

    def returned_batch(self, rows: int) -> None:
        self._offsets.touched = True
        self._noting.returned_batch(rows)

    def to_commit(self, message: ck.Message | None, offsets: list[ck.TopicPartition] | None) -> Any:
        self._open()
        return self._to_commit(message, offsets)

    def submit_commit(self, entries: Any) -> Future[Any]:
        plane = self._plane()
        return plane.submit(plane.commit_soon(entries, member=self._subscribed))

    def settled(self, entries: Any, answer: Any) -> list[ck.TopicPartition]:
        return self._offsets.settled(entries, answer)

    def start_draining(self, reason: str) -> None:
        self.drain(0.0, reason)

    def out(self) -> bool:
        return self._control is not None and self._control.closed()

    def _close(self) -> None:
        try:
            super()._close()
        finally:
            if self._engine is not None:
                self._answers.shut()
                engines.release(self._engine)
                self._engine = None


def on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run this on the application's loop and wait for it, from a thread of the pool."""
    future = asyncio.run_coroutine_threadsafe(work, loop)
    while True:
        try:
            return future.result(LOOK_S)
        except TimeoutError:
            if future.done():
                raise
            if loop.is_closed():
                future.cancel()
                raise RuntimeError("the event loop of this consumer was closed") from None


def check_keys(config: Mapping[str, Any]) -> None:
    """librdkafka knows its own keys best: it is asked once about each set of them, although it reads nothing here."""
    for name in NEVER_CALLED:
        if config.get(name) is not None:
            text = f"{name} is librdkafka's, which an AsyncConsumer does not have: it is never called."
            warnings.warn(text, PitfallWarning, stacklevel=5)
    plain = {key: str(value) for key, value in config.items() if key not in CALLBACKS and key not in ("client.id",)}
    plain["group.id"] = "checked"
    seen = frozenset(plain.items())
    if seen not in _checked:
        ck.Consumer({**config, "log_level": 0}).close()
        _checked.add(seen)


class ClusterAnswers:
    """What confluent-kafka's handle answers about the cluster, from our own connections. Blocks: not for a loop."""

    def __init__(self, engine: engines.Engine, raw: Mapping[str, Any]) -> None:
        self._engine = engine
        self._config = client_config(raw)
        self._isolated = str(raw.get("isolation.level", "read_committed")).lower() == "read_committed"
        self._admin: Admin | None = None

    def poll(self, _timeout: float) -> None:
        """There are no callbacks to serve."""

    def close(self) -> None:
        """The engine's connections are let go with `shut`, when nobody asks any more."""

    def shut(self) -> None:
        if self._admin is not None:
            self._engine.call(self._engine.let_go(self._cluster), LOOKUP_S)
            self._admin = None

    def _ask(self, question: Callable[[Admin], Coroutine[Any, Any, T]], timeout: float | None) -> T:
        async def asked() -> T:
            if self._admin is None:
                self._cluster = self._engine.cluster(self._config)
                self._admin = Admin(self._cluster)
            return await question(self._admin)

        future = self._engine.submit(asked())
        try:
            return future.result(LOOKUP_S if timeout is None or timeout < 0 else timeout)
        except TimeoutError:
            future.cancel()
            error = ck.KafkaError(ck.KafkaError._TIMED_OUT, "the cluster did not answer in time")
            raise ck.KafkaException(error) from None
        except HoldfastError as failed:
            raise as_kafka_exception(failed) from failed

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        found = self._ask(lambda admin: admin.describe_topics(None if topic is None else [topic]), timeout)
        info = self._cluster.info
        described = ClusterMetadata()
        described.cluster_id = info.cluster_id  # type: ignore[assignment]  # they don't say that it may be a text
        described.controller_id = info.controller
        for node, broker in sorted(info.brokers.items()):
            one: Any = BrokerMetadata()
            one.id, one.host, one.port = node, broker.host, broker.port
            described.brokers[node] = one
        for name, topic_info in sorted(found.items()):
            known: Any = TopicMetadata()
            known.topic = name
            known.error = None if topic_info.error is ErrorCode.NONE else ck.KafkaError(int(topic_info.error))
            for number, partition in sorted(topic_info.partitions.items()):
                part: Any = PartitionMetadata()
                part.id, part.leader = number, partition.leader
                part.replicas, part.isrs = list(partition.replicas), list(partition.in_sync)
                known.partitions[number] = part
            described.topics[name] = known
        return described

    def get_watermark_offsets(
        self, partition: ck.TopicPartition, timeout: float = -1, _cached: bool = False
    ) -> tuple[int, int]:
        where = TopicPartition(partition.topic, partition.partition)

        async def both(admin: Admin) -> tuple[int, int]:
            low = await admin.list_offsets({where: EARLIEST})
            high = await admin.list_offsets({where: LATEST}, read_committed=self._isolated)
            return low[where].offset, high[where].offset

        return self._ask(both, timeout)

    def offsets_for_times(self, partitions: list[ck.TopicPartition], timeout: float = -1) -> list[ck.TopicPartition]:
        wanted = {TopicPartition(p.topic, p.partition): p.offset for p in partitions}
        found = self._ask(lambda admin: admin.list_offsets(wanted, read_committed=self._isolated), timeout)
        places = (found[TopicPartition(p.topic, p.partition)].offset for p in partitions)
        return [
            ck.TopicPartition(p.topic, p.partition, ck.OFFSET_END if at < 0 else at)
            for p, at in zip(partitions, places, strict=True)
        ]

    def cluster_id(self, timeout: float = -1) -> str | None:
        self._ask(lambda admin: admin.describe_topics([]), timeout)
        return self._cluster.info.cluster_id
