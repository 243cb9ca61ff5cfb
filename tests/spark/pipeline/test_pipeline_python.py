"""What Spark runs on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.spark.pipeline.python import quick_python, use_bundled_java


def test_workers_start_without_sparks_zips_and_keep_the_rest_of_their_path(tmp_path: Path) -> None:
    """Python keeps no bytecode for what it imports from a zip, so every worker compiled all of pyspark anew."""
    path = ["/x/python/lib/pyspark.zip", "/x/python/lib/py4j-0.10.9.9-src.zip", "/y/with space", "/z/spark.jar"]
    done = subprocess.run(
        [quick_python(tmp_path), "-c", "import os, sys; print(os.environ['PYTHONPATH']); print(sys.executable)"],
        env={**os.environ, "PYTHONPATH": ":".join(path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["/y/with space:/z/spark.jar", sys.executable]


def test_a_java_that_setup_left_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/old")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    use_bundled_java()
    assert os.environ["JAVA_HOME"] == "/old"
    (tmp_path / "java" / "bin").mkdir(parents=True)
    (tmp_path / "java" / "bin" / "java").touch()
    use_bundled_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "java")
