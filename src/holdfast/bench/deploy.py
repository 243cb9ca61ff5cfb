"""`holdfast bench deploy`: what a redeploy of a streaming application costs, partition by partition.

Two PySpark applications share 12 partitions in one group, with steady traffic. They are restarted in turn: with a
drain, with static membership, and by a plain stop. With `replace` a single application is redeployed by `pipeline run
--replace`. In the same run, on the same Kafka, one application on Spark's own Kafka source is stopped and started
again, because it can't do otherwise. The longest time without output of each partition is read from the applications'
logs, or from their sink.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from holdfast.bench.deploy_replace import replacing
from holdfast.bench.deploy_run import PARTITIONS, TRIGGER_MS, Application, Deployed, redeploy, rolling
from holdfast.bench.output import check_output, report, say
from holdfast.testing.kafka import RealKafka
from holdfast.testing.producer import SteadyProducer

MODES = ("drain", "static", "stop", "replace")
MOVED_MS = 2_000.0
BATCHES_ABOVE_STEADY = 2
TIMES_BETTER = 5.0
RATE = 20 * PARTITIONS
"""Records a second: enough for every batch to have some of every partition."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of deploy. Times are the median of each repetition's longest silence, in ms."""

    deploy: str
    repetitions: int
    moved_ms: float | None
    unmoved_ms: float | None
    restarted_ms: float | None
    """Partitions that waited for the restarted application: in a redeploy all, with static membership its own."""
    steady_ms: float
    rebalances: int | None
    lost: int
    doubled: int
    times_better: float | None = None
    missed: str = ""


def deploy(
    repetitions: int = typer.Option(2, help="How often each application is restarted, in each of the ways."),
    modes: str = typer.Option(",".join(MODES), help="Which ways."),
    output: str = typer.Option("table", "--output", "-o", help="table or json."),
) -> None:
    """Redeploys of PySpark applications as group members, beside one on Spark's own Kafka source."""
    check_output(output)
    wanted = [mode for mode in modes.split(",") if mode]
    if not wanted or set(wanted) - set(MODES):
        raise typer.BadParameter(f"choose from {', '.join(MODES)}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="holdfast-deploy-") as name, RealKafka(benchmark=True) as kafka:
        for mode in ["redeploy", *wanted]:
            topic = f"deploy-{mode}"
            kafka.create_topic(topic, partitions=PARTITIONS)
            place = Application.Place(bootstrap=kafka.bootstrap, topic=topic, folder=Path(name) / mode)
            with SteadyProducer(kafka.bootstrap, topic, partitions=PARTITIONS, rate=RATE) as producer:
                rows.append(row(mode, play(mode, place, repetitions, producer)))
    rows = judged(rows)
    report(
        [asdict(one) for one in rows],
        output,
        lambda _dicts: _print(rows),
        reached=not any(one.missed for one in rows),
    )


def play(mode: str, place: Application.Place, repetitions: int, producer: SteadyProducer) -> Deployed:
    if mode == "redeploy":
        return redeploy(place, repetitions, producer, say)
    if mode == "replace":
        return replacing(place, repetitions, producer, say)
    return rolling(place, mode, repetitions, producer, say)


def row(mode: str, seen: Deployed) -> Row:
    return Row(
        deploy=mode,
        repetitions=len(seen.restarts),
        moved_ms=_median([max(r.moved_ms) for r in seen.restarts if r.moved_ms]),
        unmoved_ms=_median([max(r.unmoved_ms) for r in seen.restarts if r.unmoved_ms]),
        restarted_ms=_median([max(r.waited_ms) for r in seen.restarts if r.waited_ms]),
        steady_ms=_median([r.steady_ms for r in seen.restarts]) or 0.0,
        rebalances=seen.rebalances,
        lost=seen.lost,
        doubled=seen.doubled,
    )


def _median(values: list[float]) -> float | None:
    return round(statistics.median(values), 1) if values else None


def judged(rows: list[Row]) -> list[Row]:
    """The rows with the goals that each has missed, and how many times shorter than in a redeploy its silences are."""
    whole = next((one.restarted_ms for one in rows if one.deploy == "redeploy"), None)
    return [one if one.deploy == "redeploy" else _judged(one, whole) for one in rows]


def _judged(one: Row, redeployed_ms: float | None) -> Row:
    missed = []
    better = round(redeployed_ms / one.moved_ms, 1) if redeployed_ms and one.moved_ms else None
    if one.deploy == "static":
        if one.rebalances:
            missed.append(f"{one.rebalances} rebalances")
    elif one.moved_ms is None or one.moved_ms > MOVED_MS:
        missed.append(f"moved above {MOVED_MS:.0f}")
    elif better is not None and better < TIMES_BETTER:
        missed.append(f"under {TIMES_BETTER:.0f} times better")
    if one.unmoved_ms is None or one.unmoved_ms > one.steady_ms + BATCHES_ABOVE_STEADY * TRIGGER_MS:
        missed.append(f"unmoved more than {BATCHES_ABOVE_STEADY} batches above steady")
    if one.lost or one.doubled:
        missed.append("lost or doubled")
    return Row(**{**asdict(one), "times_better": better, "missed": "; ".join(missed)})


def _print(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Longest time without output of a partition, ms (median of the restarts' worst)")
    for heading in ("deploy", "n", "moved", "unmoved", "restarted", "steady", "rebalances", "lost", "doubled", "", ""):
        table.add_column(heading, justify="left" if heading in ("deploy", "") else "right")
    for one in rows:
        cells: list[Any] = [one.moved_ms, one.unmoved_ms, one.restarted_ms, one.steady_ms, one.rebalances]
        table.add_row(
            one.deploy,
            str(one.repetitions),
            *("–" if cell is None else str(cell) for cell in cells),
            str(one.lost),
            str(one.doubled),
            f"{one.times_better:.0f}×" if one.times_better else "",
            "" if one.deploy == "redeploy" else one.missed or "reached",
        )
    Console(width=max(120, Console().width)).print(table)
