"""The form of a commit message, for pre-commit: a subject of at most 72 characters, an empty line, and why.

python tools/commit_message.py FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

MOST = 72
"""What `git log --oneline` shows whole in a terminal of 80 columns."""


def wrong_with(message: str) -> str | None:
    """What to mend, or None."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines or not lines[0].strip():
        return "The message is empty: say what changes in one line, and why below it."
    if lines[0].startswith(("Merge ", "Revert ", "fixup! ", "squash! ")):
        return None
    if len(lines[0]) > MOST:
        return f"The subject has {len(lines[0])} characters: shorten it to {MOST}, and say the rest below."
    if len(lines) < 3 or lines[1].strip():
        return "Say why: an empty line below the subject, and then the reason."
    return None


if __name__ == "__main__":
    told = wrong_with(Path(sys.argv[1]).read_text("utf-8"))
    if told is not None:
        sys.stderr.write(told + "\n")
        raise SystemExit(1)
