"""`holdfast bench broker`: it measures what it says, on both brokers, and judges by the goals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_world import Commands

from holdfast.bench import broker as bench
from holdfast.bench import broker_hostile

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
    return {metric.name: bench.judged_row(metric, figures) for metric in bench.METRICS}


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


def test_what_was_too_little_to_measure_has_no_ratio() -> None:
    """Symptom: the bench ended in a division by zero. Cause: a short fetch took less CPU than the clock counts."""
    assert rows(fetch_1024_cpu_s_gb=(18.3, 0.0))["fetch_1024_cpu_s_gb"]["ratio"] is None


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


def _hostile_row(**changed: Any) -> dict[str, Any]:
    waited = {"produce": [1.0, 249.0], "heartbeat": [1.0, 2.0]}
    done = {"done": 80, "least": 1, "cut": 0} | changed.pop("done", {})
    waited |= changed.pop("waited", {})
    size = changed.pop("most", 511_000_000)
    return broker_hostile.judged_row("large_frames", waited, done, 40_000_000, size, changed.pop("log", 1_000))


def test_a_hostile_run_is_judged_by_the_longest_wait_by_memory_by_the_log_and_by_fair_turns() -> None:
    assert _hostile_row()["reached"]
    for changed in (
        {"waited": {"produce": [1.0, 251.0]}},
        {"waited": {"heartbeat": [251.0, 1.0]}},
        {"most": 513_000_000},
        {"log": 1_100_000},
        {"done": {"least": 0}},
        {"done": {"cut": 1}},
    ):
        assert not _hostile_row(**changed)["reached"], changed


def test_a_missed_goal_of_a_hostile_run_ends_with_1(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [_hostile_row(), _hostile_row(most=600_000_000)]
    result = {"seconds": 1.0, "goals": {}, "load": [0.1, 0.2], "cores": 2, "rows": rows}
    monkeypatch.setattr(broker_hostile, "run", lambda **_: result)

    shown = commands.run("bench", "broker", "--hostile")
    assert shown.code == 1
    assert len([line for line in shown.lines() if "MISSED" in line]) == 1
    assert commands.run("bench", "broker", "--hostile", "--attack", "nonsense").code == 2


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["large_frames", "repeated_groups", "scram_garbage"])
def test_an_attack_is_made_and_measured(commands: Commands, attack: str) -> None:
    """On a busy machine the figures mean nothing, so none is judged here; the bench itself judges them."""
    result = commands.fine("bench", "broker", "--hostile", "--quick", "--attack", attack, "-o", "json").json()

    (row,) = result["rows"]
    assert row["attack"] == attack
    assert row["done"] > 0
    assert row["produces"] > 0 and row["heartbeats"] > 0
    assert row["resident_mb"] > 10


def test_an_attack_without_hostile_is_not_passed_over(commands: Commands) -> None:
    """`--attack X` alone started the comparison with Kafka."""
    refused = commands.run("bench", "broker", "--attack", "scram_garbage")

    assert refused.code == 2 and "--attack needs --hostile" in refused.err


def test_the_help_of_a_bench_says_what_it_needs(commands: Commands) -> None:
    for name in ("broker", "groups", "handover", "assign"):
        assert "make kafka-jars" in " ".join(commands.fine("bench", name, "--help").out.decode().split())
