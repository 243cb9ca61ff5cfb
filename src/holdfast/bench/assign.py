"""`holdfast bench assign`: planning at scale beside Kafka's CooperativeStickyAssignor, in one run.

Ours is the leader's whole work, from the members' subscription bytes to the assignment bytes; Java's is its assignor
alone, from objects to objects, which favours Java. Cold is the first plan of a fresh process; ours includes the imports
and loading the compiled kernels from numba's cache. Warm is the best of the later plans, which are repeated for four
seconds on both sides.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from holdfast.bench.output import check_output, report

MEMORY_GOAL_MB = 2048
"""Peak resident size of a leader that plans a million partitions."""

LIMIT_S = 900
"""For one process: Java's slowest case takes 10 s, several times."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A group's size."""

    name: str
    topics: int
    partitions: int
    members: int
    differing: bool


@dataclass(frozen=True, slots=True)
class Goal:
    """How many times faster than Java we want to be, warm."""

    scale: str
    case: str
    ratio: float


FULL = (Scale("equal", 500, 2000, 2000, False), Scale("differing", 200, 100, 200, True))
QUICK = (Scale("equal", 50, 200, 100, False), Scale("differing", 20, 20, 20, True))

GOALS = (
    Goal("equal", "fresh", 1),
    Goal("equal", "join", 5),
    Goal("equal", "leave", 5),
    Goal("differing", "fresh", 5),
    Goal("differing", "join", 5),
)


def run(*, quick: bool = False, java: bool = True, repeats: int = 3) -> dict[str, Any]:
    """Measure all cases. `quick` takes small groups, only to see that it works; the goals are for the full size."""
    results = []
    for scale in QUICK if quick else FULL:
        theirs = _java(scale, repeats) if java else {}
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            _worker("prepare", folder, json.dumps(asdict(scale)))
            for goal in GOALS:
                if goal.scale == scale.name:
                    ours = _worker("measure", str(Path(folder) / goal.case), str(repeats))
                    results.append(judged_case(scale, goal, ours, theirs.get(goal.case)))
    return {"cases": results, "memory_goal_mb": MEMORY_GOAL_MB, "full_size": not quick}


def judged_case(scale: Scale, goal: Goal, ours: dict[str, float], theirs: tuple[float, float] | None) -> dict[str, Any]:
    ratio = None if theirs is None else theirs[1] / ours["warm_s"]
    return {
        "group": scale.name,
        "case": goal.case,
        "partitions": scale.topics * scale.partitions,
        "members": scale.members,
        "java_cold_s": None if theirs is None else theirs[0],
        "java_warm_s": None if theirs is None else theirs[1],
        "holdfast_cold_s": ours["cold_s"],
        "holdfast_warm_s": ours["warm_s"],
        "times_faster": ratio,
        "goal": goal.ratio,
        "moved": int(ours["moved"]),
        "peak_mb": ours["peak_mb"],
        "reached": (ratio is None or ratio >= goal.ratio) and ours["peak_mb"] <= MEMORY_GOAL_MB,
    }


def _worker(*args: str) -> dict[str, float]:
    command = [sys.executable, "-m", "holdfast.bench.assign_worker", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[2:])} failed:\n{done.stderr}")
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def _java(scale: Scale, repeats: int) -> dict[str, tuple[float, float]]:
    """By case: the first and the best later time of Kafka's assignor, each scale in a JVM of its own."""
    from holdfast.bench.assign_worker import topic_names, wanted
    from holdfast.testing.java import compile_java, java_command, kafka_classpath, log_args

    classes = compile_java([Path(__file__).parent / "java" / "AssignBench.java"])
    people = wanted(scale)
    described = [f"{topic} {scale.partitions}" for topic in topic_names(scale)]
    described.append("")
    described += [f"{name} {' '.join(topics) if scale.differing else '*'}" for name, topics in people.items()]
    cases = [goal.case for goal in GOALS if goal.scale == scale.name]
    arguments = [str(repeats), *cases]
    # At the default log level the assignor logs whole plans, which would be measured too.
    jvm_args = ["-Xmx6g", *log_args("error")]
    command = java_command("AssignBench", arguments, jvm_args=jvm_args, classpath=kafka_classpath(classes))
    done = subprocess.run(
        command, input="\n".join(described) + "\n", capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    if done.returncode != 0:
        raise RuntimeError(f"Kafka's assignor failed:\n{done.stderr}")
    rows = [line.split() for line in done.stdout.splitlines()]
    return {name: (float(first), float(best)) for name, first, best in rows}


def assign(
    output: str = typer.Option("table", "-o", "--output", help="table or json."),
    quick: bool = typer.Option(False, "--quick", help="Small groups: shows that it works, and proves nothing."),
    java: bool = typer.Option(True, help="Compare with Java; without it there are no ratios."),
    repeats: int = typer.Option(3, min=1, max=100, help="How many warm runs of each case at least."),
) -> None:
    """Planning at scale, beside Java's CooperativeStickyAssignor, which needs Java and `make kafka-jars`."""
    check_output(output)
    result = run(quick=quick, java=java, repeats=repeats)
    report(result, output, _show, reached=quick or all(case["reached"] for case in result["cases"]))


def _show(result: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for title in (
        "GROUP", "CASE", "PARTITIONS", "MEMBERS", "JAVA COLD", "JAVA WARM", "COLD", "WARM", "FASTER", "GOAL", "PEAK", ""
    ):  # fmt: skip
        table.add_column(title, justify="left" if title in ("GROUP", "CASE", "") else "right")
    for case in result["cases"]:
        table.add_row(
            case["group"],
            case["case"],
            f"{case['partitions']:,}",
            f"{case['members']:,}",
            _seconds(case["java_cold_s"]),
            _seconds(case["java_warm_s"]),
            _seconds(case["holdfast_cold_s"]),
            _seconds(case["holdfast_warm_s"]),
            "" if case["times_faster"] is None else f"{case['times_faster']:.1f}×",
            f"{case['goal']:g}×" if result["full_size"] else "",
            f"{case['peak_mb']:.0f} MB",
            "" if not result["full_size"] else "reached" if case["reached"] else "MISSED",
        )
    console = Console(width=130)
    console.print(table)
    console.print(
        f"Java: CooperativeStickyAssignor, objects to objects. Ours: bytes to bytes. At most {MEMORY_GOAL_MB} MB."
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f} s"
