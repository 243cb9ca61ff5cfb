"""Runs one member's machine on an asyncio loop: feeds it events, performs its effects, keeps one timer.

The rhythm never varies: take an event, step, perform the effects in order, re-arm the timer. Whoever owns the driver
(consumer, Spark source) makes the listener's calls and feeds `Notified`; this module decides nothing about the group.
Everything here runs on one loop; `feed_threadsafe` is the only way in from elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
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
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    OffsetEntry,
    Request,
    SyncAnswer,
)
from holdfast.group.offsets import commit_request
from holdfast.group.user_data import Endpoint
from holdfast.model import ClusterView, ErrorCode, HoldfastError, TopicPartition, TraceRecord

JOIN_GRACE_MS = 5_000
"""A join is answered within the rebalance timeout; this much later it is given up for lost, as Java's client does."""

POKE_DELAYS_S = (0.004, 0.025)
"""A poke overtakes the join it announces: it is sent a moment later, and again in case the first was too early."""


class Channel(Protocol):
    """The way to the group's coordinator. `wire`'s versions, look-ups and connections are behind it."""

    async def send(self, request: Request, timeout_ms: float) -> Answer:
        """The answer, or any exception when none will come."""
        ...

    async def members(self) -> int:
        """How many members the group has; any exception when that can't be learnt."""
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
    trace: Callable[[TraceRecord], None]
    cluster_view: Callable[[frozenset[str]], Awaitable[ClusterView]]
    """Metadata of these topics, for planning."""
    last_poll: Callable[[], float]
    """When the application last polled; read when the clock asks, so that a poll itself costs nothing."""
    changed: Callable[[mb.MemberState], None] = lambda _state: None
    """Told after every event, for whoever keeps a copy of who we are."""
    planned: Callable[[leader.LeaderPlan], None] = lambda _plan: None
    """Told of every round that we lead."""


class MemberDriver:
    """One member on one loop."""

    def __init__(
        self,
        config: mb.MemberConfig,
        channel: Channel,
        hooks: Hooks,
        *,
        clock: Callable[[], float],
        ear: socket.socket | None = None,
        request_timeout_ms: float = 30_000.0,
        marks: bool = True,
    ) -> None:
        """`ear` is the socket that `open_ear` bound, whose address is `config.endpoint`; the driver closes it."""
        self.state = mb.MemberState(config=config)
        """Read by anybody: it is a value, replaced whole."""
        self.closed = asyncio.Event()
        self._channel = channel
        self._hooks = hooks
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._marks = marks
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[mb.Event] = deque()
        self._running = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ear = ear
        if ear is not None:
            self._loop.add_reader(ear.fileno(), self._hear)

    # -- events in

    def feed_threadsafe(self, event: mb.Event) -> None:
        self._loop.call_soon_threadsafe(self.feed, event)

    def feed(self, event: mb.Event) -> None:
        """Take an event. Performing its effects may bring others; they wait their turn."""
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
        """Before every event, so that the machine never takes for silence what it was not told of.

        Only whoever polls may end an eviction: it has to lose what it held first.
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
                if effect.known:
                    self._poke(effect)
                else:
                    for delay_s in POKE_DELAYS_S:
                        self._loop.call_later(delay_s, self._poke, effect)
            case mb.CountMembers():
                self._spawn(self._count())
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
            self._loop.call_exception_handler({"message": "a member's request", "exception": error, "task": task})

    async def _send(self, serial: int, request: Request) -> None:
        timeout_ms = self._request_timeout_ms
        if isinstance(request, JoinRequest):
            timeout_ms = max(timeout_ms, request.rebalance_timeout_ms + JOIN_GRACE_MS)
        try:
            answer = await self._channel.send(request, timeout_ms)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever went wrong, the machine must hear that no answer comes
            self.feed(mb.RequestFailed(serial, str(error) or type(error).__name__))
            return
        self.feed(_answered(serial, answer))

    async def _plan(self, effect: mb.Plan) -> None:
        config = self.state.config
        assignor = next(a for a in config.assignors if a.name == effect.protocol)
        try:
            topics = leader.subscribed_topics(effect.members)
            cluster = await self._hooks.cluster_view(topics)
            planned = leader.plan(
                assignor,
                cluster,
                effect.members,
                generation=effect.generation,
                leader=self.state.membership.member_id,
                token=secrets.token_hex(8),
                marks=self._marks,
            )
        except asyncio.CancelledError:
            raise
        except HoldfastError as error:
            self.feed(mb.PlanFailed(effect.serial, error))
        except Exception as error:  # noqa: BLE001  # a user's assignor may raise anything
            why = HoldfastError(
                "ASSIGNOR_FAILED",
                f"the assignor {assignor.name!r} raised {type(error).__name__}: {error}.",
                "Mend the assignor; until then no member of the group can be assigned anything.",
            )
            self.feed(mb.PlanFailed(effect.serial, why))
        else:
            self._hooks.planned(planned)
            self.feed(mb.Planned(effect.serial, planned.assignments, planned.planned_for))

    async def _count(self) -> None:
        with contextlib.suppress(HoldfastError):  # not allowed, or nobody there: the pace of an unknown size stays
            self.feed(mb.GroupSized(await self._channel.members()))

    # -- pokes

    def _hear(self) -> None:
        if self._ear is None:
            return
        for _ in range(64):  # a flood is read in bounded gulps; the machine asks at most every 10 ms anyway
            try:
                data = self._ear.recv(256)
            except (BlockingIOError, OSError):
                return
            self.feed(mb.Poked(data.decode("ascii", "replace")))

    def _poke(self, effect: mb.Poke) -> None:
        if self._ear is None:
            return
        for peer in effect.peers:
            try:
                self._ear.sendto(effect.token.encode(), (peer.host, peer.port))
            except OSError:  # a poke is a courtesy: whoever can't be reached hears it from the coordinator
                continue

    # -- offsets

    async def commit(self, offsets: Mapping[TopicPartition, OffsetEntry]) -> CommitAnswer:
        """Commit under the current membership. Refusals are raised; the machine is told how it went."""
        return await self.send_commit(commit_request(self.state, offsets))

    async def send_commit(self, request: CommitRequest) -> CommitAnswer:
        """Send one that was made before, under the membership of then."""
        answer = await self._channel.send(request, self._request_timeout_ms)
        assert isinstance(answer, CommitAnswer)
        self.feed(mb.CommitAnswered(request.membership, answer.first_error))
        return answer

    async def committed(self, partitions: tuple[TopicPartition, ...]) -> FetchOffsetsAnswer:
        request = FetchOffsetsRequest(group=self.state.config.group, partitions=partitions)
        answer = await self._channel.send(request, self._request_timeout_ms)
        assert isinstance(answer, FetchOffsetsAnswer)
        return answer

    async def stop(self) -> None:
        """Let go of timer, ear and whatever is under way."""
        if self._timer is not None:
            self._timer.cancel()
        if self._ear is not None:
            self._loop.remove_reader(self._ear.fileno())
            self._ear.close()
            self._ear = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def open_ear(host: str) -> tuple[socket.socket, Endpoint]:
    """A socket that hears pokes on this address, and the endpoint that goes into the subscription."""
    ear = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    ear.bind((host, 0))
    ear.setblocking(False)
    return ear, Endpoint(host, int(ear.getsockname()[1]))


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
