"""Every PySpark that the extra `spark` allows, in an environment of its own: what works there, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model import HoldfastError

ROOT = Path(__file__).parents[3]
CHECK = Path(__file__).with_name("version_check.py")
WORKS = {"read": 20, "files": 20, "filtered": 10, "option": "INVALID_OPTION"}


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("version", "stream", "sink"),
    [("4.0.1", "SPARK_TOO_OLD", "SPARK_TOO_OLD"), ("4.1.1", "SPARK_TOO_OLD", True), ("4.2.0", 20, True)],
)
def test_a_version_of_pyspark_does_what_it_can_and_says_what_it_can_not(
    tmp_path: Path, version: str, stream: object, sink: object
) -> None:
    uv = Path(sys.executable).with_name("uv")
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, tmp_path / "env"], check=True)
    packages = [f"pyspark=={version}", f"{ROOT}[spark]"]
    subprocess.run([uv, "pip", "install", "-q", "--python", python, *packages], check=True)
    java = Path(sys.prefix) / "java"
    if java.exists():  # of `make setup`, where the machine has none
        (tmp_path / "env" / "java").symlink_to(java)
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    done = subprocess.run([python, CHECK], env=env, check=False, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == WORKS | {"version": version, "stream": stream, "sink": sink}
    shutil.rmtree(tmp_path / "env")  # half a gigabyte


def test_what_an_older_version_lacks_is_told_with_a_way_out() -> None:
    from holdfast.spark.internals import needs

    needs((4, 1), "A thing", "do something else", have=(4, 1))
    with pytest.raises(HoldfastError, match=r"SPARK_TOO_OLD: A thing needs PySpark 4\.2, .* is 4\.1\..*or do it so"):
        needs((4, 2), "A thing", "do it so", have=(4, 1))
