"""Reads ranges of partitions with Fetch requests of our own: the data path of Spark's executors.

Blocking, for worker threads: a loop on a thread of its own keeps the next request under way while the caller decodes
the last answer. `fetch.planner` decides what an answer means, as for consumers. A range is read to its end, or an error
says why not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from uuid import UUID

from holdfast.fetch.planner import may_name_follower, node_to_ask, step
from holdfast.fetch.values import (
    Answer,
    Asked,
    Came,
    Cut,
    CutOff,
    Damaged,
    Deliver,
    LookUp,
    OutOfRange,
    Replica,
    Report,
    Rules,
    Stalled,
    Track,
    Truncated,
)
from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.net.admin import EARLIEST, Admin
from holdfast.net.answers import by_partition, not_led, refused, unanswered, without_records
from holdfast.net.cluster import Cluster
from holdfast.net.config import ClientConfig
from holdfast.net.connection import Connection
from holdfast.net.errors import NetError
from holdfast.net.loop_thread import LoopThread
from holdfast.records.batch import Unreadable, iter_headers
from holdfast.wire.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchTopic

PARTITION_BYTES = 4 * 1024 * 1024
"""Asked of one partition at a time: large enough that a round trip hardly counts, small enough to hold two of them."""

MAX_WAIT_MS = 500

RANGE_RULES = Rules(
    backoff_s=0.05,
    unknown_s=10.0,
    patience_s=60.0,
    cut_off_s=10.0,
    partition_bytes=PARTITION_BYTES,
)
"""A deleted topic does not come back, an election takes seconds, and a new leader knows within seconds how far its log
goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """What is asked of one partition, except for the offset."""

    partition: TopicPartition
    end: int | None = None
    """The end of the range. None: there is no end, and new records are waited for."""
    rules: Rules = RANGE_RULES
    rack: str = ""
    lane: str = ""
    """Requests of one lane share a connection and wait for each other; by default each partition has its own."""


