"""The trace of the process that starts members: when a member's process started, died, ended or hung, and what was
done.

A member can't record its own death. Beside the members' traces, this one tells when it happened and if it was intended.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType

from holdfast.model import TraceRecord, Value
from holdfast.trace.files import TraceFile

SOURCE = "demo"


class StarterTrace:
    """A trace file of one group's processes. May be written from any thread."""

    def __init__(self, path: Path, group: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = TraceFile(path)
        self._group = group
        self._lock = threading.Lock()

    def tell(self, step: str, member: str = "", **data: Value) -> None:
        """One of `process-started`, `-died`, `-ended`, `application-hung`, `-returned` and `happened`."""
        at = time.monotonic() * 1000.0
        record = TraceRecord(at=at, source=SOURCE, step=step, group=self._group, member=member, data=data)
        with self._lock:
            self._file.write(record)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> StarterTrace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
