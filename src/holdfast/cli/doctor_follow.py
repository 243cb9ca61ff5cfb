"""`holdfast doctor --follow`: growing files, or a topic, until Ctrl-C; one line for each change."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.common import Interrupt, Output, wrong_use
from holdfast.cli.doctor_shown import Progress, Tables, notes_of, read_line, worst, write_report
from holdfast.doctor.changes import Change
from holdfast.doctor.finding import counted
from holdfast.model import HoldfastError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.spark.doctor.follow import Follower

LINES_SHOWN = 20
"""How many changes of one batch are printed: the costliest. The report has all of them."""

ASKED_EVERY_S = 0.2
_UNITS_MS = {"s": 1e3, "m": 60e3, "h": 3_600e3, "d": 86_400e3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to follow, and where to keep it."""

    paths: list[str]
    topic: str | None
    reader_group: str | None
    kafka: Mapping[str, Any]
    group: str | None
    master: str
    html: Path | None
    parquet: str | None
    checkpoint: Path | None
    keep: str
    output: Output


def follow(wanted: Wanted) -> None:
    keep_ms = check(wanted)
    with contextlib.ExitStack() as last:
        interrupt = last.enter_context(Interrupt())
        progress = last.enter_context(Progress())
        progress.say("looking for files" if wanted.topic is None else f"following the topic {wanted.topic}")
        scratch = Path(last.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-doctor-")))
        folder = Path(wanted.parquet or scratch / "tables").absolute()
        checkpoint = (wanted.checkpoint or folder / "_follow" / "checkpoint").absolute()
        notebook = last.enter_context(_notebook(wanted, folder, checkpoint))
        if wanted.topic is None:
            _look(wanted.paths)
        progress.say("starting Spark")
        from holdfast.spark.doctor.follow import Follower, sweep_every_s
        from holdfast.spark.doctor.session import session

        spark = session(wanted.master, scratch)
        last.callback(spark.stop)
        from holdfast.spark.internals import needs

        needs((4, 2), "holdfast doctor --follow", "run it without --follow, again and again")
        again = last.enter_context(Interrupt())  # Spark installs its own handler for Ctrl-C when it starts
        screen = Screen(wanted)
        doctor = Follower(spark, folder, notebook, keep_ms=keep_ms, only=wanted.group, tell=screen.tell)
        screen.follower = doctor
        progress.watch(spark, "reading what is there")
        doctor.sweep()
        query = doctor.start(_rows(spark, wanted), checkpoint)

        def stopped() -> bool:
            return interrupt.asked() or again.asked()

        try:
            _until_first(query, screen, stopped)
            progress.end()
            screen.began(wanted)
            _until_stopped(query, doctor, stopped, sweep_every_s(keep_ms))
        finally:
            query.stop()
        findings = screen.ended()
    if findings:
        raise typer.Exit(1)


def check(wanted: Wanted) -> float:
    """Refuse options that do not fit together; returns how long events are kept, in milliseconds."""
    if wanted.master.startswith("sc://"):
        wrong_use("DOCTOR_WHAT", "--follow keeps its tables from this process, which Spark Connect does not allow.",
                  "Give a --master, or leave it out for a local Spark.")  # fmt: skip
    if bool(wanted.paths) == (wanted.topic is not None):
        wrong_use("DOCTOR_WHAT", "--follow needs paths or a topic, and one of the two.",
                  "Give files or folders; or --bootstrap-server and --topic.")  # fmt: skip
    if wanted.topic is not None and wanted.parquet is None:
        wrong_use("DOCTOR_WHAT", "A topic is followed as a group, which remembers what was read; without tables it "
                  "would be lost with the process.", "Give --parquet DIR.")  # fmt: skip
    for path in [*wanted.paths, *([wanted.parquet] if wanted.parquet else [])]:
        if "://" in path and not path.startswith("file://"):
            wrong_use("DOCTOR_WHAT", f"{path} is in an object store, where files neither grow nor are renamed.",
                      "Follow folders of a file system, also a shared one; or run again without --follow.")  # fmt: skip
    return keep_ms(wanted.keep)


def keep_ms(text: str) -> float:
    matched = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)\s*([smhd])", text.strip())
    if matched is None or not float(matched[1]):
        wrong_use("DOCTOR_WHAT", f"--keep is {text!r}.", "Give a number and s, m, h or d, such as 7d.")
    return float(matched[1]) * _UNITS_MS[matched[2]]


@contextlib.contextmanager
def _notebook(wanted: Wanted, folder: Path, checkpoint: Path) -> Iterator[Any]:
    from holdfast.spark.doctor.notebook import Notebook

    try:
        notebook = Notebook(folder, checkpoint)
    except OSError as error:
        raise HoldfastError("DOCTOR_UNWRITABLE", f"{folder} can't be written ({error.strerror}).",
                            "Choose a folder that exists and is yours.") from error  # fmt: skip
    try:
        with notebook.turn():
            if wanted.topic is None:
                notebook.claim({"kind": "files", "checkpoint": notebook.doctor})
            else:
                notebook.claim({"kind": "topic", "topic": wanted.topic, "group": _reader_group(wanted)})
        yield notebook
    finally:
        notebook.close()


