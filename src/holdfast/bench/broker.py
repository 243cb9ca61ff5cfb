"""`holdfast bench broker`: the embedded broker beside a real Kafka, in one run, with the same client.

Both are measured on the same machine, one after the other: the time from the process's start to its first answer;
records in and out in MB a second through confluent-kafka, in batches, with acks=all; the time until 3 or 100 members
that join at once have settled; and the resident memory at the end. Every figure is the median of its repetitions. With
small records the client is the bottleneck for both, so the broker's own CPU time is reported too. So is the machine's
load: if it is above the number of cores, the figures mean little.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.bench.broker_client import WARM_UP
from holdfast.bench.output import check_output, report, say

if TYPE_CHECKING:
    from holdfast.bench.broker_systems import System

LIMIT_S = 900.0
"""For one client process, in case it hangs; its repetitions have limits of their own."""

PARTITIONS = 6
HOSTILE_S, HOSTILE_QUICK_S = 8.0, 1.0
"""How long each attack takes."""

MEMBER_PARTITIONS = 200
"""Two for each of a hundred members."""


@dataclass(frozen=True, slots=True)
class Volume:
    """How much to measure. Records are per repetition."""

    records: dict[int, int]
    """Size in bytes -> how many."""
    members: tuple[int, ...]
    repeats: int
    starts: int


FULL = Volume(records={100: 2_000_000, 1024: 300_000}, members=(3, 100), repeats=3, starts=3)
QUICK = Volume(records={100: 20_000, 1024: 4_000}, members=(3, 100), repeats=1, starts=1)


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure, and how many times better than Kafka's ours has to be."""

    name: str
    title: str
    unit: str
    more_is_better: bool
    goal: float | None

    def ratio(self, kafka: float, ours: float) -> float | None:
        """None if the divisor was too small to measure: CPU is counted in hundredths of a second."""
        over, under = (ours, kafka) if self.more_is_better else (kafka, ours)
        return over / under if under else None


METRICS = (
    Metric("start_s", "start until it answers", "s", False, 5.0),
    Metric("produce_100_mb_s", "produce, 100-byte records", "MB/s", True, 0.5),
    Metric("produce_1024_mb_s", "produce, 1-KiB records", "MB/s", True, 0.5),
    Metric("fetch_100_mb_s", "fetch, 100-byte records", "MB/s", True, 0.5),
    Metric("fetch_1024_mb_s", "fetch, 1-KiB records", "MB/s", True, 0.5),
    Metric("produce_100_cpu_s_gb", "broker's CPU, produce, 100-byte", "s/GB", False, None),
    Metric("produce_1024_cpu_s_gb", "broker's CPU, produce, 1-KiB", "s/GB", False, None),
    Metric("fetch_100_cpu_s_gb", "broker's CPU, fetch, 100-byte", "s/GB", False, None),
    Metric("fetch_1024_cpu_s_gb", "broker's CPU, fetch, 1-KiB", "s/GB", False, None),
    Metric("join_3_s", "3 members settled", "s", False, None),
    Metric("join_100_s", "100 members settled", "s", False, 1.0),
    Metric("resident_mb", "memory after the load", "MB", False, 5.0),
)


def run(*, quick: bool = False, kafka: bool = True, say: Callable[[str], None] = lambda _text: None) -> dict[str, Any]:
    """Measure both, one after the other."""
    from holdfast.bench.broker_systems import EmbeddedSystem, KafkaSystem, Running

    volume = QUICK if quick else FULL
    figures: dict[str, dict[str, list[float]]] = {}
    loads: dict[str, list[float]] = {}
    for make in (KafkaSystem, EmbeddedSystem) if kafka else (EmbeddedSystem,):
        before = os.getloadavg()[0]
        with Running(make()) as system:
            figures[system.name] = measure(system, volume, partial(_tell, say, system.name))
            loads[system.name] = [round(before, 2), round(os.getloadavg()[0], 2)]
    rows = [judged_row(metric, figures) for metric in METRICS if metric.name in figures["holdfast"]]
    return {"full_size": not quick, "load": loads, "cores": os.cpu_count(), "volume": asdict(volume), "rows": rows}


def _tell(say: Callable[[str], None], name: str, text: str) -> None:
    say(f"{name}: {text}")


