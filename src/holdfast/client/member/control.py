"""The control plane: runs the member's machine on an asyncio loop in its own thread, and is how other threads reach it.

The polling thread does not wait for the network during a round: the listener's calls are queued in `calls`, in order,
and each is marked ready once the offsets that it needs are known. The application's own requests (commit, committed)
run on the loop, and its thread waits for them.

It is longer than 400 lines because it is one idea: each way in from another thread, beside what it reaches on the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, TypeVar

from holdfast.client.clock import now_ms
from holdfast.client.config.settings import ConsumerConfig, session_refused
from holdfast.client.member.engine import Engine
from holdfast.client.member.events import PollError
from holdfast.client.member.group_offsets import GroupOffsets
from holdfast.client.member.machine_config import member_config, poke_socket_for
from holdfast.client.member.pending_calls import PendingCall, quiet_calls
from holdfast.client.member.topics import Topics
from holdfast.client.member.warm_up import warm_up
from holdfast.client.operate import supervised as supervise
from holdfast.client.operate.migration import explained
from holdfast.client.telemetry.connections import Outage
from holdfast.client.watchdog.guard import Watchdog
from holdfast.group import member as mb
from holdfast.group.leader import LeaderPlan
from holdfast.group.messages import OffsetEntry
from holdfast.group.session.closing import is_out
from holdfast.model import ErrorCode, HoldfastError, TopicPartition, TraceRecord
from holdfast.net.channel import GroupChannel
from holdfast.net.cluster import Address, Cluster
from holdfast.net.config import client_config
from holdfast.net.driver import Hooks, MemberDriver
from holdfast.net.errors import NetError
from holdfast.net.loop_thread import LoopThread

T = TypeVar("T")

DEFECT = "CONTROL_PLANE_FAILED"
"""Code of an error in holdfast itself. confluent-kafka has no such error, so every poll raises it."""

START_TIMEOUT_S = 10.0
"""How long a consumer waits for its control thread to start, which takes milliseconds."""

START_SLICES = 100
"""It waits in this many slices, so that time during which the process was frozen hardly counts."""

MID_ROUND = frozenset({mb.Phase.JOINING, mb.Phase.PLANNING, mb.Phase.SYNCING})
"""Phases in which the application has nothing to do. It is not woken: in a large group that is hundreds of times."""

QUIET_S = 0.25
"""How long, in a large group, a listener may have to wait to be told that a round changed nothing for it. Most members
get this call at the same time, and those that give or get partitions would have to wait for them."""

FRESH_S = 1.0
"""A leader that joins fetches metadata unless it has done so within this time. The second round of a handover uses what
the first one fetched."""

PLANS_BY_S = 3.0
"""How old the metadata of a plan may be. Longer than `FRESH_S` by the time a large group needs to join: otherwise what
was fresh when the leader joined would be too old when it plans, and everybody would wait while it is fetched again. A
later change is seen by the next refresh (`topics`), and another round follows."""

MAX_TOLD = 1_000
"""How many errors are kept for an application that does not poll; the oldest are dropped."""


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
        takes_handed: bool = True,
    ) -> None:
        """`planned` is called with the plan of each round that we lead; `responsive_ms`: see `MemberConfig`.

        With an `engine` the loop is the engine's, shared with others. `wake` is called when there is work to serve.
        `takes_handed`: whether the plane commits the positions that are handed over to us; else its owner does.
        """
        self.stirred = True
        """Whether anything has changed since the polling thread last looked. It resets this before it looks."""
        self._wake = wake
        self._engine = engine
        self.config = config
        self._planned = planned
        self._responsive_ms = responsive_ms
        self._takes_handed = takes_handed
        self._background: set[asyncio.Future[None]] = set()
        self._watchdog = watchdog
        self._phase: mb.Phase | None = None
        self._subscribes = False
        self.handed: dict[TopicPartition, OffsetEntry] = {}
        """Positions that were handed over to us, until it is known that the group has them. They are ours to commit,
        and to hand on when we give their partitions up."""
        self.calls: deque[PendingCall] = deque()
        self.failure: HoldfastError | None = None
        """The fatal error that ended the membership. It stays: polls keep returning it."""
        self.told: deque[PollError] = deque(maxlen=MAX_TOLD)
        """Errors that are not fatal, for the next polls to return, each once."""
        self._trace = trace
        self._last_poll = last_poll
        self._own: LoopThread | None = None
        self._driver: MemberDriver | None = None
        self._cluster: Cluster | None = None
        self._channel: GroupChannel | None = None
        self._topics: Topics | None = None
        self._offsets: GroupOffsets | None = None

    # -- life

    def start(self) -> None:
        if self._engine is None:
            self._own = LoopThread(f"holdfast-{self.config.group}", broken=self._broken, joins_pool=False)
        opening = self.submit(self._open())
        if not any(wait([opening], START_TIMEOUT_S / START_SLICES).done for _ in range(START_SLICES)):
            opening.cancel()
            self.stop(timeout_s=0.0)  # it ends when the loop gets to it
            raise HoldfastError(
                "CONTROL_PLANE", "the control thread did not start.", "Check whether the machine is overloaded."
            )
        try:
            opening.result()
        except BaseException as error:
            if isinstance(error, HoldfastError):
                self.failure = error
            self.stop()
            raise

    @property
    def _host(self) -> Engine | LoopThread:
        """What runs our loop."""
        host = self._engine or self._own
        assert host is not None, "the control plane has not started"
        return host

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._host.loop

    def _broken(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Background work failed: poll must report it instead of waiting for ever (KAFKA-14729)."""
        error = context.get("exception")
        self.failure = HoldfastError(
            DEFECT,
            f"the member's background work failed: {error or context.get('message')}.",
            "This is a defect of holdfast. Close the consumer, create a new one, and report it.",
        )
        self.wake()

    async def _open(self) -> None:
        config = self.config
        if self._engine is None:
            self._cluster = Cluster(client_config(config.raw))
            self._outage = Outage(config.shown)
            self._cluster.watchers.append(self._reached)
        else:
            self._engine.listen(self._broken)
            self._cluster = self._engine.cluster(client_config(config.raw))
        self._channel = GroupChannel(self._cluster, config.group)
        poke_socket, endpoint = await poke_socket_for(config, self._cluster.config.bootstrap)
        most_s = self._cluster.config.backoff_max_s
        member = member_config(config, endpoint=endpoint, responsive_ms=self._responsive_ms, backoff_max_s=most_s)
        hooks = Hooks(
            notify=self._notify,
            fail=self._fail,
            tell=self._tell,
            trace=self._trace,
            cluster_view=partial(self._cluster.view, within_s=PLANS_BY_S),
            last_view=self._cluster.last_view,
            last_poll=self._last_poll,
            changed=self._changed,
            planned=self._planned,
        )
        self._driver = driver = MemberDriver(member, self._channel, hooks, clock=now_ms, poke_socket=poke_socket)
        self._offsets = GroupOffsets(config, driver, self._channel, backoff_max_s=most_s)
        self._topics = Topics(self._cluster, driver, self._queue_error, self._running, config)
        supervisor = supervise.socket_path()
        if supervisor is not None:
            asked = self.drain_event("holdfast run was told to stop")
            self._in_background(
                supervise.obey(supervisor, group=config.group, drain=lambda: driver.feed(asked), out=driver.closed)
            )
        self._warming = self._loop.run_in_executor(None, warm_up)

    def _reached(self, address: Address, error: NetError | None) -> None:
        """The result of an attempt to connect. A consumer that only assigns is covered by `BrokersSeen` instead."""
        assert self._cluster is not None
        if self._subscribes:
            self._outage.heard(address, error, self._cluster.addresses())

    def racks(self) -> dict[int, str | None]:
        """The brokers' racks, from the last metadata. From any thread."""
        return self._cluster.info.racks() if self._cluster is not None else {}

    async def _shut(self) -> None:
        if self._topics is not None:
            self._topics.stop()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._driver is not None:
            await self._driver.stop()
        if self._cluster is not None and self._engine is None:
            await self._cluster.close()
        elif self._cluster is not None and self._engine is not None:
            self._engine.unlisten(self._broken)
            if self._channel is not None:
                await self._channel.close()
            await self._engine.let_go(self._cluster)

    def stop(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """End the thread. The member has left by now, or we no longer wait for it. What takes longer goes on."""
        if self._own is not None:
            self._own.stop(self._shut(), timeout_s=timeout_s)
        elif self._engine is not None:
            with contextlib.suppress(TimeoutError):
                self._engine.submit(self._shut()).result(timeout_s)

    # -- for other threads

    def wake(self) -> None:
        """There is something to serve: a listener's call that is new or ready, an error, the outcome of a commit."""
        self.stirred = True
        self._wake()

    @property
    def driver(self) -> MemberDriver:
        assert self._driver is not None, "the control plane has not started"
        return self._driver

    @property
    def topics(self) -> Topics:
        assert self._topics is not None, "the control plane has not started"
        return self._topics

    @property
    def offsets(self) -> GroupOffsets:
        assert self._offsets is not None, "the control plane has not started"
        return self._offsets

    @property
    def state(self) -> mb.MemberState:
        return self.driver.state

    def feed(self, event: mb.Event) -> None:
        self.driver.feed_threadsafe(event)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return self._host.submit(work)

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None) -> T:
        return self._host.call(work, timeout_s)

    def drain_event(self, reason: str) -> mb.Event:
        """The event that starts a drain; a plain leave where draining is switched off."""
        return mb.Drain(reason) if self.config.inventions.drain else mb.Close(reason)

    def closed(self) -> bool:
        return self.driver.closed.is_set()

    def out(self) -> bool:
        """Whether a close need not wait any longer for the group."""
        queued = self.closed() or self.failure is not None  # both are set after the last calls were queued
        return queued and is_out(self.state, calls_wait=bool(self.calls))

    # -- subscription

    def keep_informed(self, watchdog: Watchdog) -> None:
        """Keep this watchdog's note up to date from now on."""
        self._watchdog = watchdog

    def subscribe(self, topics: list[str]) -> None:
        self._subscribes = True
        self._loop.call_soon_threadsafe(self._subscribe, topics)

    def unsubscribe(self) -> None:
        self._subscribes = False
        self._loop.call_soon_threadsafe(self._unsubscribe)

    def _subscribe(self, topics: list[str]) -> None:
        self._in_background(self.topics.subscribe(self.topics.want(topics)))

    async def _running(self) -> str | None:
        """The assignor the group runs, if it matters: a new member without a configured strategy adapts to it."""
        if not self.config.eager_assignors or self.state.phase is not mb.Phase.UNSUBSCRIBED:
            return None
        assert self._channel is not None
        try:
            return await self._channel.running()
        except NetError as error:
            if not error.retriable:  # we are not allowed to ask: join eagerly, which any group accepts
                return None
            self._channel.forget()
            await asyncio.sleep(self.config.retry_backoff_ms / 1_000.0)
            raise

    def _unsubscribe(self) -> None:
        self.topics.forget()
        self.driver.feed(mb.Unsubscribe())

    # -- what the machine wants done

    def _changed(self, state: mb.MemberState) -> None:
        """The machine has handled an event: wake the application if the new phase concerns it, inform the watchdog."""
        self.stirred = True
        if state.phase is not self._phase:
            self._phase = state.phase
            if state.phase is mb.Phase.JOINING and state.round.leads:
                self._in_background(self._fetch_metadata_early(state.topics | set(state.planning.counts or ())))
            if state.phase not in MID_ROUND and state.phase is not mb.Phase.APPLYING:  # for APPLYING `_notify` wakes
                self.wake()
        if self._watchdog is not None and self._cluster is not None and self._channel is not None:
            where, why = self._cluster.known_coordinator(self.config.group), self._channel.takes_reason
            self._watchdog.inform(state, where, commits=self.config.auto_commit, takes_reason=why)

    async def _fetch_metadata_early(self, topics: frozenset[str]) -> None:
        """A leader that joins will plan soon: fetch metadata while the others join, not when all wait for the plan."""
        assert self._cluster is not None
        with contextlib.suppress(HoldfastError):  # it is fetched again when it is needed
            await self._cluster.view(topics, within_s=FRESH_S)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this in the background; cancelled when the plane is shut."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _fail(self, error: HoldfastError) -> None:
        self.failure = error
        self.wake()

    def _tell(self, error: HoldfastError) -> None:
        if error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL.name:
            self._in_background(self._explain_and_queue(error))
        elif error.code == ErrorCode.INVALID_SESSION_TIMEOUT.name:
            self._queue_error(session_refused(self.config, error))
        else:
            self._queue_error(error)

    def _queue_error(self, error: HoldfastError, topic: str | None = None) -> None:
        self.told.append(PollError(error, topic))
        self.wake()

    async def _explain_and_queue(self, error: HoldfastError) -> None:
        """The coordinator gives no reason. Compare the members' assignors to say which migration step was missed."""
        assert self._cluster is not None
        names = [assignor.name for assignor in self.config.assignors]
        self._queue_error(await explained(error, self._cluster, self.config.group, names))

    def _notify(self, effect: mb.Notify) -> None:
        """Queue the listener's calls of a round for the polling thread.

        If the round changed nothing here, and another one follows, the machine is answered at once: the new owners of
        revoked partitions wait for everybody's next join, and on_assign([]) can't change ours. The listener is still
        called, in order.
        """
        count = len(effect.calls)
        calls = [self._pending(effect.serial, call, last=n == count) for n, call in enumerate(effect.calls, start=1)]
        quiet, large = quiet_calls(calls) == count, self.state.pokes.passed_on
        early = quiet and (large or self.state.rejoin is not None) and self.state.draining is None
        for pending in calls:
            pending.answered = early
        self.calls.extend(calls)
        if early:
            self.driver.feed(mb.Notified(effect.serial))
        if early and large:
            self._loop.call_later(QUIET_S, self.wake)
        else:
            self.wake()

    def _pending(self, serial: int, call: mb.Call, *, last: bool) -> PendingCall:
        """One call of a round. Where partitions are added, it is ready once all their start offsets are known."""
        pending = PendingCall(serial=serial, call=call, last=last)
        if isinstance(call, mb.Assigned) and call.partitions:
            for partition in call.partitions:  # positions handed over in an earlier round are outdated
                self.handed.pop(partition, None)
            if call.offsets and self._takes_handed:  # at once: the application may hang
                self._in_background(self.offsets.commit_handed(call.offsets, left=self.handed))
            pending.handed = call.offsets
            pending.offsets = {p: entry.offset for p, entry in call.offsets.items()}
            missing = tuple(sorted(call.partitions - call.offsets.keys()))
            if missing:
                pending.ready = False
                self._in_background(self._find_starts(pending, missing))
        return pending

    async def _find_starts(self, pending: PendingCall, missing: tuple[TopicPartition, ...]) -> None:
        """Ask where added partitions start, until it is known or the round is over. Then the call can be made."""

        def in_this_round() -> bool:
            return self.state.requests.pending == pending.serial

        pending.offsets.update(await self.offsets.starts(missing, wanted=in_this_round, tell=self._queue_error))
        pending.ready = True
        self.wake()
