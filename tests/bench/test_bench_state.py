"""`holdfast bench state`: its judgement, and that it runs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from holdfast.bench.state import Watched, shown

RESULT = {
    "keys": 1_000_000,
    "records": 3_000_000,
    "pause": {"pause_s": 1.25, "drained_s": 1.5, "usual_s": 0.2, "longest_usual_s": 0.4},
    "standby": {"pause_s": 1.25, "drained_s": 2.5, "usual_s": 0.2, "longest_usual_s": 0.4},
    "seconds": {"holdfast": {"warm_s": 10.0, "cpu_s": 15.0}, "spark": {"warm_s": 6.0, "cpu_s": 9.0}},
    "ratio": 0.6,
    "reached": {"pause": True, "standby": False, "throughput": False},
    "load": [0.5, 1.0],
    "cores": 2,
}


def test_the_table_says_what_was_reached_and_what_was_missed() -> None:
    pause, standby, throughput, _ = shown(RESULT).splitlines()
    assert "pause 1.25 s (goal 5 s, reached)" in pause
    assert "1.50 s, with a standby 2.50 s (goal 2 s, MISSED)" in standby
    assert "0.60 times its speed (goal 0.7, MISSED)" in throughput


def test_a_pause_lies_between_the_last_entry_of_the_old_and_the_first_of_the_new() -> None:
    seen = {(0, 1): ("old", 1.0, 10), (1, 1): ("old", 1.5, 10), (1, 2): ("old", 2.0, 20), (1, 3): ("new", 4.5, 30)}
    watched = Watched("", 2, seen=seen)
    assert watched.moved() == 1
    assert (watched.of(1, "old")[-1], watched.of(1, "new")[0]) == (2.0, 4.5)
    assert watched.ends() == {0: 10, 1: 30}


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1_200)
def test_the_bench_runs_on_little_data() -> None:
    command = [sys.executable, "-c", "from holdfast.cli.main import main; main()", "bench", "state", "--quick"]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, check=False, timeout=1_100)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["keys"] == 10_000
    assert result["pause"]["pause_s"] > 0
    assert result["standby"]["drained_s"] > 0
    assert set(result["seconds"]) == {"holdfast", "spark"}
