"""The scene of `make run`, played to its end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_join_a_drain_and_a_kill_lose_and_double_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from holdfast.cli.main import main; main()", "demo", "--watch", "2"]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path), "-o", "json"], check=False, capture_output=True, text=True, timeout=1150
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert (told["lost"], told["doubled"]) == (0, 0)
    assert told["records_in"] == told["records_out"] > 0
    assert [event["event"] for event in told["events"]] == [
        "c joins",
        "a drains and leaves",
        "b is killed (kill -9)",
    ]
    joined, drained, killed = (event["moved"] for event in told["events"])
    assert {after for _, after in joined.values()} == {"c"}
    assert {before for before, _ in drained.values()} == {"a"}
    assert {before for before, _ in killed.values()} == {"b"}
