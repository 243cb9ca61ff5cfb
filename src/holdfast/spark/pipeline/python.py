"""What Spark runs on: a Python for its workers that starts three times as fast, and a Java where the machine has none.

Spark puts its own pyspark.zip first on the path of every Python process it starts, and Python keeps no bytecode for
what it imports from a zip: each process compiles all of pyspark anew. Measured: 1.45 s of processor time until a worker
runs, 0.52 s with the installed package, and a query starts about six of them. On a crowded machine it decides whether a
worker calls back within the 10 s that Spark allows.

So workers get a small script as their Python, which takes the two zips off the path. Only for a local master: on other
hosts there is no such script, and pyspark may not be installed there.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from pathlib import Path

from holdfast.model import HoldfastError

SCRIPT = """#!/bin/sh
# Starts Python without Spark's zips on its path: the same pyspark is installed, with bytecode.
kept=
IFS=:
for part in $PYTHONPATH; do
  case "$part" in
    */python/lib/pyspark.zip | */python/lib/py4j-*.zip) ;;
    *) kept="${{kept:+$kept:}}$part" ;;
  esac
done
unset IFS
export PYTHONPATH="$kept"
exec {python} "$@"
"""


def need_pyspark() -> None:
    """Raise where PySpark is not installed: holdfast without its extra has commands that need it."""
    if importlib.util.find_spec("pyspark") is None:
        raise HoldfastError("SPARK_MISSING", "PySpark is not installed.", "Install it: pip install 'holdfast[spark]'.")


def quick_python(folder: Path) -> str:
    """Write the script into a folder that lives as long as Spark does; returns its path."""
    path = folder / "python"
    path.write_text(SCRIPT.format(python=shlex.quote(sys.executable)))
    path.chmod(0o755)
    return str(path)


def use_bundled_java() -> None:
    """`make setup` leaves a Java in the environment if the machine has no suitable one; Spark looks at JAVA_HOME."""
    bundled = Path(sys.prefix) / "java"
    if (bundled / "bin" / "java").exists():
        os.environ["JAVA_HOME"] = str(bundled)
