"""Runs one member's machine on an asyncio loop: feeds it events, performs its effects, keeps one timer.

It always does the same: take an event, step the machine, perform the effects in order, re-arm the timer. The driver's
owner (consumer, Spark source) makes the listener's calls and feeds `Notified`. This module decides nothing about the
group. Everything here runs on one loop; `feed_threadsafe` is the only way in from other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Protocol

from holdfast.group import leader
from holdfast.group import member as mb
from holdfast.group.messages import (
    Answer,
    CommitAnswer,
    CommitRequest,
    FetchOffsetsAnswer,
    FetchOffsetsRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    Request,
    SyncAnswer,
    SyncRequest,
)
from holdfast.model import Assignor, ClusterView, ErrorCode, HoldfastError, TopicPartition, TraceRecord
from holdfast.net.errors import BrokerError, NetError
from holdfast.net.poke_socket import PokeSocket

JOIN_GRACE_MS = 5_000
"""A join is answered within the rebalance timeout. This much later it counts as failed, as in Java's client."""

SYNC_GRACE_MS = 3_000
"""A sync is parked until the leader has planned. A session timeout plus this later it counts as failed, as in
librdkafka."""

HEARTBEATS_IN_SESSION = 3
"""A heartbeat that is not answered within a third of the session timeout counts as failed: two more can follow."""

PLAN_LOOK_S = 5.0
"""How long a leader waits for metadata before it plans with what it last saw: the whole group waits for the plan."""

PLAN_RETRY_S = (0.1, 0.2, 0.4, 0.8, 1.0)
"""Pauses between tries to plan within one round; the last one is repeated."""

POKE_DELAYS_S = (0.004, 0.025)
"""A poke would overtake the join that it announces. So it is sent a moment later, and once more in case that was
early."""


AHEAD_OF_JOIN_MS = 1_000.0
"""How long a join may have to wait behind our own commit, which takes milliseconds. If it takes longer than this, the
coordinator is in trouble: the connection is given up, and the join goes on another one."""


class Channel(Protocol):
    """The way to the group's coordinator. It hides versions, look-ups and connections."""

    async def send(self, request: Request, timeout_ms: float) -> Answer:
        """The answer, or any exception when none will come."""
        ...

    async def members(self) -> int:
        """How many members the group has, or any exception when nobody answers."""
        ...

    def forget(self) -> None:
        """Look the coordinator up again before the next send."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What the owner of a driver does for it."""

    notify: Callable[[mb.Notify], None]
    """Make these calls, then feed `Notified` (from any thread, through `feed_threadsafe`)."""
    fail: Callable[[HoldfastError], None]
    """The member has failed for good. Called once."""
    tell: Callable[[HoldfastError], None] = lambda _error: None
    """Report this error to the application; the member goes on."""
    trace: Callable[[TraceRecord], None]
    cluster_view: Callable[[frozenset[str]], Awaitable[ClusterView]]
    """Metadata of these topics, for planning."""
    last_view: Callable[[frozenset[str]], ClusterView] = lambda _topics: ClusterView()
    """The same from memory, however old."""
    last_poll: Callable[[], float]
    """When the application last polled. Asked before every event, so that a poll itself costs nothing."""
    changed: Callable[[mb.MemberState], None] = lambda _state: None
    """Called after every event, for owners that keep a copy of the state."""
    planned: Callable[[leader.LeaderPlan], None] = lambda _plan: None
    """Called with the plan of every round that we lead."""


