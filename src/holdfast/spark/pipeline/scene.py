"""The demo of `make run`: a broker, a producer of orders, and PySpark queries that share one group and one sink.

Two queries work; a third joins, one drains, one is killed with kill -9; the last one finishes. Each part is one of our
own commands in its own process, as a user would start it. What happened is then read from the sink's ledger alone. Each
step waits for what the processes report and not for a time, so on a slow machine the demo only takes longer. All three
Sparks start at once, while nothing else needs the processors; the third waits, warmed up, for its turn to join.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files import positions
from holdfast.spark.pipeline import orders_job
from holdfast.spark.pipeline.processes import Command
from holdfast.spark.pipeline.verdict import Balance, Effect, Event, balance, effect, read_commits, read_offsets
from holdfast.trace.starting import StarterTrace

TOPIC, GROUP = "orders", "billing"
START_S = 240.0
"""Spark takes 5–10 s to start on a quiet machine, but minutes on a busy one."""
SETTLE_S = 120.0
SESSION_MS = 10_000
"""Session timeout of the members: what a kill costs if no watchdog leaves for the dead member."""

SHOW_S = 2.0
"""The longest time without output."""
STARTING = frozenset({"starting", "warm-up", "ready"})

SMALL_SPARK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "512m",
    # Three drivers share two cores and live for a minute: the fast compiler and the serial collector are enough.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def rate_and_lag(line: Mapping[str, Any]) -> str:
    """From a line of progress. The lag is `?` until the member knows it, as in `pipeline run`."""
    lag = line.get("lag")
    return f"{line.get('rows_per_s', 0.0):,.0f} rows/s, lag {'?' if lag is None else format(lag, ',')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneOptions:
    """The size of the demo."""

    folder: Path
    partitions: int = 6
    rate: int = 200
    trigger: str = "200ms"
    watch_s: float = 6.0
    """How long to watch after each event."""

    @property
    def traces(self) -> Path:
        """The folder with the traces of the members, the coordinator and the demo itself."""
        return self.folder / "traces"


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneResult:
    """What the demo showed."""

    effects: tuple[Effect, ...]
    steady_pause_s: float
    balance: Balance
    seconds: float

    @property
    def clean(self) -> bool:
        return not self.balance.lost and not self.balance.doubled


@dataclass(slots=True)
class Scene:
    """One run of the demo."""

    options: SceneOptions
    say: Callable[[str], None]
    opened: Callable[[str], None] = lambda bootstrap: None
    """Called once the broker runs, for example to watch the group."""
    check: Callable[[], None] = lambda: None
    """Called again and again. An error it raises ends the demo and all of its processes."""
    began: float = field(default_factory=time.monotonic)
    members: dict[str, Command] = field(default_factory=dict)
    bootstrap: str = ""
    events: list[Event] = field(default_factory=list)
    _commands: list[Command] = field(default_factory=list)
    _waiting: dict[str, Command] = field(default_factory=dict)
    """Applications that are warmed up and have not joined."""
    _heard: dict[str, str] = field(default_factory=dict)
    """The last message of each application about its start."""
    _told_at: float = 0.0
    _trace: StarterTrace = field(init=False)

    def __post_init__(self) -> None:
        self._trace = StarterTrace(self.options.traces / "scene.jsonl", GROUP)

    def play(self) -> SceneResult:
        try:
            return self._play()
        finally:
            self._trace.close()
            for command in reversed(self._commands):
                if command.process.poll() is None:
                    command.kill()

    def _play(self) -> SceneResult:
        producer = self._set_up()
        quiet = self._event("a and b share the topic", lambda: None)
        self._event("c joins", lambda: self._let_join("c"))
        self._event("a drains and leaves", self._drain_a)
        self._event("b is killed (kill -9)", self._kill_b)
        self._tell("the producer stops; the rest is worked off")
        code = producer.stop(self._meanwhile)
        told = producer.last()
        if code or told is None or told["failed"]:
            raise HoldfastError(
                "SCENE_FAILED", f"The producer ended with {code}: {told}.", f"Its log is {producer.log}."
            )
        ends = self._ends()
        self._work_off(ends)
        self.members.pop("c").stop(self._meanwhile)
        commits = read_commits(self._sink)
        effects = [effect(event, commits) for event in self.events]
        stored = {partition.partition: range(end) for partition, end in ends.items()}
        return SceneResult(
            effects=tuple(effects[1:]),
            steady_pause_s=effect(quiet, commits).unmoved_pause_s or 0.0,
            balance=balance(stored, read_offsets(self._sink, TOPIC)),
            seconds=time.monotonic() - self.began,
        )

    # -- setting up

    @property
    def _sink(self) -> str:
        return str(self.options.folder / "sink")

    def _set_up(self) -> Command:
        self._tell("starting the embedded broker")
        data = str(self.options.folder / "broker")
        trace = str(self.options.traces / "broker.jsonl")
        args = ["broker", "--listen", "127.0.0.1:0", "--data", data, "--trace", trace, "--rebalance-delay-ms", "0"]
        broker = self._command("broker", args)
        broker.wait("it was ready", lambda: bool(broker.lines), START_S)
        self.bootstrap = str(broker.lines[0]["bootstrap"])
        self.opened(self.bootstrap)
        self._tell("three PySpark applications start (Spark takes its seconds); c will wait for its turn")
        for name in ("a", "b", "c"):
            self._start(name)
        where = ["--bootstrap-server", self.bootstrap]
        self._done("topic", ["topics", "create", TOPIC, "--partitions", str(self.options.partitions), *where])
        # A few records first, so that the queries have something to warm up on.
        self._done("first", ["produce", TOPIC, "--rate", "0", "--count", "60", *where])
        for name in ("a", "b"):
            self._await_event(self.members[name], "started")
        self._tell(f"a producer sends {self.options.rate} orders a second to {self.options.partitions} partitions")
        producer = self._command(
            "producer", ["produce", TOPIC, "--rate", str(self.options.rate), "--keys", "500", *where]
        )
        self._settle()
        self._await_event(self._waiting["c"], "ready")
        return producer

    def _done(self, name: str, args: list[str]) -> None:
        """Run a command to its end."""
        command = self._command(name, args)
        deadline = time.monotonic() + START_S
        while (code := command.process.poll()) is None and time.monotonic() < deadline:
            self._meanwhile()
            time.sleep(0.05)
        if code != 0:
            raise HoldfastError("SCENE_FAILED", f"`{' '.join(args[:3])}` ended with {code}.", f"See {command.log}.")

    def _start(self, name: str) -> None:
        args = ["pipeline", "run", orders_job.__file__, "--name", name, "--subscribe", TOPIC, "--group", GROUP]
        args += ["--sink", self._sink, "--checkpoint", str(self.options.folder / f"checkpoint-{name}")]
        args += ["--master", "local[1]", "--trigger", self.options.trigger, "--every", "0.5"]
        args += ["--bootstrap-server", self.bootstrap, "--spark-log", str(self.options.folder / f"{name}-spark.log")]
        args += ["--trace", str(self.options.traces / f"{name}.jsonl")]
        source = {"startingOffsets": "earliest", "kafka.client.id": name, "kafka.session.timeout.ms": str(SESSION_MS)}
        for key, value in source.items():
            args += ["--source-option", f"{key}={value}"]
        for key, value in SMALL_SPARK.items():
            args += ["--conf", f"{key}={value}"]
        if name == "c":
            self._waiting[name] = self._command(name, [*args, "--when", str(self.options.folder / "c-joins")])
        else:
            self.members[name] = self._command(name, args)
            self._trace.tell("process-started", name)

    def _await_event(self, member: Command, event: str) -> None:
        member.wait(f"it was {event}", lambda: member.last(event) is not None, START_S, self._meanwhile)

    def _command(self, name: str, args: list[str]) -> Command:
        command = Command(name, args, log=self.options.folder / f"{name}.log")
        self._commands.append(command)
        return command

    # -- what happens

    def _event(self, what: str, happen: Callable[[], float | None]) -> Event:
        """Make it happen, wait until the members share all partitions again, and watch for a while."""
        self._tell(what)
        self._trace.tell("happened", what=what)
        began = happen() or time.time()
        self._settle()
        self._watch(self.options.watch_s)
        event = Event(what=what, began_s=began, ended_s=time.time())
        self.events.append(event)
        return event

    def _let_join(self, name: str) -> float:
        member = self.members[name] = self._waiting.pop(name)
        self._trace.tell("process-started", name)
        (self.options.folder / f"{name}-joins").touch()
        self._await_event(member, "started")
        return time.time()

    def _drain_a(self) -> float:
        began = time.time()
        if code := self.members.pop("a").stop(self._meanwhile):
            raise HoldfastError("SCENE_FAILED", f"a ended with {code}.", f"See {self.options.folder / 'a.log'}.")
        self._trace.tell("process-ended", "a")
        return began

    def _kill_b(self) -> float:
        began = time.time()
        self.members.pop("b").kill()
        self._trace.tell("process-died", "b")
        return began

    def _settle(self) -> None:
        """Wait until every partition is owned by one living member and every member owns some."""
        for member in list(self.members.values()):
            member.wait("the group had settled", self._shared, SETTLE_S, self._meanwhile)

    def _shared(self) -> bool:
        owned = [self._owned(member) for member in self.members.values()]
        flat = [number for numbers in owned for number in numbers]
        return all(owned) and sorted(flat) == list(range(self.options.partitions))

    @staticmethod
    def _owned(member: Command) -> list[int]:
        line = member.last("progress")
        return [] if line is None else list(line["owned"].get(TOPIC, []))

    def _watch(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(min(0.1, max(0.0, until - time.monotonic())))
            self._meanwhile()

    def _meanwhile(self) -> None:
        """Print something at least every two seconds: news of starting applications, or else the current state."""
        self.check()
        for name, member in sorted((self.members | self._waiting).items()):
            line = member.last() or {}
            if line.get("event") in STARTING and self._heard.get(name) != line.get("message"):
                self._heard[name] = str(line.get("message"))
                ready = line.get("event") == "ready"
                self._tell(f"  {name}: {'is warm, and waits for its turn' if ready else line.get('message')}")
        if time.monotonic() - self._told_at >= SHOW_S:
            self._show()

    def _show(self) -> None:
        """Print one line for all members; nothing if there are none."""
        parts = []
        for name, member in sorted(self.members.items()):
            line: Mapping[str, Any] = member.last("progress") or {}
            if not line:
                parts.append(f"{name} is {'joining' if member.last('started') else 'starting'}")
                continue
            owned = ",".join(map(str, self._owned(member))) or "-"
            parts.append(f"{name} owns {owned}, {rate_and_lag(line)}")
        if parts:
            self._tell("  " + " · ".join(parts))

    def _work_off(self, ends: Mapping[TopicPartition, int]) -> None:
        (member,) = self.members.values()
        wanted = {partition: end for partition, end in ends.items() if end}
        done = partial(self._has, wanted)
        member.wait("everything was in the sink", done, SETTLE_S, self._meanwhile)

    def _has(self, wanted: Mapping[TopicPartition, int]) -> bool:
        return positions(self._sink) == wanted

    def _ends(self) -> dict[TopicPartition, int]:
        from holdfast.net.admin import LATEST, Admin
        from holdfast.net.cluster import Cluster
        from holdfast.net.config import client_config

        async def ask() -> dict[TopicPartition, int]:
            async with Cluster(client_config({"bootstrap.servers": self.bootstrap})) as cluster:
                wanted = {TopicPartition(TOPIC, number): LATEST for number in range(self.options.partitions)}
                found = await Admin(cluster).list_offsets(wanted)
                return {partition: at.offset for partition, at in found.items()}

        return asyncio.run(ask())

    def _tell(self, text: str) -> None:
        self._told_at = time.monotonic()
        self.say(f"{self._told_at - self.began:6.1f} s  {text}")
