"""A job that does not work is told in one line, and everything that can be told before Spark starts is told before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.model import HoldfastError
from holdfast.spark.files.columns import Columns
from holdfast.spark.files.layout import FED_BY
from holdfast.spark.files.sink import open_sink
from holdfast.spark.files.store import LocalStore
from holdfast.spark.pipeline.job import check_file, load_module, transformed
from holdfast.spark.pipeline.progress import Report
from holdfast.spark.pipeline.runner import Run, plain_errors
from holdfast.spark.pipeline.settings import Pipeline
from holdfast.testing.broker import Broker

JOB = Path("/jobs/my_job.py")


def failing(path: Path, text: str) -> HoldfastError:
    path.write_text(text)
    module = load_module(path)
    with pytest.raises(HoldfastError) as raised:
        transformed(path, "transform", module.transform, None)  # type: ignore[arg-type]  # no Spark here
    assert "\n" not in str(raised.value)
    return raised.value


def test_a_job_that_raises_is_told_with_its_line(tmp_path: Path) -> None:
    """Symptom: a traceback of 40 lines, ours and Spark's. Rule: a code, the job's line, and what was raised."""
    error = failing(tmp_path / "my_job.py", "def transform(rows):\n    return rows['a'] / 0\n")
    assert str(error).startswith("JOB_FAILED: transform of my_job.py, line 2, raised TypeError: 'NoneType'")


def test_a_column_that_does_not_exist_is_told_by_sparks_first_line(tmp_path: Path) -> None:
    text = (
        "class AnalysisException(Exception): pass\n"
        "def transform(rows):\n"
        "    raise AnalysisException('[UNRESOLVED_COLUMN] No column amuont.\\n+- Project\\n   +- x')\n"
    )
    error = failing(tmp_path / "my_job.py", text)
    assert error.what == (
        "transform of my_job.py, line 3, raised AnalysisException: [UNRESOLVED_COLUMN] No column amuont."
    )


def test_a_job_that_returns_nothing_is_told(tmp_path: Path) -> None:
    error = failing(tmp_path / "my_job.py", "def transform(rows):\n    rows\n")
    assert (error.code, "returned NoneType" in error.what) == ("JOB_RETURNED_NO_ROWS", True)


def test_a_job_that_is_not_python_or_does_not_load_is_told(tmp_path: Path) -> None:
    path = tmp_path / "my_job.py"
    path.write_text("def transform(rows:\n")
    with pytest.raises(HoldfastError, match=r"JOB_DOES_NOT_LOAD: my_job.py is not Python: .*line 1"):
        load_module(path)
    path.write_text("import nothing_of_that_name\n")
    with pytest.raises(HoldfastError, match=r"JOB_DOES_NOT_LOAD: my_job.py, line 1, raised ModuleNotFoundError"):
        load_module(path)


def test_what_spark_raises_becomes_one_line_and_ours_keeps_its_code() -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(HoldfastError, match=r"^QUERY_REFUSED: \[A\] first"), plain_errors("QUERY_REFUSED"):
        raise PySparkException("[A] first\n+- second")
    with pytest.raises(HoldfastError, match=r"^SCHEMA_CONFLICT: a column"), plain_errors("QUERY_REFUSED"):
        raise PySparkException("[X]\nholdfast.model.errors.HoldfastError: SCHEMA_CONFLICT: a column.\n at java")


def test_javas_own_errors_become_one_line_too() -> None:
    """Symptom: sixty lines of Java for a mistyped sink. PySpark wraps only the exceptions that it knows."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it publishes no types

    class Raised(Py4JJavaError):  # type: ignore[misc]  # it has no types
        def __init__(self, text: str) -> None:
            self.text = text

        def __str__(self) -> str:
            return self.text

    text = (
        "An error occurred while calling o93.start.\n"
        ": org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: NAME. "
        "Make sure the provider name is correct.\n\tat org.apache.spark\n"
        "Caused by: java.lang.ClassNotFoundException: NAME.DefaultSource\n\tat java.base\n"
    )
    for name, told in (
        ("parqet", "QUERY_REFUSED: .*source: parqet"),
        ("holdfast-fles", "QUERY_REFUSED: .*fles"),
        ("holdfast-files", "WORKER_PYTHON: "),
    ):
        with pytest.raises(HoldfastError, match=f"^{told}") as raised, plain_errors("QUERY_REFUSED"):
            raise Raised(text.replace("NAME", name))
        assert "\n" not in str(raised.value)


