"""The doctor that stays, on Spark: files that grow, and a topic. What it keeps is what a single run finds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from holdfast.doctor.changes import Change
from holdfast.doctor.scanning import scan
from holdfast.doctor.tables import COLUMNS
from holdfast.spark.doctor.follow import Follower
from holdfast.spark.doctor.growing import growing
from holdfast.spark.doctor.job import Job
from holdfast.spark.doctor.notebook import Notebook
from holdfast.spark.doctor.pieces import found_under, pieces_of
from holdfast.spark.doctor.session import session
from holdfast.spark.doctor.shipped import shipped
from holdfast.testing import Broker
from patience import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SAMPLES = Path(__file__).parents[2] / "doctor" / "samples" / "kafka-4.1"
GROUPS = ("hang", "crash", "collide", "healthy")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark that other tests have started and will use again is left alone."""
    from pyspark.sql import SparkSession

    shared = SparkSession.getActiveSession() is not None
    made = session("local[2]", tmp_path_factory.mktemp("spark"))
    yield made
    if not shared:
        made.stop()


class Following:
    """One life of a doctor."""

    def __init__(self, spark: SparkSession, folder: Path, checkpoint: Path) -> None:
        self.notebook = Notebook(folder, checkpoint)
        self.changes: list[Change] = []
        self.problems: list[str] = []
        self.batches = threading.Semaphore(0)
        self.checkpoint = checkpoint
        self.query: Any = None
        self.doctor = Follower(spark, folder, self.notebook, keep_ms=9e8, only=None, tell=self.tell)

    def tell(self, changes: list[Change], problems: list[str]) -> None:
        self.changes += changes
        self.problems += problems
        self.batches.release()

    def start(self, rows: DataFrame) -> None:
        self.doctor.sweep()
        self.query = self.doctor.start(rows, self.checkpoint)

    def step(self) -> None:
        """Until a batch has been told of."""
        told = self.batches.acquire(timeout=PATIENCE_S)
        assert told, (self.query.status, self.query.exception())

    def until_read(self, logs: Path) -> None:
        """Until every line that has its end was read."""
        lines = sum(path.read_bytes().count(b"\n") for path in logs.rglob("*") if path.is_file())
        while self.notebook.state().read["lines"] < lines:
            self.step()

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        if self.query is not None:
            self.query.stop()
        self.notebook.close()


