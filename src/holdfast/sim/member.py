"""A simulated member: the production machine, and a driver that performs its effects in virtual time.

The driver is what `client` is in production, in small: it sends over two connections (a parked join would block
commits and heartbeats), answers with events, calls the listener on the application's thread, keeps one timer. The
process around it can crash, be stopped and wake (a zombie), and its application can hang while heartbeats go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Protocol

from holdfast.assign import by_name
from holdfast.group import leader
from holdfast.group.keeping import kept_plan
from holdfast.group.member import (
    Close,
    Closed,
    CountMembers,
    Drain,
    Effect,
    Emit,
    Event,
    Fail,
    GroupSized,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    MemberConfig,
    MemberState,
    MetadataChanged,
    Notify,
    Phase,
    Plan,
    PlanFailed,
    Planned,
    Poke,
    Poked,
    Polled,
    RequestFailed,
    Send,
    Subscribe,
    SyncAnswered,
    Tell,
    Tick,
    Unsubscribe,
    next_deadline,
    select_protocol,
    step,
)
from holdfast.group.messages import (
    Answer,
    HeartbeatAnswer,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    SyncAnswer,
)
from holdfast.group.user_data import Endpoint
from holdfast.model import ClusterView, HoldfastError, TraceRecord, Value
from holdfast.sim.application import Application
from holdfast.sim.broker import SimBroker
from holdfast.sim.clock import Clock, Timer
from holdfast.sim.config import GROUP, MemberPlan, WorldConfig
from holdfast.sim.listener import Listener
from holdfast.sim.network import BROKER, Connection, Network
from holdfast.sim.offsets import Offsets
from holdfast.sim.watchdog import SimWatchdog

POKE_PORT = 9_000
"""Where every process hears pokes; each has an address of its own."""

POKE_DELAYS_MS = (2.0, 25.0)
"""A poke leaves a little after what it announces, so that the coordinator knows when the others ask; and once more."""

LOOK_MS = 2.0
"""How long a newcomer's look at the group takes."""

COUNT_MS = 2.0
"""How long it takes to learn the group's size: a question and its answer."""

ANSWERED: Mapping[type[Answer], Callable[[int, Any], Event]] = {
    HeartbeatAnswer: HeartbeatAnswered,
    JoinAnswer: JoinAnswered,
    SyncAnswer: SyncAnswered,
    LeaveAnswer: LeaveAnswered,
}
"""What the machine is told of an answer."""

JOIN_GRACE_MS = 5_000.0
"""A join may be parked for the whole rebalance timeout; so much longer its client waits for the answer."""


class Surroundings(Protocol):
    """What a member needs of its world."""

    config: WorldConfig
    clock: Clock
    random: Random
    network: Network
    broker: SimBroker

    def emit(self, record: TraceRecord) -> None: ...

    def poke(self, source: str, peer: Endpoint, token: str) -> None: ...

    def ended(self, member: SimMember, error: HoldfastError | None) -> None: ...


