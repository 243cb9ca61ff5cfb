"""The tool of `make busy`: it stops for nothing, counts by test, and its exit code says whether anything failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from patience import PATIENCE_S

TOOL = Path(__file__).parents[2] / "tools" / "busy.py"

SOMETIMES = """
from pathlib import Path
runs = Path(__file__).with_suffix(".runs")

def test_that_fails_in_its_second_run():
    runs.write_text((runs.read_text() if runs.exists() else "") + "x")
    assert runs.read_text() != "xx"

def test_that_never_fails():
    pass
"""


def busy(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    test = folder / "test_sometimes.py"
    test.write_text(text)
    command = [sys.executable, str(TOOL), "--times", "3", "--load", "1", "--", "-n", "0", "-c", "none.ini", str(test)]
    (folder / "none.ini").write_text("[pytest]\n")
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.slow
def test_what_fails_once_is_in_the_table_and_the_other_runs_are_made_all_the_same(tmp_path: Path) -> None:
    ended = busy(tmp_path, SOMETIMES)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert (tmp_path / "test_sometimes.runs").read_text() == "xxx"
    assert "3 runs, 2 without a failure, 1 tests failed at least once" in ended.stdout
    assert "1 x  test_sometimes::test_that_fails_in_its_second_run" in ended.stdout


@pytest.mark.slow
def test_a_run_that_collects_nothing_is_no_success(tmp_path: Path) -> None:
    """pytest's exit code counts too: it is not 0 when there was nothing to run, and the report names no test."""
    ended = busy(tmp_path, "")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "3 x  (pytest ended with 5)" in ended.stdout
