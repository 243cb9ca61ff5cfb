"""The doctor as people run it: the command, on Spark, over a folder of everything."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from holdfast.spark.doctor.pieces import PIECE_BYTES

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SAMPLES = Path(__file__).parents[2] / "doctor" / "samples"

STORM, LOOP, COLLISION = "storm", "crash-loop", "instance-id-collision"


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """One run over mixed files: plain, packed, cut short, binary, of a newer version. Spark starts once."""
    folder = tmp_path_factory.mktemp("doctor")
    logs = folder / "logs"
    for group in ("hang", "crash", "collide", "eager", "healthy"):
        shutil.copytree(SAMPLES / "kafka-4.1" / group, logs / group)
    # More than one piece: what matters is behind the cut, and its lines are numbered from the file's beginning.
    large = logs / "crash" / "broker.log"
    large.write_bytes(b"nothing of interest\n" * (PIECE_BYTES // 20 + 100) + large.read_bytes())
    broker = logs / "hang" / "broker.log"
    (logs / "hang" / "broker.log.gz").write_bytes(gzip.compress(broker.read_bytes()))
    broker.unlink()
    whole = gzip.compress((logs / "crash" / "java-crash.log").read_bytes())
    (logs / "crash" / "java-crash.log.gz").write_bytes(whole[: len(whole) // 2])
    (logs / "data.bin").write_bytes(os.urandom(4_000) + b"\0" * 10)
    (logs / "newer.jsonl").write_text(
        '{"at":1.0,"group":"eager","member":"m","source":"member","step":"waiting-for-poll","v":9,"wall":1794971877881.0}\n'
    )
    (logs / "strange.log").write_text("[2026-11-18 03:00:00,000] INFO [GroupCoordinator 1]: It sang 7 songs (x)\n")
    command = [sys.executable, "-m", "holdfast.cli.main", "doctor", str(logs), "--master", "local[2]"]
    command += ["--html", str(folder / "report.html"), "--parquet", str(folder / "tables"), "-o", "json"]
    command[1:3] = ["-c", "from holdfast.cli.main import main; main()"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 1, done.stderr
    return folder, json.loads(done.stdout), done.stderr


def test_findings_come_with_their_culprits_and_lines(examined: tuple[Path, dict[str, Any], str]) -> None:
    _, told, _ = examined
    found = {(row["group"], row["kind"], row["culprit"]) for row in told["findings"]}
    assert {
        ("hang", STORM, "java-hang"),
        ("crash", LOOP, "rdk-crash"),
        ("collide", COLLISION, "pod-0"),
        ("eager", "eager", ""),
    } <= found
    assert not any(group == "healthy" for group, _, _ in found)
    loop = next(row for row in told["findings"] if row["kind"] == LOOP)
    name, _, number = loop["evidence"][0]["where"].rpartition(":")
    assert int(number) > PIECE_BYTES // 20
    assert "has failed, removing it" in Path(name).read_text().splitlines()[int(number) - 1]


def test_nothing_is_lost_in_silence(examined: tuple[Path, dict[str, Any], str]) -> None:
    _, told, _ = examined
    problems = {Path(one["file"]).name: one["what"] for one in told["problems"]}
    assert "binary" in problems["data.bin"]
    assert "cut short" in problems["java-crash.log.gz"]
    assert told["lines_of_newer_traces"] == 1
    assert [(one["shape"].split("]: ")[-1], one["times"]) for one in told["not_understood"]] == [
        ("It sang # songs (x)", 1)
    ]
    assert told["lines_without_group"] == 1  # librdkafka's own word about being fenced: its broker names an instance


def test_progress_begins_at_once_and_the_report_and_the_tables_are_there(
    examined: tuple[Path, dict[str, Any], str],
) -> None:
    folder, told, progress = examined
    assert "looking for files" in progress.splitlines()[0]
    assert any("starting Spark" in line for line in progress.splitlines())
    html = (folder / "report.html").read_text()
    assert "java-hang" in html and "<svg" in html
    rows = {
        name: pq.read_table(folder / "tables" / name).num_rows
        for name in ("groups", "findings", "rebalances", "events")
    }
    assert rows["findings"] == len(told["findings"])
    assert rows["groups"] == len(told["groups"])
    assert rows["events"] > 300
    assert rows["rebalances"] >= sum(row["rebalances"] for row in told["groups"])
    findings = pq.read_table(folder / "tables" / "findings").to_pylist()
    assert {row["kind"] for row in findings} == {row["kind"] for row in told["findings"]}
    assert all(row["evidence"][0]["where"] for row in findings)
