"""The ways to start the command line."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli.main import build
from patience import PATIENCE_S


def test_it_also_starts_as_a_module() -> None:
    """For whoever has no script on the path: a notebook, a container with another entry point."""
    words = [sys.executable, "-m", "holdfast", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == f"holdfast {holdfast.__version__}\n"


@pytest.mark.parametrize("command", ["", "groups", "pipeline", "bench", "topics", "broker user"])
def test_a_list_of_commands_has_whole_sentences(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: "Forget a group's offsets of topics that nobody in it is...". Cause: what lists them cuts each sentence
    at 45 letters. Rule: the list says what a command does, to the end, on a terminal of 80 columns too."""
    monkeypatch.setenv("COLUMNS", "80")
    args = [*command.split(), "--help"]
    shown = CliRunner().invoke(build(args), args).stdout
    listed = shown.partition("Commands:\n")[2]
    assert listed.count("\n") >= 3
    assert "..." not in listed
    assert all(len(line) <= 80 for line in shown.splitlines())
