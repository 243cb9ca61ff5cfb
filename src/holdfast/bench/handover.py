"""`holdfast bench handover`: how long a partition stands still when members join, drain, leave or are killed.

There is one real Kafka at its default settings. Each group has a topic of 12 partitions with steady traffic, three
members, and one that comes and goes. All groups are measured in the same run, each after two warm-up rounds. The
figures come from the members' own logs: the longest time without a record of each partition, moved and unmoved, from
the event until the group has settled, and before the event for comparison. Lost and duplicated records are counted over
the whole run. A second table shows where the milliseconds of holdfast's handovers go (`handover_stages`).

With `--against` the same groups also run with the holdfast of another interpreter, in turns, so that two versions have
the same machine and the same broker.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from holdfast.bench.handover_group import OTHER, Result, Variant, run_variant
from holdfast.bench.handover_stages import STAGES, shares
from holdfast.bench.output import check_output, report, say
from holdfast.testing.kafka import RealKafka

VARIANTS = (
    Variant("holdfast", ("holdfast",) * 3, "holdfast", ("join", "drain", "leave", "kill")),
    Variant("holdfast-no-poke", ("holdfast",) * 3, "holdfast", ("kill",), (("holdfast.poke", "false"),)),
    Variant("holdfast-under-java", ("java", "holdfast", "holdfast"), "holdfast", ("join", "drain")),
    Variant("holdfast-under-confluent", ("confluent", "holdfast", "holdfast"), "holdfast", ("join", "drain")),
    Variant("java", ("java",) * 3, "java", ("join", "leave", "kill")),
    Variant("confluent", ("confluent",) * 3, "confluent", ("join", "leave", "kill")),
)

GROUPS = [variant.name for variant in VARIANTS]

HEARTBEAT_MS = 3_000.0

GOALS_MS: dict[tuple[str, str], tuple[float, float | None]] = {
    ("holdfast", "join"): (30.0, 100.0),
    ("holdfast", "drain"): (30.0, 100.0),
    ("holdfast", "kill"): (100.0, None),
    ("holdfast-no-poke", "kill"): (HEARTBEAT_MS + 50.0, None),
    ("holdfast-under-java", "drain"): (120.0, 120.0),
    ("holdfast-under-confluent", "drain"): (120.0, 120.0),
}
"""Goals for the median and the worst of all moved partitions' longest silences. Other events have no goal."""

UNMOVED_ABOVE_STEADY_MS = 30.0
TIMES_BETTER = {"join": 50.0, "kill": 400.0}
"""How many times better than the best peer a group of our own has to be."""

WORSE_BY = 1.1
WORSE_BY_MS = 2.0
"""How much worse than the other version counts as worse: two runs of one version differ by this much."""

EVENTS = ("join", "drain", "leave", "kill")

WIDTH = 130
STAGES_WIDTH = 165
"""Widths of the tables, also in a pipe."""


def summary(result: Result) -> list[dict[str, Any]]:
    """One row for each event of this group."""
    rows = []
    for event, samples in result.samples.items():
        moved = [silence for s in samples for silence in s.moved_ms]
        worst = [max(s.moved_ms) for s in samples if s.moved_ms]
        unmoved = [max(s.unmoved_ms) for s in samples if s.unmoved_ms]
        steady = [max(s.steady_ms) for s in samples if s.steady_ms]
        rows.append(
            {
                "group": result.variant.name,
                "event": event,
                "repetitions": len(samples),
                "moved_median_ms": round(statistics.median(moved), 1) if moved else None,
                "moved_slowest_ms": round(statistics.median(worst), 1) if worst else None,
                "moved_worst_ms": round(max(worst), 1) if worst else None,
                "unmoved_median_ms": round(statistics.median(unmoved), 1) if unmoved else None,
                "unmoved_worst_ms": round(max(unmoved), 1) if unmoved else None,
                "steady_median_ms": round(statistics.median(steady), 1) if steady else None,
                "lost": result.lost,
                "doubled": result.doubled,
                "doubled_after_kills": result.after_kills,
                "ours": result.variant.ours,
                "stages": shares(way for s in samples for way in s.stages_ms),
                "handover_median_ms": _median(sum(way.values()) for s in samples for way in s.stages_ms),
            }
        )
    return rows


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return round(statistics.median(found), 1) if found else None


