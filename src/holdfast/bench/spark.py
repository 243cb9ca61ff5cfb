"""`holdfast bench spark`: the source beside Spark's own Kafka connector, in one run, on the same broker and session.

There are three contenders: holdfast, the connector with its defaults, and the connector with larger fetches. Each reads
the whole topic as a query with Trigger.AvailableNow, into a sum and into nothing: first in a fresh application (cold),
then again in the same one (warm, the median of the repetitions). Then a waiting query gets batches of one and of a
hundred records. All run with the settings of `holdfast.spark.configure`. The broker does not delay an empty group's
first round (group.initial.rebalance.delay.ms=0, as in Kafka's own server.properties). With the default of 3 s, a
group's first query would start that much later; Spark's own source, which is in no group, would not. The machine's load
is reported: above the number of cores the figures mean little, and the CPU time of a whole application means more.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.bench.filling import fill
from holdfast.bench.output import check_output, report, say
from holdfast.model import HoldfastError

if TYPE_CHECKING:
    from holdfast.testing.kafka import RealKafka

PARTITIONS = 6
RECORD_BYTES = 100
SIZES = (1, 100)
"""Records of a small batch: one, and some for each partition."""
LIMIT_S = 3_600.0
JARS = Path(__file__).resolve().parents[3] / "tests" / "spark" / "jars"

TUNED = {
    "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
    "kafka.max.poll.records": "20000",
    "kafka.receive.buffer.bytes": str(2 * 1024 * 1024),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    name: str
    format: str
    options: Mapping[str, str]


CONTENDERS = (
    Contender(name="holdfast", format="holdfast", options={}),
    Contender(name="default", format="kafka", options={}),
    Contender(name="tuned", format="kafka", options=TUNED),
)


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure of ours must be at least so many times better than this contender's."""

    figure: str
    against: str
    times: float


GOALS = (
    Goal("warm_noop_s", "default", 1.5),
    Goal("warm_noop_s", "tuned", 1.2),
    Goal("warm_sum_s", "default", 1.5),
    Goal("warm_sum_s", "tuned", 1.2),
    Goal("cold_noop_s", "tuned", 1.0),
    Goal("cold_sum_s", "tuned", 1.0),
    Goal("batch_1_ms", "default", 1.0),
    Goal("batch_100_ms", "default", 1.0),
)

TITLES = {
    "warm_noop_s": "warm, into nothing (s)",
    "warm_sum_s": "warm, into a sum (s)",
    "cpu_noop_s": "warm, into nothing (CPU s)",
    "cpu_sum_s": "warm, into a sum (CPU s)",
    "cold_noop_s": "cold, into nothing (s)",
    "cold_sum_s": "cold, into a sum (s)",
    "batch_1_ms": "a batch of 1 record (ms)",
    "batch_100_ms": "a batch of 100 records (ms)",
}


def run(*, records: int, repeats: int, batches: int, say: Callable[[str], None] = lambda _text: None) -> dict[str, Any]:
    """Measure all contenders, one after the other."""
    from holdfast.testing.kafka import RealKafka

    jars = connector_jars()
    loads = [os.getloadavg()[0]]
    figures: dict[str, dict[str, list[float]]] = {contender.name: {} for contender in CONTENDERS}
    with RealKafka(benchmark=True, initial_rebalance_delay_ms=0) as kafka:
        _fill(kafka, records)
        say(f"{records:,} records are there")
        kafka.create_topic("small", partitions=PARTITIONS)
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            for sink in ("noop", "sum"):
                for contender in CONTENDERS:
                    asked: dict[str, Any] = {"work": "throughput", "topic": "load", "sink": sink, "records": records}
                    found = ask(contender, kafka, jars, Path(folder), asked | {"repeats": repeats})
                    figures[contender.name][f"cold_{sink}_s"] = [found["cold_s"]]
                    figures[contender.name][f"warm_{sink}_s"] = found["warm_s"]
                    figures[contender.name][f"cpu_{sink}_s"] = found["cpu_s"]
                    warm = statistics.median(found["warm_s"])
                    say(f"{contender.name}, {sink}: cold {found['cold_s']:.2f} s, warm {warm:.2f} s")
            for contender in CONTENDERS:
                asked = {"work": "small", "topic": "small", "sizes": SIZES, "batches": batches}
                found = ask(contender, kafka, jars, Path(folder), asked | {"partitions": PARTITIONS})
                figures[contender.name] |= found
                told = ", ".join(f"{statistics.median(found[f'batch_{size}_ms']):.0f} ms" for size in SIZES)
                say(f"{contender.name}, batches of {' and '.join(map(str, SIZES))} records: {told}")
    loads.append(os.getloadavg()[0])
    medians = {name: {key: statistics.median(v) for key, v in found.items()} for name, found in figures.items()}
    return {
        "records": records,
        "medians": medians,
        "runs": figures,
        "goals": [judge(goal, medians) for goal in GOALS],
        "load": [round(load, 2) for load in loads],
        "cores": os.cpu_count(),
    }


