"""The scene's processes: our own commands, each in a process of its own, its lines of JSON read as they come."""

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
"""How long a process may take to end in order: a drain waits for the running batch."""
READ_S = 5.0
"""How long its last lines may take; orphans of a killed process may hold the pipe for longer."""
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
                start_new_session=True,  # Ctrl-C in the terminal is for the scene, which ends its processes in order
            )
        self._reader = threading.Thread(target=self._read, name=f"reads-{name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                with contextlib.suppress(ValueError):  # something that another part of Spark printed
                    self.lines.append(json.loads(line))

    def last(self, event: str | None = None) -> dict[str, Any] | None:
        """The newest line, or the newest of this event."""
        return next((line for line in reversed(list(self.lines)) if event is None or line.get("event") == event), None)

    def wait(
        self, what: str, holds: Callable[[], bool], limit_s: float, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Until it holds; an error if the process ends before, or the time is up. `meanwhile` is called on the way."""
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
        """SIGTERM, and wait: brokers close, producers flush, pipelines drain."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.ended(STOP_S, meanwhile)

    def ended(self, limit_s: float, meanwhile: Callable[[], None] = lambda: None) -> int:
        """Its exit code, once it has ended; killed, and an error, if that takes longer."""
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
        """kill -9 of the process and of the JVM it started: what a pipeline's driver is made of."""
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
    """The direct children of a process. Its threads come and go while we look."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return sorted(found)
