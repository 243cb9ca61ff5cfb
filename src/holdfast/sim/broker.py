"""The simulated broker: the production coordinator, a durable list of its records, and topics with steady producers.

It performs the coordinator's effects in order: append, then answer. It can die at any moment, also between an append
and the answer that depends on it, and restarts from its records alone. It traces what it observes, so that the checkers
don't have to trust the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from holdfast.group.coordinator import (
    Coordinator,
    CoordinatorSettings,
    GroupRecord,
    Persist,
    Record,
    Reply,
    Token,
    refusal,
)
from holdfast.group.coordinator.effects import Effect
from holdfast.group.coordinator.states import State
from holdfast.group.messages import (
    Answer,
    CommitAnswer,
    CommitRequest,
    HeartbeatAnswer,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    Request,
    SyncAnswer,
)
from holdfast.model import ClusterView, ErrorCode, TopicPartition, TopicView, TraceRecord, Value
from holdfast.sim.clock import Clock, Timer
from holdfast.sim.config import GROUP, WorldConfig
from holdfast.sim.logs import PartitionLog
from holdfast.sim.network import Connection

Emit = Callable[[TraceRecord], None]
Ask = Callable[[Coordinator, Token, Request, float], list[Effect]]
Wake = Callable[[Coordinator, float], list[Effect]]

RESTART_MS = 300.0
"""How long a broker that died on an append stays down by default."""

REFUSALS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode(999),
)
"""Transient errors of the broker, which say nothing about the membership."""


class Asked:
    """One question at the broker's end: the coordinator's token for it."""

    __slots__ = ("answered", "connection", "epoch", "number", "request")

    def __init__(self, connection: Connection, epoch: int, number: int, request: Request) -> None:
        self.connection = connection
        self.epoch = epoch
        self.number = number
        self.request = request
        self.answered = False


class SimBroker:
    """The broker of a world."""

    def __init__(self, config: WorldConfig, clock: Clock, random: Random, emit: Emit) -> None:
        self.config = config
        self.clock = clock
        self.log: list[Record] = []
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.cluster = ClusterView()
        self.up = True
        self.producing = True
        self.crash_on_append = config.crash_on_append
        self.refuses = config.refuses
        self._random = random
        self._emit = emit
        self._ids = 0
        self._timer: Timer | None = None
        self._connections: dict[Connection, int] = {}
        """Connections with something parked or answered lately -> their epoch."""
        self._parked: dict[tuple[Connection, int], list[Asked]] = {}
        """By connection and its epoch: questions that were not answered at once."""
        self.ask: Ask = Coordinator.handle
        self.wake: Wake = Coordinator.tick
        self.load: Callable[[list[Record]], list[Record]] = list
        """`ask`, `wake` and `load` are how the coordinator is called, ticked and loaded. Mutations replace them."""
        self.settings = CoordinatorSettings(group_initial_rebalance_delay_ms=config.initial_delay_ms)
        self.coordinator = Coordinator(self.settings, self.new_member_id)
        for topic, partitions in config.topics:
            self.set_partitions(topic, partitions)

    # The coordinator's life

    def new_member_id(self, name: str) -> str:
        self._ids += 1
        return f"{name}-{self._ids}"

    def replayed(self, records: list[Record]) -> Coordinator:
        """A coordinator as it would come back right now from these records."""
        return Coordinator.replay(
            self.load(records), self.clock.now, settings=self.settings, new_member_id=self.new_member_id
        )

    def crash(self) -> None:
        """Die. Every client sees its connection break."""
        if not self.up:
            return
        self.up = False
        self.trace("broker-died")
        if self._timer is not None:
            self._timer.cancel()
        for connection, epoch in self._connections.items():
            connection.broken(epoch, "the broker died")
        self._connections = {}
        self._parked = {}

    def restart(self) -> None:
        """Start again from the log alone."""
        if self.up:
            return
        self.up = True
        self.coordinator = self.replayed(self.log)
        self.trace("broker-started", records=len(self.log))
        self._rearm()

    # Clients

    def receive(self, connection: Connection, epoch: int, number: int, request: Request) -> None:
        """A question has arrived."""
        if not self.up:
            connection.broken(epoch, "connection refused")
            return
        if epoch != connection.epoch:
            return
        self._connections[connection] = epoch
        refused = self._refused(request)
        if refused is not None:
            connection.answer(epoch, number, refused)
            return
        asked = Asked(connection, epoch, number, request)
        self._perform(self.ask(self.coordinator, asked, request, self.clock.now))
        if not asked.answered and self.up:
            self._parked.setdefault((connection, epoch), []).append(asked)

    def _refused(self, request: Request) -> Answer | None:
        """Now and then the broker refuses a member's request with a transient error before it reaches the group."""
        if not self.refuses or self._random.random() >= self.refuses:
            return None
        answer = refusal(request, self._random.choice(REFUSALS))
        return answer if isinstance(answer, JoinAnswer | SyncAnswer | HeartbeatAnswer | LeaveAnswer) else None

    def hung_up(self, connection: Connection, epoch: int) -> None:
        """The client's end of a connection was closed."""
        if not self.up:
            return
        if self._connections.get(connection) == epoch:
            del self._connections[connection]
        for asked in self._parked.pop((connection, epoch), ()):
            self._perform(self.coordinator.disconnected(asked, self.clock.now))

    def running(self) -> str | None:
        """The assignor that the group runs; empty if it has no members, None if it can't be known."""
        group = self.coordinator.group(GROUP)
        if not self.up:
            return None
        if group is None or group.roster.state is State.EMPTY:
            return ""
        return group.roster.protocol if group.roster.state is State.STABLE else None

    def _perform(self, effects: list[Effect]) -> None:
        self._observe(effects)
        appended = False
        for effect in effects:
            if isinstance(effect, Reply):
                self._reply(effect, appended)
            elif isinstance(effect, Persist):
                appended = True
                if self._append(effect):
                    return
            else:
                self._emit(effect.record)
        self._rearm()

    def _append(self, effect: Persist) -> bool:
        """Append, and maybe die right after it: True if so."""
        self.log.extend(effect.records)
        for record in effect.records:
            if isinstance(record, GroupRecord):
                members: list[Value] = [member.member_id for member in record.members]
                self.trace("group-written", record.generation, state=record.state.value, members=members)
        if self.crash_on_append and self._random.random() < self.crash_on_append:
            self.crash()
            self.clock.after(RESTART_MS, self.restart)
            return True
        return False

    def _reply(self, effect: Reply, appended: bool) -> None:
        asked = effect.token
        answer = effect.answer
        assert isinstance(asked, Asked)
        asked.answered = True
        if self._parked:
            self._forget(asked)
        assert isinstance(answer, Answer)
        if appended and self.config.append_ms:
            self.clock.after(self.config.append_ms, self._send, asked, answer)
        else:
            self._send(asked, answer)

    def _forget(self, asked: Asked) -> None:
        """It is not parked any more."""
        waiting = self._parked.get((asked.connection, asked.epoch))
        if waiting is not None and asked in waiting:
            waiting.remove(asked)
            if not waiting:
                del self._parked[asked.connection, asked.epoch]

    def _send(self, asked: Asked, answer: Answer) -> None:
        if self.up:
            asked.connection.answer(asked.epoch, asked.number, answer)

    def _observe(self, effects: list[Effect]) -> None:
        """Trace what the coordinator grants, before a crash can interrupt it."""
        for effect in effects:
            if not isinstance(effect, Reply):
                continue
            answer = effect.answer
            if isinstance(answer, HeartbeatAnswer) or not isinstance(effect.token, Asked):
                continue
            request = effect.token.request
            if isinstance(request, JoinRequest) and isinstance(answer, JoinAnswer):
                if answer.error is ErrorCode.NONE:
                    self._note_join(request, answer)
            elif isinstance(request, CommitRequest) and isinstance(answer, CommitAnswer):
                self._note_commit(request, answer)

    def _note_join(self, request: JoinRequest, answer: JoinAnswer) -> None:
        who = answer.membership
        self.trace("join-granted", who.generation, member=who.member_id, instance=request.instance_id)

    def _note_commit(self, request: CommitRequest, answer: CommitAnswer) -> None:
        taken: dict[str, Value] = {}
        for partition, error in sorted(answer.errors.items()):
            if error is ErrorCode.NONE:
                taken[str(partition)] = request.offsets[partition].offset
        if taken:
            self.trace(
                "commit-taken", request.membership.generation, member=request.membership.member_id, offsets=taken
            )

    def _tick(self) -> None:
        if self.up:
            self._perform(self.wake(self.coordinator, self.clock.now))

    def _rearm(self) -> None:
        deadline = self.coordinator.next_deadline() if self.up else None
        timer = self._timer
        if timer is not None and timer.call is not None:
            if timer.at == deadline:
                return
            timer.cancel()
        self._timer = None if deadline is None else self.clock.at(deadline, self._tick)

    # Topics

    def set_partitions(self, topic: str, partitions: int) -> None:
        """Create a topic, let it grow, or delete it with 0."""
        now = self.clock.now
        topics = dict(self.cluster.topics)
        old = topics[topic].partitions if topic in topics else 0
        if partitions <= 0:
            topics.pop(topic, None)
            gone = [TopicPartition(topic, number) for number in range(old)]
            for partition in gone:
                self.logs.pop(partition, None)
            if self.up:
                self._perform(self.coordinator.drop_partitions(gone, now))
        else:
            topics[topic] = TopicView(max(old, partitions))
            for number in range(old, partitions):
                log = PartitionLog(now, self.config.records_per_s / 1000.0)
                log.stopped_at = None if self.producing else now
                self.logs[TopicPartition(topic, number)] = log
        self.cluster = ClusterView(topics)
        self.trace("topic-changed", topic=topic, partitions=max(partitions, 0), records_per_s=self.config.records_per_s)

    def stop_producing(self) -> None:
        self.producing = False
        for log in self.logs.values():
            if log.stopped_at is None:
                log.stopped_at = self.clock.now

    def trace(self, step: str, generation: int | None = None, *, member: str = "", **data: Value) -> None:
        self._emit(
            TraceRecord(
                at=self.clock.now,
                source="sim",
                step=step,
                group=GROUP,
                member=member,
                generation=generation,
                data=data,
            )
        )
