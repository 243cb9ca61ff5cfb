"""A plugin of pytest's that tells, line by line, which test begins and how it ended: for a parent that may kill it.

Tests that the file names already are left out: a run goes on behind the one that hung.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

TOLD = Path(os.environ.get("HOLDFAST_TOLD", os.devnull))
MOST_TEXT = 2_000


def pytest_collection_modifyitems(items: list[Any]) -> None:
    begun = {line["test"] for line in read(TOLD)}
    items[:] = [item for item in items if item.nodeid not in begun]


def pytest_collectreport(report: Any) -> None:
    if report.failed:
        _tell(report.nodeid, "failed", str(report.longreprtext)[-MOST_TEXT:] or "?")
        _tell(report.nodeid, "ended")


def pytest_runtest_logstart(nodeid: str) -> None:
    _tell(nodeid, "begun")


def pytest_runtest_logreport(report: Any) -> None:
    if report.failed:
        _tell(report.nodeid, "failed", str(report.longreprtext)[-MOST_TEXT:] or "?")
    elif report.skipped:
        _tell(report.nodeid, "skipped")
    elif report.when == "call":
        _tell(report.nodeid, "passed")


def pytest_runtest_logfinish(nodeid: str) -> None:
    _tell(nodeid, "ended")


def read(told: Path) -> list[dict[str, str]]:
    """What was told; a line may be half a line, of somebody who was killed."""
    found = []
    for line in told.read_text().splitlines() if told.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def _tell(test: str, step: str, why: str = "") -> None:
    with TOLD.open("a") as file:
        file.write(json.dumps({"test": test, "step": step, "why": why}) + "\n")
