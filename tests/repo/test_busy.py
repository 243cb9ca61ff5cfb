"""The tool of `make busy`: it stops for nothing, counts by test, and its exit code says whether anything failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.spark.pipeline.processes import children_of
from patience import PATIENCE_S, wait_for

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


ENVIRONMENT = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""pytest starts in a quarter of the time: on a busy machine the three starts had taken two minutes."""


def command(folder: Path, text: str) -> list[str]:
    test = folder / "test_sometimes.py"
    test.write_text(text)
    (folder / "none.ini").write_text("[pytest]\n")
    xdist = ["-p", "xdist", "-n", "0"]
    return [sys.executable, str(TOOL), "--times", "3", "--load", "1", "--", *xdist, "-c", "none.ini", str(test)]


def busy(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, text),
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )


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


@pytest.mark.slow
def test_a_tool_that_is_killed_leaves_no_core_busy(tmp_path: Path) -> None:
    """Seen once: a process that only counts, on a core of its own for as long as the machine ran."""
    pid_file = tmp_path / "pid"
    text = f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    tool = subprocess.Popen(command(tmp_path, text), cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: pid_file.exists() and pid_file.read_text() != "", "the run to begin")
        run = int(pid_file.read_text())
        counting = [child for child in children_of(tool.pid) if child != run]
        assert len(counting) == 1
    finally:
        tool.kill()
        tool.wait()
    os.kill(run, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{counting[0]}").exists(), "the counting to end")
