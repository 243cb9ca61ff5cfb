"""`holdfast doctor`: what happened to groups, from their logs, and what to change. A PySpark job.

holdfast doctor logs/ traces/ --html report.html
holdfast doctor --bootstrap-server localhost:9092 --group billing --for 60
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.common import (
    BootstrapServer,
    CommandConfig,
    Interrupt,
    Output,
    OutputForm,
    ask,
    client_settings,
    wrong_use,
)
from holdfast.doctor.page import page
from holdfast.doctor.tables import examined
from holdfast.doctor.words import clock_lines, finding_lines, group_rows, size_text
from holdfast.model import HoldfastError
from holdfast.model.text import one_line
from holdfast.observe.rows import table

if TYPE_CHECKING:
    from holdfast.net.cluster import Cluster
    from holdfast.spark.doctor.job import Summary

Tables = dict[str, list[dict[str, Any]]]

TICK_S = 1.0
LOOK_S = 0.5


def doctor(
    paths: Annotated[list[str] | None, typer.Argument(help="Files and folders, or addresses in object stores.")] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    group: Annotated[
        str | None, typer.Option("--group", help="This group only; with a broker, the one to watch.")
    ] = None,
    for_s: Annotated[float, typer.Option("--for", metavar="SECONDS", help="How long to watch a live group.")] = 10.0,
    master: Annotated[str, typer.Option(help="Spark's master, or sc://… for Spark Connect.")] = "local[*]",
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML file.")] = None,
    parquet: Annotated[str | None, typer.Option(metavar="DIR", help="Write all tables as Parquet.")] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Find who rebalances a group, what it costs and what to change: in logs of brokers and clients, traces, saved
    --describe outputs; or in a group that is watched for a while. Exit code 1 if something is wrong."""
    if paths and (bootstrap_server is not None or command_config is not None):
        wrong_use(
            "DOCTOR_WHAT", "Both paths and a broker were given.", "Give files or folders, or a broker and --group."
        )
    if not paths:
        if group is None:
            wrong_use("DOCTOR_WHAT", "There is nothing to look at.", "Give files or folders, or a broker and --group.")
        if parquet is not None:
            wrong_use("DOCTOR_WHAT", "A live group has no Parquet tables.", "Give paths, or leave --parquet out.")
        found = _watched(client_settings(bootstrap_server, command_config), group, for_s)
        shown = f"{one_line(group)} was watched for {for_s:g} s."
        _show(shown, found, [], html, output, extra={})
    else:
        found = _read(paths, group, master, html, parquet, output)
    if found["findings"]:
        raise typer.Exit(1)


# -- files


def _read(
    paths: list[str], group: str | None, master: str, html: Path | None, parquet: str | None, output: Output
) -> Tables:
    from holdfast.spark.doctor.job import Job
    from holdfast.spark.doctor.pieces import found_under, pieces_of
    from holdfast.spark.doctor.session import session

    with Progress() as progress:
        progress.say("looking for files")
        pieces = pieces_of(found_under(paths))
        progress.say(f"{pieces.files:,} files, {size_text(pieces.size)}; starting Spark")
        with tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as scratch:
            spark = session(master, Path(scratch))
            try:
                progress.watch(spark, f"reading {size_text(pieces.size)} in {pieces.tasks:,} parts")
                job = Job(spark, pieces, only=group)
                summary = job.summary()
                if group is not None and not summary.groups:
                    raise HoldfastError("DOCTOR_NO_SUCH_GROUP", f"nothing in the files is about {one_line(group)}.",
                                        "Leave --group out to see which groups there are.")  # fmt: skip
                found: Tables = {"groups": summary.groups, "findings": summary.findings}
                if html is not None:
                    progress.say("drawing")
                    worst = [row["group"] for row in sorted(summary.groups, key=lambda row: -row["findings"])]
                    found |= {name: rows for name, rows in job.drawn(worst).items() if name not in found}
                    found["drawn"] = [{"group": name} for name in worst[:8]]
                if parquet is not None:
                    progress.say("writing Parquet")
                    job.write(parquet)
                job.close()
            finally:
                spark.stop()
    _show(read_line(summary), found, notes_of(summary), html, output, extra=_extra(summary))
    return found


