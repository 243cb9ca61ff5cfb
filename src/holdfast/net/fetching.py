"""Fetches records ahead of a reader: sends requests, follows leaders and followers, handles errors, and looks up start
offsets.

Rules
- A broker answers the requests of a connection one after the other, and holds a fetch back while there is nothing new.
  So there are two connections (lanes) to each broker, and a partition that is due uses the free one. A request for
  partitions that have been silent for a while may be held back for longer, as long as the other lane is free. When
  another partition becomes due meanwhile, its request includes the silent ones too, so that they share one again.
- Every error is handled. A transient one (a leader that moved, a broker that restarts) is retried after a pause and not
  reported. A topic that is denied or gone is reported once and retried less often. Any other error is reported with
  every try.
- The next offset is read from the batches' headers. The records themselves are left to the reader.

Everything runs on one loop. `flows` holds what was fetched until it is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.net.admin import LATEST, Admin
from holdfast.net.cluster import Cluster
from holdfast.net.connection import Connection
from holdfast.net.errors import BrokerError, NetError
from holdfast.net.flows import BEGINNING, END, NEWEST, TAIL, Fetched, FetchSettings, Flow, Flows
from holdfast.net.metadata import ClusterInfo
from holdfast.net.reading import OutOfRange
from holdfast.records.batch import iter_headers
from holdfast.wire.codec import error_code
from holdfast.wire.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchResponse, FetchTopic

LANES = 2
"""Connections to one broker. While the broker holds back the request on one, the other can be used."""

TELL_UNKNOWN_AFTER_S = 3.0
"""A topic just created, or deleted and created again, takes a moment to be known everywhere."""

QUIET_AFTER = 4
"""After this many empty answers in a row a partition counts as silent: that takes at least a fifth of a second."""

RETRY_TOLD_S = 1.0
"""Pause before a retry after an error that was reported: permissions and topics change rarely."""

LARGEST_BATCH_BYTES = 128 * 1024 * 1024
"""The most that is asked for when a batch does not fit: more than any broker accepts."""

MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""After these the leader is looked up again."""

UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

_NUMBERS = count()


@dataclass(slots=True, eq=False)
class _Asked:
    """One request: its partitions, each with its version and offset, and the room that is kept for the answer."""

    partitions: list[tuple[Flow, int, int]]
    size: int
    wait_ms: int


