"""The control plane: runs the member's machine on an asyncio loop in its own thread, and is how other threads reach it.

The polling thread does not wait for the network during a round: the listener's calls are queued in `calls`, in order,
and each is marked ready once the offsets that it needs are known. The application's own requests (commit, committed)
run on the loop, and its thread waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, TypeVar

from holdfast.assign import STRATEGIES, plan_round
from holdfast.client.config.settings import ConsumerConfig, session_refused
from holdfast.client.member.commit_retries import MOST_BACKOFF_S, RETRY_FOR_S, Committing
from holdfast.client.member.engine import Engine
from holdfast.client.member.events import Told
from holdfast.client.member.topics import Topics
from holdfast.client.operate import supervised as supervise
from holdfast.client.operate.migration import explained
from holdfast.client.telemetry.connections import Outage
from holdfast.client.watchdog.guard import Watchdog
from holdfast.group import member as mb
from holdfast.group.leader import LeaderPlan
from holdfast.group.member.trouble import TELL_AGAIN_MS
from holdfast.group.messages import CommitAnswer, CommitRequest, FetchOffsetsAnswer, FetchOffsetsRequest, OffsetEntry
from holdfast.group.offsets import commit_request, not_committed_yet, passes
from holdfast.group.user_data import can_be_poked
from holdfast.group.verdicts import Ask, Verdict, refusal, verdict
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
from holdfast.net.cluster import Address, Cluster
from holdfast.net.config import client_config
from holdfast.net.driver import Hooks, MemberDriver, open_ear
from holdfast.net.errors import NetError
from holdfast.net.loop_thread import LoopThread
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

DEFECT = "CONTROL_PLANE_FAILED"
"""Code of an error in holdfast itself. confluent-kafka has no such error, so every poll raises it."""

START_TIMEOUT_S = 10.0
"""How long a consumer waits for its control thread to start, which takes milliseconds."""

START_SLICES = 100
"""It waits in this many slices, so that time during which the process was frozen hardly counts."""


def now_ms() -> float:
    return time.monotonic() * 1_000.0


@dataclass(slots=True)
class PendingCall:
    """One listener's call, to be made by the polling thread. `ready` when start offsets of added partitions are known.

    `handed` are positions from the partitions' previous owners; `offsets` are the offsets to start at.
    """

    serial: int
    call: mb.Call
    last: bool
    offsets: dict[TopicPartition, int | None] = field(default_factory=dict)
    handed: Mapping[TopicPartition, OffsetEntry] = field(default_factory=dict)
    ready: bool = True
    answered: bool = False
    """Whether the machine was told already that this call has returned: the group does not wait for it."""


def quiet_calls(calls: Iterable[PendingCall]) -> int:
    """How many calls at the front belong to a round that changed nothing for this member. 0 if it changed something, or
    if the assignor is the user's own, whose on_assignment may be slow."""
    for number, pending in enumerate(calls, start=1):
        match pending.call:
            case mb.OnAssignment(protocol) if protocol in STRATEGIES:
                pass
            case mb.Assigned(partitions) if not partitions:
                pass
            case _:
                return 0
        if pending.last:
            return number
    return 0


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
        self._committing = Committing(self._send_commit, self._forget_coordinator, backoff_ms=config.retry_backoff_ms)
        self._noted: tuple[object, ...] = ()
        self._phase: mb.Phase | None = None
        self._subscribes = False
        self.handed: dict[TopicPartition, OffsetEntry] = {}
        """Positions that were handed over to us, until it is known that the group has them. They are ours to commit,
        and to hand on when we give their partitions up."""
        self.calls: deque[PendingCall] = deque()
        self.failure: HoldfastError | None = None
        """The fatal error that ended the membership. It stays: polls keep returning it."""
        self.told: deque[Told] = deque(maxlen=MAX_TOLD)
        """Errors that are not fatal, for the next polls to return, each once."""
        self._trace = trace
        self._last_poll = last_poll
        self._own: LoopThread | None = None
        self._driver: MemberDriver | None = None
        self._cluster: Cluster | None = None
        self._channel: GroupChannel | None = None
        self._topics: Topics | None = None

    # -- life

    def start(self) -> None:
        if self._engine is None:
            self._own = LoopThread(f"holdfast-{self.config.group}", broken=self._broken, joins_pool=False)
        opening, started = self.submit(self._open()), threading.Event()
        opening.add_done_callback(lambda _done: started.set())
        if not any(started.wait(START_TIMEOUT_S / START_SLICES) for _ in range(START_SLICES)):
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
        """Whose loop we are on."""
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
        ear = endpoint = None
        if config.inventions.poke and self._cluster.config.bootstrap:
            with contextlib.suppress(OSError):  # no UDP here: then pokes don't reach us, and that is all
                host = _our_address(self._cluster.config.bootstrap[0])
                if can_be_poked(host):  # false for an address that is valid only on this machine, like fe80::1%eth0
                    ear, endpoint = open_ear(host)
        member = mb.MemberConfig(
            group=config.group,
            assignors=config.assignors,
            protocol=config.protocol,
            eager_assignors=config.eager_assignors,
            cooperative_after_ms=config.cooperative_after_ms,
            name=config.client_id,
            client_id=config.client_id,
            instance_id=config.instance_id,
            rack=config.rack,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=int(self._cluster.config.backoff_max_s * 1_000),
            retry_spread=random.uniform(*SPREAD),
            instant_rejoin=config.inventions.instant_rejoin,
            hand_over_offsets=config.inventions.offset_handover,
            hot_heartbeats=config.inventions.hot_heartbeats,
            endpoint=endpoint,
            responsive_ms=self._responsive_ms,
        )
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
        self._driver = driver = MemberDriver(member, self._channel, hooks, clock=now_ms, ear=ear)
        self._topics = Topics(self._cluster, driver, self._hear, self._running, internal=config.internal_topics)
        supervisor = supervise.socket_path()
        if supervisor is not None:
            asked = self.drained("holdfast run was told to stop")
            self._behind(
                supervise.obey(supervisor, group=config.group, drain=lambda: driver.feed(asked), out=driver.closed)
            )
        self._warming = self._loop.run_in_executor(None, warm_up)

    def _reached(self, address: Address, error: NetError | None) -> None:
        """The result of an attempt to connect. A consumer that only assigns is covered by `BrokersSeen` instead."""
        assert self._cluster is not None
        if self._subscribes:
            self._outage.heard(address, error, self._cluster.addresses())

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

    def stop(self) -> None:
        """End the thread. The member has left by now, or we no longer wait for it."""
        if self._engine is not None:
            self._engine.submit(self._shut()).result(START_TIMEOUT_S)  # what takes longer goes on
        elif self._own is not None:
            self._own.stop(self._shut(), timeout_s=START_TIMEOUT_S)

    # -- doors for the polling thread

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
    def state(self) -> mb.MemberState:
        return self.driver.state

    def feed(self, event: mb.Event) -> None:
        self.driver.feed_threadsafe(event)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return self._host.submit(work)

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None) -> T:
        return self._host.call(work, timeout_s)

    def drained(self, reason: str) -> mb.Event:
        """The event that starts a drain; a plain leave where draining is switched off."""
        return mb.Drain(reason) if self.config.inventions.drain else mb.Close(reason)

    def closed(self) -> bool:
        return self.driver.closed.is_set()

    # -- subscription

    def guard(self, watchdog: Watchdog) -> None:
        """Keep this watchdog up to date from now on."""
        self._watchdog = watchdog

    def subscribe(self, topics: list[str]) -> None:
        self._subscribes = True
        self._loop.call_soon_threadsafe(self._want, topics)

    def unsubscribe(self) -> None:
        self._subscribes = False
        self._loop.call_soon_threadsafe(self._unsubscribe)

    def _want(self, topics: list[str]) -> None:
        self._behind(self.topics.subscribe(self.topics.want(topics)))

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
        """The machine has handled an event. Wake the application if the new phase concerns it, and keep the watchdog's
        note up to date."""
        self.stirred = True
        if state.phase is not self._phase:
            self._phase = state.phase
            if state.phase is mb.Phase.JOINING and state.leader:
                self._behind(self._look_ahead(state.topics | set(state.planned_counts or ())))
            if state.phase not in MID_ROUND and state.phase is not mb.Phase.APPLYING:  # for APPLYING `_notify` wakes
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
        """A leader that joins will plan soon: fetch metadata while the others join, not when all wait for the plan."""
        assert self._cluster is not None
        with contextlib.suppress(HoldfastError):  # it is fetched again when it is needed
            await self._cluster.view(topics, within_s=FRESH_S)

    def _behind(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this in the background; cancelled when the plane is shut."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _fail(self, error: HoldfastError) -> None:
        self.failure = error
        self.wake()

    def _tell(self, error: HoldfastError) -> None:
        if error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL.name:
            self._behind(self._tell_with_reason(error))
        elif error.code == ErrorCode.INVALID_SESSION_TIMEOUT.name:
            self._hear(session_refused(self.config, error))
        else:
            self._hear(error)

    def _hear(self, error: HoldfastError, topic: str | None = None) -> None:
        self.told.append(Told(error, topic))
        self.wake()

    async def _tell_with_reason(self, error: HoldfastError) -> None:
        """The coordinator gives no reason. Compare the members' assignors to say which migration step was missed."""
        assert self._cluster is not None
        names = [assignor.name for assignor in self.config.assignors]
        self._hear(await explained(error, self._cluster, self.config.group, names))

    def _notify(self, effect: mb.Notify) -> None:
        told: list[PendingCall] = []
        for number, call in enumerate(effect.calls, start=1):
            pending = PendingCall(serial=effect.serial, call=call, last=number == len(effect.calls))
            if isinstance(call, mb.Assigned) and call.partitions:
                pending.handed = call.offsets
                self._commit_handed(call.offsets)
                pending.offsets = {p: entry.offset for p, entry in call.offsets.items()}
                missing = tuple(sorted(call.partitions - call.offsets.keys()))
                if missing:
                    pending.ready = False
                    self._behind(self._fetch_offsets(pending, missing))
            told.append(pending)
        # This round changed nothing here, and another one follows. Whoever is to get the partitions that others revoked
        # waits for everybody's next join, and on_assign([]) can't change ours. So the machine is answered early, and
        # the listener is still called, in order.
        quiet, large = quiet_calls(told) == len(told), self.state.passed_on
        early = quiet and (large or self.state.rejoin is not None) and self.state.draining is None
        for pending in told:
            pending.answered = early
        self.calls.extend(told)
        if early:
            self.driver.feed(mb.Notified(effect.serial))
        if early and large:
            self._loop.call_later(QUIET_S, self.wake)
        else:
            self.wake()

    async def _fetch_offsets(self, pending: PendingCall, missing: tuple[TopicPartition, ...]) -> None:
        """Fetch the start offsets of added partitions; retry until they are known or the round is over."""
        assert self._cluster is not None and self._channel is not None
        pause_s = self.config.retry_backoff_ms / 1_000.0
        told_at = 0.0
        while self.driver.state.pending == pending.serial:
            try:
                answer = await self.driver.committed(missing)
            except HoldfastError:
                answer = FetchOffsetsAnswer(error=ErrorCode.NETWORK_EXCEPTION)
            if answer.error is ErrorCode.NONE:
                found = answer.offsets
                pending.offsets.update({p: found[p].offset if p in found else None for p in missing})
                break
            if verdict(Ask.FETCH_OFFSETS, answer.error) is Verdict.TELL:
                if time.monotonic() - told_at >= TELL_AGAIN_MS / 1_000.0:
                    told_at = time.monotonic()
                    self._hear(refusal(Ask.FETCH_OFFSETS, answer.error))
            else:
                self._channel.forget()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, self._cluster.config.backoff_max_s)
        pending.ready = True
        self.wake()

    # -- offsets

    @property
    def known_committed(self) -> Mapping[TopicPartition, int]:
        """The group's committed offsets as last seen in the coordinator's answers."""
        return {} if self._channel is None else self._channel.committed

    async def commit(self, offsets: Mapping[TopicPartition, OffsetEntry], *, member: bool = True) -> CommitAnswer:
        """Commit as a member; or, with a manual assignment, from outside the group."""
        request = self._commit_request(offsets, member=member, given_up=None)
        return await self._committing.settle(request, self._committing.number(request))

    def commit_soon(
        self,
        offsets: Mapping[TopicPartition, OffsetEntry],
        *,
        member: bool = True,
        given_up: frozenset[TopicPartition] = frozenset(),
        ahead_of_join: bool = False,
    ) -> Coroutine[Any, Any, CommitAnswer]:
        """The same, but under the membership of this moment, not of when the loop runs it: a revoke under way would
        have taken the partitions by then. Of partitions that we don't own only those in `given_up` are refused.
        """
        try:
            request = self._commit_request(offsets, member=member, given_up=given_up)
        except HoldfastError as error:
            return _refused(error)
        request = replace(request, ahead_of_join=ahead_of_join and member)
        return self._committing.settle(request, self._committing.number(request))

    def _commit_handed(self, handed: Mapping[TopicPartition, OffsetEntry]) -> None:
        """On the loop, as soon as we hear of them: the application may hang. Numbered before any commit of its own, so
        that its own replaces this one."""
        if handed and self._takes_handed:
            self.handed.update(handed)
            number = self._committing.number(CommitRequest(group=self.config.group, offsets=handed))
            self._behind(self._settle_handed(handed, number))

    async def _settle_handed(self, handed: Mapping[TopicPartition, OffsetEntry], number: int) -> None:
        """Commit these until the group has them, whatever it answers, for as long as they are ours to commit: we have
        not committed their partitions since, and not given them up."""
        while True:
            ours = {p: entry for p, entry in handed.items() if self.handed.get(p) is entry}
            wanted = self._committing.still_wanted(CommitRequest(group=self.config.group, offsets=ours), number)
            self._have_settled(handed, ours.keys() - wanted.offsets.keys())
            if not wanted.offsets:
                return
            with contextlib.suppress(HoldfastError):  # it is tried again
                self._have_settled(handed, await self._commit_unknown(wanted.offsets, number))
            if self.handed:
                await asyncio.sleep(MOST_BACKOFF_S)

    async def _commit_unknown(
        self, handed: Mapping[TopicPartition, OffsetEntry], number: int
    ) -> frozenset[TopicPartition]:
        """Commit those of these that the group does not have. Returns those that it has then."""
        request = self._commit_request(handed, member=True, given_up=frozenset())
        known = (await self.committed(tuple(sorted(handed)))).offsets
        new = replace(request, offsets=not_committed_yet(handed, known))
        wanted = self._committing.still_wanted(new, number)
        answer = await self._committing.settle(wanted, number) if wanted.offsets else CommitAnswer()
        refused = {p for p in wanted.offsets if answer.errors.get(p) is not ErrorCode.NONE}
        return frozenset(handed.keys() - refused)

    def _have_settled(self, handed: Mapping[TopicPartition, OffsetEntry], settled: Iterable[TopicPartition]) -> None:
        for partition in settled:
            if self.handed.get(partition) is handed[partition]:
                del self.handed[partition]

    def _commit_request(
        self,
        offsets: Mapping[TopicPartition, OffsetEntry],
        *,
        member: bool,
        given_up: frozenset[TopicPartition] | None,
    ) -> CommitRequest:
        if member:
            return commit_request(self.state, offsets, given_up=given_up)
        return CommitRequest(group=self.config.group, offsets=dict(offsets))

    async def _send_commit(self, request: CommitRequest) -> CommitAnswer:
        if request.membership.joined:
            return await self.driver.send_commit(request)
        assert self._channel is not None
        answer = await self._channel.send(request, REQUEST_MS)
        assert isinstance(answer, CommitAnswer)
        return answer

    def _forget_coordinator(self) -> None:
        if self._channel is not None:
            self._channel.forget()

    async def committed(self, partitions: tuple[TopicPartition, ...]) -> FetchOffsetsAnswer:
        """The group's committed offsets of these partitions; retried while the answer is a transient error."""
        assert self._channel is not None
        request = FetchOffsetsRequest(group=self.config.group, partitions=partitions)
        until = self._loop.time() + RETRY_FOR_S
        wait_s = self.config.retry_backoff_ms / 1_000.0
        while True:
            try:
                answer = await self._channel.send(request, REQUEST_MS)
                assert isinstance(answer, FetchOffsetsAnswer)
                if not passes(Ask.FETCH_OFFSETS, answer.error) or self._loop.time() + wait_s > until:
                    return answer
            except NetError as error:
                if not error.retriable or self._loop.time() + wait_s > until:
                    raise
            self._channel.forget()
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MOST_BACKOFF_S)


