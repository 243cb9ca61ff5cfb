"""Shows where an application hangs: when its member is evicted for not polling, the trace gets the stack of its thread.

The machine only sees that the application does not poll; the process can say what its polling thread does instead.
Frames are file, line and function: no source and no values, which may hold secrets.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from holdfast.model import TraceRecord, Value

EXPIRED = "poll-expired"
OURS = str(Path(__file__).parents[2])
MAX_FRAMES = 64
"""Only the innermost ones: a deeper stack is a runaway recursion."""


class PollingStack:
    """Passes trace records on, and adds the stack to the one that needs it."""

    def __init__(self, write: Callable[[TraceRecord], None]) -> None:
        self.thread: int | None = None
        """The thread that polls; set when it makes the listener's calls."""
        self.where: str | None = None
        """The application's innermost frame when it was last found hanging."""
        self._write = write

    def write(self, record: TraceRecord) -> None:
        if record.step == EXPIRED:
            stack = self.stack()
            self.where = next((frame for frame in reversed(stack) if not frame.startswith(OURS)), None)
            named: list[Value] = list(stack)
            record = replace(record, data={**record.data, "stack": named})
        self._write(record)

    def stack(self) -> list[str]:
        """What the polling thread does right now, the innermost frame last."""
        frame = sys._current_frames().get(self.thread) if self.thread is not None else None
        if frame is None:
            return []
        summary = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
        lines = [f"{one.filename}:{one.lineno} in {one.name}" for one in summary]
        return lines[:MAX_FRAMES][::-1]
