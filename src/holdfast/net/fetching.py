"""Fetches records ahead of a reader: sends requests to leaders and followers, and looks up leaders and start offsets.

Rules
- A broker answers the requests of a connection one after the other, and holds a fetch back while there is nothing new.
  So there are two connections (lanes) to each broker, and a partition that is due uses the free one. A request for
  partitions that have been silent for a while may be held back for longer, as long as the other lane is free. When
  another partition becomes due meanwhile, its request includes the silent ones too, so that they share one again.
- `fetch.planner` decides what an answer means. This module only does what it says.
- The next offset is read from the batches' headers. The records themselves are left to the reader.

Everything runs on one loop. `flows` holds what was fetched until it is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from holdfast.fetch.planner import node_to_ask, step
from holdfast.fetch.values import (
    Answer,
    Asked,
    AskFirst,
    AtEnd,
    Deliver,
    LookUp,
    OutOfRange,
    Report,
    Truncated,
    Unanswered,
)
from holdfast.model import TopicPartition
from holdfast.net.admin import LATEST, OffsetAt, offsets_at_leader
from holdfast.net.answers import (
    arrived,
    by_partition,
    no_leader,
    no_such_broker,
    not_placed,
    unanswered,
    without_records,
)
from holdfast.net.cluster import Cluster
from holdfast.net.connection import Connection
from holdfast.net.errors import NetError
from holdfast.net.fetch_request import Request
from holdfast.net.fetched_bytes import FetchedBytes
from holdfast.net.flow_values import BEGINNING, NEWEST, Fetched, FetchSettings
from holdfast.net.flows import Flow, Flows
from holdfast.net.reading import OffsetOutOfRange
from holdfast.wire.fetch import FetchRequest, FetchResponse

LOG = logging.getLogger("holdfast")

LANES = 2
"""Connections to one broker. While the broker holds back the request on one, the other can be used."""

QUIET_AFTER = 4
"""After this many empty answers in a row a partition counts as silent: that takes at least a fifth of a second."""

RETRY_BROKEN_S = 1.0
"""Pause after a defect in our own code."""

_NUMBERS = count()


class Fetcher:
    """Keeps a reader's partitions fetched. Made and closed on its loop; `pump` is the way in from other threads."""

    def __init__(
        self,
        cluster: Cluster,
        settings: FetchSettings,
        *,
        wake: Callable[[], None],
        throttled: Callable[[int, int], None] = lambda _node, _ms: None,
        fetched: FetchedBytes | None = None,
    ) -> None:
        """`throttled` is called on the loop with a broker's id and the milliseconds that it made us wait. `fetched`
        counts what came from where."""
        self._cluster = cluster
        self._throttled = throttled
        self._fetched = fetched or FetchedBytes(None)
        self._loop = asyncio.get_running_loop()
        self.flows = Flows(settings, wake=wake, changed=self.pump)
        self._settings = settings
        self._rules = settings.rules()
        self._number = next(_NUMBERS)
        self._busy: set[tuple[int, int]] = set()
        self._held: dict[int, Request] = {}
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
        """Call it, from any thread, when there may be something to fetch. Calls before the loop gets to it count as
        one."""
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

    # -- which broker is asked for what

    def _pump(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        now = self._loop.time()
        to_look_up: set[str] = set()
        to_place: dict[int, list[Flow]] = {}
        by_node: dict[int, list[Flow]] = {}
        soonest = float("inf")
        with self.flows.lock:
            for flow in self.flows.flows.values():
                if not self.flows.wants(flow, now):
                    if now < flow.track.ready_at < soonest:
                        soonest = flow.track.ready_at
                    continue
                node = self._node(flow, now)
                if node is None:
                    to_look_up.add(flow.partition.topic)
                elif flow.at < 0:
                    to_place.setdefault(node, []).append(flow)
                else:
                    by_node.setdefault(node, []).append(flow)
            for node, due in sorted(by_node.items()):
                self._ask(node, due, now)
            for due in to_place.values():
                for flow in due:
                    flow.under_way = True
        for node, placed in sorted(to_place.items()):
            self._spawn(self._place(node, [(flow, flow.version) for flow in placed]))
        fresh = to_look_up - self._looking_up
        if fresh:
            self._looking_up |= fresh
            self._spawn(self._look_up(fresh))
        self._rearm(soonest)

    def _node(self, flow: Flow, now: float) -> int | None:
        """The replica to read from: the follower that the leader named, else the leader. None while there is none. Only
        the leader is asked where a partition starts."""
        if flow.partition.topic in self._forgotten:
            return None
        follower = node_to_ask(flow.track, now) if flow.at >= 0 else None
        if follower in self._cluster.info.brokers:
            return follower
        if follower is not None:
            missing = Asked(offset=flow.at, at=now, follower=follower)
            self._step(flow, missing, Unanswered(error=no_such_broker(follower), passes=True), now)
        leader = self._cluster.info.leader_of(flow.partition)
        return None if leader is None else leader.node_id

    def _ask(self, node: int, due: list[Flow], now: float) -> None:
        """Send what there is room for on a lane that is free. With the lock held."""
        free = [lane for lane in range(LANES) if (node, lane) not in self._busy]
        if not free:
            return
        due = due + self._take_over_held(node, now)
        due.sort(key=lambda flow: (flow.turn, flow.partition))
        room = min(self.flows.room(), self._settings.max_bytes)
        nothing_there = self.flows.queued_bytes == 0 and self.flows.reserved_bytes == 0
        asked: list[tuple[Flow, int, Asked]] = []
        size = 0
        for flow in due:
            wanted = flow.track.partition_bytes or self._settings.partition_bytes
            tight, first = size + wanted > room, nothing_there and not asked
            if tight and not first and not (flow.track.quiet >= QUIET_AFTER and room > 0):
                break  # silent ones are still asked for: `room` bounds the whole answer
            size = max(size, room) if tight and not first else size + wanted
            flow.turn, flow.under_way = next(self._turns), True
            one = Asked(offset=flow.at, at=now, follower=node_to_ask(flow.track, now), epoch=self._known_epoch(flow))
            asked.append((flow, flow.version, one))
        if asked:
            silent = len(asked) == len(due) and all(flow.track.quiet >= QUIET_AFTER for flow in due)
            long = silent and len(free) > 1
            request = Request(asked, size, self._settings.idle_wait_ms if long else self._settings.wait_ms)
            if long:
                self._held[node] = request
            self._busy.add((node, free[0]))
            self.flows.reserved_bytes += size
            self._spawn(self._fetch(node, free[0], request))

    def _known_epoch(self, flow: Flow) -> int:
        topic = self._cluster.info.topics.get(flow.partition.topic)
        return self.flows.known_epoch(flow, None if topic is None else topic.topic_id)

    def _take_over_held(self, node: int, now: float) -> list[Flow]:
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
            self._rearm(self._loop.time() + RETRY_BROKEN_S)

    def _slot(self, lane: int) -> str:
        return f"fetch/{self._number}/{lane}"

    # -- fetching

    async def _fetch(self, node: int, lane: int, asked: Request) -> None:
        failed: NetError | None = None
        request, answer = FetchRequest(), FetchResponse()
        connection: Connection | None = None
        try:
            connection = await self._cluster.broker_for(node, self._slot(lane))
            request = asked.message(self._cluster.info, self._settings, self._loop.time())
            answer = await connection.fetch(request, timeout_s=self._cluster.config.request_timeout_s)
            self._fetched.add(answer.size, self._cluster.info.racks().get(node))
            if answer.throttle_time_ms > 0:
                self._throttled(node, answer.throttle_time_ms)
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
            self._not_answered(asked, failed)
        else:
            self._answered(asked, request, answer)
        self.flows.wake()

    def _answered(self, asked: Request, request: FetchRequest, answer: FetchResponse) -> None:
        found = by_partition(request, answer)
        now, throttle_s = self._loop.time(), answer.throttle_time_ms / 1_000.0
        for flow, version, one in asked.partitions:
            got = found.get(flow.partition)
            meant, fetched = without_records(flow.partition, got, answer.error), None
            if meant is None and got is not None:
                meant, fetched = arrived(flow, got, one.offset)
            assert meant is not None
            with self.flows.lock:
                if flow.version != version:
                    continue
                if got is not None and not got.error:
                    flow.high_watermark, flow.last_stable = got.high_watermark, got.last_stable_offset
                    flow.log_start = max(flow.log_start, got.log_start_offset)
                self._step(flow, one, meant, now, fetched=fetched, throttle_s=throttle_s)

    def _not_answered(self, asked: Request, error: NetError) -> None:
        now, meant = self._loop.time(), unanswered(error)
        with self.flows.lock:
            for flow, version, one in asked.partitions:
                if flow.version == version:
                    self._step(flow, one, meant, now)

    def _step(
        self,
        flow: Flow,
        asked: Asked,
        answer: Answer,
        now: float,
        *,
        fetched: Fetched | None = None,
        throttle_s: float = 0.0,
    ) -> None:
        """Do what the planner says about an answer. With the lock held."""
        stepped = step(flow.track, asked, answer, now=now, rules=self._rules, throttle_s=throttle_s)
        flow.track = stepped.track
        for effect in stepped.effects:
            match effect:
                case Deliver():
                    assert fetched is not None
                    self.flows.arrived(flow, fetched)
                case AskFirst():
                    flow.turn = 0
                case AtEnd(high_watermark):
                    self.flows.ended(flow, high_watermark)
                case LookUp():
                    self._forgotten.add(flow.partition.topic)
                case OutOfRange():
                    self.flows.reset(flow, OffsetOutOfRange(flow.partition, asked.offset))
                case Truncated(offset, epoch):
                    error = self.flows.truncated(flow, offset, epoch)
                    self._loop.call_soon(LOG.warning, "%s", error)  # not with the lock held
                case Report(error=error, number=number):
                    self.flows.report(flow, error, number=number)
                case _:  # Stalled and CutOff: a consumer waits for ever
                    raise AssertionError(effect)
        follower = node_to_ask(flow.track, now)
        if follower is not None and follower not in self._cluster.info.brokers:
            self._forgotten.add(flow.partition.topic)

    # -- leaders and start offsets

    async def _look_up(self, topics: set[str]) -> None:
        """Look up leaders. Partitions that still have none are tried again after a pause."""
        failed: NetError | None = None
        try:
            await self._cluster.refresh(topics)
        except NetError as error:
            failed = error
        finally:
            self._looking_up -= topics
        now = self._loop.time()
        info = self._cluster.info
        with self.flows.lock:
            for flow in self.flows.flows.values():
                if flow.partition.topic not in topics or (failed is None and info.leader_of(flow.partition)):
                    continue
                answer = no_leader(info, flow.partition) if failed is None else unanswered(failed)
                before = flow.track.ready_at
                self._step(flow, Asked(offset=flow.at, at=now), answer, now)
                flow.track = replace(flow.track, ready_at=max(before, flow.track.ready_at))
        self._forgotten -= topics  # a partition still without a leader is looked up again after its pause
        self.flows.wake()

    async def _place(self, node: int, flows: list[tuple[Flow, int]]) -> None:
        """Turn "the beginning", "the end", "so many before the end" and "the newest" into offsets. One leader is asked
        at a time, and what it refuses for one partition concerns no other: nobody waits for a partition in trouble."""
        wanted = {flow.partition: flow.at if flow.at in (BEGINNING, NEWEST) else LATEST for flow, _ in flows}
        asked_at, committed = self._loop.time(), self._settings.read_committed
        found: Mapping[TopicPartition, OffsetAt | NetError] = {}
        try:
            found = await offsets_at_leader(self._cluster, node, wanted, read_committed=committed)
        except NetError as error:
            found = dict.fromkeys(wanted, error)
        now = self._loop.time()
        with self.flows.lock:
            for flow, version in flows:
                if flow.version != version:
                    continue
                flow.under_way = False
                got = found.get(flow.partition)
                if isinstance(got, OffsetAt):
                    self.flows.place(flow, got.offset)
                else:
                    self._step(flow, Asked(offset=flow.at, at=asked_at), not_placed(got), now)
        self.flows.wake()