class MemberDriver:
    """One member on one loop."""

    def __init__(
        self,
        config: mb.MemberConfig,
        channel: Channel,
        hooks: Hooks,
        *,
        clock: Callable[[], float],
        poke_socket: socket.socket | None = None,
        request_timeout_ms: float = 30_000.0,
        marks: bool = True,
    ) -> None:
        """`poke_socket` is the socket that `open_poke_socket` bound, whose address is `config.endpoint`; the driver
        closes it."""
        self.state = mb.MemberState(config=config)
        """Any thread may read it: it is immutable, and replaced as a whole."""
        self.closed = asyncio.Event()
        self._channel = channel
        self._hooks = hooks
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._marks = marks
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[mb.Event] = deque()
        self._running = False
        self._last_plan: leader.LeaderPlan | leader.KeptPlan | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._poke_socket = PokeSocket(poke_socket, lambda text: self.feed(mb.Poked(text)), self._loop)

    # -- events in

    def feed_threadsafe(self, event: mb.Event) -> None:
        self._loop.call_soon_threadsafe(self.feed, event)

    def feed(self, event: mb.Event) -> None:
        """Handle an event. Performing its effects may cause others; they are queued."""
        self._inbox.append(event)
        if self._running:
            return
        self._running = True
        try:
            while self._inbox:
                self._note_poll()
                self.state, effects = mb.step(self.state, self._inbox.popleft(), self._clock())
                for effect in effects:
                    self._perform(effect)
        finally:
            self._running = False
        self._rearm()
        self._hooks.changed(self.state)

    def _rearm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = mb.next_deadline(self.state)
        if deadline is not None:
            delay_s = max(0.0, deadline - self._clock()) / 1_000.0
            self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self.feed(mb.Tick())

    def _note_poll(self) -> None:
        """Report the application's last poll before every event, so that the machine does not miss it.

        Not while evicted: only a poll itself may end an eviction, because what was owned must be lost first.
        """
        polled_at = self._hooks.last_poll()
        if polled_at > self.state.last_polled_at and self.state.phase is not mb.Phase.EVICTED:
            self.state, _ = mb.step(self.state, mb.Polled(), polled_at)

    # -- effects out

    def _perform(self, effect: mb.Effect) -> None:
        match effect:
            case mb.Emit(record):
                self._hooks.trace(record)
            case mb.Send(serial, request):
                self._spawn(self._send(serial, request))
            case mb.ForgetCoordinator():
                self._channel.forget()
            case mb.Plan():
                self._spawn(self._plan(effect))
            case mb.Notify():
                self._hooks.notify(effect)
            case mb.Poke():
                delays_s = (0.0,) if effect.known else POKE_DELAYS_S
                for delay_s, datagram in zip(delays_s, effect.datagrams(), strict=False):
                    if delay_s:
                        self._loop.call_later(delay_s, self._poke_socket.poke, effect.peers, datagram)
                    else:
                        self._poke_socket.poke(effect.peers, datagram)
            case mb.CountMembers():
                self._spawn(self._count())
            case mb.Tell(error):
                self._hooks.tell(error)
            case mb.Fail(error):
                self._hooks.fail(error)
            case mb.Closed():
                self.closed.set()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler(
                {"message": "a member's request failed", "exception": error, "task": task}
            )

    async def _send(self, serial: int, request: Request) -> None:
        try:
            answer = await self._channel.send(request, self._patience_ms(request))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever went wrong, the machine must hear that no answer comes
            self.feed(_failed(serial, error))
            return
        self.feed(_answered(serial, answer))

    def _patience_ms(self, request: Request) -> float:
        """How long to wait for an answer. Except for a join or a sync at most a session timeout, so that we can try
        again."""
        most, session = self._request_timeout_ms, self.state.config.session_timeout_ms
        match request:
            case JoinRequest():
                return max(most, request.rebalance_timeout_ms + JOIN_GRACE_MS)
            case SyncRequest():
                return min(most, session + SYNC_GRACE_MS)
            case HeartbeatRequest():
                return min(most, session / HEARTBEATS_IN_SESSION)
            case CommitRequest(ahead_of_join=True):
                return min(AHEAD_OF_JOIN_MS, session)
        return min(most, session)

    async def _plan(self, effect: mb.Plan) -> None:
        """Plan. If that fails, go on trying while the round lasts, unless every member can keep what it has."""
        config = self.state.config
        assignor = next(a for a in (*config.assignors, *config.eager_assignors) if a.name == effect.protocol)
        for pause_s in chain(PLAN_RETRY_S, repeat(PLAN_RETRY_S[-1])):
            failed = await self._try_to_plan(effect, assignor)
            if failed is None or self.state.requests.pending != effect.serial:
                return
            self.feed(failed)
            if failed.kept is not None:
                return
            await asyncio.sleep(pause_s)
            if self.state.requests.pending != effect.serial:
                return

    async def _try_to_plan(self, effect: mb.Plan, assignor: Assignor) -> mb.PlanFailed | None:
        """Plan and feed the result. Returns the failure if there is no plan."""
        try:
            cluster = await self._cluster_to_plan_for(leader.subscribed_topics(effect.members))
        except (HoldfastError, TimeoutError) as error:
            return mb.PlanFailed(effect.serial, _no_cluster(error))
        try:
            planned = leader.plan(
                assignor,
                cluster,
                effect.members,
                generation=effect.generation,
                before=self._last_plan,
                leader=self.state.membership.member_id,
                token=secrets.token_hex(8),
                marks=self._marks,
            )
        except Exception as error:  # noqa: BLE001  # a user's assignor may raise anything
            failure = _assignor_failed(assignor, error, keeps=self.state.cooperative)
            if not self.state.cooperative:
                return mb.PlanFailed(effect.serial, failure)
            kept = leader.keep(cluster, effect.members, generation=effect.generation, before=self._last_plan)
            self._last_plan = kept
            return mb.PlanFailed(effect.serial, failure, kept.assignments, hands_over=bool(kept.waiting))
        self._last_plan = planned
        self._hooks.planned(planned)
        self.feed(
            mb.Planned(
                effect.serial,
                planned.assignments,
                planned.planned_for,
                planned.all_list,
                planned.doubts,
                planned.round.transferring,
                planned.newer,
                hands_over=bool(planned.handed),
            )
        )
        return None

    async def _cluster_to_plan_for(self, topics: frozenset[str]) -> ClusterView:
        """Current metadata of these topics. If there is none in time, the last known, if it has all of them."""
        try:
            async with asyncio.timeout(PLAN_LOOK_S):
                return await self._hooks.cluster_view(topics)
        except (HoldfastError, TimeoutError):
            seen = self._hooks.last_view(topics)
            if topics - seen.topics.keys():
                raise
            return seen

    async def _count(self) -> None:
        with contextlib.suppress(HoldfastError):  # not allowed, or no answer: the interval for an unknown size stays
            self.feed(mb.GroupSized(await self._channel.members()))

    # -- offsets

    async def send_commit(self, request: CommitRequest) -> CommitAnswer:
        """Send a commit under the membership that it was made with, and feed the outcome to the machine."""
        answer = await self._channel.send(request, self._patience_ms(request))
        assert isinstance(answer, CommitAnswer)
        self.feed(mb.CommitAnswered(request.membership, answer.first_error))
        return answer

    async def committed(self, partitions: tuple[TopicPartition, ...]) -> FetchOffsetsAnswer:
        request = FetchOffsetsRequest(group=self.state.config.group, partitions=partitions)
        answer = await self._channel.send(request, self._patience_ms(request))
        assert isinstance(answer, FetchOffsetsAnswer)
        return answer

    async def stop(self) -> None:
        """Stop the timer, close the poke socket, and cancel what is under way."""
        if self._timer is not None:
            self._timer.cancel()
        self._poke_socket.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _failed(serial: int, error: Exception) -> mb.RequestFailed:
    """The event for a request without an answer. It says whether a retry may help."""
    why = str(error) or type(error).__name__
    if isinstance(error, BrokerError):
        return mb.RequestFailed(serial, why, code=error.error)
    permanent = isinstance(error, NetError) and not error.retriable
    return mb.RequestFailed(serial, why, error=error if permanent and isinstance(error, HoldfastError) else None)


