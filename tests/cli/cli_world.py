"""Runs `holdfast …` inside the test, or as a process of its own where signals and pipes matter."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from holdfast.cli.main import main
from patience import PATIENCE_S

PROGRAM = (
    "import faulthandler, signal; faulthandler.register(signal.SIGUSR1); from holdfast.cli.main import main; main()"
)
"""Where a process stands that says nothing any more can be asked of it (`spoken`)."""
COUNTER = itertools.count()
TRACES: dict[int, Path] = {}
"""Where the processes that were started write what they do in their group."""


def fresh(name: str) -> str:
    """A name that no other test uses."""
    return f"{name}-{next(COUNTER)}"


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: bytes
    err: str

    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    def json(self) -> Any:
        return json.loads(self.out)


class Commands:
    def __init__(self, bootstrap: str, monkeypatch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[bytes]) -> None:
        self._captured = captured
        self._patch = monkeypatch
        self._bootstrap = bootstrap
        self._started: list[subprocess.Popen[bytes]] = []
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", bootstrap)

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._started:
            process.kill()
            process.communicate(timeout=PATIENCE_S)
            shutil.rmtree(TRACES.pop(process.pid).parent, ignore_errors=True)

    def run(self, *args: str, stdin: bytes = b"") -> Ended:
        self._captured.readouterr()
        with tempfile.TemporaryFile() as given:
            given.write(stdin)
            given.seek(0)
            with self._patch.context() as patched, pytest.raises(SystemExit) as left:
                patched.setattr(sys, "stdin", given)
                main(list(args))
        code = left.value.code
        said = self._captured.readouterr()
        return Ended(int(code or 0), said.out, said.err.decode())

    def fine(self, *args: str, stdin: bytes = b"") -> Ended:
        ended = self.run(*args, stdin=stdin)
        assert ended.code == 0, ended.err
        return ended

    def start(self, *args: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        trace = Path(tempfile.mkdtemp(prefix="holdfast-cli-")) / "trace.jsonl"
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *args],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": self._bootstrap, "HOLDFAST_TRACE_FILE": str(trace)},
        )
        self._started.append(process)
        TRACES[process.pid] = trace
        return process


def spoken(process: subprocess.Popen[bytes], count: int = 1) -> list[str]:
    """So many lines of what it writes, as they come. If they don't, where it stands is what the test says."""
    lines: list[str] = []

    def read() -> None:
        assert process.stdout is not None
        while len(lines) < count and (line := process.stdout.readline()):
            lines.append(line.decode().strip())

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(PATIENCE_S)
    if len(lines) < count:
        ended = process.poll()
        process.send_signal(signal.SIGUSR1)
        time.sleep(1.0)
        process.kill()
        reading.join(PATIENCE_S)
        assert process.stderr is not None
        said = process.stderr.read().decode()
        trace = TRACES[process.pid]
        said += "its trace:\n" + (trace.read_text()[-10_000:] if trace.exists() else "none")
        pytest.fail(f"{count} lines were expected, {lines} came; exit code {ended}; standard error:\n{said}")
    return lines


def end(process: subprocess.Popen[bytes]) -> Ended:
    out, err = process.communicate(timeout=PATIENCE_S)
    return Ended(process.returncode, out or b"", err.decode())