def handover(
    repetitions: int = typer.Option(20, min=1, help="Repetitions of each event for holdfast."),
    peer_repetitions: int = typer.Option(
        3, min=1, help="Repetitions for the peers; a kill of theirs, 45 s each, comes once."
    ),
    groups: str = typer.Option(",".join(GROUPS), help="Which groups, in order."),
    events: str = typer.Option(",".join(EVENTS), help="Which events, where a group has them."),
    against: str = typer.Option("", help="The Python of another checkout's .venv: its holdfast runs beside, in turns."),
    output: str = typer.Option("table", "--output", "-o", help="table or json."),
) -> None:
    """Handovers beside Java's and librdkafka's consumers: the longest silence of moved and unmoved partitions.

    Needs Java and `make kafka-jars`. Exit code 1: a goal is missed.
    """
    check_output(output)
    wanted = chosen_variants(groups, events)
    if against and not os.access(against, os.X_OK):
        raise typer.BadParameter(f"{against} is not a program: give OTHER/.venv/bin/python.", param_hint="--against")
    results: dict[str, Result] = {}
    # The producer runs in this process. With 700,000 log lines in memory, a garbage collection stops it for a tenth of
    # a second or more, and with it every partition: the bench would measure itself.
    gc.disable()
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-handover-") as folder,
        RealKafka(benchmark=True, initial_rebalance_delay_ms=None) as kafka,
    ):
        for turn, (variant, share) in enumerate(turns(wanted, against), start=1):
            told = results.setdefault(variant.name, Result(variant))
            told.add(
                run_variant(
                    kafka, variant, _times(variant, repetitions, peer_repetitions, share), Path(folder), say, turn
                )
            )
    rows = judged([row for result in results.values() for row in summary(result)])
    report(rows, output, _show, reached=not any(row["missed"] for row in rows))


def turns(wanted: list[Variant], against: str) -> list[tuple[Variant, int]]:
    """The groups in order, and into how many turns the repetitions of each are split.

    Two versions take turns as ours, theirs, theirs, ours, so that a machine that slows down, or a broker that warms up,
    affects both equally.
    """
    order: list[tuple[Variant, int]] = []
    for variant in wanted:
        if against and variant.holdfast:
            other = variant.of(against)
            order += [(variant, 2), (other, 2), (other, 2), (variant, 2)]
        else:
            order.append((variant, 1))
    return order


