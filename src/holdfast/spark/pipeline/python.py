"""What Spark runs on: a Python for its workers that starts three times as fast, and a Java if the machine has none.

Spark puts its own pyspark.zip first on the path of every Python process it starts, and Python caches no bytecode for
imports from a zip: each process compiles all of pyspark again. Measured: 1.45 s of processor time until a worker runs,
0.52 s with the installed package, and a query starts about six workers. On a busy machine this decides whether a worker
calls back within the 10 s that Spark allows.

So workers get a small script as their Python, which removes the two zips from the path. Only for a local master: other
hosts do not have the script, and may not have pyspark installed.
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
    """Raise if PySpark is not installed: without its extra, holdfast still has the commands that need it."""
    if importlib.util.find_spec("pyspark") is None:
        raise HoldfastError("SPARK_MISSING", "PySpark is not installed.", "Install it: pip install 'holdfast[spark]'.")


def quick_python(folder: Path) -> str:
    """Write the script into a folder that outlives Spark; returns its path."""
    path = folder / "python"
    path.write_text(SCRIPT.format(python=shlex.quote(sys.executable)))
    path.chmod(0o755)
    return str(path)


def use_bundled_java() -> None:
    """`make setup` installs a Java into the environment if the machine has no suitable one. Spark uses JAVA_HOME."""
    bundled = Path(sys.prefix) / "java"
    if (bundled / "bin" / "java").exists():
        os.environ["JAVA_HOME"] = str(bundled)
