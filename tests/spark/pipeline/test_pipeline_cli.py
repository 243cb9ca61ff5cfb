"""`holdfast pipeline` on a file sink, without Spark."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.cli.main import main
from holdfast.spark.files.columns import Columns
from holdfast.spark.files.committing import commit_files
from holdfast.spark.files.sink import open_sink
from holdfast.spark.files.store import LocalStore
from holdfast.spark.files.writing import write_rows
from holdfast.testing.broker import Broker


def call(*args: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", *args])
    return int(ended.value.code or 0)


@pytest.fixture
def sink(tmp_path: Path) -> str:
    store = LocalStore(tmp_path / "sink")
    open_sink(store, Columns())
    for start in range(0, 30, 10):
        batch = pa.record_batch(
            {
                "topic": pa.array(["orders"] * 10),
                "partition": pa.array([0] * 10, pa.int32()),
                "offset": pa.array(range(start, start + 10), pa.int64()),
            }
        )
        written = write_rows(store, [batch], columns=Columns(), schema_id="s")
        commit_files(store, written, columns=Columns())
    return str(tmp_path / "sink")


def test_a_sink_is_shown_compacted_and_cleaned(sink: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("show", sink, "-o", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["next_offset"], told["rows"], told["files"], told["entries"]) == (30, 30, 3, 3)
    assert call("compact", sink) == 0
    assert "FILES-BEFORE" in capsys.readouterr().out
    assert call("clean", sink, "--older-than", "24h", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["data_files"] == 0
    assert call("clean", sink, "--older-than", "0s", "--dry-run", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["data_files"] == 3
    assert call("clean", sink, "--older-than", "0s", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["entries"] == 3
    assert call("files", sink) == 0
    (file,) = capsys.readouterr().out.splitlines()
    assert Path(file).exists()
    assert call("compact", sink) == 0
    assert capsys.readouterr().out == "nothing to do\n"


def test_a_sink_that_holds_nothing_is_told_as_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Symptom: `pipeline show` of a sink whose first batch was not done yet printed "nothing to do"."""
    open_sink(LocalStore(tmp_path), Columns())
    assert call("show", str(tmp_path)) == 0
    assert capsys.readouterr().out == "nothing is committed yet\n"


def test_a_job_comes_over_from_sparks_own_source_and_goes_back(
    tmp_path: Path, holdfast_broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    holdfast_broker.topics.create("orders", partitions=2)
    old, new = tmp_path / "old", str(tmp_path / "new")
    for part, lines in (("offsets", ["v1", "{}", '{"orders":{"0":0,"1":0}}']), ("commits", ["v1", "{}"])):
        (old / part).mkdir(parents=True)
        (old / part / "0").write_text("\n".join(lines))
    where = ["--group", "g", "--bootstrap-server", holdfast_broker.bootstrap, "-o", "json"]
    assert call("import-checkpoint", str(old), *where) == 0
    imported = capsys.readouterr().out
    assert [json.loads(line)["offset"] for line in imported.splitlines()] == [0, 0]
    assert call("export-checkpoint", new, *where) == 0
    assert capsys.readouterr().out == imported
    assert call("import-checkpoint", str(tmp_path / "nothing"), *where) == 1
    assert capsys.readouterr().err.startswith("holdfast: ")


def test_wrong_use_is_told_in_one_line(tmp_path: Path, sink: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("show", str(tmp_path / "nothing")) == 1
    assert "NOT_A_SINK" in capsys.readouterr().err
    assert call("clean", sink, "--older-than", "soon") == 2
    assert "TIME_INVALID" in capsys.readouterr().err
    assert call("run", "job.py", "--group", "g", "--bootstrap-server", "localhost:1") == 1
    assert "PIPELINE_INCOMPLETE" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["pipeline", "run"], ["demo"]])
def test_without_pyspark_a_command_that_needs_it_says_how_to_get_it(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`pip install holdfast` brings no PySpark. `pipeline run` then ended in a traceback, and `demo` started a broker
    and three processes to say ModuleNotFoundError out of a log."""
    job = tmp_path / "job.py"
    job.write_text("def transform(rows):\n    return rows\n")
    run = [str(job), "--subscribe", "orders", "--group", "g", "--bootstrap-server", "127.0.0.1:1"]
    run += ["--sink", str(tmp_path / "sink"), "--checkpoint", str(tmp_path / "checkpoint")]
    options = run if command == ["pipeline", "run"] else ["--keep", str(tmp_path / "kept")]
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else find(name))

    with pytest.raises(SystemExit) as ended:
        main([*command, *options])

    told = capsys.readouterr().err
    assert ended.value.code == 1 and "SPARK_MISSING" in told and "pip install 'holdfast[spark]'" in told
