"""The demo's processes: each runs one of our own commands and prints lines of JSON, which are read as they come."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.model import HoldfastError

STOP_S = 60.0
"""How long a process may take to shut down: a drain waits for the running batch."""
READ_S = 5.0
"""How long to wait for its last lines; orphans of a killed process may keep the pipe open for longer."""
KEEP_LINES = 2_000


class Command:
    """One `holdfast …` with `-o json`."""

    def __init__(self, name: str, args: Sequence[str], *, log: Path) -> None:
        self.name = name
        self.log = log
        self.lines: deque[dict[str, Any]] = deque(maxlen=KEEP_LINES)
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from holdfast.cli.main import main; main()", *args, "-o", "json"],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal is for the demo, which then stops its processes
            )
        self._reader = threading.Thread(target=self._read, name=f"reads-{name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                with contextlib.suppress(ValueError):  # Spark printed something else
                    self.lines.append(json.loads(line))

    def last(self, event: str | None = None) -> dict[str, Any] | None:
        """The newest line, or the newest of this event."""
        return next((line for line in reversed(list(self.lines)) if event is None or line.get("event") == event), None)

    def wait(
        self, what: str, holds: Callable[[], bool], limit_s: float, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until `holds()`. An error if the process ends first or the time is up. Calls `meanwhile` repeatedly."""
        deadline = time.monotonic() + limit_s
        while not holds():
            code = self.process.poll()
            if code is not None and not holds():
                raise self._failed(f"{self.name} ended with {code} before {what}")
            if time.monotonic() > deadline:
                raise self._failed(f"{self.name}: waited {limit_s:.0f} s for {what}")
            meanwhile()
            time.sleep(0.05)

    def stop(self, meanwhile: Callable[[], None] = lambda: None) -> int:
        """Send SIGTERM and wait: brokers close, producers flush, pipelines drain."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait_for_end(STOP_S, meanwhile)

    def wait_for_end(self, limit_s: float, meanwhile: Callable[[], None] = lambda: None) -> int:
        """The exit code. If the time is up, the process is killed, and that is an error."""
        deadline = time.monotonic() + limit_s
        while (code := self.process.poll()) is None:
            if time.monotonic() > deadline:
                self.kill()
                raise self._failed(f"{self.name} did not end within {limit_s:.0f} s")
            meanwhile()
            time.sleep(0.05)
        self._reader.join(READ_S)
        return code

    def kill(self) -> None:
        """kill -9 the process and the JVM it started: a pipeline's driver consists of both."""
        victims = [*children_of(self.process.pid), self.process.pid]
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(STOP_S)
        self._reader.join(READ_S)

    def _failed(self, what: str) -> HoldfastError:
        tail = self.log.read_text("utf-8", "replace").strip().splitlines()[-1:] if self.log.exists() else []
        said = f" It said: {tail[0][:300]}" if tail else ""
        return HoldfastError("SCENE_FAILED", f"{what}.{said}", f"Its log is {self.log}.")


def children_of(pid: int) -> list[int]:
    """The direct children of a process. Its threads may end while we look."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return sorted(found)