def _reader_group(wanted: Wanted) -> str:
    from holdfast.spark.doctor.shipped import GROUP

    return wanted.reader_group or GROUP.format(topic=wanted.topic)


def _look(paths: list[str]) -> None:
    """Report a missing path at once, before a query fails because of it."""
    from holdfast.spark.doctor.pieces import found_under

    for _ in found_under(paths):
        pass


def _rows(spark: SparkSession, wanted: Wanted) -> Any:
    if wanted.topic is not None:
        from holdfast.spark.doctor.shipped import shipped

        kafka = {
            key: value for key, value in wanted.kafka.items() if key not in ("client.id", "default.api.timeout.ms")
        }
        return shipped(spark, kafka, wanted.topic, _reader_group(wanted))
    from holdfast.spark.doctor.growing import growing

    return growing(spark, wanted.paths)


def _until_first(query: StreamingQuery, screen: Screen, stopped: Callable[[], bool]) -> None:
    """Wait until what was there at the start has been examined, or there was nothing."""
    while not (stopped() or screen.told.wait(ASKED_EVERY_S) or str(query.status["message"]).startswith("Waiting")):
        _check(query)


def _until_stopped(query: StreamingQuery, doctor: Follower, stopped: Callable[[], bool], every_s: float) -> None:
    due = time.monotonic() + every_s
    while not stopped():
        query.awaitTermination(ASKED_EVERY_S)  # type: ignore[arg-type]  # seconds, whole or not
        _check(query)
        if time.monotonic() >= due:
            doctor.sweep()
            due = time.monotonic() + every_s


def _check(query: StreamingQuery) -> None:
    if query.isActive:
        return
    from holdfast.spark.explaining import explain

    said = explain(str(query.exception() or "it ended by itself"))
    code, colon, what = said.partition(": ")
    if colon and code.isupper():
        raise HoldfastError(code, what, "Then start the doctor again: it goes on where it was.")
    raise HoldfastError("DOCTOR_FOLLOW_FAILED", f"the query ended: {said}.",
                        "Start it again: it goes on where it was. --debug shows Spark's trace.")  # fmt: skip


class Screen:
    """Prints a line for each change and updates the report. Called by Spark's thread and by the main thread."""

    def __init__(self, wanted: Wanted) -> None:
        self.told = threading.Event()
        self.follower: Follower | None = None
        self._html = wanted.html
        self._parquet = wanted.parquet
        self._json = wanted.output is Output.JSON
        self._lock = threading.Lock()

    def tell(self, changes: list[Change], problems: list[str]) -> None:
        with self._lock:
            self._report()
            for problem in problems:
                self._line({"problem": problem}, problem)
            for change in changes if self._json else changes[:LINES_SHOWN]:
                self._line(asdict(change), change.text())
            if len(changes) > LINES_SHOWN and not self._json:
                self._line({}, f"and {counted(len(changes) - LINES_SHOWN, 'more change')}: the report has them")
        self.told.set()

    def began(self, wanted: Wanted) -> None:
        what = f"the topic {wanted.topic}" if wanted.topic is not None else ", ".join(wanted.paths)
        with self._lock:
            print(f"holdfast doctor: following {what}; Ctrl-C ends it", file=sys.stderr, flush=True)

    def ended(self) -> int:
        """Print the last lines; returns how many findings there are."""
        with self._lock:
            found = self._report()
            count = len(found["findings"])
            if not self._json:
                groups = len({row["group"] for row in found["findings"]})
                tail = f"{counted(count, 'finding')} in {counted(groups, 'group')}" if count else "nothing is wrong"
                print(f"Stopped: {tail}.")
                if self._html is not None:
                    print(f"The report: {self._html}")
                if self._parquet is not None:
                    print(f"The tables: {self._parquet}")
            return count

    def _report(self) -> Tables:
        assert self.follower is not None
        summary = self.follower.summary()
        found: Tables = {"groups": summary.groups, "findings": summary.findings}
        if self._html is not None:
            drawn = worst(summary.groups)
            tables = self.follower.drawn(drawn)
            found |= {name: rows for name, rows in tables.items() if name not in found}
            found["drawn"] = [{"group": name} for name in drawn]
            write_report(self._html, read_line(summary), found, notes_of(summary))
        return found

    def _line(self, data: Mapping[str, Any], text: str) -> None:
        clock = datetime.now().astimezone().strftime("%H:%M:%S")
        print(json.dumps(data, ensure_ascii=False) if self._json else f"{clock}  {text}", flush=True)
