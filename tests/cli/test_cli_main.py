"""The ways to start the command line."""

from __future__ import annotations

import subprocess
import sys

import holdfast
from patience import PATIENCE_S


def test_it_also_starts_as_a_module() -> None:
    """For whoever has no script on the path: a notebook, a container with another entry point."""
    words = [sys.executable, "-m", "holdfast", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == f"holdfast {holdfast.__version__}\n"