def _no_cluster(error: Exception) -> HoldfastError:
    why = error.what if isinstance(error, HoldfastError) else f"nobody answered within {PLAN_LOOK_S:g} s."
    return HoldfastError(
        "PLAN_WAITS",
        f"this member leads the group and can't look up the topics: {why}",
        "Nothing is assigned meanwhile; it is tried again while the round lasts.",
    )


def _assignor_failed(assignor: Assignor, error: Exception, *, keeps: bool) -> HoldfastError:
    if isinstance(error, HoldfastError):
        what, code = error.what, error.code
    else:
        what, code = f"it raised {type(error).__name__}: {error}.", "ASSIGNOR_FAILED"
    so = (
        "Every member keeps its partitions, and nothing else is assigned"
        if keeps
        else "An eager round has revoked everything, so nothing is assigned"
    )
    return HoldfastError(
        code, f"the assignor {assignor.name!r} gave no plan: {what}", f"{so} until the assignor is fixed."
    )


def _answered(serial: int, answer: Answer) -> mb.Event:
    match answer:
        case JoinAnswer():
            return mb.JoinAnswered(serial, answer)
        case SyncAnswer():
            return mb.SyncAnswered(serial, answer)
        case HeartbeatAnswer():
            return mb.HeartbeatAnswered(serial, answer)
        case LeaveAnswer():
            return mb.LeaveAnswered(serial, answer)
    return mb.RequestFailed(
        serial, f"unexpected answer {type(answer).__name__} ({ErrorCode.UNKNOWN_SERVER_ERROR.name})"
    )
