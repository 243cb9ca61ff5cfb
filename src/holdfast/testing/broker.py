"""The embedded broker inside a test: a context manager, on a thread of this process, with everything under control.

    with Broker() as broker:
        broker.topics.create("orders", partitions=6)
        broker.faults.error(Api.HEARTBEAT, ErrorCode.NOT_COORDINATOR, times=1)
        Consumer({"bootstrap.servers": broker.bootstrap, ...})

Rules. It starts in milliseconds, keeps everything in memory unless given a folder, and completes the first round of a
group at once, where Kafka waits 3 s for more members. With `manual_clock=True` sessions, rounds and retention move only
by `advance`. All methods may be called from any thread; what they touch runs on the broker's own.

Retention goes by records' timestamps, as in Kafka: records of a fixed date long ago are deleted once the broker has run
for five minutes. Give their topic `configs={"retention.ms": "-1"}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from holdfast.broker import broker as embedded
from holdfast.broker.clock import ManualClock
from holdfast.broker.faults import Fault, Faults
from holdfast.broker.limits import Limits
from holdfast.broker.security.users import Users
from holdfast.broker.settings import BrokerSettings, Security
from holdfast.broker.state import Node, State
from holdfast.broker.topics import create
from holdfast.group.coordinator.requests import GroupView
from holdfast.group.coordinator.settings import CoordinatorSettings
from holdfast.group.messages import Leaver, LeaveRequest
from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.net.loop_thread import LoopThread
from holdfast.wire.api import Api

T = TypeVar("T")

START_SECONDS = 30.0
"""It takes milliseconds; a data folder with much to repair takes longer."""
CALL_SECONDS = 30.0
STOP_SECONDS = 10.0

COORDINATED = (
    Api.JOIN_GROUP,
    Api.SYNC_GROUP,
    Api.HEARTBEAT,
    Api.LEAVE_GROUP,
    Api.OFFSET_COMMIT,
    Api.OFFSET_FETCH,
)
"""What only a group's coordinator answers."""