class SimMember:
    """One process with one member in it."""

    def __init__(self, world: Surroundings, plan: MemberPlan, incarnation: int) -> None:
        self.world = world
        self.plan = plan
        self.name = plan.name
        self.incarnation = incarnation
        self.dead = False
        self.frozen = False
        self.hung = False
        self.cluster = ClusterView()
        self.error: HoldfastError | None = None
        # The machine and the leader's planning: where mutations break them.
        self.step: Callable[[MemberState, Event, float], tuple[MemberState, tuple[Effect, ...]]] = step
        self.plan_round = leader.plan
        self._last_plan: leader.LeaderPlan | None = None
        self.app = Application(world.broker, plan.speed, self._tell_lane, plan.restore_ms)
        self.state = MemberState(config=_member_config(plan, incarnation))
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        """What reached a stopped process, to be found when it wakes."""
        self._group = Connection(world.network, self, world.broker, f"group-{incarnation}")
        self._data = Connection(world.network, self, world.broker, f"data-{incarnation}")
        self.offsets = Offsets(self, self._data)
        self.listener = Listener(self)
        self._timer: Timer | None = None
        self.watchdog = SimWatchdog(world, plan.name, incarnation) if plan.watchdog and not plan.foreign else None
        self.working = False
        """Whether the application is at a batch that outlasts its usual polls: until it is done, nothing is called."""
        self.polled_at = world.clock.now
        """When the application last polled."""
        self._armed_for: MemberState | None = None
        """The state whose next deadline the timer stands for."""

    # The process

    def start(self) -> None:
        clock = self.world.clock
        self.trace(
            "process-started",
            static=self.plan.instance_id,
            protocol=self.state.config.protocol.name,
            speed=self.plan.speed,
        )
        self._refresh_metadata()
        self._want(self.plan.topics)
        clock.after(self.plan.poll_ms, self.run, self._poll)
        clock.after(self.plan.commit_interval_ms, self.run, self._commit_often)

    def run(self, call: Callable[..., None], *args: Any) -> None:
        """Everything that happens to this process comes through here: the dead and the stopped do nothing."""
        if self.dead:
            return
        if self.frozen:
            self._inbox.append((call, args))
        else:
            call(*args)

    def later(self, delay_ms: float, call: Callable[..., None], *args: Any) -> None:
        self.world.clock.after(delay_ms, self.run, call, *args)

    def crash(self, *, with_its_machine: bool = False) -> None:
        """kill -9: the process ends without a leave, and the system closes its connections. A watchdog survives it."""
        if self.dead:
            return
        noted = self.app.positions(self.state.owned)
        self.app.close(list(self.app.lanes), "crashed")
        known = self.state.membership.known and not self.state.lost
        if self.watchdog is None or with_its_machine or not known:
            self._end("process-died")
        else:
            offsets: dict[str, Value] = {str(partition): position for partition, position in noted.items()}
            self._end("process-died", watched=self.state.membership.member_id, noted=offsets)
            self.watchdog.speak(self.state, noted)

    def freeze(self) -> None:
        """Stopped by the system (SIGSTOP, a long pause of the machine): not even heartbeats."""
        if not self.dead and not self.frozen:
            self.frozen = True
            self.trace("process-frozen")
            self.app.stall("frozen")

    def wake(self) -> None:
        """It runs again, and does not know yet that it was frozen."""
        if self.dead or not self.frozen:
            return
        self.frozen = False
        self.trace("process-woke")
        if not self.hung:
            self.app.go_on("woke")
        while self._inbox and not self.frozen and not self.dead:
            call, args = self._inbox.popleft()
            call(*args)

    def hang(self) -> None:
        """The application is stuck in one record: it neither polls nor processes; heartbeats go on."""
        if self.dead or self.hung:
            return
        if not self.working:
            self._polled()
        self.hung = True
        self.trace("application-hung")
        self.app.stall("hung")

    def unhang(self) -> None:
        if self.dead or not self.hung:
            return
        self.hung = False
        self.trace("application-returned")
        self._polled()
        self.listener.go_on()
        if not self.dead:
            self.app.go_on("returned")

    def reconnect(self) -> None:
        """The network works again: what it has lost is not waited for any longer."""
        if not self.dead:
            self._data.close("reset")
        if not self.dead:
            self._group.close("reset")

    def leave(self, reason: str) -> None:
        self.feed(Close(reason))

    def drain(self, reason: str) -> None:
        self.feed(Drain(reason))

    def subscribe(self, topics: Iterable[str]) -> None:
        self.trace("subscribed", topics=[*sorted(topics)])
        self._want(topics)

    def _want(self, topics: Iterable[str]) -> None:
        if self.plan.eager_assignors:  # it looks at the group first, which may have changed when it joins
            runs = self.world.broker.running()
            self.later(LOOK_MS, self._subscribed, frozenset(topics), runs)
        else:
            self._subscribed(frozenset(topics), None)

    def _subscribed(self, topics: frozenset[str], runs: str | None) -> None:
        self.feed(Subscribe(topics, runs))

    def unsubscribe(self) -> None:
        self.trace("subscribed", topics=[])
        self.feed(Unsubscribe())

    def poked(self, token: str) -> None:
        self.feed(Poked(token))

    def _end(self, what: str, **data: Value) -> None:
        self.dead = True
        self._inbox.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._group.drop()
        self._data.drop()
        self.trace(what, **data)
        self.world.ended(self, self.error)

    @property
    def pending(self) -> int:
        """Questions and calls under way."""
        return self._group.pending + self._data.pending + self.listener.waiting + len(self._inbox)

    # The machine

    def feed(self, event: Event) -> None:
        """One turn of the machine: take the event, perform what it wants, set its timer anew."""
        self.state, effects = self.step(self.state, event, self.world.clock.now)
        for effect in effects:
            self._perform(effect)
        if not self.dead and self.state is not self._armed_for:
            self._rearm()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Emit():
                self.world.emit(effect.record)
            case Send():
                self._send(effect)
            case Notify():
                self.listener.notify(effect)
            case Plan():
                self.later(self.world.config.plan_ms, self._plan, effect)
            case Poke():
                delays_ms = (0.0,) if effect.known else POKE_DELAYS_MS
                for delay_ms, datagram in zip(delays_ms, effect.datagrams(), strict=False):
                    if delay_ms:
                        self.later(delay_ms, self._poke, effect.peers, datagram)
                    else:
                        self._poke(effect.peers, datagram)
            case CountMembers():
                self.later(COUNT_MS, self._count)
            case Tell():
                if effect.error.code == "INCONSISTENT_GROUP_PROTOCOL":
                    self.error = effect.error  # this application ends; others would wait for the old members to leave
                    self.later(0.0, self._close_failed)
            case Fail():
                self.error = effect.error
                self.later(0.0, self._close_failed)
            case Closed():
                self.app.close(list(self.app.lanes), "closed")
                self._end("process-ended")
            case _:  # ForgetCoordinator: there is one broker, it is where it was
                pass

    def _tick(self) -> None:
        """The timer has fired. The machine may want the next one for the same moment."""
        self._timer = self._armed_for = None
        self.feed(Tick())

    def _rearm(self) -> None:
        self._armed_for = self.state
        deadline = next_deadline(self.state)
        timer = self._timer
        if timer is not None and timer.call is not None:
            if timer.at == deadline:
                return
            timer.cancel()
        self._timer = None if deadline is None else self.world.clock.at(deadline, self.run, self._tick)

    def _send(self, effect: Send) -> None:
        request = effect.request
        timeout = self.world.config.request_timeout_ms
        serial = effect.serial

        def failed(reason: str) -> None:
            self.feed(RequestFailed(serial, reason))

        def answered(answer: Answer) -> None:
            self.feed(ANSWERED[type(answer)](serial, answer))

        connection = self._group
        if isinstance(request, JoinRequest):
            timeout = request.rebalance_timeout_ms + JOIN_GRACE_MS
        if serial == self.state.drain.dismissal:  # the herald's join is parked on the other one
            connection = self._data
        elif isinstance(request, JoinRequest | LeaveRequest):
            if connection.pending:  # a parked join or sync that was given up would block it
                connection.close("given up")
        elif effect.serial == self.state.requests.heartbeat:
            connection = self._data
        connection.ask(request, timeout, answered, failed)

    def _plan(self, effect: Plan) -> None:
        try:
            made = self.plan_round(
                by_name(effect.protocol),
                self.cluster,
                effect.members,
                generation=effect.generation,
                before=self._last_plan,
                leader=self.state.membership.member_id,
                token=f"{self.incarnation:04x}{effect.generation:012x}",
                notes_bytes=self.world.config.notes_bytes,
                short_notes=self.world.config.short_notes,
                marks=self.plan.marks and not self.plan.foreign,
            )
        except HoldfastError as error:
            kept = kept_plan(effect.members, generation=effect.generation) if self.state.cooperative else None
            self.feed(PlanFailed(effect.serial, error, kept))
            return
        self._last_plan = made
        self.feed(
            Planned(
                effect.serial, made.assignments, made.planned_for, made.all_list, made.doubts, made.round.transferring
            )
        )

    def _count(self) -> None:
        broker = self.world.broker
        if broker.up:
            self.feed(GroupSized(len(broker.coordinator.describe(GROUP).members)))

    def _poke(self, peers: Iterable[Endpoint], datagram: bytes) -> None:
        for peer in peers:
            self.world.poke(self.name, peer, datagram.decode("ascii", "replace"))

    # The application's thread

    def _poll(self) -> None:
        if not self.hung and not self.working:
            self._polled()
            self._begin_batch()
        self._refresh_metadata()
        self.later(self.plan.poll_ms, self._poll)

    def _polled(self) -> None:
        self.polled_at = self.world.clock.now
        self.feed(Polled())

    def _begin_batch(self) -> None:
        """Work on a batch. The application polls again only when it is done, however long that takes."""
        if self.plan.slow and self.app.lanes and not self.dead:
            self.working = True
            self.later(self._batch_ms(), self._finish_batch)

    def _batch_ms(self) -> float:
        plan = self.plan
        if not plan.batch_spread:
            return plan.batch_ms
        return plan.batch_ms * self.world.random.uniform(1.0 - plan.batch_spread, 1.0 + plan.batch_spread)

    def _finish_batch(self) -> None:
        if not self.working:
            return
        self.working = False
        if not self.hung:  # else it polls when it is free again
            self._polled()
            self.listener.go_on()
            self._begin_batch()

    def hurry(self) -> None:
        """The batch in work is done, and from now on they are short."""
        if self.plan.slow:
            self.plan = replace(self.plan, batch_ms=0.0)
            self._finish_batch()

    def _refresh_metadata(self) -> None:
        """Look at the topics when the view is as old as it may get, if the broker can be reached."""
        world = self.world
        age = world.config.metadata_ms
        due = not self.cluster.topics or int(world.clock.now // age) != int(
            (world.clock.now - self.plan.poll_ms) // age
        )
        reachable = world.broker.up and world.network.reaches(self.name, BROKER)
        if due and reachable and world.broker.cluster is not self.cluster:
            self.cluster = world.broker.cluster
            self.feed(MetadataChanged(self.cluster))

    def _close_failed(self) -> None:
        """poll raises the error after all listener's calls were made."""
        if self.listener.busy:
            self.later(self.plan.poll_ms, self._close_failed)
        else:
            self.leave("the member failed")

    def _commit_often(self) -> None:
        if not self.hung and not self.listener.busy:
            self.offsets.commit(self.app.uncommitted(self.state.owned), None)
        self.later(self.plan.commit_interval_ms, self._commit_often)

    # The trace

    def _tell_lane(self, what: str, why: str, data: dict[str, Value]) -> None:
        data["id"] = self.state.membership.member_id
        self._emit(what, data, why)

    def trace(self, what: str, **data: Value) -> None:
        self._emit(what, data, None)

    def _emit(self, what: str, data: dict[str, Value], cause: str | None) -> None:
        data["life"] = self.incarnation
        self.world.emit(
            TraceRecord(
                at=self.world.clock.now,
                source="sim",
                step=what,
                group=GROUP,
                member=self.name,
                generation=self.state.membership.generation,
                cause=cause,
                data=data,
            )
        )

    @property
    def settled(self) -> bool:
        """Nothing is owed and nothing under way."""
        state = self.state
        if state.phase is Phase.UNSUBSCRIBED:
            return not self.listener.busy
        return state.phase is Phase.STABLE and state.rejoin is None and not self.listener.busy


def address(incarnation: int) -> Endpoint:
    """Where pokes reach the process that was started as the nth."""
    return Endpoint(f"10.0.{incarnation // 256}.{incarnation % 256}", POKE_PORT)


def _member_config(plan: MemberPlan, incarnation: int) -> MemberConfig:
    assignors = tuple(by_name(name) for name in plan.assignors)
    ours = not plan.foreign
    config = MemberConfig(
        group=GROUP,
        assignors=assignors,
        protocol=select_protocol(assignors),
        eager_assignors=tuple(by_name(name) for name in plan.eager_assignors),
        cooperative_after_ms=plan.cooperative_after_ms,
        name=plan.name,
        client_id=plan.name,
        instance_id=plan.instance_id,
        session_timeout_ms=plan.session_timeout_ms,
        heartbeat_interval_ms=plan.heartbeat_interval_ms,
        max_poll_interval_ms=plan.max_poll_interval_ms,
        instant_rejoin=ours and plan.instant_rejoin,
        hand_over_offsets=ours and plan.hand_over_offsets,
        hot_heartbeats=ours and plan.hot_heartbeats,
        responsive_ms=plan.responsive_ms,
    )
    return replace(config, endpoint=address(incarnation)) if ours and plan.pokes else config