def read_line(summary: Summary) -> str:
    read = summary.read
    strange = sum(times for _, times in summary.shapes)
    return (
        f"{summary.files:,} files, {size_text(summary.size)}, {read.lines:,} lines: {read.known:,} about groups and "
        f"their clients, {strange:,} of those not understood; {summary.groups_in_all:,} groups."
    )


def notes_of(summary: Summary) -> list[str]:
    """What was wrong, not understood, or left out: nothing is dropped in silence."""
    notes = [f"{one_line(file)} {what}." for file, what in summary.problems]
    if summary.read.newer:
        notes.append(
            f"{summary.read.newer:,} trace lines are of a newer version than this holdfast knows: what is new in them "
            "was left out. Update holdfast to see all of it."
        )
    notes += [f"Not understood, {times:,} times: {one_line(shape)}" for shape, times in summary.shapes]
    if summary.nameless:
        notes.append(
            "Lines of clients that do not say their group, and that no other line connects with one, were left out: "
            f"{summary.nameless:,}. A broker's log, or debug=cgrp of librdkafka, would connect them."
        )
    if summary.findings_in_all > len(summary.findings):
        notes.append(f"{summary.findings_in_all:,} findings in all: --parquet has them.")
    if summary.groups_in_all > len(summary.groups):
        notes.append(f"{summary.groups_in_all:,} groups in all: --parquet has them.")
    return notes + clock_lines(summary.groups)


def _extra(summary: Summary) -> dict[str, Any]:
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


# -- a live group


def _watched(settings: dict[str, Any], group: str, for_s: float) -> Tables:
    from holdfast.cli.groups_shown import unknown_group
    from holdfast.cli.groups_watched import looks
    from holdfast.doctor.events import Event
    from holdfast.doctor.looks import Watched

    watched, events = Watched(group), list[Event]()
    with Interrupt() as interrupt, Progress() as progress:
        progress.say(f"watching {one_line(group)} for {for_s:g} s")

        async def work(cluster: Cluster) -> None:
            async for look in looks(cluster, [group], every_s=LOOK_S, for_s=for_s, stopped=interrupt.asked):
                found = look[group]
                if isinstance(found, HoldfastError):
                    if watched.history.last is None or not found.retriable:
                        raise unknown_group(group, found)  # as `groups check`: nobody is there to be watched
                    continue
                events.extend(watched.see(found, time.time() * 1000))

        ask(settings, work)
    if watched.history.last is None:
        print(f"holdfast: Stopped before {one_line(group)} was seen.", file=sys.stderr)
        raise typer.Exit(130)
    if not events:
        raise HoldfastError("DOCTOR_NOTHING_SEEN", f"{one_line(group)} was in a rebalance all the time.",
                            "Watch it for longer with --for.")  # fmt: skip
    found: Tables = {}
    for name, row in examined(group, events):
        found.setdefault(name, []).append(json.loads(json.dumps(row)))
    found.setdefault("findings", [])
    found["drawn"] = [{"group": group}]
    return found


# -- what is shown


def _show(
    read: str, found: Tables, notes: list[str], html: Path | None, output: Output, *, extra: dict[str, Any]
) -> None:
    if html is not None:
        drawn = {**found, "groups": found["drawn"]}
        try:
            html.write_text(page(read, found["groups"], found["findings"], drawn, notes), encoding="utf-8")
        except OSError as error:
            raise HoldfastError("DOCTOR_UNWRITABLE", f"{html} can't be written ({error.strerror}).",
                                "Choose a folder that exists and is yours.") from error  # fmt: skip
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


class Progress:
    """A line on standard error each second, from the first on: what is done, and for how long."""

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
        """Of the stages that run now, where Spark tells: over Spark Connect it does not."""
        try:
            tracker = self._spark.sparkContext.statusTracker()
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Exception:  # noqa: BLE001  # progress is a courtesy: whatever Spark says to it must not end the job
            return ""
        done = sum(stage.numCompletedTasks for stage in stages if stage)
        of = sum(stage.numTasks for stage in stages if stage)
        return f": {done} of {of} tasks" if of else ""
