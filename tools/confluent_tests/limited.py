"""pytest with a limit for each test that no test can escape.

pytest-timeout raises inside the test, which ends neither a call into C nor a thread that the process waits for at its
end. So pytest runs as a child that tells how far it is (`told`); whoever takes too long is killed with its children and
named, and the run goes on with the tests behind it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from told import read

HERE = Path(__file__).parent

LOOK_S = 0.2

Outcomes = dict[str, str]
"""By the test's name: "" if it passed, else why not. Skipped tests are not there."""


def limited_pytest(options: Sequence[str], environment: Mapping[str, str], *, limit_s: float) -> Outcomes:
    """Run the tests; each may take so long, and so may collecting them and the process's end."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told"
        while True:
            ended = _run(options, {**environment, "HOLDFAST_TOLD": str(told)}, told, limit_s)
            lines = read(told)
            if not lines:
                return {"collecting the tests": ended}
            culprit = _unfinished(lines)
            if culprit is None:
                return outcomes(lines)
            with told.open("a") as file:
                for step, why in (("failed", ended), ("ended", "")):
                    file.write("\n" + json.dumps({"test": culprit, "step": step, "why": why}) + "\n")


def _run(options: Sequence[str], environment: Mapping[str, str], told: Path, limit_s: float) -> str:
    """How the process ended."""
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "told", "--continue-on-collection-errors", *options],
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    seen, since = 0, time.monotonic()
    try:
        while process.poll() is None:
            size = told.stat().st_size if told.exists() else 0
            if size != seen:
                seen, since = size, time.monotonic()
            if time.monotonic() - since > limit_s:
                return f"it hung: killed after {limit_s:g} s"
            time.sleep(LOOK_S)
        return f"the process ended with {process.returncode} in the middle of it"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also whom it left behind
        process.wait()


def _unfinished(lines: Sequence[Mapping[str, str]]) -> str | None:
    """The last test that began, if it did not end. If it did, the process hung at its own end, and no test failed."""
    return None if lines[-1]["step"] == "ended" else lines[-1]["test"]


def outcomes(lines: Sequence[Mapping[str, str]]) -> Outcomes:
    """One that failed once has failed, whatever else it told."""
    found: Outcomes = {}
    for line in lines:
        if line["step"] == "passed":
            found.setdefault(line["test"], "")
        elif line["step"] == "failed":
            found[line["test"]] = line["why"]
    return found
