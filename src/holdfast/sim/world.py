"""A world: the broker, the members, what happens to them, and the checkers that watch.

    world = World(config)
    result = world.run()         trace records, violations, nothing else

First the phase in which things happen. A world that heals then goes through a second one: all faults stop, the group
has to settle (I7), the producers stop, and everything acknowledged has to be processed and committed (I4). One random
source, seeded by the configuration, is drawn from in the order of events: the same configuration gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from holdfast.group.coordinator.states import State
from holdfast.group.member import Enforce, Phase
from holdfast.group.user_data import Endpoint
from holdfast.model import HoldfastError, TraceRecord, Value
from holdfast.sim.broker import RESTART_MS, SimBroker
from holdfast.sim.checkers import Checker, Violation, all_checkers
from holdfast.sim.clock import Clock, WorldSpins
from holdfast.sim.config import GROUP, Happening, MemberPlan, WorldConfig
from holdfast.sim.member import SimMember
from holdfast.sim.member_config import address
from holdfast.sim.network import BROKER, Network, NetworkProfile

HEALED = NetworkProfile()
SETTLE_STEP_MS = 500.0
CHECKPOINT_MS = 2_000.0
"""How often the checkers that look at the world itself are asked."""
PROCESS_RESTART_MS = 2_000.0
FAILED_RESTART_MS = 1_000.0
"""After how long a supervisor restarts a process that failed; in this world without a limit."""
MAX_MEMBERS = 4_000
"""Processes in all: a group of 2,000, each of which is started once more."""
FOR_GOOD = ("FENCED_INSTANCE_ID", "INCONSISTENT_GROUP_PROTOCOL")
"""Errors after which a process is not started again: its place is taken, or the group has become one it can't join."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldResult:
    """What a world left behind."""

    config: WorldConfig
    records: list[TraceRecord]
    violations: list[Violation]
    ended_at_ms: float
    rounds: int
    calls: int
    """Of the clock: how much work it was."""
    spun: bool = False
    """Whether it was ended for its many calls: a fault in a small world, too much to play in a large one."""


