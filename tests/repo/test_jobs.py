"""Files of the tests that other processes load by their path, without pytest and its search path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
JOBS = sorted((TESTS / "spark").rglob("*_job.py"))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: str(job.relative_to(TESTS)))
def test_a_job_loads_in_a_process_of_its_own(job: Path) -> None:
    """A helper that a job uses began to import a module that only pytest finds. The jobs run in nightly tests alone,
    where each waited five minutes for members that could not start."""
    load = f"import runpy; runpy.run_path({str(job)!r})"
    run = subprocess.run([sys.executable, "-c", load], cwd="/", capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