class Fetcher:
    """Keeps a reader's partitions fetched. Made and closed on its loop; `pump` is the way in from other threads."""

    def __init__(
        self,
        cluster: Cluster,
        settings: FetchSettings,
        *,
        wake: Callable[[], None],
        throttled: Callable[[int, int], None] = lambda _node, _ms: None,
    ) -> None:
        """`throttled` hears, on the loop, of a broker that made us wait for so many milliseconds."""
        self._cluster = cluster
        self._throttled = throttled
        self._loop = asyncio.get_running_loop()
        self.flows = Flows(settings, wake=wake, changed=self.pump)
        self._settings = settings
        self._number = next(_NUMBERS)
        self._busy: set[tuple[int, int]] = set()
        self._held: dict[int, _Asked] = {}
        """For each broker the request that it may hold back for long, if there is one."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking_up: set[str] = set()
        self._forgotten: set[str] = set()
        """Topics whose known leaders are outdated."""
        self._turns = count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._closed = False

    def pump(self) -> None:
        """There may be something to fetch. From any thread; calls before the loop gets to it count as one."""
        if not self._scheduled and not self._closed:
            self._scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._pump)
            except RuntimeError:  # the loop is closed: nobody fetches any more
                self._closed = True

    async def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._cluster.close_slots(frozenset(self._slot(lane) for lane in range(LANES)))

    # -- who is asked for what

    def _pump(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        now = self._loop.time()
        to_look_up: set[str] = set()
        to_place: dict[str, list[Flow]] = {}
        by_node: dict[int, list[Flow]] = {}
        soonest = float("inf")
        with self.flows.lock:
            for flow in self.flows.flows.values():
                if not self.flows.wants(flow, now):
                    if now < flow.ready_at < soonest:
                        soonest = flow.ready_at
                    continue
                topic = flow.partition.topic
                node = self._node(flow, now)
                if node is None:
                    to_look_up.add(topic)
                elif flow.at < 0:
                    to_place.setdefault(topic, []).append(flow)
                else:
                    by_node.setdefault(node, []).append(flow)
            for node, due in sorted(by_node.items()):
                self._ask(node, due, now)
            for due in to_place.values():
                for flow in due:
                    flow.under_way = True
        for _, placed in sorted(to_place.items()):
            self._spawn(self._place([(flow, flow.version) for flow in placed]))
        fresh = to_look_up - self._looking_up
        if fresh:
            self._looking_up |= fresh
            self._spawn(self._look_up(fresh))
        self._rearm(soonest)

    def _node(self, flow: Flow, now: float) -> int | None:
        """The replica to read from: the follower that the leader named, else the leader. None while there is none."""
        if flow.partition.topic in self._forgotten:
            return None
        if flow.replica is not None and now < flow.replica_until and flow.replica in self._cluster.info.brokers:
            return flow.replica
        flow.replica = None
        leader = self._cluster.info.leader_of(flow.partition)
        return None if leader is None else leader.node_id

    def _ask(self, node: int, due: list[Flow], now: float) -> None:
        """Send what there is room for on a lane that is free. With the lock held."""
        free = [lane for lane in range(LANES) if (node, lane) not in self._busy]
        if not free:
            return
        due = due + self._taken_along(node, now)
        due.sort(key=lambda flow: (flow.turn, flow.partition))
        room = min(self.flows.room(), self._settings.max_bytes)
        nothing_there = self.flows.queued_bytes == 0 and self.flows.reserved_bytes == 0
        asked: list[tuple[Flow, int, int]] = []
        size = 0
        for flow in due:
            wanted = flow.partition_bytes or self._settings.partition_bytes
            tight, first = size + wanted > room, nothing_there and not asked
            if tight and not first and not (flow.quiet >= QUIET_AFTER and room > 0):
                break  # a silent one is asked for all the same: what comes of all of them is bounded by the room
            size = max(size, room) if tight and not first else size + wanted
            flow.turn, flow.under_way = next(self._turns), True
            asked.append((flow, flow.version, flow.at))
        if asked:
            silent = len(asked) == len(due) and all(flow.quiet >= QUIET_AFTER for flow in due)
            long = silent and len(free) > 1
            request = _Asked(asked, size, self._settings.idle_wait_ms if long else self._settings.wait_ms)
            if long:
                self._held[node] = request
            self._busy.add((node, free[0]))
            self.flows.reserved_bytes += size
            self._spawn(self._fetch(node, free[0], request))

    def _taken_along(self, node: int, now: float) -> list[Flow]:
        """The partitions of the request that this broker may hold back for long. They are asked for again now, and that
        request's answer is no longer waited for."""
        held = self._held.pop(node, None)
        if held is None:
            return []
        self.flows.reserved_bytes -= held.size
        held.size = 0
        ours = [flow for flow, version, _ in held.partitions if flow.version == version]
        for flow in ours:
            flow.version += 1
            flow.under_way = False
        return [flow for flow in ours if self.flows.wants(flow, now)]

    def _rearm(self, soonest: float) -> None:
        """One timer, for the first partition that waits for its next try."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if soonest < float("inf"):
            self._timer = self._loop.call_at(soonest, self._pump)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._pump()
            return
        self.flows.broken(error)
        if not self._closed:
            self._rearm(self._loop.time() + RETRY_TOLD_S)

    def _slot(self, lane: int) -> str:
        return f"fetch/{self._number}/{lane}"

    # -- fetching

    async def _fetch(self, node: int, lane: int, asked: _Asked) -> None:
        failed: NetError | None = None
        answer = FetchResponse()
        connection: Connection | None = None
        try:
            connection = await self._cluster.broker_for(node, self._slot(lane))
            answer = await connection.fetch(self._request(asked), timeout_s=self._cluster.config.request_timeout_s)
            if answer.throttle_time_ms > 0:
                self._throttled(node, answer.throttle_time_ms)
            if answer.error:
                failed = BrokerError(error_code(answer.error), "A Fetch was refused.")
        except NetError as error:
            failed = error
            if connection is not None and error.code == "REQUEST_TIMED_OUT":
                self._cluster.discard(connection)  # the next answer would wait behind this late one
        finally:
            self._busy.discard((node, lane))
            with self.flows.lock:
                if self._held.get(node) is asked:
                    del self._held[node]
                self.flows.reserved_bytes -= asked.size
                for flow, version, _ in asked.partitions:
                    if flow.version == version:
                        flow.under_way = False
        if failed is not None:
            self._not_answered(asked.partitions, failed)
        else:
            self._answered(asked.partitions, answer)
        self.flows.wake()

    def _request(self, asked: _Asked) -> FetchRequest:
        by_topic: dict[str, list[FetchPartition]] = {}
        for flow, _, offset in asked.partitions:
            by_topic.setdefault(flow.partition.topic, []).append(
                FetchPartition(
                    partition=flow.partition.partition,
                    offset=offset,
                    max_bytes=flow.partition_bytes or self._settings.partition_bytes,
                )
            )
        known = self._cluster.info.topics
        return FetchRequest(
            max_wait_ms=asked.wait_ms,
            min_bytes=self._settings.min_bytes,
            max_bytes=min(asked.size, self._settings.max_bytes),
            read_committed=self._settings.read_committed,
            rack=self._settings.rack,
            topics=tuple(
                FetchTopic(
                    topic=topic,
                    topic_id=known[topic].topic_id if topic in known else None,
                    partitions=tuple(partitions),
                )
                for topic, partitions in by_topic.items()
            ),
        )

    def _answered(self, asked: list[tuple[Flow, int, int]], answer: FetchResponse) -> None:
        names = {info.topic_id: name for name, info in self._cluster.info.topics.items()}
        found: dict[TopicPartition, FetchedPartition] = {}
        for topic in answer.topics:
            name = topic.topic or names.get(topic.topic_id, "")
            found.update({TopicPartition(name, one.partition): one for one in topic.partitions})
        now = self._loop.time()
        for flow, version, offset in asked:
            one = found.get(flow.partition)
            fetched = None if one is None or one.error else _fetched(one, offset, flow.era)
            with self.flows.lock:
                if flow.version == version:
                    self._take(flow, offset, one, fetched, now)

    def _take(
        self, flow: Flow, offset: int, one: FetchedPartition | None, fetched: Fetched | HoldfastError | None, now: float
    ) -> None:
        """One partition's part of an answer. With the lock held."""
        if one is None:
            flow.ready_at = now + self._settings.backoff_s
            return
        code = error_code(one.error)
        if code is not ErrorCode.NONE:
            self._refused(flow, one.error, offset, now)
            return
        flow.told, flow.unknown_since = "", None
        flow.high_watermark, flow.log_start = one.high_watermark, max(flow.log_start, one.log_start_offset)
        flow.last_stable, flow.quiet = one.last_stable_offset, flow.quiet + 1
        if isinstance(fetched, Fetched) and fetched.next_offset > offset:
            flow.partition_bytes = 0
            self.flows.arrived(flow, fetched)
        elif isinstance(fetched, Fetched):
            # A batch larger than what was asked for, and not the first of the answer: more is asked for it.
            usual = flow.partition_bytes or self._settings.partition_bytes
            flow.partition_bytes, flow.turn = min(2 * usual, LARGEST_BATCH_BYTES), 0
        elif isinstance(fetched, HoldfastError):
            flow.ready_at = now + RETRY_TOLD_S
            self.flows.fail(flow, fetched)
        elif one.preferred_read_replica >= 0 and flow.replica != one.preferred_read_replica:
            flow.replica, flow.replica_until = one.preferred_read_replica, now + self._settings.replica_age_s
            if flow.replica not in self._cluster.info.brokers:
                self._forgotten.add(flow.partition.topic)
        elif self._end_of(one) > offset:
            flow.turn = 0  # the answer was full before its turn came: next time it comes first
        else:
            self.flows.ended(flow, one.high_watermark)

    def _end_of(self, one: FetchedPartition) -> int:
        """As far as may be read: with read_committed, before the first open transaction."""
        stable = one.last_stable_offset
        return stable if self._settings.read_committed and stable >= 0 else one.high_watermark

    def _refused(self, flow: Flow, number: int, offset: int, now: float) -> None:
        """With the lock held."""
        code = error_code(number)
        flow.ready_at = now + self._settings.backoff_s
        if flow.replica is not None:  # a follower may be behind, or none any more: only the leader knows
            flow.replica = None
            return
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            flow.ready_at = 0.0
            self.flows.reset(flow, OutOfRange(flow.partition, offset))
            return
        error = BrokerError(code, f"{flow.partition} can't be read.")
        if code in MOVED:
            self._forgotten.add(flow.partition.topic)
        if code in UNKNOWN:
            self._unknown(flow, error, now)
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            flow.ready_at = now + RETRY_TOLD_S
            self.flows.fail(flow, error)
        elif not error.retriable or code is ErrorCode.CORRUPT_MESSAGE:
            flow.ready_at = now + self._settings.error_backoff_s
            flow.told = ""  # may not be transient: report it with every try, as librdkafka does
            self.flows.fail(flow, error, number=number)

    def _unknown(self, flow: Flow, error: HoldfastError, now: float) -> None:
        flow.unknown_since = now if flow.unknown_since is None else flow.unknown_since
        if now - flow.unknown_since >= TELL_UNKNOWN_AFTER_S:
            flow.ready_at = now + RETRY_TOLD_S
            self.flows.fail(flow, error)

    def _not_answered(self, asked: list[tuple[Flow, int, int]], error: NetError) -> None:
        """The broker is gone or slow: another one may lead by now."""
        now = self._loop.time()
        with self.flows.lock:
            for flow, version, _ in asked:
                if flow.version != version:
                    continue
                flow.replica = None
                flow.ready_at = now + self._settings.backoff_s
                self._forgotten.add(flow.partition.topic)
                if not error.retriable:
                    flow.ready_at = now + RETRY_TOLD_S
                    self.flows.fail(flow, error)

    # -- leaders and places

    async def _look_up(self, topics: set[str]) -> None:
        """Look up leaders. Partitions that still have none are tried again after a pause."""
        failed: NetError | None = None
        try:
            await self._cluster.refresh(topics)
        except NetError as unheard:
            failed = unheard
        finally:
            self._looking_up -= topics
        self._forgotten -= topics
        now = self._loop.time()
        info = self._cluster.info
        with self.flows.lock:
            for flow in self.flows.flows.values():
                if flow.partition.topic not in topics or (failed is None and info.leader_of(flow.partition)):
                    continue
                pause_s = self._settings.backoff_s if failed is None or failed.retriable else RETRY_TOLD_S
                flow.ready_at = max(flow.ready_at, now + pause_s)
                code, what = _no_leader(info, flow.partition)
                error = failed or BrokerError(code, what)
                if failed is None and code in UNKNOWN:
                    self._unknown(flow, error, now)
                elif not error.retriable and code is not ErrorCode.NONE:
                    self.flows.fail(flow, error)
        self.flows.wake()

    async def _place(self, flows: list[tuple[Flow, int]]) -> None:
        """Turn "the beginning", "the end", "so many before the end" and "the newest" into offsets."""
        wanted = {flow.partition: flow.at if flow.at in (BEGINNING, NEWEST) else LATEST for flow, _ in flows}
        failed: NetError | None = None
        found: dict[TopicPartition, int] = {}
        try:
            admin = Admin(self._cluster)
            answered = await admin.list_offsets(wanted, read_committed=self._settings.read_committed)
            found = {partition: at.offset for partition, at in answered.items()}
        except NetError as error:
            failed = error
        now = self._loop.time()
        with self.flows.lock:
            for flow, version in flows:
                if flow.version != version:
                    continue
                flow.under_way = False
                if failed is not None:
                    flow.ready_at = now + RETRY_TOLD_S
                    self.flows.fail(flow, failed)
                elif found.get(flow.partition, 0) < 0:
                    flow.at = END  # there is no record to be the newest
                elif flow.partition in found:
                    before_end = TAIL - flow.at if flow.at <= TAIL else 0
                    flow.at, flow.told = max(0, found[flow.partition] - before_end), ""
        self.flows.wake()


