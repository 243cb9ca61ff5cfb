"""Reads ranges of partitions with Fetch requests of our own: the data path that consume_arrow and Spark share.

Blocking, for worker threads: a loop on a thread of its own keeps the next request under way while the caller decodes
the last answer. Rules: every answer's error is looked at; a leader that moved is looked up again; a range is read to
its end or an error says why not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.net.cluster import Cluster
from holdfast.net.config import ClientConfig
from holdfast.net.errors import BrokerError, NetError
from holdfast.wire.codec import error_code
from holdfast.wire.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchTopic

T = TypeVar("T")

PARTITION_BYTES = 4 * 1024 * 1024
"""Asked of one partition at a time: large enough that a round trip hardly counts, small enough to hold two of them."""

MAX_WAIT_MS = 500
RETRY_S = 0.05
RETRY_LIMIT_S = 60.0
"""How long a partition without a usable leader is tried; an election takes seconds."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one partition."""

    partition: TopicPartition
    start: int
    end: int


class OutOfRange(HoldfastError):
    """The offset is no longer (or not yet) in the log."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            "OFFSET_OUT_OF_RANGE",
            f"offset {offset} of {partition} is not in the log any more: retention, or the topic was recreated.",
            "Raise the topic's retention, or set failOnDataLoss=false (or auto.offset.reset) to go on without it.",
        )
        self.partition = partition
        self.offset = offset


class LoopThread:
    """An asyncio loop on a daemon thread, for blocking callers."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Any, timeout_s: float | None = None) -> Any:
        return self.submit(work).result(timeout_s)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


class Pull:
    """One partition being read: `answer()` waits for what was asked, `ask()` asks for more and does not wait.

    Ask before you decode: then the next answer travels meanwhile.
    """

    def __init__(self, ask: Callable[[int], Future[FetchedPartition]], offset: int) -> None:
        self._ask = ask
        self._pending = ask(offset)

    def answer(self) -> FetchedPartition:
        return self._pending.result()

    def ask(self, offset: int) -> None:
        self._pending = self._ask(offset)


class RangeReader:
    """Fetches ranges from one cluster. Keep one per process: connections are reused."""

    def __init__(self, config: ClientConfig) -> None:
        self._thread = LoopThread("holdfast-reader")
        self._cluster: Cluster = self._thread.call(self._make(config))

    async def _make(self, config: ClientConfig) -> Cluster:
        return Cluster(config)

    def close(self) -> None:
        self._thread.call(self._cluster.close(), 10)
        self._thread.stop()

    def pull(self, partition: TopicPartition, offset: int, *, read_committed: bool, rack: str = "") -> Pull:
        """Start reading here: the first request is under way when this returns."""
        return Pull(lambda at: self._ask(partition, at, read_committed, rack), offset)

    def _ask(self, partition: TopicPartition, offset: int, read_committed: bool, rack: str) -> Future[FetchedPartition]:
        return self._thread.submit(self._fetch(partition, offset, read_committed, rack))

    async def _fetch(self, partition: TopicPartition, offset: int, read_committed: bool, rack: str) -> FetchedPartition:
        """One answer without an error, whoever leads meanwhile."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RETRY_LIMIT_S
        while True:
            try:
                found = await self._fetch_once(partition, offset, read_committed, rack)
                code = error_code(found.error)
                if code is ErrorCode.NONE:
                    return found
                if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise OutOfRange(partition, offset)
                error: NetError = BrokerError(code, f"{partition} can't be read.")
            except NetError as raised:
                error = raised
            if not error.retriable or loop.time() > deadline:
                raise error
            self._cluster.forget_leaders([partition.topic])
            await asyncio.sleep(RETRY_S)

    async def _fetch_once(
        self, partition: TopicPartition, offset: int, read_committed: bool, rack: str
    ) -> FetchedPartition:
        leader = await self._cluster.leader_of(partition)
        connection = await self._cluster.broker_for(leader.node_id, f"fetch/{partition}")
        topic = self._cluster.info.topics[partition.topic]
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            max_bytes=8 * PARTITION_BYTES,
            read_committed=read_committed,
            rack=rack,
            topics=(
                FetchTopic(
                    topic=partition.topic,
                    topic_id=topic.topic_id,
                    partitions=(
                        FetchPartition(partition=partition.partition, offset=offset, max_bytes=PARTITION_BYTES),
                    ),
                ),
            ),
        )
        answer = await connection.fetch(request, timeout_s=self._cluster.config.request_timeout_s)
        for one in answer.topics:
            for found in one.partitions:
                return found
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} was not answered for.")


_READERS: dict[ClientConfig, RangeReader] = {}
_LOCK = threading.Lock()


def shared_reader(config: ClientConfig, make: Callable[[ClientConfig], RangeReader] = RangeReader) -> RangeReader:
    """This process's reader for a cluster: executors keep their Python workers, and so their connections."""
    with _LOCK:
        if config not in _READERS:
            _READERS[config] = make(config)
        return _READERS[config]