async def _refused(error: HoldfastError) -> CommitAnswer:
    """A commit that was refused before it was sent, as a coroutine that raises the reason."""
    raise error


def warm_up() -> None:
    """Load now what the first round would have to load: a new leader must not make its group wait for imports.

    Once per process: hundreds of members may start together, and each would hold the interpreter for it.
    """
    with _warming:
        _warm_up()


_warming = threading.Lock()


@cache
def _warm_up() -> None:
    preload(*((api, api.highest) for api in GROUP_APIS))
    metadata = encode_subscription(Subscription(topics=("t",)))
    plan_round("cooperative-sticky", ClusterView({"t": TopicView(2)}), [JoinedMember(member_id="m", metadata=metadata)])


def _our_address(broker: tuple[str, int]) -> str:
    """Our address on the way to this broker, at which peers reach us. Connecting a UDP socket sends nothing."""
    family, kind, number, _, address = socket.getaddrinfo(*broker, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, number) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


MID_ROUND = frozenset({mb.Phase.JOINING, mb.Phase.PLANNING, mb.Phase.SYNCING})
"""Phases in which the application has nothing to do, so it is not woken. In a large group that saves hundreds of
wake-ups."""

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

SPREAD = (0.8, 1.2)
"""Range of the random factor on a member's back-offs, so that members refused together don't come back together."""

MAX_TOLD = 1_000
"""How many errors are kept for an application that does not poll; the oldest are dropped."""

REQUEST_MS = 30_000.0