# -- the order of a start


def a_run(tmp_path: Path, bootstrap: str, said: list[str], **more: str) -> Run:
    job = tmp_path / "my_job.py"
    job.write_text("import pyspark.sql\ndef transform(rows):\n    return rows\n")
    source = {"kafka.bootstrap.servers": bootstrap, "kafka.group.id": "g", "subscribe": "orders", **more}
    sink = {"path": str(tmp_path / "sink")}

    def say(report: Report) -> None:
        said.append(f"{report.event} {report.message}")

    return Run(Pipeline(job=job, checkpoint="c", source=source, sink=sink), say=say)


def test_a_start_is_told_at_once_and_the_job_is_imported_when_there_is_a_session(
    tmp_path: Path, holdfast_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptoms: ten silent seconds; and a job with `@udf` at the top of its file did not load, because it was imported
    before there was a session. Rule: a line first, then Spark, then the job."""
    said: list[str] = []
    holdfast_broker.topics.create("orders", partitions=1)
    run = a_run(tmp_path, holdfast_broker.bootstrap, said)

    class Stop(Exception):
        pass

    def session(self: Run) -> Any:
        said.append("session")
        return type("Session", (), {"stop": lambda self: said.append("stopped")})()

    def load(path: Path) -> Any:
        said.append("job")
        raise Stop

    monkeypatch.setattr(Run, "start_spark", session)
    monkeypatch.setattr("holdfast.spark.pipeline.runner.load_module", load)
    with pytest.raises(Stop), run:
        pass
    assert said[0] == "starting my_job.py, reads orders in group g"
    assert said[1] == "starting the brokers answer; Spark starts"
    assert said[2:] == ["session", "job", "stopped"]


def test_wrong_options_and_absent_brokers_are_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.spark.checking.REACH_MS", 200)
    monkeypatch.setattr(Run, "start_spark", lambda self: pytest.fail("Spark was started"))
    with pytest.raises(HoldfastError, match="LOOKUP_TIMED_OUT"), a_run(tmp_path, "127.0.0.1:1", []):
        pass
    with pytest.raises(HoldfastError, match="Did you mean startingOffsets"):  # noqa: SIM117 - the second is what fails
        with a_run(tmp_path, "127.0.0.1:1", [], startingOfsets="latest"):
            pass


def test_a_topic_that_does_not_exist_is_told_before_spark_starts(
    tmp_path: Path, holdfast_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: twenty seconds of Spark's start, a try of the job, and then UNKNOWN_TOPIC out of a Java error."""
    monkeypatch.setattr(Run, "start_spark", lambda self: pytest.fail("Spark was started"))
    holdfast_broker.topics.create("orders", partitions=1)
    with pytest.raises(HoldfastError, match=r"UNKNOWN_TOPIC: there is no topic odrers\. Did you mean orders\?"):  # noqa: SIM117 - the second is what fails
        with a_run(tmp_path, holdfast_broker.bootstrap, [], subscribe="odrers"):
            pass
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):  # noqa: SIM117 - the second is what fails
        with a_run(tmp_path, holdfast_broker.bootstrap, [], subscribe="odrers", failOnDataLoss="false"):
            pass