def connector_jars() -> list[Path]:
    """The jars of Spark's own Kafka source."""
    jars = sorted(JARS.glob("*.jar"))
    if not jars:
        raise HoldfastError("JARS_MISSING", "Spark's own Kafka source is not here.", "Run make spark-jars first.")
    return jars


def judge(goal: Goal, medians: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Every figure is a time, so theirs divided by ours says how many times better we are."""
    ratio = medians[goal.against][goal.figure] / medians["holdfast"][goal.figure]
    return {
        "figure": goal.figure,
        "against": goal.against,
        "ratio": ratio,
        "goal": goal.times,
        "reached": ratio >= goal.times,
    }


def _fill(kafka: RealKafka, records: int) -> None:
    """Write so many records of 100 bytes, in lz4, spread evenly."""
    kafka.create_topic("load", partitions=PARTITIONS)
    seeded = random.Random(7)
    tails = [seeded.randbytes(RECORD_BYTES // 2).hex()[: RECORD_BYTES - 12].encode() for _ in range(1_000)]
    values = (b"%012d" % number + tails[number % len(tails)] for number in range(records))
    fill(
        kafka.bootstrap,
        ({"topic": "load", "value": value, "partition": n % PARTITIONS} for n, value in enumerate(values)),
    )


def ask(
    contender: Contender,
    kafka: RealKafka,
    jars: list[Path],
    folder: Path,
    asked: dict[str, Any],
    *,
    worker: str = "holdfast.bench.spark_worker",
) -> dict[str, Any]:
    from holdfast.spark.pipeline.python import quick_python

    theirs = ",".join(map(str, jars)) if contender.format == "kafka" else ""
    given = {"format": contender.format, "options": dict(contender.options), "jars": theirs}
    given |= {"bootstrap": kafka.bootstrap, **asked}
    command = [sys.executable, "-m", worker, json.dumps(given)]
    environment = os.environ | {"PYSPARK_PYTHON": quick_python(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S, env=environment)
    if done.returncode != 0:
        took_s = time.monotonic() - began
        raise HoldfastError(
            "SPARK_FAILED",
            f"{contender.name} ended with {done.returncode} after {took_s:.0f} s:\n{done.stderr[-4000:]}",
            "Read what it said above.",
        )
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def spark(
    output: Annotated[str, typer.Option("-o", "--output", help="table or json.")] = "table",
    records: Annotated[int, typer.Option(help="Of 100 bytes, in 6 partitions.")] = 6_000_000,
    repeats: Annotated[int, typer.Option(help="Warm runs of each.")] = 5,
    batches: Annotated[int, typer.Option(help="Small batches of each size.")] = 50,
    quick: Annotated[bool, typer.Option("--quick", help="Little data: shows that it works, proves nothing.")] = False,
) -> None:
    """The Spark source beside Spark's own, as it comes and tuned. Exit code 1: a goal is missed.

    Needs Java, `make kafka-jars` and `make spark-jars`.
    """
    check_output(output)
    if quick:
        records, repeats, batches = min(records, 60_000), 1, 5
    result = run(records=records, repeats=repeats, batches=batches, say=say)
    reached = quick or all(goal["reached"] for goal in result["goals"])
    report(result, output, partial(show, judged=not quick), reached=reached)


def show(result: Mapping[str, Any], *, judged: bool) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for title in ("", "KAFKA DEFAULT", "KAFKA TUNED", "HOLDFAST", "TIMES BETTER", "GOAL", ""):
        table.add_column(title, justify="left" if not title else "right")
    medians = result["medians"]
    for figure, title in TITLES.items():
        goals = [goal for goal in result["goals"] if goal["figure"] == figure]
        times = ", ".join(f"{goal['ratio']:.2f}× {goal['against']}" for goal in goals)
        wanted = ", ".join(f"{goal['goal']:g}×" for goal in goals)
        verdict = "" if not goals else "reached" if all(goal["reached"] for goal in goals) else "MISSED"
        figures = [f"{medians[name][figure]:.2f}" for name in ("default", "tuned", "holdfast")]
        table.add_row(title, *figures, times, wanted if judged else "", verdict if judged else "")
    console = Console(width=120)
    console.print(table)
    rate = result["records"] / medians["holdfast"]["warm_noop_s"] / 1e6
    console.print(f"{result['records']:,} records; holdfast warm {rate:.2f} M records/s.")
    begin, end = result["load"]
    console.print(f"Load of the machine on {result['cores']} cores: {begin:.1f} to {end:.1f}.")
