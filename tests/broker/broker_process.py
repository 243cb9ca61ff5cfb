"""`holdfast broker` as a process of its own, as users run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROGRAM = """
import sys
from holdfast.cli.broker import app
from holdfast.model import HoldfastError
try:
    app(args=sys.argv[1:], prog_name="holdfast broker")
except HoldfastError as error:
    print(f"holdfast: {error}", file=sys.stderr)
    sys.exit(1)
"""
"""What `holdfast broker` runs, without the front door: the tests here are about the broker."""


class BrokerProcess:
    host = "127.0.0.1"

    def __init__(self, *args: str, log: Path | None = None) -> None:
        self._log = (log or Path("/dev/null")).open("ab")
        began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *args, "-o", "json"], stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.ready_seconds = time.monotonic() - began
        assert line, f"it ended with {self._process.wait(10)} instead of getting ready"
        self.ready: dict[str, Any] = json.loads(line)

    @property
    def bootstrap(self) -> str:
        return str(self.ready["bootstrap"])

    @property
    def port(self) -> int:
        return int(self.ready["port"])

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL: no farewell of any kind."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return self._end(signal.SIGTERM)

    def hang_up(self) -> int:
        """SIGHUP, as from a terminal that is closed; returns the exit code."""
        return self._end(signal.SIGHUP)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> int:
        if self._process.poll() is None:
            self._process.send_signal(number)
        code = self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()
        return code

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
