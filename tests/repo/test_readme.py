"""The README's examples are run as they stand."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"<!-- tested -->\n```(python|console)\n(.*?)```", re.DOTALL)
EXAMPLES = EXAMPLE.findall((ROOT / "README.md").read_text("utf-8"))


def test_the_readme_has_examples_that_are_run() -> None:
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize(("kind", "text"), EXAMPLES, ids=[f"{kind}-{i}" for i, (kind, _) in enumerate(EXAMPLES)])
def test_an_example_of_the_readme_works(kind: str, text: str, tmp_path: Path) -> None:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120"}
    if kind == "python":
        run([sys.executable, "-W", "error", "-c", text], tmp_path, env)
        return
    for line in text.splitlines():
        assert line.startswith("$ "), line
        assert run(["bash", "-c", line[2:]], tmp_path, env).strip(), "an example shows something"


def run(command: list[str], cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(command, check=False, cwd=cwd, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WHOLE = re.compile(r"```python\n((?:import|from) .*?)```", re.DOTALL)
"""An example that begins with its imports; others go on from one before."""
GIVEN = 'builtins = ["orders"]'
"""The stream that pages about sinks take as given."""


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_an_example_imports_what_it_uses(page: Path) -> None:
    """Symptom: the README's first lines for PySpark ended in NameError: SparkSession was not imported."""
    ruff = Path(sys.executable).with_name("ruff")
    for text in WHOLE.findall(page.read_text("utf-8")):
        done = subprocess.run(
            [ruff, "check", "--isolated", "--select", "F821", "--config", GIVEN, "-"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_the_commands_for_a_broker_of_ones_own_work_in_their_order(tmp_path: Path) -> None:
    """The block that a newcomer types first failed at its second line: no broker was named (BOOTSTRAP_MISSING)."""
    (block,) = re.findall(
        r"```console\n(\$ holdfast broker .*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL
    )
    broker, *lines = [line.removeprefix("$ ") for line in block.splitlines()]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    env.pop("KAFKA_BOOTSTRAP_SERVERS", None)
    assert broker.endswith(" &") and "127.0.0.1:9092" in broker
    started = subprocess.Popen(
        [*shlex.split(broker.removesuffix(" &").replace(":9092", ":0")), "-o", "json"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    try:
        port = json.loads(started.stdout.readline())["port"]
        script = "\n".join(["set -e", *lines]).replace(":9092", f":{port}")
        # The same commands, in less time: a reader that ends, and a hundred records instead of ten thousand.
        script = script.replace("--duration 10", "--count 100").replace(
            "--from-beginning", "--from-beginning --max-messages 100"
        )
        assert len(run(["bash", "-c", script], tmp_path, env).splitlines()) == 101
    finally:
        started.terminate()
        assert started.wait(30) == 0
        started.stdout.close()