def refused(pipeline: Pipeline) -> HoldfastError:
    """Why a pipeline does not start, although nothing is asked of its broker."""
    with pytest.raises(HoldfastError) as raised, Run(pipeline, say=lambda _: None):
        pass
    return raised.value


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline that would start, on a machine where Spark and brokers may not be asked."""
    job = tmp_path / "my_job.py"
    job.write_text("def transform(rows):\n    return rows\n")
    monkeypatch.setattr(Run, "start_spark", lambda self: pytest.fail("Spark was started"))
    monkeypatch.setattr("holdfast.spark.pipeline.runner.check_topics", lambda _: pytest.fail("a broker was asked"))
    source = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "orders"}
    return Pipeline(job=job, checkpoint="c", source=source, sink={"path": str(tmp_path / "sink")})


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"compresion": "zstd"}, "INVALID_OPTION", "Did you mean compression?"),
        ({"compression": "zsdt"}, "INVALID_OPTION", "Did you mean zstd?"),
        ({"compression": "brotli"}, "INVALID_OPTION", "Choose snappy, zstd"),
        ({"partitonBy": "day"}, "INVALID_OPTION", "Did you mean partitionBy?"),
        ({"partitionBy": "day,,country"}, "INVALID_OPTION", "Name columns, each once"),
        ({"path": "{tmp}/my_job.py/sink"}, "STORE_NOT_WRITABLE", "my_job.py: Not a directory"),
        ({"path": "{tmp}/my_job.py"}, "STORE_NOT_WRITABLE", "my_job.py: Not a directory"),
        ({"path": "ftp://host/sink"}, "STORE_UNSUPPORTED", "A sink can't live at ftp://host/sink"),
        ({"path": "webhdfs://host/x", "holdfast.store.usr": "me"}, "INVALID_OPTION", "holdfast.store.user"),
    ],
)
def test_a_wrong_option_of_the_file_sink_is_told_before_spark_starts(
    tmp_path: Path, whole: Pipeline, options: dict[str, str], code: str, said: str
) -> None:
    """Symptom: twenty seconds of Spark's start, and then what was mistyped."""
    given = {key: value.replace("{tmp}", str(tmp_path)) for key, value in options.items()}
    error = refused(replace(whole, sink={**whole.sink, **given}))
    assert error.code == code
    assert said in str(error)


def test_a_sink_that_holds_something_else_is_told_before_spark_starts(tmp_path: Path, whole: Pipeline) -> None:
    store = LocalStore(tmp_path / "sink")
    open_sink(store, Columns(offset="position"))
    assert refused(whole).code == "SINK_COLUMNS_DIFFER"
    store.create(FED_BY, b"{}")
    assert refused(whole).code == "SINK_SHARED"


@pytest.mark.parametrize(
    ("text", "asked", "said"),
    [
        ("def transform(rows):\n    def nope(): ...\n", "nope", "my_job.py has no function nope: it has transform."),
        ("class Jobs:\n    def nope(self): ...\n", "nope", "my_job.py has no function nope: it has none."),
        ("def clean(rows): ...\ndef _help(): ...\n", "transform", "it has clean. Define `def transform(rows): …`, or"),
        ("def tidy(r): ...\ndef clean_up(r): ...\n", "cleanup", "or name another one: my_job.py:clean_up."),
    ],
)
def test_a_function_that_the_jobs_file_lacks_is_told_before_spark_starts(
    whole: Pipeline, text: str, asked: str, said: str
) -> None:
    """Symptom: twenty seconds of Spark's start, and then that it has no such function, but not which ones it has."""
    assert whole.job is not None
    whole.job.write_text(text)
    error = refused(replace(whole, function=asked))
    assert error.code == "JOB_HAS_NO_FUNCTION"
    assert said in str(error)


def test_a_job_without_its_sink_is_told_before_spark_starts(whole: Pipeline) -> None:
    error = refused(replace(whole, sink_format="foreachBatch", sink={}))
    assert "my_job.py has no function write: it has transform. Define `def write(rows, batch_id): …`." in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "from elsewhere import nope",
        "import elsewhere as nope",
        "from elsewhere import *",
        "nope = partial(clean, 3)",
        "try:\n    nope = 1\nexcept OSError:\n    pass",
        "for nope in (1, 2): ...",
        "globals()['nope'] = print",
        "def __getattr__(name): ...",
        "def make():\n    global nope\n    nope = print\nmake()",
        "if (nope := print): ...",
    ],
)
def test_a_function_that_may_come_from_anywhere_is_not_refused_early(tmp_path: Path, text: str) -> None:
    job = tmp_path / "my_job.py"
    job.write_text(text)
    check_file(job, ["nope"])
