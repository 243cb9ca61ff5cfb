"""Which Python Spark starts for planning and for its workers: it has to be one in which holdfast is installed.

Spark takes PYSPARK_PYTHON (PYSPARK_DRIVER_PYTHON for what runs on the driver's machine), else `python3` from the PATH.
Without an activated environment that is another Python, which does not have the packages installed here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from holdfast.spark.explaining import other_python

ASK = (
    "import sys, importlib.util as u; assert u.find_spec('holdfast'), 'no holdfast there'; print(*sys.version_info[:2])"
)
ASK_S = 30.0
"""Starting a Python takes less than a second, but longer on a busy machine."""


def same_python(settings: Mapping[str, Any]) -> None:
    """Make Spark's workers run this process's Python, unless the user has chosen one. Call it before the JVM starts.

    On a cluster this is set only for the driver's own helper processes, because nodes have other paths.
    """
    chosen = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"} & os.environ.keys()
    if chosen or {"spark.pyspark.python", "spark.pyspark.driver.python"} & settings.keys() or not sys.executable:
        return
    local = str(settings.get("spark.master", "local")).startswith("local")
    os.environ["PYSPARK_PYTHON" if local else "PYSPARK_DRIVER_PYTHON"] = sys.executable


def check_python() -> None:
    """Raise if the Python in which Spark plans on this machine has no holdfast."""
    name = os.environ.get("PYSPARK_DRIVER_PYTHON") or os.environ.get("PYSPARK_PYTHON") or "python3"
    python = shutil.which(name)
    if python is None or python == sys.executable:
        return  # not found from here, or our own
    try:
        asked = subprocess.run([python, "-c", ASK], capture_output=True, text=True, timeout=ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return  # not a plain Python, for example a notebook's launcher
    if asked.returncode or asked.stdout.split() != [str(number) for number in sys.version_info[:2]]:
        last = asked.stderr.strip().splitlines()[-1:]
        why = last[0] if asked.returncode and last else f"it is Python {'.'.join(asked.stdout.split())}"
        raise other_python(python, why.rstrip("."))
