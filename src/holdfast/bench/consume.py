"""`holdfast bench consume`: records a second and memory, beside confluent-kafka's consumer on the same broker.

There is one real Kafka and one topic of 100-byte records in lz4. Seven readers, each in a process of its own, take
turns reading it from its beginning: `consume_arrow()`; `consume(10000)` of ours and of confluent-kafka's, with default
and with tuned queue settings; `poll()` of both, one record at a time. Two more wait on a topic without records. Every
figure is the median of its repetitions, and a ratio compares medians of the same run. The machine's load is reported:
above the number of cores the figures mean little, except for the CPU time per record.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.bench.output import check_output, report, say

if TYPE_CHECKING:
    from holdfast.testing.kafka import RealKafka

PARTITIONS = 6
RECORD_BYTES = 100
LIMIT_S = 240.0
"""For one reader; it has a shorter limit of its own."""

Say = Callable[[str], None]
Run = dict[str, float]


@dataclass(frozen=True, slots=True)
class Reader:
    """One way to read, and how much of the topic it reads: slow readers read less."""

    name: str
    kind: str
    tuned: bool
    part: float = 1.0
    how: str = "consume"


READERS = (
    Reader("consume_arrow", "arrow", False),
    Reader("confluent, default", "confluent", False, 0.5),
    Reader("holdfast, default", "holdfast", False, 0.5),
    Reader("confluent, tuned", "confluent", True),
    Reader("holdfast, tuned", "holdfast", True),
    Reader("confluent, poll", "confluent", False, 0.3, "poll"),
    Reader("holdfast, poll", "holdfast", False, 0.3, "poll"),
)

IDLE = (
    Reader("confluent, idle", "confluent", False, how="idle"),
    Reader("holdfast, idle", "holdfast", False, how="idle"),
)
"""Readers that wait for records that don't come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Two readers to compare, and the ratio to reach. An absolute goal is for our figure itself; theirs is only
    shown."""

    title: str
    ours: str
    theirs: str
    figure: str = "records_s"
    at_least: float | None = None
    at_most: float | None = None
    absolute: bool = False

    def reached(self, ratio: float) -> bool:
        return (self.at_least is None or ratio >= self.at_least) and (self.at_most is None or ratio <= self.at_most)

    @property
    def text(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"


GOALS = (
    Goal(title="consume_arrow, default queues", ours="consume_arrow", theirs="confluent, default", at_least=5.0),
    Goal(title="consume_arrow, tuned queues", ours="consume_arrow", theirs="confluent, tuned", at_least=2.5),
    Goal(title="consume, default queues", ours="holdfast, default", theirs="confluent, default", at_least=0.97),
    Goal(title="consume, tuned queues", ours="holdfast, tuned", theirs="confluent, tuned", at_least=0.97),
    Goal(
        title="memory of consume, default queues",
        ours="holdfast, default",
        theirs="confluent, default",
        figure="peak_mb",
        at_most=1.2,
    ),
    Goal(
        title="memory of consume, tuned queues",
        ours="holdfast, tuned",
        theirs="confluent, tuned",
        figure="peak_mb",
        at_most=1.2,
    ),
    Goal(title="poll, one by one", ours="holdfast, poll", theirs="confluent, poll", at_least=1.0),
    Goal(
        title="idle, % of a core",
        ours="holdfast, idle",
        theirs="confluent, idle",
        figure="core_percent",
        at_most=0.5,
        absolute=True,
    ),
)


def run(*, records: int, repetitions: int, say: Say = lambda _text: None) -> dict[str, Any]:
    """Fill a topic, and let all readers read it in turn."""
    from holdfast.testing.kafka import RealKafka

    load = [os.getloadavg()[0]]
    with RealKafka(benchmark=True) as kafka:
        kafka.create_topic("records", partitions=PARTITIONS)
        kafka.create_topic("quiet", partitions=PARTITIONS)
        say(f"{records:,} records of {RECORD_BYTES} bytes")
        produce(kafka, records)
        runs = measure(kafka.bootstrap, records, repetitions, say)
    load.append(os.getloadavg()[0])
    return {
        "records": records,
        "repetitions": repetitions,
        "cores": os.cpu_count(),
        "load": [round(value, 2) for value in load],
        "readers": [reader_row(reader, runs[reader.name]) for reader in READERS],
        "goals": [goal_row(goal, runs) for goal in GOALS],
    }


def produce(kafka: RealKafka, records: int) -> None:
    """Orders as JSON, padded to the record size: lz4 compresses them about three to one."""
    from confluent_kafka import Producer

    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 2_000_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _message: failed.append(str(error)),
            "log_level": 2,
        }
    )
    batch = [{"value": value} for value in orders(10_000)]
    for number, sent in enumerate(range(0, records, len(batch))):
        wanted = batch[: records - sent]
        if producer.produce_batch("records", wanted, partition=number % PARTITIONS) != len(wanted):
            raise RuntimeError("librdkafka's queue is full")
        while len(producer) > 200_000:
            producer.poll(0.01)
    if producer.flush(LIMIT_S) or failed:
        raise RuntimeError(f"records were not acknowledged: {failed[:1]}")


def orders(count: int) -> list[bytes]:
    """The same orders every time."""
    chance = random.Random(1)
    return [
        json.dumps(
            {
                "order": number,
                "key": f"customer-{chance.randrange(1_000)}",
                "amount": round(chance.uniform(1, 999), 2),
                "time": f"2026-01-01T12:{chance.randrange(60):02}:{chance.uniform(0, 60):06.3f}Z",
            }
        )
        .encode()
        .ljust(RECORD_BYTES)[:RECORD_BYTES]
        for number in range(count)
    ]


def measure(bootstrap: str, records: int, repetitions: int, say: Say) -> dict[str, list[Run]]:
    """All readers once, then all again, so that a disturbance of the machine affects all of them."""
    everybody = READERS + IDLE
    runs: dict[str, list[Run]] = {reader.name: [] for reader in everybody}
    for number in range(1, repetitions + 1):
        for reader in everybody if number % 2 else everybody[::-1]:  # so that the order does not matter
            given = {"kind": reader.kind, "tuned": reader.tuned, "records": int(records * reader.part)}
            topic = "quiet" if reader.how == "idle" else "records"
            found = _client({**given, "how": reader.how, "bootstrap": bootstrap, "topic": topic})
            runs[reader.name].append(found)
            if reader.how == "idle":
                say(f"{number}: {reader.name} {found['core_percent']:.2f} % of a core")
            else:
                say(f"{number}: {reader.name} {found['records_s']:,.0f} records/s, {found['peak_mb']:.0f} MB")
    return runs


def _client(given: dict[str, Any]) -> Run:
    command = [sys.executable, "-m", "holdfast.bench.consume_client", json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{given['kind']} failed:\n{done.stderr}")
    found: Run = json.loads(done.stdout)
    return found


def _median(runs: list[Run], figure: str) -> float:
    return statistics.median(one[figure] for one in runs)


def reader_row(reader: Reader, runs: list[Run]) -> dict[str, Any]:
    return {
        "reader": reader.name,
        "records_s": _median(runs, "records_s"),
        "cpu_us": _median(runs, "cpu_us"),
        "peak_mb": _median(runs, "peak_mb"),
        "records_s_runs": [one["records_s"] for one in runs],
        "peak_mb_runs": [one["peak_mb"] for one in runs],
    }


def goal_row(goal: Goal, runs: dict[str, list[Run]]) -> dict[str, Any]:
    ours, theirs = (_median(runs[name], goal.figure) for name in (goal.ours, goal.theirs))
    row = {"title": goal.title, "goal": goal.text, "ratio": ours / theirs if theirs else None}
    if goal.absolute:
        return {**row, "ours": ours, "theirs": theirs, "reached": goal.reached(ours)}
    return {**row, "reached": goal.reached(ours / theirs)}


def consume(
    records: Annotated[int, typer.Option(help="How many records the topic has.", min=100_000)] = 3_000_000,
    repetitions: Annotated[int, typer.Option(help="How often everybody reads it.", min=1)] = 5,
    output: Annotated[str, typer.Option("-o", "--output", help="table or json.")] = "table",
) -> None:
    """Reading beside confluent-kafka: records a second and memory. Exit code 1: a goal is missed.

    Needs Java and `make kafka-jars`.
    """
    check_output(output)
    result = run(records=records, repetitions=repetitions, say=say)
    report(result, output, show, reached=all(row["reached"] for row in result["goals"]))


def show(result: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=100)
    readers = Table(box=box.SIMPLE_HEAD)
    for title in ("READER", "RECORDS/S", "SLOWEST", "FASTEST", "CPU µs EACH", "PEAK MB"):
        readers.add_column(title, justify="left" if title == "READER" else "right")
    for row in result["readers"]:
        runs = row["records_s_runs"]
        speeds = (f"{value:,.0f}" for value in (row["records_s"], min(runs), max(runs)))
        readers.add_row(row["reader"], *speeds, f"{row['cpu_us']:.2f}", f"{row['peak_mb']:.0f}")
    console.print(readers)
    goals = Table(box=box.SIMPLE_HEAD)
    for title in ("BESIDE CONFLUENT-KAFKA", "RATIO", "GOAL", ""):
        goals.add_column(title, justify="right" if title in ("RATIO", "GOAL") else "left")
    for row in result["goals"]:
        title, found = row["title"], "" if row["ratio"] is None else f"{row['ratio']:.2f}×"
        if "ours" in row:
            title += f": {row['ours']:.2f} beside {row['theirs']:.2f}"
        goals.add_row(title, found, row["goal"], "reached" if row["reached"] else "MISSED")
    console.print(goals)
    begin, end = result["load"]
    console.print(f"Load of the machine on {result['cores']} cores: {begin:.1f} to {end:.1f}.")
