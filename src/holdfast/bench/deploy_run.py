"""The applications of `holdfast bench deploy`, their restarts, and the evaluation of their logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from holdfast.model import HoldfastError
from holdfast.testing.java import spark_kafka_jars
from holdfast.testing.producer import SteadyProducer

PARTITIONS = 12
TRIGGER_MS = 500.0
GROUP = "deployed"
STEADY_S = 8.0
"""How long to watch before a restart, for comparison."""
FRESH_MS = 3_000.0
"""A partition is active if it had output this recently."""
LIMIT_S = 180.0
"""For Spark to start, or a group to settle, on a busy machine."""

Say = Callable[[str], None]


@dataclass(slots=True)
class Restart:
    """One restart's silences, in ms."""

    moved_ms: list[float]
    unmoved_ms: list[float]
    waited_ms: list[float]
    steady_ms: float


@dataclass(slots=True)
class Deployed:
    """All restarts of one kind."""

    restarts: list[Restart] = field(default_factory=list)
    rebalances: int | None = None
    lost: int = 0
    doubled: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch has output, and when."""

    app: str
    at: float
    out: Mapping[int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Silence:
    """The time between two outputs of a partition."""

    partition: int
    before: Batch
    after: Batch

    @property
    def ms(self) -> float:
        return self.after.at - self.before.at


class Application:
    """One streaming application, which can be started again and again on its own checkpoint."""

    @dataclass(frozen=True, slots=True)
    class Place:
        """What all applications of one deploy share."""

        bootstrap: str
        topic: str
        folder: Path

    def __init__(self, place: Place, name: str, source: str, settings: Mapping[str, str], *, jars: str = "") -> None:
        place.folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self._log = place.folder / f"{name}.log"
        self._errors = place.folder / f"{name}.err"
        self._log.touch()
        self._options = {
            "name": name,
            "source": source,
            "bootstrap": place.bootstrap,
            "topic": place.topic,
            "settings": dict(settings),
            "checkpoint": str(place.folder / f"{name}-checkpoint"),
            "log": str(self._log),
            "trigger": f"{TRIGGER_MS:.0f} milliseconds",
            "jars": jars,
        }
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.bench.deploy_app", json.dumps(self._options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            )
        self._heard("started")

    def end(self, word: str) -> None:
        """Send `drain` or `stop`, and wait until the process is gone, as a deploy does before it starts the new one."""
        assert self._process is not None
        self._tell(word)
        self._heard("ended")
        self._process.wait(60)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def generation(self) -> int:
        self._tell("report")
        return int(self._answer()["generation"])

    def batches(self) -> list[Batch]:
        lines = self._log.read_text().splitlines()
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return [Batch(self.name, one["at"], {int(p): seen for p, seen in one["out"].items()}) for one in found]

    def _tell(self, word: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._errors.read_text("utf-8", "replace").strip().splitlines()[-1:]
            raise HoldfastError(
                "APPLICATION_ENDED",
                f"{self.name} ended with {self._process.wait()}: {' '.join(said)[:300]}",
                "Start it by hand with `python -m holdfast.bench.deploy_app` to see more.",
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _heard(self, word: str) -> None:
        while self._answer().get("event") != word:
            pass


def rolling(place: Application.Place, mode: str, repetitions: int, producer: SteadyProducer, say: Say) -> Deployed:
    """Two applications in one group, each restarted in turn."""
    apps = [Application(place, name, "holdfast", _settings(mode, name)) for name in ("one", "two")]
    seen = Deployed()
    try:
        for app in apps:
            app.start()
        _settle(apps, PARTITIONS // 2)
        before = apps[0].generation()
        for number in range(repetitions * len(apps)):
            restarted = apps[number % len(apps)]
            seen.restarts.append(_restart(apps, restarted, "drain" if mode == "drain" else "stop"))
            say(f"{mode} {number + 1}: {told(seen.restarts[-1])}")
        seen.rebalances = apps[0].generation() - before
        _finish(seen, apps, producer)
    finally:
        for app in apps:
            app.kill()
    return seen


def redeploy(place: Application.Place, repetitions: int, producer: SteadyProducer, say: Say) -> Deployed:
    """One application on Spark's own Kafka source, stopped and started again."""
    app = Application(place, "connector", "kafka", {}, jars=",".join(map(str, spark_kafka_jars())))
    seen = Deployed()
    try:
        app.start()
        _settle([app], PARTITIONS)
        for number in range(repetitions):
            seen.restarts.append(_restart([app], app, "stop"))
            say(f"redeploy {number + 1}: {told(seen.restarts[-1])}")
        _finish(seen, [app], producer)
    finally:
        app.kill()
    return seen