def measure(system: System, volume: Volume, say: Callable[[str], None]) -> dict[str, list[float]]:
    """Every figure of one broker, by metric, one for each repetition."""
    found: dict[str, list[float]] = {}
    system.start()  # not measured: the first start creates the folder
    for _ in range(volume.starts):
        system.stop()
        found.setdefault("start_s", []).append(system.start())
    say(f"start {_median(found['start_s']):.2f} s")
    for size, records in volume.records.items():
        load = {"topic": f"records-{size}", "partitions": PARTITIONS, "size": size, "records": records}
        load |= {"bootstrap": system.bootstrap, "repeats": volume.repeats}
        _client("create", load)
        for work, rounds in (("produce", volume.repeats + WARM_UP), ("fetch", volume.repeats + 1)):
            name, used = f"{work}_{size}_mb_s", system.cpu_seconds()
            found[name] = [size * records / 1e6 / seconds for seconds in _client(work, load)]
            found[f"{work}_{size}_cpu_s_gb"] = [(system.cpu_seconds() - used) / (rounds * size * records / 1e9)]
            say(f"{work} {size} bytes {_median(found[name]):.1f} MB/s")
    group = {"topic": "joined", "partitions": MEMBER_PARTITIONS, "bootstrap": system.bootstrap}
    _client("create", group)
    for members in volume.members:
        asked = group | {"group": f"light-{members}", "members": members, "repeats": 2 * volume.repeats + 1}
        found[f"join_{members}_s"] = _client("join", asked)
        say(f"{members} members settled in {_median(found[f'join_{members}_s']):.3f} s")
    found["resident_mb"] = [system.resident_bytes() / 1e6]
    say(f"{found['resident_mb'][0]:.0f} MB resident")
    return found


def _client(work: str, given: dict[str, Any]) -> list[float]:
    command = [sys.executable, "-m", "holdfast.bench.broker_client", json.dumps({"work": work, **given})]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{work} on {given['bootstrap']} failed:\n{done.stderr}")
    seconds: list[float] = json.loads(done.stdout)
    return seconds


def judged_row(metric: Metric, figures: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    ours = figures["holdfast"][metric.name]
    theirs = figures.get("kafka", {}).get(metric.name)
    ratio = None if theirs is None else metric.ratio(_median(theirs), _median(ours))
    return {
        "metric": metric.name,
        "title": metric.title,
        "unit": metric.unit,
        "kafka": None if theirs is None else _median(theirs),
        "holdfast": _median(ours),
        "ratio": ratio,
        "goal": metric.goal,
        "reached": metric.goal is None or ratio is None or ratio >= metric.goal,
        "kafka_runs": theirs,
        "holdfast_runs": ours,
    }


def _median(values: list[float]) -> float:
    return statistics.median(values)


def broker(
    output: Annotated[str, typer.Option("-o", "--output", help="table or json.")] = "table",
    quick: Annotated[bool, typer.Option("--quick", help="Little data: shows that it works, proves nothing.")] = False,
    kafka: Annotated[bool, typer.Option(help="Compare with Kafka; without it there are no ratios.")] = True,
    hostile: Annotated[bool, typer.Option("--hostile", help="Attack it instead, one way after the other.")] = False,
    attack: Annotated[str | None, typer.Option(help="With --hostile: only this one.")] = None,
) -> None:
    """The embedded broker beside a real Kafka: start-up, throughput, groups, memory. Exit code 1: a goal is missed.

    The real Kafka needs Java and `make kafka-jars`; with --no-kafka or --hostile neither is needed.
    """
    check_output(output)
    if attack is not None and not hostile:
        raise typer.BadParameter("--attack needs --hostile.", param_hint="--attack")
    if hostile:
        _hostile(output, quick=quick, attack=attack)
        return
    result = run(quick=quick, kafka=kafka, say=say)
    report(result, output, _show, reached=quick or all(row["reached"] for row in result["rows"]))


def _hostile(output: str, *, quick: bool, attack: str | None) -> None:
    from holdfast.bench import broker_hostile
    from holdfast.bench.broker_attacks import ATTACKS

    if attack is not None and attack not in ATTACKS:
        names = ", ".join(ATTACKS)
        raise typer.BadParameter(f"{attack!r} is none of {names}.", param_hint="--attack")
    seconds = HOSTILE_QUICK_S if quick else HOSTILE_S
    result = broker_hostile.run(seconds=seconds, only=attack, say=say)
    report(result, output, broker_hostile.show, reached=quick or all(row["reached"] for row in result["rows"]))


def _show(result: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for title in ("", "KAFKA", "HOLDFAST", "UNIT", "TIMES BETTER", "GOAL", ""):
        table.add_column(title, justify="left" if title in ("", "UNIT") else "right")
    judged = result["full_size"]
    for row in result["rows"]:
        goal = row["goal"] if judged else None
        table.add_row(
            row["title"],
            _figure(row["kafka"]),
            _figure(row["holdfast"]),
            row["unit"],
            "" if row["ratio"] is None else f"{row['ratio']:.2f}×",
            "" if goal is None else f"{goal:g}×",
            "" if goal is None or row["ratio"] is None else "reached" if row["reached"] else "MISSED",
        )
    console = Console(width=110)
    console.print(table)
    loads = ", ".join(f"{name} {begin:.1f} to {end:.1f}" for name, (begin, end) in result["load"].items())
    console.print(f"Load of the machine on {result['cores']} cores: {loads}.")


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 1_000 else f"{value:,.0f}"