def rows_of(tables: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    return {name: sorted(json.dumps(row, sort_keys=True) for row in rows) for name, rows in tables.items()}


def written(folder: Path) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for name in (*COLUMNS, "events"):
        if not (folder / name).exists():
            continue
        rows = pq.read_table(folder / name).to_pylist(maps_as_pydicts="strict")
        for row in rows:
            row.pop("arrived_ms", None)
        found[name] = rows
    return found


def events_in(lines: list[tuple[str, bytes]]) -> int:
    return sum(len(scan(line).events) for _, line in lines)


def test_three_steps_and_a_restart_are_a_single_run(spark: SparkSession, tmp_path: Path) -> None:
    """Files grow by thirds, one of them is there from the second step on only; then the doctor is ended, and another
    goes on where it was, with lines that came meanwhile."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    texts = {path.relative_to(SAMPLES): path.read_bytes() for group in GROUPS for path in (SAMPLES / group).iterdir()}

    def grow(part: int) -> None:
        for name, text in texts.items():
            start, end = len(text) * part // 3, len(text) * (part + 1) // 3
            if name.name == "rdk-hang.log" and part < 2:
                start, end = 0, end * part
            if name.name.startswith("describe"):  # a table comes as a whole
                start, end = (0, len(text)) if part == 0 else (0, 0)
            (logs / name).parent.mkdir(parents=True, exist_ok=True)
            with (logs / name).open("ab") as file:
                file.write(text[start:end])

    grow(0)
    with Following(spark, out, out / "_follow" / "checkpoint") as first:
        first.start(growing(spark, [str(logs)]))
        first.until_read(logs)
        grow(1)
        first.until_read(logs)
    grow(2)
    with Following(spark, out, out / "_follow" / "checkpoint") as second:
        second.start(growing(spark, [str(logs)]))
        second.until_read(logs)
        (logs / "hang" / "broker.log.1.gz").write_bytes(b"\x1f\x8b whatever")
        while not second.problems:
            second.step()
        summary, drawn = second.doctor.summary(), second.doctor.drawn(["hang"])
    (logs / "hang" / "broker.log.1.gz").unlink()

    job = Job(spark, pieces_of(found_under([str(logs)])))
    once = job.summary()
    job.write(tmp_path / "once")
    job.close()
    assert rows_of(written(out)) == rows_of(written(tmp_path / "once"))
    assert (summary.findings_in_all, summary.groups_in_all) == (once.findings_in_all, once.groups_in_all)
    assert (summary.read, summary.files, summary.nameless) == (once.read, once.files, once.nameless)
    assert {row["group"] for rows in drawn.values() for row in rows} == {"hang"}
    assert ["appeared while its folder was followed" in problem for problem in second.problems] == [True]
    told = {(one.group, one.kind, one.culprit) for one in (*first.changes, *second.changes) if one.kind}
    assert told >= {(row["group"], row["kind"], row["culprit"]) for row in once.findings}


def test_a_topic_is_followed_as_a_group_and_another_doctor_takes_over(spark: SparkSession, tmp_path: Path) -> None:
    """Lines of a broker and its clients, keyed by who wrote them. The second doctor has a checkpoint of its own and the
    first one's tables: what the group gives it again is in them already, and is not added twice."""
    out = tmp_path / "out"
    lines = [
        (path.name, line)
        for path in sorted((SAMPLES / "hang").iterdir())
        if not path.name.startswith("describe")
        for line in path.read_bytes().splitlines()
    ]
    with Broker() as broker:
        broker.topics.create("logs", 3)
        kafka = {"bootstrap.servers": broker.bootstrap}
        producer = Producer(kafka)

        def ship(part: list[tuple[str, bytes]]) -> None:
            for name, line in part:
                producer.produce("logs", value=line, key=name)
            producer.flush()

        half = len(lines) // 2
        ship(lines[:half])
        for number, part in enumerate((None, lines[half:])):
            with Following(spark, out, tmp_path / f"checkpoint-{number}") as doctor:
                doctor.start(shipped(spark, kafka, "logs", "holdfast-doctor-logs"))
                if part is not None:
                    ship(part)
                expected = events_in(lines[:half] if part is None else lines)
                while not (out / "events").exists() or len(written(out)["events"]) < expected:
                    doctor.step()
    tables = written(out)
    assert {(row["kind"], row["culprit"].partition("@")[0]) for row in tables["findings"]} >= {("storm", "java-hang")}
    places = [(row["file"], row["line"]) for row in tables["events"]]
    assert len(places) == len(set(places)) == events_in(lines)
    assert all(row["file"].startswith("logs-") for row in tables["events"])


def test_the_command_tells_what_changes_and_ends_by_ctrl_c(tmp_path: Path) -> None:
    """As a person runs it: a line at once, a line for each change, a clean end. The signal goes to Spark's processes
    too, as a terminal sends it."""
    logs, report = tmp_path / "logs", tmp_path / "report.html"
    shutil.copytree(SAMPLES / "hang", logs)
    whole = (logs / "broker.log").read_bytes()
    (logs / "broker.log").write_bytes(whole[: len(whole) // 2])
    args = ["doctor", str(logs), "--follow", "--master", "local[2]", "--html", str(report)]
    program = [sys.executable, "-c", "from holdfast.cli.main import main; main()", *args]
    errors = (tmp_path / "err").open("w+")
    command = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
    try:
        assert command.stdout is not None
        assert " hang: new: " in command.stdout.readline()
        with (logs / "broker.log").open("ab") as file:
            file.write(whole[len(whole) // 2 :])
        assert "hang: worse: rebalance storm: java-hang, twice" in command.stdout.readline()
        assert "Rebalance storm" in report.read_text()
        os.killpg(command.pid, signal.SIGINT)
        rest, _ = command.communicate(timeout=PATIENCE_S)
    finally:
        command.kill()
        command.wait()
    errors.seek(0)
    said = errors.read()
    errors.close()
    assert command.returncode == 1, said
    assert rest.splitlines()[-2:] == ["Stopped: 2 findings in 1 group.", f"The report: {report}"]
    assert "looking for files" in said.splitlines()[0] and "Ctrl-C ends it" in said
    assert "Traceback" not in said and "KeyboardInterrupt" not in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["err", "logs", "report.html"]