def _settings(mode: str, name: str) -> dict[str, str]:
    settings = {"kafka.group.id": f"{GROUP}-{mode}"}
    return settings | ({"kafka.group.instance.id": name} if mode == "static" else {})


def _restart(apps: Sequence[Application], restarted: Application, word: str) -> Restart:
    steady_from = time.time() * 1_000
    time.sleep(STEADY_S)
    begin = time.time() * 1_000
    restarted.end(word)
    down = time.time() * 1_000
    restarted.start()
    _settle(apps, PARTITIONS // len(apps))
    end = time.time() * 1_000
    batches = [batch for app in apps for batch in app.batches()]
    return measured(batches, restarted.name, steady_from, begin, end, down=down)


def measured(
    batches: Sequence[Batch], restarted: str, steady_from: float, begin: float, end: float, *, down: float
) -> Restart:
    """The longest silences of each partition, by kind: it moved, it waited for the restarted application, which was
    `down` at that time, or neither."""
    moved: dict[int, float] = {}
    waited: dict[int, float] = {}
    unmoved: dict[int, float] = {}
    for one in silences(batches, begin, end):
        if one.before.app != one.after.app:
            kind = moved
        elif one.before.app == restarted and one.before.at <= down <= one.after.at:
            kind = waited
        else:
            kind = unmoved
        kind[one.partition] = max(kind.get(one.partition, 0.0), one.ms)
    return Restart(
        moved_ms=list(moved.values()),
        unmoved_ms=list(unmoved.values()),
        waited_ms=list(waited.values()),
        steady_ms=max(one.ms for one in silences(batches, steady_from, begin) if one.after.at <= begin),
    )


def silences(batches: Sequence[Batch], begin: float, end: float) -> list[Silence]:
    """The silences of every partition that overlap with this period."""
    found = []
    for partition in range(PARTITIONS):
        outputs = sorted((batch for batch in batches if partition in batch.out), key=lambda batch: batch.at)
        pairs = (Silence(partition, before, after) for before, after in pairwise(outputs))
        found += [one for one in pairs if one.before.at < end and one.after.at > begin]
    return found


def _settle(apps: Sequence[Application], each: int) -> None:
    """Wait until every application outputs its share, and every partition is active."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        now = time.time() * 1_000
        shares = [{p for b in app.batches() if b.at > now - FRESH_MS for p in b.out} for app in apps]
        if all(len(share) == each for share in shares) and len(set().union(*shares)) == PARTITIONS:
            return
        if time.monotonic() > deadline:
            raise HoldfastError(
                "NOT_SETTLED",
                f"the applications did not share evenly within {LIMIT_S:.0f} s: {[sorted(s) for s in shares]}.",
                "The machine may be too busy to measure on.",
            )
        time.sleep(0.2)


def _finish(seen: Deployed, apps: Sequence[Application], producer: SteadyProducer) -> None:
    """Stop the traffic, wait for the remaining output, and count."""
    producer.stop()
    wanted = {(p, offset) for p, offsets in producer.acknowledged().items() for offset in offsets}
    deadline = time.monotonic() + 60
    while True:
        out = [(p, o) for app in apps for batch in app.batches() for p, offsets in batch.out.items() for o in offsets]
        seen.lost, seen.doubled = len(wanted - set(out)), len(out) - len(set(out))
        if not seen.lost or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    for app in apps:
        app.end("stop")


def told(restart: Restart) -> str:
    parts = {"moved": restart.moved_ms, "unmoved": restart.unmoved_ms, "waited": restart.waited_ms}
    return ", ".join(f"{name} at most {max(values):.0f} ms" for name, values in parts.items() if values)
