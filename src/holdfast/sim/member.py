"""A simulated member: the production machine, and a driver that performs its effects in virtual time.

The driver is a small `client`: it performs effects, answers with events and keeps one timer. What it sends goes through
`channel`; the application's thread is `polling` and `listener`, its work `application`. The process around it can
crash, be stopped and wake (a zombie), and its application can hang while heartbeats go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Protocol

from holdfast.group import leader
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
    MemberState,
    Notify,
    Phase,
    Plan,
    Poke,
    Poked,
    Send,
    Subscribe,
    Tell,
    Tick,
    Unsubscribe,
    next_deadline,
    strict_step,
)
from holdfast.group.session.closing import CLOSE_MS
from holdfast.group.user_data import Endpoint
from holdfast.model import HoldfastError, TraceRecord, Value
from holdfast.sim.application import Application
from holdfast.sim.broker import SimBroker
from holdfast.sim.certainty import Certainty
from holdfast.sim.channel import Channel
from holdfast.sim.clock import Clock, Timer
from holdfast.sim.config import GROUP, MemberPlan, WorldConfig
from holdfast.sim.listener import Listener
from holdfast.sim.member_config import member_config
from holdfast.sim.network import Network
from holdfast.sim.offsets import Offsets
from holdfast.sim.planning import Planning
from holdfast.sim.polling import Polling
from holdfast.sim.watchdog import SimWatchdog

POKE_DELAYS_MS = (2.0, 25.0)
"""A poke is sent a little after the request that it announces, so that the coordinator knows of it when the others ask;
and once more, later."""

LOOK_MS = 2.0
"""How long a newcomer's look at the group takes."""

COUNT_MS = 2.0
"""How long it takes to learn the group's size: a question and its answer."""


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
        self._clock = world.clock
        self.plan = plan
        self.name = plan.name
        self.incarnation = incarnation
        self.dead = False
        self.frozen = False
        self.error: HoldfastError | None = None
        # The machine and the leader's part: hooks for mutations.
        self.step: Callable[[MemberState, Event, float], tuple[MemberState, tuple[Effect, ...]]] = strict_step
        self.plan_round = leader.plan
        self.keep_round = leader.keep
        self.app = Application(world.broker, plan.speed, self._tell_lane, plan.restore_ms)
        self.state = MemberState(config=member_config(plan, incarnation))
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        """What reached a stopped process, to be found when it wakes."""
        self._channel = Channel(self)
        self.offsets = Offsets(self, self._channel)
        self.listener = Listener(self)
        self._timer: Timer | None = None
        self.watchdog = SimWatchdog(world, plan.name, incarnation) if plan.watchdog and not plan.foreign else None
        self.polling = Polling(self)
        self.certainty = Certainty(self)
        self.planning = Planning(self)
        self._armed_for: MemberState | None = None
        """The state whose next deadline the timer stands for."""

    # The process

    def start(self) -> None:
        self.trace(
            "process-started",
            static=self.plan.instance_id,
            protocol=self.state.config.protocol.name,
            speed=self.plan.speed,
        )
        self.polling.refresh_metadata()
        self._want(self.plan.topics)
        self.polling.start()
        self.certainty.start()

    def run(self, call: Callable[..., None], *args: Any) -> None:
        """Everything that happens to this process comes through here: the dead and the stopped do nothing."""
        if self.dead:
            return
        if self.frozen:
            self._inbox.append((call, args))
        else:
            call(*args)

    def later(self, delay_ms: float, call: Callable[..., None], *args: Any) -> None:
        self._clock.after(delay_ms, self.run, call, *args)

    def crash(self, *, with_its_machine: bool = False) -> None:
        """kill -9: the process ends without a leave, and the system closes its connections. A watchdog survives it."""
        if self.dead:
            return
        noted = self.app.noted(self.state.owned)
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
        self.certainty.look()
        if not self.polling.hung and not self.certainty.unsure:
            self.app.go_on("woke")
        while self._inbox and not self.frozen and not self.dead:
            call, args = self._inbox.popleft()
            call(*args)

    def hang(self) -> None:
        """The application is stuck in one record: it neither polls nor processes; heartbeats go on."""
        if self.dead or self.polling.hung:
            return
        self.polling.hang()
        self.trace("application-hung")
        self.app.stall("hung")

    def unhang(self) -> None:
        if self.dead or not self.polling.hung:
            return
        self.polling.unhang()
        self.certainty.look()
        if not self.certainty.unsure:
            self.app.go_on("returned")

    def reconnect(self) -> None:
        """The network works again: stop waiting for answers that it has lost."""
        self._channel.reconnect()

    def leave(self, reason: str) -> None:
        self.feed(Close(reason))
        self.later(CLOSE_MS, self._give_up)

    def _give_up(self) -> None:
        """The close has taken too long. An application that is busy has only begun it when it is free."""
        if self.polling.hung or self.polling.working:
            self.later(CLOSE_MS, self._give_up)
        else:
            self.crash()

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
        self._channel.drop()
        self.trace(what, **data)
        self.world.ended(self, self.error)

    @property
    def pending(self) -> int:
        """Questions and calls under way."""
        return self._channel.pending + self.listener.waiting + len(self._inbox)

    # The machine

    def feed(self, event: Event) -> None:
        """One turn of the machine: feed it the event, perform its effects, re-arm its timer."""
        self.state, effects = self.step(self.state, event, self.world.clock.now)
        for effect in effects:
            if isinstance(effect, Emit):
                self.world.emit(effect.record)
            else:
                self._perform(effect)
        if self.certainty.unsure:
            self.certainty.look()
        if not self.dead and self.state is not self._armed_for:
            self._rearm()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._channel.send(effect)
            case Notify():
                self.listener.notify(effect)
            case Plan():
                self.planning.begin(effect)
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
            case _:  # ForgetCoordinator: there is only one broker
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

    def _count(self) -> None:
        broker = self.world.broker
        if broker.up:
            self.feed(GroupSized(len(broker.coordinator.describe(GROUP).members)))

    def _poke(self, peers: Iterable[Endpoint], datagram: bytes) -> None:
        for peer in peers:
            self.world.poke(self.name, peer, datagram.decode("ascii", "replace"))

    def _close_failed(self) -> None:
        """poll raises the error after all listener's calls were made."""
        if self.listener.busy:
            self.later(self.plan.poll_ms, self._close_failed)
        else:
            self.leave("the member failed")

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
