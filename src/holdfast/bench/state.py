"""`holdfast bench state`: what state costs when a partition moves, and when nothing moves.

The pause: one application has two partitions, each with a million keys of state, and records trickle in. A second
application joins and gets one of the two. The pause is the time between the old owner's last batch and the new owner's
first batch in the moved partition, by the times of the state's entries; the usual time between two batches is shown
with it. Then the first application drains, and its other partition moves to the second, which is already working. All
of that is done without a standby and with one; with a standby, the second application follows the partition until it
gets it.

The steady state: a windowed count by key with a watermark over a whole topic, ours into `holdfast-files`, and the same
on Spark's own Kafka source with Spark's own state into its Parquet sink, in the same run on the same broker.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.bench.filling import fill
from holdfast.bench.output import check_output, report, say
from holdfast.bench.spark import Contender, ask, connector_jars
from holdfast.model import HoldfastError, TopicPartition

if TYPE_CHECKING:
    from holdfast.testing.kafka import RealKafka

PAUSE_GOAL_S = 5.0
STANDBY_GOAL_S = 2.0
THROUGHPUT_GOAL = 0.7
LIMIT_S = 900.0
PARTITIONS = 6
AT_HAND = 0.9
"""How much of the state a standby has before the partition's owner drains. It never has the last few batches."""
KEYS = 100_000
"""Distinct keys of the steady state."""
TRICKLE_S = 0.01

CONTENDERS = (
    Contender(name="holdfast", format="holdfast", options={"maxOffsetsPerTrigger": "500000"}),
    Contender(name="spark", format="kafka", options={"maxOffsetsPerTrigger": "500000"}),
)


def run(*, records: int, keys: int, repeats: int, say: Callable[[str], None] = lambda _text: None) -> dict[str, Any]:
    from holdfast.testing.kafka import RealKafka

    jars = connector_jars()
    loads = [os.getloadavg()[0]]
    with (
        RealKafka(benchmark=True, initial_rebalance_delay_ms=0) as kafka,
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
    ):
        pause = measure_pause(kafka, Path(folder), keys, 0, say)
        standby = measure_pause(kafka, Path(folder), keys, 1, say)
        figures = measure_throughput(kafka, jars, Path(folder), records, repeats, say)
    loads.append(os.getloadavg()[0])
    ratio = figures["spark"]["warm_s"] / figures["holdfast"]["warm_s"]
    return {
        "keys": keys,
        "records": records,
        "pause": pause,
        "standby": standby,
        "seconds": figures,
        "ratio": ratio,
        "reached": {
            "pause": pause["pause_s"] <= PAUSE_GOAL_S,
            "standby": standby["drained_s"] <= STANDBY_GOAL_S,
            "throughput": ratio >= THROUGHPUT_GOAL,
        },
        "load": [round(load, 2) for load in loads],
        "cores": os.cpu_count(),
    }


# -- the steady state


