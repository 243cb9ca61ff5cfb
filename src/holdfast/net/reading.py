"""Reads ranges of partitions with Fetch requests of our own: the data path of Spark's executors.

Blocking, for worker threads: a loop on a thread of its own keeps the next request under way while the caller decodes
the last answer. Rules: every answer's error is looked at; a leader that moved is looked up again, a follower that the
leader names is read instead (KIP-392) until it fails; a range is read to its end or an error says why not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.net.admin import EARLIEST, Admin
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
UNKNOWN_LIMIT_S = 10.0
"""How long a topic is looked for that nobody knows: one that was deleted does not come back."""
FOLLOWER_S = 300.0
"""How long a follower is read before the leader is asked again which replica is best: Kafka's metadata.max.age.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """What is asked of one partition, but for the offset."""

    partition: TopicPartition
    read_committed: bool = False
    rack: str = ""
    max_bytes: int = PARTITION_BYTES
    """At least one record batch comes, however large."""
    lane: str = ""
    """Requests of one lane share a connection and wait for each other; by default each partition has its own."""


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
        """What is still under way is ended first, so that no connection is left half open."""
        self.call(self._end_tasks(), 10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    async def _end_tasks(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


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
        self._followers: dict[TopicPartition, tuple[int | None, float]] = {}
        """partition -> the follower to read (None: it failed, stay with the leader), and until when."""
        self._cluster: Cluster = self._thread.call(self._make(config))

    async def _make(self, config: ClientConfig) -> Cluster:
        return Cluster(config)

    def close(self) -> None:
        self._thread.call(self._cluster.close(), 10)
        self._thread.stop()

    def pull(self, fetching: Fetching, offset: int) -> Pull:
        """Start reading here: the first request is under way when this returns."""
        return Pull(lambda at: self._thread.submit(self._fetch(fetching, at)), offset)

    def first_offset(self, partition: TopicPartition) -> int:
        """Where the log begins now."""
        found = self._thread.call(Admin(self._cluster).list_offsets({partition: EARLIEST}))
        return int(found[partition].offset)

    async def _fetch(self, fetching: Fetching, offset: int) -> FetchedPartition:
        """One answer without an error, whoever leads meanwhile."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RETRY_LIMIT_S
        while True:
            replica = self._replica(fetching.partition)
            try:
                found = await self._fetch_once(fetching, offset, replica)
                code = error_code(found.error)
                if code is ErrorCode.NONE:
                    if found.preferred_read_replica < 0 or found.records or replica is not None:
                        return found
                    self._followers[fetching.partition] = (found.preferred_read_replica, loop.time() + FOLLOWER_S)
                    continue
                if code is ErrorCode.OFFSET_OUT_OF_RANGE and replica is None:
                    raise OutOfRange(fetching.partition, offset)
                error: NetError = BrokerError(code, f"{fetching.partition} can't be read.")
            except NetError as raised:
                error = raised
            if replica is not None:  # the leader knows better, also about an offset that a follower does not have yet
                self._followers[fetching.partition] = (None, loop.time() + FOLLOWER_S)
                continue
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
                deadline = min(deadline, loop.time() + UNKNOWN_LIMIT_S)
            if not error.retriable or loop.time() > deadline:
                raise error
            self._cluster.forget_leaders([fetching.partition.topic])
            await asyncio.sleep(RETRY_S)

    def _replica(self, partition: TopicPartition) -> int | None:
        """The follower to read, if there is one; after it has failed there is none for a while."""
        replica, until = self._followers.get(partition, (None, 0.0))
        if asyncio.get_running_loop().time() > until:
            self._followers.pop(partition, None)
            return None
        return replica

    async def _fetch_once(self, fetching: Fetching, offset: int, replica: int | None) -> FetchedPartition:
        partition = fetching.partition
        leader = await self._cluster.leader_of(partition)
        topic = self._cluster.info.topics.get(partition.topic)
        if topic is None:  # another read of the same topic has just met an old leader
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} is being looked up again.")
        node = leader.node_id if replica is None else replica
        connection = await self._cluster.broker_for(node, f"fetch/{fetching.lane or partition}")
        # A leader names its follower to whoever tells its rack; once that one has failed, the rack is not told.
        rack = "" if replica is None and partition in self._followers else fetching.rack
        asked = FetchPartition(partition=partition.partition, offset=offset, max_bytes=fetching.max_bytes)
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            max_bytes=max(8 * PARTITION_BYTES, fetching.max_bytes),
            read_committed=fetching.read_committed,
            rack=rack,
            topics=(FetchTopic(topic=partition.topic, topic_id=topic.topic_id, partitions=(asked,)),),
        )
        try:
            answer = await connection.fetch(request, timeout_s=self._cluster.config.request_timeout_s)
        except NetError as error:
            if error.code == "REQUEST_TIMED_OUT":
                self._cluster.discard(connection)  # a late answer must not stand in front of the next
            raise
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
