"""`holdfast bench consume`: it runs, and its table says what the figures say."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from holdfast.bench import consume as bench
from holdfast.cli.main import build

Figures = dict[str, tuple[float, float]]

WAITING = ("confluent, idle", "holdfast, idle")

GOOD: Figures = {
    "consume_arrow": (3_000_000, 210),
    "confluent, default": (200_000, 120),
    "holdfast, default": (198_000, 130),
    "confluent, tuned": (700_000, 600),
    "holdfast, tuned": (710_000, 610),
    "confluent, poll": (130_000, 120),
    "holdfast, poll": (200_000, 120),
}


def result_of(figures: Figures, idle: tuple[float, float] = (0.08, 0.4)) -> dict[str, object]:
    runs: dict[str, list[dict[str, float]]] = {
        name: [{"records_s": speed, "cpu_us": 1.5, "peak_mb": peak}] for name, (speed, peak) in figures.items()
    }
    runs |= {name: [{"core_percent": percent}] for name, percent in zip(WAITING, idle, strict=True)}
    return {
        "cores": 2,
        "load": [0.5, 1.5],
        "readers": [bench.reader_row(reader, runs[reader.name]) for reader in bench.READERS],
        "goals": [bench.goal_row(goal, runs) for goal in bench.GOALS],
    }


def test_the_table_tells_ratio_goal_and_whether_it_was_reached(capsys: pytest.CaptureFixture[str]) -> None:
    bench.show(result_of(GOOD))
    shown = capsys.readouterr().out
    assert "MISSED" not in shown
    assert shown.count("reached") == len(bench.GOALS)
    lines = {line.strip().split("  ")[0]: line.split() for line in shown.splitlines() if "×" in line}
    assert lines["consume_arrow, default queues"][-4:] == ["15.00×", "≥", "5", "reached"]
    assert lines["consume_arrow, tuned queues"][-4:] == ["4.29×", "≥", "2.5", "reached"]
    assert lines["memory of consume, default queues"][-4:] == ["1.08×", "≤", "1.2", "reached"]


@pytest.mark.parametrize(
    ("reader", "speed", "peak", "missed"),
    [
        ("consume_arrow", 999_999, 210, ["consume_arrow, default queues", "consume_arrow, tuned queues"]),
        ("holdfast, default", 190_000, 130, ["consume, default queues"]),
        ("holdfast, tuned", 710_000, 721, ["memory of consume, tuned queues"]),
        ("holdfast, poll", 129_000, 120, ["poll, one by one"]),
    ],
)
def test_a_goal_that_is_missed_is_named(reader: str, speed: float, peak: float, missed: list[str]) -> None:
    result = result_of({**GOOD, reader: (speed, peak)})
    goals = result["goals"]
    assert isinstance(goals, list)
    assert [row["title"] for row in goals if not row["reached"]] == missed


def test_an_idle_consumer_has_a_limit_of_its_own_whatever_the_peer_takes(capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of(GOOD, idle=(0.0, 0.51))
    bench.show(result)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "idle" in line]
    assert "idle, % of a core: 0.51 beside 0.00" in line
    assert line.split()[-1] == "MISSED"
    goals = result_of(GOOD, idle=(0.01, 0.5))["goals"]
    assert isinstance(goals, list)
    assert all(row["reached"] for row in goals)


def test_the_memory_of_whoever_starts_a_reader_is_not_the_readers() -> None:
    """getrusage's maximum is inherited through fork: all readers had the bench's own 140 MB, and no goal was missed."""
    held = bytearray(300_000_000)
    for at in range(0, len(held), 4_096):
        held[at] = 1
    code = "from holdfast.bench.consume_client import peak_mb; print(peak_mb())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert len(held) > 0
    assert float(done.stdout) < 100


@pytest.mark.kafka
def test_the_bench_reads_every_record_with_every_reader() -> None:
    args = ["bench", "consume", "--records", "100000", "--repetitions", "1", "-o", "json"]
    done = CliRunner().invoke(build(args), args)
    result = json.loads(done.stdout)
    assert [row["reader"] for row in result["readers"]] == [reader.name for reader in bench.READERS]
    assert all(row["records_s"] > 0 and row["peak_mb"] > 0 for row in result["readers"])
    assert done.exit_code == (0 if all(row["reached"] for row in result["goals"]) else 1)
