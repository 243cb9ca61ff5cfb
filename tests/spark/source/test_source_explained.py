"""What a person reads first when Spark fails, and which Python Spark's workers run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.model import HoldfastError
from holdfast.spark import driving, explain
from holdfast.spark.internals import ours_first
from holdfast.spark.worker_python import check_python, same_python

TRACE = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed when Python
data source instance latestOffset: Traceback (most recent call last):
  File "/x/source.py", line 195, in latestOffset
    raise error.again() from None
holdfast.net.errors.NetError: LOOKUP_TIMED_OUT: Metadata was not found within 10 s. Check that the brokers run.
 SQLSTATE: 38000
\tat org.apache.spark.sql.errors.QueryCompilationErrors$.pythonDataSourceError(QueryCompilationErrors.scala:1)
"""


def test_the_sentence_of_ours_is_found_in_a_long_story() -> None:
    assert explain(TRACE) == "LOOKUP_TIMED_OUT: Metadata was not found within 10 s. Check that the brokers run."
    assert explain(RuntimeError(TRACE)) == explain(TRACE)
    ours = HoldfastError("INVALID_OPTION", "what.", "do.")
    assert explain(ours) == str(ours)
    assert explain("[A] first\n  ValueError: inner\n at x") == "ValueError: inner"
    assert explain("nothing special\nat all") == "nothing special"
    assert explain("") == "the query failed"


@pytest.mark.parametrize(
    "text",
    [
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: holdfast. Make sure the provider name is correct",
        "Traceback\nModuleNotFoundError: No module named 'holdfast'\n",
        "holdfast: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11",
    ],
)
def test_workers_with_another_python_are_told_as_that(text: str) -> None:
    """Symptom: DATA_SOURCE_NOT_FOUND at the end of a Java trace. Cause: the environment was not activated, so Spark
    started the machine's python3, where holdfast is not installed."""
    assert explain(text).startswith("WORKER_PYTHON: ")
    assert f"PYSPARK_PYTHON={sys.executable}" in explain(text)


def test_a_machine_without_java_is_told_so() -> None:
    """Symptom: `holdfast demo` on a machine without Java: "Java gateway process exited before sending its port number.
    Spark's log says more", and there was no log. Rule: say what is missing."""
    said = explain("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")
    assert said.startswith("JAVA_DID_NOT_START: ") and "Java 17" in said and "JAVA_HOME" in said


def test_a_query_that_has_ended_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: `report` of a stopped query said that of 0 readers none is known to be its own, and to wait."""
    monkeypatch.setattr(driving, "jvm_pid", lambda: 1)
    monkeypatch.setattr(driving, "sources_of", lambda *_: 1)
    ended: Any = SimpleNamespace(name="billing", isActive=False, lastProgress=None)
    for ask in (driving.report, driving.drain):
        with pytest.raises(HoldfastError, match="QUERY_ENDED: the query billing has ended"):
            ask(ended)


def test_an_error_of_spark_begins_with_our_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.errors.exceptions import captured

    class Plain(captured.CapturedException):
        def __init__(self, text: str) -> None:
            self._desc = text

    monkeypatch.setattr(captured.CapturedException, "__str__", lambda self: self._desc)
    monkeypatch.setattr(captured.CapturedException, "_holdfast_first", False, raising=False)
    ours_first()
    ours_first()
    assert str(Plain(TRACE)).splitlines()[0] == explain(TRACE)
    assert str(Plain(TRACE)).count("LOOKUP_TIMED_OUT") == 2
    assert TRACE in str(Plain(TRACE))
    assert str(Plain("another")) == "another"


@pytest.fixture
def no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.setenv(name, "")  # restored afterwards, whatever the test sets
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("no_python")
@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        ({}, "PYSPARK_PYTHON"),
        ({"spark.master": "local[2]"}, "PYSPARK_PYTHON"),
        ({"spark.master": "spark://h:7077"}, "PYSPARK_DRIVER_PYTHON"),
        ({"spark.pyspark.python": "/p"}, None),
    ],
)
def test_workers_run_this_python_unless_another_is_named(settings: dict[str, Any], variable: str | None) -> None:
    same_python(settings)
    names = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
    assert {name: os.environ[name] for name in names & os.environ.keys()} == (
        {variable: sys.executable} if variable else {}
    )


def test_what_was_said_about_pythons_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/theirs")
    same_python({})
    assert os.environ["PYSPARK_PYTHON"] == "/theirs"


@pytest.mark.usefixtures("no_python")
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo \"ModuleNotFoundError: No module named 'holdfast'\" >&2; exit 1", "No module named 'holdfast'"),
        ("echo 3 8", "it is Python 3.8"),
        (f'exec {sys.executable} "$@"', None),
    ],
)
def test_a_session_whose_workers_lack_holdfast_is_refused_when_it_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str | None
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    if said is None:
        check_python()
        return
    with pytest.raises(HoldfastError, match="WORKER_PYTHON") as raised:
        check_python()
    assert said in str(raised.value)
    assert str(python) in str(raised.value)