def _times(variant: Variant, repetitions: int, peer_repetitions: int, cut: int) -> dict[str, int]:
    if variant.holdfast:
        return dict.fromkeys(EVENTS, -(-repetitions // cut))
    return {event: 1 if event == "kill" else peer_repetitions for event in EVENTS}


def chosen_variants(groups: str, events: str = ",".join(EVENTS)) -> list[Variant]:
    known = {variant.name: variant for variant in VARIANTS}
    names = [name for name in groups.split(",") if name]
    unknown = sorted(set(names) - set(known))
    if unknown or not names:
        raise typer.BadParameter(f"{', '.join(unknown) or 'none'}: choose from {', '.join(known)}")
    asked = [event for event in events.split(",") if event]
    strange = sorted(set(asked) - set(EVENTS))
    if strange or not set(asked) - {"join"}:
        ways_out = ", ".join(event for event in EVENTS if event != "join")
        told = f"{strange[0]!r} is not an event" if strange else "a join alone does not empty the group again"
        raise typer.BadParameter(f"{told}: choose some of {ways_out}, with or without join.", param_hint="--events")
    chosen = [replace(known[name], events=tuple(e for e in known[name].events if e in asked)) for name in names]
    return [variant for variant in chosen if set(variant.events) - {"join"}]


def judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the goals that each has missed, and how many times better than the best peer it is."""
    best: dict[str, float] = {}
    medians = {(row["group"], row["event"]): row["moved_median_ms"] for row in rows}
    for row in rows:
        if not row["ours"] and not row["group"].endswith(OTHER) and row["moved_median_ms"] is not None:
            best[row["event"]] = min(best.get(row["event"], float("inf")), row["moved_median_ms"])
    for row in rows:
        peer = best.get(row["event"])
        moved = row["moved_median_ms"]
        row["times_better"] = round(peer / moved, 1) if row["ours"] and peer and moved else None
        row["other_median_ms"] = medians.get((row["group"] + OTHER, row["event"]))
        row["missed"] = _missed(row) if row["ours"] else []
    return rows


def _missed(row: dict[str, Any]) -> list[str]:
    missed = []
    median, worst = GOALS_MS.get((row["group"], row["event"]), (None, None))
    if median is not None and (row["moved_median_ms"] is None or row["moved_median_ms"] > median):
        missed.append(f"median above {median:.0f}")
    if worst is not None and (row["moved_worst_ms"] or 0) > worst:
        missed.append(f"worst above {worst:.0f}")
    if row["unmoved_median_ms"] is not None:
        above = row["unmoved_median_ms"] - row["steady_median_ms"]
        if above > UNMOVED_ABOVE_STEADY_MS:
            missed.append(f"unmoved {above:.0f} above steady")
    wanted = TIMES_BETTER.get(row["event"]) if row["group"] == "holdfast" else None
    if wanted is not None and row["times_better"] is not None and row["times_better"] < wanted:
        missed.append(f"under {wanted:.0f} times better")
    other = row["other_median_ms"]
    if other is not None and moved_ms(row) > other * WORSE_BY + WORSE_BY_MS:
        missed.append(f"slower than the other's {other:.1f}")
    if row["lost"] or row["doubled"]:
        missed.append("lost or doubled")
    return missed


def moved_ms(row: dict[str, Any]) -> float:
    """A row's median; infinite if nothing moved."""
    median = row["moved_median_ms"]
    return float("inf") if median is None else float(median)


def _show(rows: list[dict[str, Any]]) -> None:
    _print(rows)
    _print_stages(rows)


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title="Longest silence of a partition, ms\n(moved: median of all partitions, median of each round's slowest, "
        "worst of all; unmoved and steady: of each round's slowest)"
    )
    headings = ("group", "event", "n", "moved", "slowest", "worst", "unmoved", "worst", "steady", "lost", "doubled")
    for heading in (*headings, "", ""):
        table.add_column(heading, justify="left" if heading in ("group", "event", "") else "right")
    for row in rows:
        by_killed = f" ({row['doubled_after_kills']} by the killed)" if row["doubled"] else ""
        table.add_row(
            row["group"],
            row["event"],
            str(row["repetitions"]),
            *(str(row[key]) for key in ("moved_median_ms", "moved_slowest_ms", "moved_worst_ms")),
            *(str(row[key]) for key in ("unmoved_median_ms", "unmoved_worst_ms")),
            str(row["steady_median_ms"]),
            str(row["lost"]),
            f"{row['doubled']}{by_killed}",
            f"{row['times_better']:.0f}×" if row["times_better"] else "",
            ("; ".join(row["missed"]) or "reached") if row["ours"] else "",
        )
    Console(width=max(WIDTH, Console().width)).print(table)


def _print_stages(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title="Where a handover's milliseconds go: medians of stages with their share of the time, and of the whole"
    )
    for heading in ("group", "event", *STAGES, "whole"):
        table.add_column(heading, justify="left" if heading in ("group", "event") else "right")
    for row in rows:
        if row["stages"]:
            cells = [_stage_text(row["stages"].get(stage)) for stage in STAGES]
            table.add_row(row["group"], row["event"], *cells, str(row["handover_median_ms"]))
    if table.row_count:
        console = Console(width=max(STAGES_WIDTH, Console().width))
        console.print(table)
        for stage, meaning in STAGES.items():
            console.print(f"  {stage}: {meaning}")


def _stage_text(stage: dict[str, float] | None) -> str:
    return "" if stage is None else f"{stage['median_ms']:.1f} ({stage['share']:.0%})"