def measure_throughput(
    kafka: RealKafka, jars: list[Path], folder: Path, records: int, repeats: int, say: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    kafka.create_topic("steady", partitions=PARTITIONS)
    # A minute of event time, so that windows close. From today, because a broker deletes what is older than a week.
    began_ms = int(time.time() * 1_000)
    _produce(
        kafka.bootstrap,
        (
            ("steady", n % PARTITIONS, b"k%d" % ((n * 7919) % KEYS), began_ms + n * 60_000 // records)
            for n in range(records)
        ),
    )
    figures: dict[str, dict[str, float]] = {}
    for contender in CONTENDERS:
        asked = {"work": "throughput", "topic": "steady", "records": records, "repeats": repeats}
        found = ask(contender, kafka, jars, folder, asked, worker="holdfast.bench.state_worker")
        figures[contender.name] = {
            "cold_s": found["cold_s"],
            "warm_s": statistics.median(found["warm_s"]),
            "cpu_s": statistics.median(found["cpu_s"]),
        }
        say(f"{contender.name}: cold {found['cold_s']:.1f} s, warm {figures[contender.name]['warm_s']:.1f} s")
    return figures


# -- the pause


@dataclass(slots=True)
class Watched:
    """The entries of all partitions seen so far: who wrote them, and when."""

    state: str
    partitions: int
    topic: str = "moved"
    seen: dict[tuple[int, int], tuple[str, float, int]] = field(default_factory=dict)
    """(partition, number) -> (writer, time, end)."""

    def look(self) -> None:
        from holdfast.spark.files.store import open_store
        from holdfast.spark.state.chain import Chain

        store = open_store(self.state)
        for partition in range(self.partitions):
            chain = Chain(store, TopicPartition(self.topic, partition))
            for number in chain.numbers():
                if (partition, number) not in self.seen:
                    entry, at = chain.entry(number), store.modified(chain.entry_name(number))
                    if entry is not None and at is not None:
                        self.seen[partition, number] = (entry.writer, at, entry.end)

    def ends(self) -> dict[int, int]:
        return {
            partition: max(e for (p, _), (_, _, e) in self.seen.items() if p == partition)
            for partition in self._known()
        }

    def _known(self) -> set[int]:
        return {partition for partition, _ in self.seen}

    def of(self, partition: int, writer: str) -> list[float]:
        return sorted(at for (p, _), (who, at, _) in self.seen.items() if p == partition and who == writer)

    def moved(self) -> int | None:
        return next((p for p in sorted(self._known()) if self.of(p, "new")), None)


def measure_pause(
    kafka: RealKafka, folder: Path, keys: int, standby: int, say: Callable[[str], None]
) -> dict[str, float]:
    topic, folder = f"moved-{standby}", folder / f"moved-{standby}"
    folder.mkdir()
    kafka.create_topic(topic, partitions=2)
    _produce(kafka.bootstrap, ((topic, n % 2, b"customer-%d" % (n // 2), None) for n in range(2 * keys)))
    watched = Watched(str(folder / "state"), 2, topic)
    stop = threading.Event()
    trickle = threading.Thread(target=_trickle, args=(kafka.bootstrap, topic, keys, stop), daemon=True)
    apps: list[subprocess.Popen[bytes]] = []
    try:
        apps.append(_follow(kafka, folder, topic, "old", standby))
        _wait(watched, apps, lambda: watched.ends() == {0: keys, 1: keys}, "the state to be there")
        say(f"{keys:,} keys of state in each of two partitions")
        trickle.start()
        _wait(watched, apps, lambda: min(len(watched.of(p, "old")) for p in (0, 1)) > 30, "batches")
        apps.append(_follow(kafka, folder, topic, "new", standby))
        _wait(watched, apps, lambda: len(watched.of(watched.moved() or 0, "new")) > 10, "the move")
        moved = watched.moved() or 0
        joined = _pause(watched, moved)
        if standby:
            _wait(watched, apps, lambda: _at_hand(folder / "new.follows") >= AT_HAND, "the standby to have it at hand")
        seen = len(watched.of(1 - moved, "old"))
        _wait(watched, apps, lambda: len(watched.of(1 - moved, "old")) > seen + 5, "batches of both")
        old = apps.pop(0)
        assert old.stdin is not None
        old.stdin.close()  # it drains
        _wait(watched, apps, lambda: len(watched.of(1 - moved, "new")) > 10, "the drain")
        apps.append(old)
    finally:
        stop.set()
        for app in apps:
            app.kill()
            app.wait(60)
    before = watched.of(moved, "old")
    gaps = [later - earlier for earlier, later in zip(before[-31:-1], before[-30:], strict=False)]
    drained = _pause(watched, 1 - moved)
    say(f"standby={standby}: a newcomer's partition stood still for {joined:.2f} s, a drained one's {drained:.2f} s")
    return {
        "pause_s": joined,
        "drained_s": drained,
        "usual_s": statistics.median(gaps),
        "longest_usual_s": max(gaps),
    }


def _pause(watched: Watched, partition: int) -> float:
    """The time between the old owner's last batch and the new owner's first."""
    return watched.of(partition, "new")[0] - watched.of(partition, "old")[-1]


def _at_hand(note: Path) -> float:
    """How much of the followed state an application has, as it reports itself."""
    try:
        return float(note.read_text())
    except (OSError, ValueError):
        return 0.0


def _follow(kafka: RealKafka, folder: Path, topic: str, name: str, standby: int) -> subprocess.Popen[bytes]:
    from holdfast.spark.pipeline.python import quick_python

    asked: dict[str, Any] = {"work": "follow", "bootstrap": kafka.bootstrap, "topic": topic, "name": name, "jars": ""}
    asked |= {"standby": standby, "follows": str(folder / f"{name}.follows")}
    asked |= {"state": str(folder / "state"), "sink": str(folder / "sink"), "checkpoint": str(folder / f"cp-{name}")}
    environment = os.environ | {"PYSPARK_PYTHON": quick_python(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast.bench.state_worker", json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
        )


def _wait(watched: Watched, apps: list[subprocess.Popen[bytes]], holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        watched.look()
        if watched.seen and holds():
            return
        if time.monotonic() > deadline or any(app.poll() is not None for app in apps):
            logs = [path.read_text(errors="replace")[-2000:] for path in Path(watched.state).parent.glob("*.log")]
            raise HoldfastError("SPARK_FAILED", f"waited for {what} in vain:\n{' '.join(logs)}", "Read what it said.")
        time.sleep(0.02)


def _trickle(bootstrap: str, topic: str, keys: int, stop: threading.Event) -> None:
    from confluent_kafka import Producer

    producer, number = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0}), 0
    while not stop.wait(TRICKLE_S):
        number += 1
        for partition in (0, 1):
            producer.produce(topic, b"", key=b"customer-%d" % ((number * 7919) % keys), partition=partition)
        producer.poll(0)
    producer.flush(10)


def _produce(bootstrap: str, records: Any) -> None:
    def described() -> Iterator[dict[str, Any]]:
        for topic, partition, key, timestamp in records:
            dated = {} if timestamp is None else {"timestamp": timestamp}
            yield {"topic": topic, "value": b"x" * 50, "key": key, "partition": partition, **dated}

    fill(bootstrap, described())


# -- the command


def state(
    output: Annotated[str, typer.Option("-o", "--output", help="table or json.")] = "table",
    records: Annotated[int, typer.Option(help="Of the steady state, in 6 partitions.")] = 3_000_000,
    keys: Annotated[int, typer.Option(help="Of state in the partition that moves.")] = 1_000_000,
    repeats: Annotated[int, typer.Option(help="Warm runs of each.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Little data: shows that it works, proves nothing.")] = False,
) -> None:
    """The pause of a moved partition with much state, and stateful throughput beside Spark's own. Exit code 1: a goal
    is missed.

    Needs Java, `make kafka-jars` and `make spark-jars`.
    """
    check_output(output)
    if quick:
        records, keys, repeats = min(records, 60_000), min(keys, 10_000), 1
    result = run(records=records, keys=keys, repeats=repeats, say=say)
    reached = quick or all(result["reached"].values())
    report(result, output, lambda one: print(shown(one)), reached=reached)


def shown(result: Mapping[str, Any]) -> str:
    pause, seconds = result["pause"], result["seconds"]

    def verdict(name: str) -> str:
        return "reached" if result["reached"][name] else "MISSED"

    return "\n".join(
        [
            f"a moved partition with {result['keys']:,} keys of state, cold: pause {pause['pause_s']:.2f} s"
            f" (goal {PAUSE_GOAL_S:g} s, {verdict('pause')}); usually {pause['usual_s']:.2f} s between two batches,"
            f" at most {pause['longest_usual_s']:.2f} s",
            f"the other one, when its owner drains: {pause['drained_s']:.2f} s, with a standby"
            f" {result['standby']['drained_s']:.2f} s (goal {STANDBY_GOAL_S:g} s, {verdict('standby')})",
            f"{result['records']:,} records, windows by key: holdfast {seconds['holdfast']['warm_s']:.2f} s,"
            f" Spark's own source and state {seconds['spark']['warm_s']:.2f} s: {result['ratio']:.2f} times its speed"
            f" (goal {THROUGHPUT_GOAL:g}, {verdict('throughput')});"
            f" CPU {seconds['holdfast']['cpu_s']:.1f} and {seconds['spark']['cpu_s']:.1f} s",
            f"Load of the machine on {result['cores']} cores: {result['load'][0]:.1f} to {result['load'][1]:.1f}.",
        ]
    )
