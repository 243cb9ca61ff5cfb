"""Finds the part of an error wrapped by Spark that a person should read first: our code, what happened, what to do.

PySpark's errors carry a Java trace with a worker's Python trace inside, and the line that matters is that trace's last.
Pure: texts in, a text out.
"""

from __future__ import annotations

import re
import sys

from holdfast.model import HoldfastError

_OURS = re.compile(r"^\s*(?:[\w.]+\.)?holdfast\.[\w.]*Error: (?P<said>[A-Z][A-Z0-9_]{3,}: .+)$", re.MULTILINE)
"""The last line of a Python trace with an error of ours: `holdfast.model.errors.HoldfastError: CODE: what. do`."""

_MISSING = (
    re.compile(r"\[DATA_SOURCE_NOT_FOUND\][^\n]*: holdfast(?:-files)?\.\s"),
    re.compile(r"No module named '(?:holdfast|pyspark_holdfast\w*)'"),
)
_NO_SOURCE = re.compile(r"\[DATA_SOURCE_NOT_FOUND\][^\n]*")
"""Below it Java names a class that nobody has heard of."""

_VERSIONS = re.compile(r"\[PYTHON_VERSION_MISMATCH\]|Python in worker has different version")

MOST = 1_000
"""Characters kept of a line: a server's answer may be long."""


def explain(error: BaseException | str) -> str:
    """The line of Spark's error that says what happened: holdfast's own, with its code, if the error is holdfast's.

    For any other error it is the last line of the innermost trace, or the first line.
    """
    text = str(error)
    if isinstance(error, HoldfastError):
        return text
    return ours_in(text) or _last_error(text)


def ours_in(text: str) -> str:
    """Holdfast's own explanation of an error's text, or ""."""
    said = [match["said"].strip() for match in _OURS.finditer(text)]
    if said:
        return said[-1][:MOST]
    if (missing := not_found(text)) is not None:
        return str(missing)
    return str(no_java()) if "[JAVA_GATEWAY_EXITED]" in text else ""


def not_found(text: str) -> HoldfastError | None:
    """The cause, if the error's text says that Spark's workers do not find holdfast."""
    if any(pattern.search(text) for pattern in _MISSING) or (_VERSIONS.search(text) and "holdfast" in text):
        return other_python("the Python of Spark's workers", "it is another one than the driver's")
    return None


def other_python(python: str, why: str) -> HoldfastError:
    return HoldfastError(
        "WORKER_PYTHON",
        f"Spark does not find holdfast in {python}: {why}.",
        f"Set PYSPARK_PYTHON={sys.executable} before the session is made, or build it with "
        "holdfast.spark.configure(SparkSession.builder), which does; on a cluster, install holdfast on every node.",
    )


def no_java() -> HoldfastError:
    return HoldfastError(
        "JAVA_DID_NOT_START",
        "Spark's Java is not there, is too old, or ended at once.",
        "Spark needs Java 17 or newer: `java -version` says which one is found first, unless JAVA_HOME names another. "
        "What Java itself said is on standard error.",
    )


def _last_error(text: str) -> str:
    if (unknown := _NO_SOURCE.search(text)) is not None:
        return unknown[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"(?:Error|Exception):", line)]
    return (errors[-1] if errors else lines[0] if lines else "the query failed")[:500]
