"""Exactly once into a Delta table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.model import HoldfastError
from holdfast.spark.delta import Table, exactly_once_delta

CHECK = Path(__file__).with_name("delta_check.py")
JARS = Path(__file__).parents[1] / "delta" / "jars"


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_each_row_is_in_a_delta_table_once_whatever_was_replayed_killed_or_overtaken(tmp_path: Path) -> None:
    assert list(JARS.glob("delta-spark*.jar")), "run `make delta-jars`"
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    command = [sys.executable, str(CHECK), str(JARS), str(tmp_path)]
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True, timeout=1000)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "first": [50, 50],
        "again": [50, 50],
        "other cuts": [80, 80],
        "killed": [80, 80],
        "overtaken": [120, 120],
        "optimised": [130, 130],
        "refused": ["SCHEMA_CONFLICT", "DELTA_FORGETS"],
    }


def test_a_session_without_delta_is_told_what_to_start_it_with() -> None:
    for session in (SimpleNamespace(), SimpleNamespace(_jvm=SimpleNamespace())):
        without: Any = session
        with pytest.raises(HoldfastError, match=r"DELTA_MISSING.*io\.delta:delta-spark_4\.2_2\.13"):
            Table(without, "/x")
    with pytest.raises(HoldfastError, match="SINK_NAME_MISSING"):
        exactly_once_delta("/x", sink="")
