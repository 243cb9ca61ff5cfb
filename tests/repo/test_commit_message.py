"""tools/commit_message.py: what a commit's message must look like."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "commit_message.py"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("The page keeps what is typed\n\nA drawing wiped it out.\n", None),
        ("x" * 72 + "\n\nWhy.\n# a comment of git's\n", None),
        ("Merge branch 'main'\n", None),
        ("x" * 73 + "\n\nWhy.\n", "73 characters"),
        ("No reason\n", "Say why"),
        ("No line between\nthe two\n", "Say why"),
        ("# only git's own lines\n", "empty"),
    ],
)
def test_a_message_has_a_short_subject_and_a_reason(tmp_path: Path, message: str, told: str | None) -> None:
    written = tmp_path / "COMMIT_EDITMSG"
    written.write_text(message)
    ended = subprocess.run([sys.executable, TOOL, written], check=False, capture_output=True, text=True)
    assert ended.returncode == (0 if told is None else 1)
    assert (told or "") in ended.stderr
