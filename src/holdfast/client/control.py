"""The control plane: the member's machine on an asyncio loop in a thread of its own, and the doors to it.

The polling thread never waits for the network to keep a partition going: what the listener must be told arrives as
`calls`, in order, each with what it needs already fetched. Requests of the user's own (commit, committed) are run on
the loop and awaited here.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from holdfast.assign import plan_round
from holdfast.client import supervise
from holdfast.client.config import ConsumerConfig
from holdfast.client.engine import Engine
from holdfast.client.migration import explained
from holdfast.client.watchdog import Watchdog
from holdfast.group import member as mb
from holdfast.group.leader import LeaderPlan
from holdfast.group.messages import CommitAnswer, CommitRequest, FetchOffsetsAnswer, FetchOffsetsRequest, OffsetEntry
from holdfast.group.offsets import commit_request
from holdfast.model import (
    ClusterView,
    ErrorCode,
    HoldfastError,
    JoinedMember,
    Subscription,
    TopicPartition,
    TopicView,
    TraceRecord,
)
from holdfast.model.consumer_protocol import encode_subscription
from holdfast.net.channel import GroupChannel
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.net.driver import Hooks, MemberDriver, open_ear
from holdfast.net.errors import NetError
from holdfast.wire.api import Api
from holdfast.wire.codec import preload

T = TypeVar("T")

GROUP_APIS = (
    Api.FIND_COORDINATOR,
    Api.JOIN_GROUP,
    Api.SYNC_GROUP,
    Api.HEARTBEAT,
    Api.LEAVE_GROUP,
    Api.OFFSET_COMMIT,
    Api.OFFSET_FETCH,
    Api.METADATA,
)

START_TIMEOUT_S = 10.0
"""How long a consumer waits for its control thread to be there; it needs milliseconds."""


def now_ms() -> float:
    return time.monotonic() * 1_000.0


@dataclass(slots=True)
class PendingCall:
    """One call for the polling thread. `ready` is set once the start offsets of added partitions are known."""

    serial: int
    call: mb.Call
    last: bool
    offsets: dict[TopicPartition, int | None] = field(default_factory=dict)
    handed: frozenset[TopicPartition] = frozenset()
    error: HoldfastError | None = None
    ready: bool = True


class ControlPlane:
    """One member of one group, for one consumer."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        trace: Callable[[TraceRecord], None],
        last_poll: Callable[[], float],
        watchdog: Watchdog | None = None,
        planned: Callable[[LeaderPlan], None] = lambda _plan: None,
        responsive_ms: float | None = None,
        engine: Engine | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`planned` hears of rounds that we lead; `responsive_ms` is the machine's (see `MemberConfig`).

        With an `engine` we run on its thread, beside others. `wake` is called when there is something to serve.
        """
        self.wake = wake
        """Told, on the loop, that a call waits or has become ready: for whoever does not look by itself."""
        self._engine = engine
        self.config = config
        self._planned = planned
        self._responsive_ms = responsive_ms
        self._background: set[asyncio.Future[None]] = set()
        self._watchdog = watchdog
        self._noted: tuple[object, ...] = ()
        self._phase: mb.Phase | None = None
        self.calls: deque[PendingCall] = deque()
        self.failure: HoldfastError | None = None
        self._trace = trace
        self._last_poll = last_poll
        self._loop = asyncio.new_event_loop() if engine is None else engine.loop
        self._driver: MemberDriver | None = None
        self._cluster: Cluster | None = None
        self._channel: GroupChannel | None = None
        self._patterns: tuple[str, ...] = ()
        self._names: frozenset[str] = frozenset()
        self._watch: asyncio.Task[None] | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"holdfast-{config.group}", daemon=True)

    # -- life

    def start(self) -> None:
        if self._engine is not None:
            self._engine.call(self._open(), START_TIMEOUT_S)
            return
        self._thread.start()
        if not self._started.wait(START_TIMEOUT_S):
            raise HoldfastError("CONTROL_PLANE", "the control thread did not start.", "The machine is overloaded?")
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._open())
        except HoldfastError as error:
            self.failure = error
        finally:
            self._started.set()
        if self.failure is None:
            self._loop.run_forever()
        self._loop.run_until_complete(self._shut())
        self._loop.close()

    def _broken(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something of ours died in the background: poll must say so instead of waiting for ever (KAFKA-14729)."""
        error = context.get("exception")
        self.failure = HoldfastError(
            "CONTROL_PLANE_FAILED",
            f"the member's background work failed: {error or context.get('message')}.",
            "This is a defect of holdfast's; close the consumer, make a new one, and report it.",
        )
        self.wake()

    async def _open(self) -> None:
        config = self.config
        if self._engine is None:
            self._loop.set_exception_handler(self._broken)
            self._cluster = Cluster(client_config(config.raw))
        else:
            self._engine.listen(self._broken)
            self._cluster = self._engine.cluster(client_config(config.raw))
        self._channel = GroupChannel(self._cluster, config.group)
        ear = endpoint = None
        if config.inventions.poke:
            with contextlib.suppress(OSError):  # no datagrams here: then pokes don't reach us, that's all
                ear, endpoint = open_ear(_our_address(self._cluster.config.bootstrap[0]))
        member = mb.MemberConfig(
            group=config.group,
            assignors=config.assignors,
            protocol=config.protocol,
            name=config.client_id,
            client_id=config.client_id,
            instance_id=config.instance_id,
            rack=config.rack,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            instant_rejoin=config.inventions.instant_rejoin,
            hand_over_offsets=config.inventions.offset_handover,
            hot_heartbeats=config.inventions.hot_heartbeats,
            endpoint=endpoint,
            responsive_ms=self._responsive_ms,
        )
        hooks = Hooks(
            notify=self._notify,
            fail=self._fail,
            trace=self._trace,
            cluster_view=partial(self._cluster.view, within_s=FRESH_S),
            last_poll=self._last_poll,
            changed=self._changed,
            planned=self._planned,
        )
        self._driver = driver = MemberDriver(member, self._channel, hooks, clock=now_ms, ear=ear)
        supervisor = supervise.socket_path()
        if supervisor is not None:
            asked = self.drained("holdfast run was told to stop")
            self._behind(
                supervise.obey(supervisor, group=config.group, drain=lambda: driver.feed(asked), out=driver.closed)
            )
        self._warming = self._loop.run_in_executor(None, warm_up)

    async def _shut(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._driver is not None:
            await self._driver.stop()
        if self._cluster is not None and self._engine is None:
            await self._cluster.close()
        elif self._cluster is not None and self._engine is not None and self._channel is not None:
            self._engine.unlisten(self._broken)
            await self._channel.close()
            await self._engine.let_go(self._cluster)

    def stop(self) -> None:
        """End the thread. The member has left by now, or is given up."""
        if self._engine is not None:
            self._engine.call(self._shut(), START_TIMEOUT_S)
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(START_TIMEOUT_S)

    # -- doors for the polling thread

    @property
    def driver(self) -> MemberDriver:
        assert self._driver is not None, "the control plane has not started"
        return self._driver

    @property
    def state(self) -> mb.MemberState:
        return self.driver.state

    def feed(self, event: mb.Event) -> None:
        self.driver.feed_threadsafe(event)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None) -> T:
        future = self.submit(work)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise

    def drained(self, reason: str) -> mb.Event:
        """The event for a drain; where that is switched off, a plain leave."""
        return mb.Drain(reason) if self.config.inventions.drain else mb.Close(reason)

    def closed(self) -> bool:
        return self.driver.closed.is_set()

    # -- subscription

    def subscribe(self, topics: list[str]) -> None:
        self._loop.call_soon_threadsafe(self._want, topics)

    def unsubscribe(self) -> None:
        self._loop.call_soon_threadsafe(self._unsubscribe)

    def _want(self, topics: list[str]) -> None:
        """At once, so that an unsubscribe right behind it finds what it takes back."""
        self._patterns = tuple(topic for topic in topics if topic.startswith("^"))
        self._names = frozenset(topic for topic in topics if not topic.startswith("^"))
        self._behind(self._subscribe(self._patterns, self._names))

    async def _subscribe(self, patterns: tuple[str, ...], names: frozenset[str]) -> None:
        """Join with what the patterns match. Who can't learn that now goes on asking: nobody else would ask for him."""
        while (self._patterns, self._names) == (patterns, names):
            try:
                found = await self._resolve()
            except NetError as error:  # each try takes as long as default.api.timeout.ms says
                if error.retriable:
                    continue
                self._fail(error)
                return
            if (self._patterns, self._names) == (patterns, names):  # and not subscribed anew meanwhile
                self.driver.feed(mb.Subscribe(found))
                if self._watch is None:
                    self._watch = asyncio.create_task(self._watch_metadata())
            return

    def _unsubscribe(self) -> None:
        """Patterns go first: a look at the cluster that is under way must not subscribe again."""
        self._patterns, self._names = (), frozenset()
        self.driver.feed(mb.Unsubscribe())

    async def _resolve(self) -> frozenset[str]:
        if not self._patterns:
            return self._names
        assert self._cluster is not None
        info = await self._cluster.refresh(None)
        patterns = [re.compile(pattern) for pattern in self._patterns]
        return self._names | {topic for topic in info.topics if any(p.search(topic) for p in patterns)}

    async def _watch_metadata(self) -> None:
        """Look at the cluster now and then: topics that grow, appear, vanish, or match a pattern."""
        assert self._cluster is not None
        interval_s = min(self.config.metadata_max_age_ms / 1_000.0, METADATA_LOOK_S)
        while True:
            await asyncio.sleep(interval_s)
            if not (self._patterns or self._names):
                continue  # unsubscribed
            patterns = self._patterns
            try:
                topics = await self._resolve()
                # A leader answers for every topic it planned, also those that only others subscribe to.
                view = await self._cluster.view(topics | set(self.driver.state.planned_counts or ()))
            except HoldfastError:  # unreachable just now: the next look will tell
                continue
            if self._patterns != patterns:
                continue  # subscribed anew meanwhile
            if patterns and topics != self.driver.state.topics:
                self.driver.feed(mb.Subscribe(topics))
            self.driver.feed(mb.MetadataChanged(view))

    # -- what the machine wants done

    def _changed(self, state: mb.MemberState) -> None:
        """Keep the watchdog's note true: it speaks for whoever we were last."""
        if state.phase is not self._phase:
            self._phase = state.phase
            if state.phase is mb.Phase.JOINING and state.leader:
                self._behind(self._look_ahead(state.topics | set(state.planned_counts or ())))
            self.wake()
        if self._watchdog is None:
            return
        assert self._cluster is not None
        where = self._cluster.known_coordinator(self.config.group)
        seen = (state.membership, state.owned, state.peers, state.poke_token, state.lost, state.phase, where)
        if seen != self._noted:
            self._noted = seen
            self._watchdog.own(state.owned)
            self._watchdog.note(state, where, commits=self.config.auto_commit)

    async def _look_ahead(self, topics: frozenset[str]) -> None:
        """A leader that joins will plan: it looks at the cluster while the others join, not when all wait for it."""
        assert self._cluster is not None
        with contextlib.suppress(HoldfastError):  # then it is asked again when it is needed
            await self._cluster.view(topics, within_s=FRESH_S)

    def _behind(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this on the side, until the end."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _fail(self, error: HoldfastError) -> None:
        if error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL.name:
            self._behind(self._fail_with_reason(error))
        else:
            self.failure = error
            self.wake()

    async def _fail_with_reason(self, error: HoldfastError) -> None:
        """The coordinator only says no; who runs what tells which step of a migration was missed."""
        assert self._cluster is not None
        names = [assignor.name for assignor in self.config.assignors]
        self.failure = await explained(error, self._cluster, self.config.group, names)
        self.wake()

    def _notify(self, effect: mb.Notify) -> None:
        for number, call in enumerate(effect.calls, start=1):
            pending = PendingCall(serial=effect.serial, call=call, last=number == len(effect.calls))
            if isinstance(call, mb.Assigned) and call.partitions:
                pending.handed = frozenset(call.offsets)
                pending.offsets = dict(call.offsets)
                missing = tuple(sorted(call.partitions - pending.handed))
                if missing:
                    pending.ready = False
                    self._behind(self._fetch_offsets(pending, missing))
            self.calls.append(pending)
        self.wake()

    async def _fetch_offsets(self, pending: PendingCall, missing: tuple[TopicPartition, ...]) -> None:
        """Start offsets of added partitions, tried until they are there or the round is over."""
        while self.driver.state.pending == pending.serial:
            try:
                answer = await self.driver.committed(missing)
            except HoldfastError as error:
                answer = FetchOffsetsAnswer(error=ErrorCode.NETWORK_EXCEPTION)
                pending.error = error
            if answer.error is ErrorCode.NONE:
                found = answer.offsets
                pending.offsets.update({p: found[p].offset if p in found else None for p in missing})
                break
            if self._channel is not None:
                self._channel.forget()
            await asyncio.sleep(self.config.retry_backoff_ms / 1_000.0)
        pending.ready = True
        self.wake()

    # -- offsets

    async def commit(self, offsets: Mapping[TopicPartition, OffsetEntry], *, member: bool = True) -> CommitAnswer:
        """Commit as a member; or, with a manual assignment, from outside the group."""
        if member:
            return await self.driver.commit(offsets)
        assert self._channel is not None
        answer = await self._channel.send(CommitRequest(group=self.config.group, offsets=dict(offsets)), REQUEST_MS)
        assert isinstance(answer, CommitAnswer)
        return answer

    def commit_soon(
        self, offsets: Mapping[TopicPartition, OffsetEntry], *, member: bool = True
    ) -> Coroutine[Any, Any, CommitAnswer]:
        """The same as who we are now, not when the loop gets to it: a revoke under way takes the partitions by then."""
        if member:
            with contextlib.suppress(HoldfastError):  # not ours yet: when it is sent it may be
                return self.driver.send_commit(commit_request(self.state, offsets))
        return self.commit(offsets, member=member)

    async def committed(self, partitions: tuple[TopicPartition, ...]) -> FetchOffsetsAnswer:
        assert self._channel is not None
        request = FetchOffsetsRequest(group=self.config.group, partitions=partitions)
        answer = await self._channel.send(request, REQUEST_MS)
        assert isinstance(answer, FetchOffsetsAnswer)
        return answer


def warm_up() -> None:
    """Load ahead what the first round would load: whoever leads for the first time must not be slow about it."""
    preload(*((api, api.highest) for api in GROUP_APIS))
    metadata = encode_subscription(Subscription(topics=("t",)))
    plan_round("cooperative-sticky", ClusterView({"t": TopicView(2)}), [JoinedMember(member_id="m", metadata=metadata)])


def _our_address(broker: tuple[str, int]) -> str:
    """The address by which we reach this broker, and so our peers reach us. Nothing is sent: UDP only looks it up."""
    family, kind, number, _, address = socket.getaddrinfo(*broker, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, number) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


FRESH_S = 1.0
"""A plan is made by what the cluster looked like within this time: a handover's second round by what its first saw."""

METADATA_LOOK_S = 30.0
"""How often the cluster is looked at, at the latest: a topic that grew is served half a minute later at worst."""

REQUEST_MS = 30_000.0
