"""What the benchmark commands share: the form of their output, and progress on standard error."""

from __future__ import annotations

import sys

import typer


def check_output(output: str) -> None:
    if output not in ("table", "json"):
        raise typer.BadParameter(f"{output!r} is neither table nor json.", param_hint="--output")


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