class World:
    """Runs one configuration."""

    def __init__(
        self,
        config: WorldConfig,
        *,
        checkers: list[Checker] | None = None,
        keep_records: bool = True,
        break_it: Callable[[World], None] | None = None,
    ) -> None:
        """`break_it` may damage the machines before they start: how mutations prove that checkers can fail."""
        self.config = config
        self.clock = Clock()
        self.random = Random(config.seed)
        self.records: list[TraceRecord] = []
        self.violations: list[Violation] = []
        self.network = Network(self.clock, self.random, config.network)
        self._keep = keep_records
        self._watchers: dict[str, list[Callable[[TraceRecord], None]]] = {}
        self.checkers = all_checkers() if checkers is None else checkers
        for checker in self.checkers:
            checker.report = self._report
            for word, watch in checker.watches().items():
                self._watchers.setdefault(word, []).append(watch)
        self.broker = SimBroker(config, self.clock, self.random, self.emit)
        self.members: dict[str, SimMember] = {}
        """The newest process of each name."""
        self.processes: list[SimMember] = []
        self.pokes = 0
        """Datagrams sent, to anybody."""
        self.supervised = config.heals
        self.healed_at: float | None = None
        self.last_disturbance_at = 0.0
        """When the last process died, or is to be started."""
        self.on_start: Callable[[SimMember], None] | None = None
        if break_it is not None:
            break_it(self)

    # What the members use

    def emit(self, record: TraceRecord) -> None:
        if self._keep:
            self.records.append(record)
        for watch in self._watchers.get(record.step, ()):
            watch(record)

    def poke(self, source: str, peer: Endpoint, token: str) -> None:
        self.pokes += 1
        target = next((member for member in self.processes if address(member.incarnation) == peer), None)
        if target is not None and self.members.get(target.name) is target:
            self.network.carry(source, target.name, "poke", target.run, target.poked, token)

    def ended(self, member: SimMember, error: HoldfastError | None) -> None:
        self._disturb(0.0)
        for_good = error is not None and error.code in FOR_GOOD
        if error is not None and self.supervised and not for_good and self.members.get(member.name) is member:
            self._start_later(member, FAILED_RESTART_MS)

    # The two phases

    def run(self) -> WorldResult:
        for plan in self.config.members:
            self.clock.at(plan.start_ms, self.start, plan)
        for happening in self.config.happenings:
            self.clock.at(happening.at_ms, self._happen, happening)
        spun = False
        try:
            self._advance(self.config.duration_ms)
            if self.config.heals and not self.violations:
                self._heal_and_settle()
            if not self.violations:
                for checker in self.checkers:
                    checker.finish(self)
        except WorldSpins as error:
            spun = True
            self._report(Violation("I10", self.clock.now, str(error)))
        return WorldResult(
            config=self.config,
            records=self.records,
            violations=self.violations,
            ended_at_ms=self.clock.now,
            rounds=self.generation,
            calls=self.clock.calls,
            spun=spun,
        )

    def _advance(self, until: float) -> None:
        """Let time pass, with a look at the whole world now and then."""
        while self.clock.now < until and not self.violations:
            self.clock.run_until(min(self.clock.now + CHECKPOINT_MS, until))
            for checker in self.checkers:
                checker.look(self)

    def _heal_and_settle(self) -> None:
        self.heal()
        plans = self.config.members
        patience = 2.0 * max(plan.max_poll_interval_ms for plan in plans)
        # A dead member is silent until its session has expired: that fault does not stop earlier.
        quiet_at = max(self.clock.now, self.last_disturbance_at) + max(plan.session_timeout_ms for plan in plans)
        self.healed_at = quiet_at
        deadline = quiet_at + patience
        while not self.settled and self.clock.now < deadline and not self.violations:
            self._advance(self.clock.now + SETTLE_STEP_MS)
        self._advance(max(self.clock.now, quiet_at) + SETTLE_STEP_MS)
        while not self.settled and self.clock.now < deadline and not self.violations:
            self._advance(self.clock.now + SETTLE_STEP_MS)
        self.broker.stop_producing()
        catch_up = 4.0 * max(plan.commit_interval_ms for plan in plans) + self.clock.now / 2.0
        end = self.clock.now + catch_up
        while not self._finished() and self.clock.now < end and not self.violations:
            self._advance(self.clock.now + SETTLE_STEP_MS)

    def heal(self) -> None:
        """All faults stop."""
        self.trace("healed")
        self.network.heal(HEALED)
        self.broker.crash_on_append = 0.0
        self.broker.refuses = 0.0
        self.broker.restart()
        for member in list(self.processes):
            member.wake()
            member.unhang()
            member.planning.fails_until = 0.0
            member.polling.hurry()
            member.reconnect()

    @property
    def generation(self) -> int:
        group = self.broker.coordinator.group(GROUP)
        return 0 if group is None else group.roster.generation

    @property
    def alive(self) -> list[SimMember]:
        return [member for member in self.processes if not member.dead]

    @property
    def settled(self) -> bool:
        """The group is stable, everybody in it is at rest in its generation, and nobody else is in it."""
        group = self.broker.coordinator.group(GROUP)
        alive = [m for m in self.alive if m.state.phase is not Phase.FAILED]
        if not self.broker.up or any(not member.settled for member in alive):
            return False
        if group is None:
            return not alive
        roster = group.roster
        ids = {member.state.membership.member_id for member in alive}
        if not alive:
            return roster.state is State.EMPTY
        return (
            roster.state is State.STABLE
            and ids == set(roster.members)
            and all(member.state.membership.generation == roster.generation for member in alive)
        )

    def _finished(self) -> bool:
        return self.settled and all(checker.satisfied(self) for checker in self.checkers)

    # What happens

    def start(self, plan: MemberPlan) -> SimMember:
        if len(self.processes) >= MAX_MEMBERS:
            raise WorldSpins(f"more than {MAX_MEMBERS} processes")
        member = SimMember(self, plan, len(self.processes))
        if self.on_start is not None:
            self.on_start(member)
        self.members[plan.name] = member
        self.processes.append(member)
        member.start()
        return member

    def _start_later(self, member: SimMember, delay_ms: float) -> None:
        self._disturb(delay_ms)
        self.clock.after(delay_ms, self._start_again, member)

    def _disturb(self, delay_ms: float) -> None:
        """Faults have not stopped before this has happened."""
        self.last_disturbance_at = max(self.last_disturbance_at, self.clock.now + delay_ms)

    def _start_again(self, member: SimMember) -> None:
        if self.members.get(member.name) is member:
            self.start(replace(member.plan, start_ms=0.0))

    def _happen(self, happening: Happening) -> None:
        self.trace("happened", kind=happening.kind, target=happening.target, what=str(happening))
        kind, lasts = happening.kind, happening.lasts_ms
        if kind == "join":
            self._join(happening)
        elif kind in ("grow", "create", "delete"):
            topic = happening.target or self.config.topics[0][0]
            self.broker.set_partitions(topic, happening.amount)
        elif kind == "broker-crash":
            self.broker.crash()
            self.clock.after(lasts or RESTART_MS, self.broker.restart)
        else:
            member = self.members.get(happening.target)
            if member is None:
                self.trace("nobody", target=happening.target)
            elif not member.dead or kind in ("restart", "bounce"):
                self._happen_to(member, kind, lasts, happening.amount)

    def _happen_to(self, member: SimMember, kind: str, lasts: float, amount: int) -> None:
        if kind in ("leave", "restart"):
            member.run(member.leave, "closed by its user" if kind == "leave" else "restarting")
        elif kind == "drain":
            member.run(member.drain, "a deploy")
        elif kind in ("crash", "bounce", "machine-crash"):
            member.crash(with_its_machine=kind == "machine-crash")
        elif kind == "hang":
            member.run(member.hang)
            self.clock.after(lasts or member.plan.max_poll_interval_ms * 7 / 6, member.run, member.unhang)
        elif kind == "freeze":
            member.freeze()
            self.clock.after(lasts or member.plan.session_timeout_ms * 1.5, member.wake)
        elif kind == "twin":
            self.start(replace(member.plan, start_ms=0.0))
        elif kind == "subscribe":
            topics = [name for name, _ in self.config.topics][: amount or None]
            member.run(member.subscribe, topics)
        elif kind == "unsubscribe":
            topics = sorted(member.state.topics or member.plan.topics)
            member.run(member.unsubscribe)
            self._disturb(lasts or PROCESS_RESTART_MS)
            self.clock.after(lasts or PROCESS_RESTART_MS, member.run, member.subscribe, topics)
        elif kind == "enforce":
            member.run(member.feed, Enforce("asked by its user"))
        elif kind == "slow":
            member.plan = replace(member.plan, listener_ms=lasts or 1_000.0)
        elif kind == "batch":
            member.plan = replace(member.plan, batch_ms=lasts or 1_000.0, batch_spread=0.0)
        elif kind == "misplan":
            member.planning.fails_until = self.clock.now + (lasts or 1_000.0)
        else:
            self._cut(member.name, kind, lasts or 5_000.0)
        if kind in ("restart", "bounce"):
            self._start_later(member, lasts or PROCESS_RESTART_MS)

    def _cut(self, name: str, kind: str, lasts: float) -> None:
        links = {"mute": [(name, BROKER)], "deafen": [(BROKER, name)]}.get(kind, [(name, BROKER), (BROKER, name)])
        for link in links:
            self.network.cut(*link)
            self.clock.after(lasts, self.network.mend, *link)

    def _join(self, happening: Happening) -> None:
        names = {plan.name for plan in self.config.members} | set(self.members)
        name = happening.target or next(f"c{n}" for n in range(MAX_MEMBERS) if f"c{n}" not in names)
        plan = next((p for p in self.config.members if p.name == name), self.config.members[0])
        instance = f"i-{name}" if plan.instance_id is not None else None
        self.start(replace(plan, name=name, instance_id=instance, start_ms=0.0))

    def trace(self, step: str, **data: Value) -> None:
        self.emit(TraceRecord(at=self.clock.now, source="sim", step=step, group=GROUP, data=data))

    def _report(self, violation: Violation) -> None:
        self.violations.append(violation)
        self.emit(
            TraceRecord(
                at=violation.at_ms,
                source="sim",
                step="violation",
                group=GROUP,
                cause=violation.what,
                data={"invariant": violation.invariant},
            )
        )
