"""What the benchmark commands share: the form of their output, and progress on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TypeVar

import typer

Result = TypeVar("Result")


def check_output(output: str) -> None:
    if output not in ("table", "json"):
        raise typer.BadParameter(f"{output!r} is neither table nor json.", param_hint="--output")


def report(result: Result, output: str, show: Callable[[Result], None], *, reached: bool) -> None:
    """Print what was measured, as JSON or as its tables. Exit code 1: a goal is missed."""
    if output == "json":
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    else:
        show(result)
    if not reached:
        raise typer.Exit(1)


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
