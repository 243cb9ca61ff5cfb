"""`holdfast bench handover`: how long a partition stands still when members join, drain, leave or are killed.

One real Kafka at its default settings, one topic of 12 partitions with steady traffic for each group, three members
and one that comes and goes; all groups in the same run, each with two rounds first that do not count. What is measured
is what the members themselves wrote down: the longest time without a record of each partition, moved and unmoved, from
the event until the group has settled, and before the event for comparison. Records lost and doubled are counted over
the whole run.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import typer

from holdfast.bench.handover_group import Result, Variant, run_variant
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
    ("holdfast", "join"): (50.0, 150.0),
    ("holdfast", "drain"): (50.0, 150.0),
    ("holdfast", "kill"): (100.0, None),
    ("holdfast-no-poke", "kill"): (HEARTBEAT_MS + 50.0, None),
    ("holdfast-under-java", "drain"): (120.0, None),
    ("holdfast-under-confluent", "drain"): (120.0, None),
}
"""Median and worst of all moved partitions' longest silences. The other events are shown for what they are."""

UNMOVED_ABOVE_STEADY_MS = 30.0
TIMES_BETTER = {"join": 50.0, "kill": 400.0}
"""Than the best peer, in a group of our own."""

WIDTH = 130
"""Of the table, in a pipe too."""


def summary(result: Result) -> list[dict[str, Any]]:
    """A row for each event of this group."""
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
            }
        )
    return rows


def handover(
    repetitions: int = typer.Option(20, help="Repetitions of each event for holdfast."),
    peer_repetitions: int = typer.Option(3, help="Repetitions for the peers; a kill of theirs, 45 s each, comes once."),
    groups: str = typer.Option(",".join(GROUPS), help="Which groups, in order."),
    output: str = typer.Option("table", "--output", "-o", help="table or json."),
) -> None:
    """Handovers beside Java's and librdkafka's consumers: the longest silence of moved and unmoved partitions."""
    wanted = _chosen(groups)
    results: list[Result] = []
    # The producer runs in this process. With 700,000 log lines in memory a collection stops it for a tenth of a second
    # or more, and every partition with it: that would be our own silence, not the group's.
    gc.disable()
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-handover-") as folder,
        RealKafka(benchmark=True, initial_rebalance_delay_ms=None) as kafka,
    ):
        for variant in wanted:
            times = {
                event: repetitions if variant.ours else (1 if event == "kill" else peer_repetitions)
                for event in ("join", "drain", "leave", "kill")
            }
            results.append(run_variant(kafka, variant, times, Path(folder), _say))
    rows = judged([row for result in results for row in summary(result)])
    if output == "json":
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        _print(rows)
    if any(row["missed"] for row in rows):
        raise typer.Exit(1)


def _chosen(groups: str) -> list[Variant]:
    known = {variant.name: variant for variant in VARIANTS}
    names = [name for name in groups.split(",") if name]
    unknown = sorted(set(names) - set(known))
    if unknown or not names:
        raise typer.BadParameter(f"{', '.join(unknown) or 'none'}: choose from {', '.join(known)}")
    return [known[name] for name in names]


def judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with what each missed of its goals, and how many times better than the best peer it is."""
    best: dict[str, float] = {}
    for row in rows:
        if not row["ours"] and row["moved_median_ms"] is not None:
            best[row["event"]] = min(best.get(row["event"], float("inf")), row["moved_median_ms"])
    for row in rows:
        peer = best.get(row["event"])
        moved = row["moved_median_ms"]
        row["times_better"] = round(peer / moved, 1) if row["ours"] and peer and moved else None
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
    if row["lost"] or row["doubled"]:
        missed.append("lost or doubled")
    return missed


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


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
