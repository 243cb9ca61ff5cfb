"""`holdfast bench broker`: it measures what it says, on both brokers, and judges by the goals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_world import Commands

from holdfast.bench import broker as bench

FIGURES = {
    "start_s": (3.0, 0.5),
    "produce_100_mb_s": (80.0, 50.0),
    "produce_1024_mb_s": (200.0, 150.0),
    "fetch_100_mb_s": (90.0, 80.0),
    "fetch_1024_mb_s": (400.0, 300.0),
    "produce_100_cpu_s_gb": (9.0, 3.0),
    "produce_1024_cpu_s_gb": (3.0, 2.0),
    "fetch_100_cpu_s_gb": (4.0, 2.0),
    "fetch_1024_cpu_s_gb": (1.0, 1.2),
    "join_3_s": (0.1, 0.2),
    "join_100_s": (0.5, 0.4),
    "resident_mb": (900.0, 90.0),
}
"""Kafka's and ours, with every goal reached."""


def rows(**changed: tuple[float, float]) -> dict[str, dict[str, Any]]:
    found = FIGURES | changed
    figures = {
        "kafka": {name: [theirs] for name, (theirs, _) in found.items()},
        "holdfast": {name: [ours] for name, (_, ours) in found.items()},
    }
    return {metric.name: bench._row(metric, figures) for metric in bench.METRICS}


def test_every_goal_is_judged_in_its_own_direction() -> None:
    assert all(row["reached"] for row in rows().values())
    missed = {
        "start_s": (2.4, 0.5),
        "produce_100_mb_s": (80.0, 39.0),
        "produce_1024_mb_s": (200.0, 99.0),
        "fetch_100_mb_s": (90.0, 44.0),
        "fetch_1024_mb_s": (400.0, 199.0),
        "join_100_s": (0.39, 0.4),
        "resident_mb": (440.0, 90.0),
    }
    for name, figures in missed.items():
        judged = rows(**{name: figures})
        assert [each for each, row in judged.items() if not row["reached"]] == [name]


def test_a_missed_goal_ends_with_1_and_is_named(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = list(rows(join_100_s=(0.3, 0.6)).values())
    result = {"full_size": True, "load": {"kafka": [0.1, 1.0], "holdfast": [1.0, 1.1]}, "cores": 2, "rows": judged}
    monkeypatch.setattr(bench, "run", lambda **_: result)

    shown = commands.run("bench", "broker")
    assert shown.code == 1
    (line,) = [line for line in shown.lines() if "MISSED" in line]
    assert "100 members settled" in line and "0.50×" in line
    assert json.loads(commands.run("bench", "broker", "-o", "json").out)["rows"] == judged
    assert commands.run("bench", "broker", "-o", "yaml").code == 2


@pytest.mark.kafka
@pytest.mark.slow
def test_both_brokers_are_measured_with_the_same_client(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    little = bench.Volume(records={100: 8_000, 1024: 4_000}, members=(3, 100), repeats=1, starts=1)
    monkeypatch.setattr(bench, "QUICK", little)

    result = commands.fine("bench", "broker", "--quick", "-o", "json").json()

    assert [row["metric"] for row in result["rows"]] == [metric.name for metric in bench.METRICS]
    assert all(row["kafka"] > 0 and row["holdfast"] > 0 for row in result["rows"] if "cpu" not in row["metric"])
    assert set(result["load"]) == {"kafka", "holdfast"}
