"""A pipeline's description: the TOML, the options that win over it, and what is told before Spark starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model import HoldfastError
from holdfast.spark.pipeline.job import function_of, load_module
from holdfast.spark.pipeline.settings import Pipeline, check, duration_ms, key_values, read_toml, with_options

TOML = """
job = "orders.py:clean"
name = "orders"
checkpoint = "/cp"
trigger = "500ms"

[source]
subscribe = "orders"
kafka.bootstrap.servers = "localhost:9092"
"kafka.group.id" = "billing"
maxOffsetsPerTrigger = 1000
failOnDataLoss = false

[sink]
path = "/data/orders"
compression = "zstd"

[spark]
master = "local[2]"
spark.sql.shuffle.partitions = 2
"""


def written(tmp_path: Path, text: str = TOML) -> Path:
    (tmp_path / "orders.py").write_text("def clean(rows):\n    return rows\n")
    path = tmp_path / "pipeline.toml"
    path.write_text(text)
    return path


def test_a_toml_says_everything(tmp_path: Path) -> None:
    pipeline = check(read_toml(written(tmp_path)))
    assert pipeline == Pipeline(
        job=tmp_path / "orders.py",
        function="clean",
        name="orders",
        checkpoint="/cp",
        trigger="500ms",
        source={
            "subscribe": "orders",
            "kafka.bootstrap.servers": "localhost:9092",
            "kafka.group.id": "billing",
            "maxOffsetsPerTrigger": "1000",
            "failOnDataLoss": "false",
        },
        sink_format="holdfast-files",
        sink={"path": "/data/orders", "compression": "zstd"},
        master="local[2]",
        spark={"spark.sql.shuffle.partitions": "2"},
    )
    assert pipeline.trigger_ms == 500
    assert pipeline.group == "billing"


def test_options_win_over_the_file_and_leave_the_rest(tmp_path: Path) -> None:
    pipeline = with_options(
        read_toml(written(tmp_path)),
        source={"kafka.group.id": "other"},
        sink={"path": "/elsewhere"},
        spark={},
        master="local[4]",
        trigger=None,
    )
    assert pipeline.group == "other"
    assert pipeline.sink == {"path": "/elsewhere", "compression": "zstd"}
    assert (pipeline.master, pipeline.trigger) == ("local[4]", "500ms")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("job = ", "CONFIG_UNREADABLE"),
        ("jobs = 'x.py'", "CONFIG_UNKNOWN_KEY"),
        ("source = 3", "CONFIG_UNREADABLE"),
    ],
)
def test_a_wrong_file_is_refused_in_words(tmp_path: Path, text: str, code: str) -> None:
    with pytest.raises(HoldfastError, match=code):
        read_toml(written(tmp_path, text))
    with pytest.raises(HoldfastError, match="CONFIG_UNREADABLE"):
        read_toml(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("without", "what"),
    [
        ({"source": {}}, "kafka.bootstrap.servers"),
        ({"checkpoint": ""}, "checkpoint"),
        ({"sink": {}}, "the sink's path"),
        ({"job": None}, "job"),
    ],
)
def test_what_is_missing_is_told_before_spark_starts(tmp_path: Path, without: dict[str, object], what: str) -> None:
    whole = read_toml(written(tmp_path))
    with pytest.raises(HoldfastError, match=what):
        check(replace(whole, **without))  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match="JOB_NOT_FOUND"):
        check(replace(whole, job=tmp_path / "nowhere.py"))


@pytest.mark.parametrize(
    ("name", "meant"), [("holdfast-fles", "holdfast-files"), ("foreachbatch", "foreachBatch"), ("parquet", "")]
)
def test_a_mistyped_sink_is_told_before_spark_starts(tmp_path: Path, name: str, meant: str) -> None:
    """Symptom: a minute on a busy machine, then sixty lines of Java, with WORKER_PYTHON for a cause."""
    whole = replace(read_toml(written(tmp_path)), sink_format=name)
    if meant:
        with pytest.raises(HoldfastError, match=f"INVALID_OPTION: .*{name}. Did you mean {meant}"):
            check(whole)
    else:
        check(whole)


def test_times_and_pairs_are_read_or_refused() -> None:
    assert [duration_ms(text) for text in ("0ms", "500ms", "5s", "2 m")] == [0, 500, 5_000, 120_000]
    with pytest.raises(HoldfastError, match="INVALID_TRIGGER"):
        duration_ms("soon")
    assert key_values(["a=b", "c=d=e", "f="], "--conf") == {"a": "b", "c": "d=e", "f": ""}
    with pytest.raises(HoldfastError, match="INVALID_OPTION"):
        key_values(["a"], "--conf")


def test_a_job_is_imported_by_its_own_name_so_that_executors_can_too(tmp_path: Path) -> None:
    path = tmp_path / "tidy_orders_job.py"
    path.write_text("def transform(rows):\n    return rows + 1\n")
    module = load_module(path)
    assert module.__name__ == "tidy_orders_job"
    assert function_of(module, "transform")(1) == 2
    with pytest.raises(HoldfastError, match="JOB_HAS_NO_FUNCTION"):
        function_of(module, "clean")


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("my-job.py", "", "JOB_NAME_INVALID"),
        ("json.py", "", "JOB_NAME_INVALID"),
        ("broken_pipeline_job.py", "1 / 0", "JOB_DOES_NOT_LOAD"),
    ],
)
def test_a_job_that_can_not_be_loaded_is_told(tmp_path: Path, name: str, text: str, code: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(HoldfastError, match=code):
        load_module(tmp_path / name)
