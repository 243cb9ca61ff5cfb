"""The README's examples are run as they stand."""

from __future__ import annotations

import os
import re
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
