"""What the doctor shows: the summary, notes about what was not understood, progress; the same for a single run, a live
group and `--follow`."""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.cli.common import Output
from holdfast.doctor.finding import counted, times_text
from holdfast.doctor.page import page
from holdfast.doctor.words import clock_lines, finding_lines, group_rows, size_text
from holdfast.model import HoldfastError
from holdfast.model.text import one_line
from holdfast.observe.rows import table

if TYPE_CHECKING:
    from holdfast.spark.doctor.job import Summary

Tables = dict[str, list[dict[str, Any]]]

TICK_S = 1.0


def read_line(summary: Summary) -> str:
    read = summary.read
    strange = sum(times for _, times in summary.shapes)
    return (
        f"{counted(summary.files, 'file')}, {size_text(summary.size)}, {counted(read.lines, 'line')}: {read.known:,} "
        f"about groups and their clients, {strange:,} not understood; {counted(summary.groups_in_all, 'group')}."
    )


def notes_of(summary: Summary) -> list[str]:
    """What was wrong, not understood or left out: nothing is dropped silently."""
    notes = [f"{one_line(file)} {what}." for file, what in summary.problems]
    if summary.read.newer:
        notes.append(
            f"Of a newer version than this holdfast knows: {counted(summary.read.newer, 'trace line')}. What is new in "
            "them was left out; update holdfast to see all of it."
        )
    notes += [f"Not understood, {times_text(times)}: {one_line(shape)}" for shape, times in summary.shapes]
    if summary.nameless:
        notes.append(
            "Lines of clients that do not say their group, and that no other line connects with one, were left out: "
            f"{summary.nameless:,}. A broker's log, or debug=cgrp of librdkafka, would connect them."
        )
    if summary.findings_in_all > len(summary.findings):
        notes.append(f"{counted(summary.findings_in_all, 'finding')} in all: --parquet has them.")
    if summary.groups_in_all > len(summary.groups):
        notes.append(f"{summary.groups_in_all:,} groups in all: --parquet has them.")
    return notes + clock_lines(summary.groups)


def extra_of(summary: Summary) -> dict[str, Any]:
    return {
        "files": summary.files,
        "bytes": summary.size,
        "lines": summary.read.lines,
        "lines_known": summary.read.known,
        "lines_of_newer_traces": summary.read.newer,
        "lines_without_group": summary.nameless,
        "not_understood": [{"shape": shape, "times": times} for shape, times in summary.shapes],
        "problems": [{"file": file, "what": what} for file, what in summary.problems],
    }


def show(
    read: str, found: Tables, notes: list[str], html: Path | None, output: Output, *, extra: dict[str, Any]
) -> None:
    if html is not None:
        write_report(html, read, found, notes)
    if output is Output.JSON:
        print(json.dumps({**extra, "groups": found["groups"], "findings": found["findings"], "notes": notes}, indent=2))
        return
    print(read)
    for line in table(group_rows(found["groups"])):
        print(line)
    print()
    for number, row in enumerate(found["findings"], start=1):
        for line in finding_lines(number, row):
            print(line)
        print()
    if not found["findings"]:
        print("Nothing is wrong with these groups.")
    for note in notes:
        print(note)
    if html is not None:
        print(f"The report: {html}")


def write_report(html: Path, read: str, found: Tables, notes: list[str]) -> None:
    """Write atomically: somebody may reload the page at any moment."""
    drawn = {**found, "groups": found["drawn"]}
    hidden = html.with_name(f".{html.name}.{uuid.uuid4().hex}")
    try:
        hidden.write_text(page(read, found["groups"], found["findings"], drawn, notes), encoding="utf-8")
        hidden.replace(html)
    except OSError as error:
        hidden.unlink(missing_ok=True)
        raise HoldfastError("DOCTOR_UNWRITABLE", f"{html} can't be written ({error.strerror}).",
                            "Choose a folder that exists and is yours.") from error  # fmt: skip


def worst(groups: list[dict[str, Any]]) -> list[str]:
    """The groups to draw: those with the most findings."""
    from holdfast.spark.doctor.job import DRAWN

    return [row["group"] for row in sorted(groups, key=lambda row: -row["findings"])][:DRAWN]


class Progress:
    """Prints a line on standard error every second: what is being done, and for how long."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._doing = ""
        self._spark: Any = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def say(self, doing: str) -> None:
        self._doing = doing
        self._print()

    def watch(self, spark: Any, doing: str) -> None:
        self._spark = spark
        self.say(doing)

    def _run(self) -> None:
        while not self._ended.wait(TICK_S):
            self._print()

    def _print(self) -> None:
        elapsed = time.monotonic() - self._began
        print(f"holdfast doctor: {elapsed:5.1f} s  {self._doing}{self._tasks()}", file=sys.stderr, flush=True)

    def _tasks(self) -> str:
        """The tasks of the running stages, if Spark tells; Spark Connect does not."""
        try:
            tracker = self._spark.sparkContext.statusTracker()
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Exception:  # noqa: BLE001  # this is only progress: no error here may end the job
            return ""
        done = sum(stage.numCompletedTasks for stage in stages if stage)
        of = sum(stage.numTasks for stage in stages if stage)
        return f": {done} of {of} tasks" if of else ""