def _no_leader(info: ClusterInfo, partition: TopicPartition) -> tuple[ErrorCode, str]:
    """Why a partition has no leader, as far as the metadata tells; NONE if it just has none yet."""
    topic = info.topics.get(partition.topic)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} can't be read: there is no such topic."
    if topic.error is ErrorCode.NONE and partition.partition not in topic.partitions:
        what = f"{partition} can't be read: the topic has {len(topic.partitions)} partitions."
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what
    return topic.error, f"{partition} can't be read."


def _fetched(one: FetchedPartition, offset: int, era: int) -> Fetched | HoldfastError | None:
    """What came, with the offset to go on from; or what is wrong with it. None when nothing came."""
    if not one.records:
        return None
    (records,) = one.records
    assert isinstance(records, memoryview | bytes)
    next_offset, rows = offset, 0
    epochs: list[tuple[int, int]] = []
    try:
        for header in iter_headers(records):
            if not epochs or epochs[-1][1] != header.leader_epoch:
                epochs.append((header.base_offset, header.leader_epoch))
            next_offset = max(next_offset, header.next_offset)
            rows += header.record_count
    except HoldfastError as error:
        if next_offset == offset:
            return error
    return Fetched(records, offset, next_offset, rows, one.aborted, era, tuple(epochs))
