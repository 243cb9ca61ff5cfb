"""`holdfast bench spark`: its judgement, and that it runs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from holdfast.bench import spark as bench


def medians(ours: float, theirs: float) -> dict[str, dict[str, float]]:
    figures = dict.fromkeys(bench.TITLES, theirs)
    return {"holdfast": dict.fromkeys(bench.TITLES, ours), "default": figures, "tuned": figures}


def test_a_goal_is_reached_by_being_so_many_times_quicker() -> None:
    goal = bench.Goal("warm_noop_s", "tuned", 1.2)
    assert bench.judge(goal, medians(10.0, 12.0))["reached"]
    assert not bench.judge(goal, medians(10.0, 11.9))["reached"]


def test_every_goal_is_about_a_figure_with_a_title_and_against_somebody() -> None:
    names = {contender.name for contender in bench.CONTENDERS}
    assert all(goal.figure in bench.TITLES and goal.against in names for goal in bench.GOALS)


def test_the_table_names_what_was_missed(capsys: pytest.CaptureFixture[str]) -> None:
    found = medians(10.0, 12.0)
    goals = [bench.judge(goal, found) for goal in bench.GOALS]
    bench.show({"records": 60, "medians": found, "goals": goals, "load": [0.5, 1.0], "cores": 2}, judged=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines if "warm" in line and "(s)" in line] == ["MISSED", "MISSED"]
    assert [line.split()[-1] for line in lines if "cold" in line] == ["reached", "reached"]


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1_200)
def test_the_bench_runs_on_little_data() -> None:
    command = [sys.executable, "-c", "from holdfast.cli.main import main; main()", "bench", "spark", "--quick"]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, check=False, timeout=1_100)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["records"] == 60_000
    assert set(result["medians"]) == {"holdfast", "default", "tuned"}
    assert all(set(figures) == set(bench.TITLES) for figures in result["medians"].values())