class OffsetOutOfRange(HoldfastError):
    """The offset is no longer (or not yet) in the log."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            "OFFSET_OUT_OF_RANGE",
            f"offset {offset} of {partition} is not in the log any more: retention, or the topic was recreated.",
            "Raise the topic's retention, or set failOnDataLoss=false (or auto.offset.reset) to go on without it.",
        )
        self.partition = partition
        self.offset = offset


class EndCutOff(Exception):
    """The log has ended before the end of the range for as long as the rules allow."""


def not_served(partition: TopicPartition, offset: int, reach: int | None, seconds: float) -> HoldfastError:
    """Records that probably exist, but that no broker gives us. They are never skipped."""
    there = "says nothing about it" if reach is None else f"says that its log goes up to {reach}"
    return HoldfastError(
        "RECORDS_NOT_SERVED",
        f"{partition} gave no records from offset {offset} on for {seconds:.0f} s, and its broker {there}.",
        "Nothing was skipped: start again once another client can read it. The broker's log tells more.",
    )


class Pull:
    """One partition being read: `answer()` waits for what was asked, `ask()` asks for more and does not wait.

    Ask before you decode: then the next answer travels meanwhile.
    """

    def __init__(self, ask: Callable[[int], Future[FetchedPartition]], offset: int) -> None:
        self._ask = ask
        self._pending = ask(offset)

    def answer(self) -> FetchedPartition:
        """At least one whole batch that goes beyond the offset; or an error says why not."""
        return self._pending.result()

    def ask(self, offset: int) -> None:
        self._pending = self._ask(offset)


@dataclass(frozen=True, slots=True)
class _Heard:
    """One request and what came of it."""

    asked: Asked
    answer: Answer
    found: FetchedPartition | None = None
    throttle_s: float = 0.0


class RangeReader:
    """Fetches ranges from one cluster. Keep one per process: connections are reused."""

    def __init__(self, config: ClientConfig) -> None:
        self._thread = LoopThread("holdfast-reader")
        self._replicas: dict[TopicPartition, Replica] = {}
        """What the last range of a partition learned about followers, for the next."""
        self._cluster: Cluster = self._thread.call(self._make(config))

    async def _make(self, config: ClientConfig) -> Cluster:
        return Cluster(config)

    def close(self) -> None:
        self._thread.stop(self._cluster.close())

    def pull(self, fetching: Fetching, offset: int) -> Pull:
        """Start reading here: the first request is under way when this returns."""
        return Pull(lambda at: self._thread.submit(self._fetch(fetching, at)), offset)

    def first_offset(self, partition: TopicPartition) -> int:
        """Where the log begins now."""
        found = self._thread.call(Admin(self._cluster).list_offsets({partition: EARLIEST}))
        return int(found[partition].offset)

    async def _fetch(self, fetching: Fetching, offset: int) -> FetchedPartition:
        """Ask until records come, or the planner says that none will."""
        loop, partition = asyncio.get_running_loop(), fetching.partition
        track = Track(replica=self._replicas.get(partition))
        while True:
            heard = await self._ask(fetching, offset, track)
            now = loop.time()
            stepped = step(track, heard.asked, heard.answer, now=now, rules=fetching.rules, throttle_s=heard.throttle_s)
            track = stepped.track
            if track.replica is not None:
                self._replicas[partition] = track.replica
            for effect in stepped.effects:
                match effect:
                    case Deliver():
                        assert heard.found is not None
                        return heard.found
                    case LookUp():
                        self._cluster.forget_leaders([partition.topic])
                    case OutOfRange():
                        raise OffsetOutOfRange(partition, offset)
                    case Report(error=error):
                        raise error
                    case Stalled(since=since, reach=reach):
                        raise not_served(partition, offset, reach, now - since)
                    case CutOff():
                        raise EndCutOff
                    case Truncated():  # no request of a range names an epoch, so no leader answers with this
                        raise AssertionError(effect)
            await asyncio.sleep(max(0.0, track.ready_at - loop.time()))

    async def _ask(self, fetching: Fetching, offset: int, track: Track) -> _Heard:
        """One request, to the broker that the planner names."""
        partition, now = fetching.partition, asyncio.get_running_loop().time()
        asked = Asked(offset=offset, at=now, end=fetching.end, follower=node_to_ask(track, now))
        try:
            leader = await self._cluster.leader_of(partition)
        except NetError as error:
            return _Heard(replace(asked, follower=None), not_led(error))
        topic = self._cluster.info.topics.get(partition.topic)
        if topic is None:  # another read of the topic has just found its leader outdated
            return _Heard(replace(asked, follower=None), refused(partition, ErrorCode.LEADER_NOT_AVAILABLE))
        request = _request(fetching, offset, track, topic.topic_id, now)
        node = leader.node_id if asked.follower is None else asked.follower
        connection: Connection | None = None
        try:
            connection = await self._cluster.broker_for(node, f"fetch/{fetching.lane or partition}")
            response = await connection.fetch(request, timeout_s=self._cluster.config.request_timeout_s)
        except NetError as error:
            if connection is not None and error.code == "REQUEST_TIMED_OUT":
                self._cluster.discard(connection)  # the next answer would wait behind this late one
            return _Heard(asked, unanswered(error))
        found = by_partition(request, response).get(partition)
        answer = without_records(partition, found, response.error)
        if answer is None and found is not None:
            answer = _came(partition, found, offset)
        assert answer is not None
        return _Heard(asked, answer, found, response.throttle_time_ms / 1_000.0)


def _request(fetching: Fetching, offset: int, track: Track, topic_id: UUID | None, now: float) -> FetchRequest:
    topic, partition = fetching.partition
    size = track.partition_bytes or fetching.rules.partition_bytes
    wanted = FetchPartition(partition=partition, offset=offset, max_bytes=size)
    return FetchRequest(
        max_wait_ms=MAX_WAIT_MS,
        max_bytes=max(8 * PARTITION_BYTES, size),
        read_committed=fetching.rules.read_committed,
        rack=fetching.rack if may_name_follower(track, now) else "",
        topics=(FetchTopic(topic=topic, topic_id=topic_id, partitions=(wanted,)),),
    )


def _came(partition: TopicPartition, found: FetchedPartition, offset: int) -> Answer:
    """Whether a whole batch came. The first one decides; the decoder checks the others."""
    (records,) = found.records
    assert isinstance(records, memoryview | bytes)
    try:
        whole = any(header.next_offset > offset for header in iter_headers(records))
    except HoldfastError as error:
        return Damaged(Unreadable(error, partition, offset))
    return Came() if whole else Cut()


READERS: dict[ClientConfig, RangeReader] = {}
_LOCK = threading.Lock()


def shared_reader(config: ClientConfig, make: Callable[[ClientConfig], RangeReader] = RangeReader) -> RangeReader:
    """This process's reader for a cluster: executors keep their Python workers, and so their connections."""
    with _LOCK:
        if config not in READERS:
            READERS[config] = make(config)
        return READERS[config]