class Broker:
    """An embedded broker on a thread. Give options as keywords; `settings` replaces them all."""

    def __init__(
        self,
        *,
        port: int = 0,
        data: str | Path | None = None,
        racks: Sequence[str] = (),
        auto_create_topics: bool = True,
        default_partitions: int = 1,
        initial_rebalance_delay_ms: float = 0.0,
        groups: CoordinatorSettings | None = None,
        limits: Limits | None = None,
        security: Security | None = None,
        users: Mapping[str, tuple[str, Iterable[str]]] | None = None,
        flush: str = "os",
        trace: str | Path | None = None,
        manual_clock: bool = False,
    ) -> None:
        """`users` maps names to (password, rules); see `holdfast.broker.security.rules` for how rules are written."""
        coordinator = groups or CoordinatorSettings(
            group_initial_rebalance_delay_ms=initial_rebalance_delay_ms, group_min_session_timeout_ms=100
        )
        self._settings = BrokerSettings(
            port=port,
            data=None if data is None else Path(data),
            racks=tuple(racks),
            auto_create_topics=auto_create_topics,
            default_partitions=default_partitions,
            groups=coordinator,
            limits=limits or Limits(),
            security=security or Security(),
            flush=flush,
            trace=None if trace is None else Path(trace),
        )
        self._users = _users(users)
        self._clock = ManualClock() if manual_clock else None
        self.faults = Faults()
        """What is to go wrong; survives a restart."""
        self._moved: list[Fault] = []
        self.topics = Topics(self)
        self._thread: LoopThread | None = None
        self._broker: embedded.Broker | None = None

    # Where it is

    @property
    def bootstrap(self) -> str:
        """What clients take as bootstrap.servers."""
        return self._running.bootstrap

    @property
    def host(self) -> str:
        return self._running.state.nodes[0].host

    @property
    def port(self) -> int:
        return self._running.state.nodes[0].port

    @property
    def _running(self) -> embedded.Broker:
        if self._broker is None:
            raise HoldfastError("BROKER_NOT_RUNNING", "The broker is not running.", "Use it inside `with Broker()`.")
        return self._broker

    # Starting and stopping

    def start(self) -> Broker:
        """Start, and return when clients can connect."""
        thread = LoopThread("holdfast-broker")
        try:
            self._broker = thread.call(self._open(), START_SECONDS)
        except BaseException:
            thread.stop()
            raise
        self._thread = thread
        return self

    async def _open(self) -> embedded.Broker:
        broker = embedded.Broker(self._settings, clock=self._clock, users=self._users, faults=self.faults)
        await broker.start()
        return broker

    def stop(self) -> None:
        """Stop in order: waiting clients are answered, and a data folder is left clean."""
        if self._thread is None or self._broker is None:
            return
        if not self._thread.stop(self._broker.stop(), timeout_s=STOP_SECONDS):
            what = f"The broker did not stop within {STOP_SECONDS:g} s."
            raise HoldfastError("BROKER_DOES_NOT_STOP", what, "Look for a fault's function that does not return.")
        self._thread = self._broker = None

    def restart(self) -> None:
        """Stop and start on the same ports. Without a data folder everything is forgotten, as by a new broker."""
        self._settings = replace(self._settings, ports=tuple(node.port for node in self._running.state.nodes))
        self.stop()
        self.start()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # What tests ask of it

    def call(self, what: Callable[[State], T]) -> T:
        """Run `what` on the broker's thread, with its state, and return what it returns."""
        broker = self._running
        assert self._thread is not None

        async def run() -> T:
            return what(broker.state)

        return self._thread.call(run(), CALL_SECONDS)

    def change(self, what: Callable[[State], T]) -> T:
        """The same for a function that changes topics: returns once the change is on disk."""
        broker = self._running
        assert self._thread is not None

        async def run() -> T:
            changed: T = await broker.state.changes.make(lambda: what(broker.state))
            return changed

        return self._thread.call(run(), CALL_SECONDS)

    def advance(self, ms: float) -> None:
        """Move the manual clock: what becomes due on the way happens."""
        clock = self._clock
        if clock is None:
            raise HoldfastError("CLOCK_NOT_MANUAL", "This broker's clock runs by itself.", "Use manual_clock=True.")
        self.call(lambda state: clock.advance(ms))

    def group(self, name: str) -> GroupView:
        """A group as the coordinator sees it; "Dead" if there is none."""
        return self.call(lambda state: state.groups.describe(name))

    def move_coordinator(self, node_id: int) -> None:
        """Make another of the advertised brokers the coordinator of every group, as when the old one goes down.

        Groups and offsets go with it. For brokers with `racks`, which advertise one broker each.
        """
        node = self.call(lambda state: state.nodes[node_id])
        for fault in self._moved:
            fault.clear()
        self._moved = [
            self.faults.error(api, ErrorCode.NOT_COORDINATOR, when=lambda exchange: exchange.client.node_id != node_id)
            for api in COORDINATED
        ]
        self._moved.append(self.faults.change(Api.FIND_COORDINATOR, lambda body: _pointing_to(node, body)))

    def expel(self, group: str, member_id: str) -> None:
        """Remove a member, as a coordinator does when its session expires. A fault's function may call it too."""
        request = LeaveRequest(group=group, members=(Leaver(member_id=member_id),))
        if self._thread is not None and self._thread.is_current:
            self._running.state.groups.ask(request, lambda answer: None)
        else:
            self.call(lambda state: state.groups.ask(request, lambda answer: None))

    def connections(self) -> int:
        broker = self._running
        return self.call(lambda state: broker.server.connection_count)


class Topics:
    """Topics without a client."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def create(
        self,
        name: str,
        partitions: int = -1,
        *,
        replication: int = -1,
        assignments: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic. `assignments` lists each partition's brokers, its leader first."""
        self._broker.change(
            lambda state: create(
                state,
                name,
                partitions=partitions,
                replication=replication,
                assignments=assignments,
                configs=configs,
            )
        )

    def names(self) -> list[str]:
        return self._broker.call(lambda state: [topic.name for topic in state.store.topics()])

    def offsets(self, name: str) -> dict[TopicPartition, tuple[int, int]]:
        """Each partition's first offset and the one after its last."""

        def look(state: State) -> dict[TopicPartition, tuple[int, int]]:
            topic = state.store.topic(name)
            numbers = range(0 if topic is None else topic.partitions)
            logs = {number: state.store.log(name, number) for number in numbers}
            return {
                TopicPartition(name, number): (log.log_start_offset, log.log_end_offset) for number, log in logs.items()
            }

        return self._broker.call(look)

    def count(self, name: str) -> int:
        """Records in all partitions."""
        return sum(end - start for start, end in self.offsets(name).values())


def _pointing_to(node: Node, body: Any) -> dict[str, Any]:
    """A FindCoordinator answer of any version that names this broker wherever it named one."""
    named = {"node_id": node.node_id, "host": node.host, "port": node.port}
    if "coordinators" in body:
        return {**body, "coordinators": [{**each, **named} for each in body["coordinators"]]}
    return {**body, **named}


def _users(users: Mapping[str, tuple[str, Iterable[str]]] | None) -> Users | None:
    if users is None:
        return None
    made = Users()
    for name, (password, allow) in sorted(users.items()):
        made = made.with_user(name, password, allow=allow, iterations=4_096)
    return made
