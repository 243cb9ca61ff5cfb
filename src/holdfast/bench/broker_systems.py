"""The two brokers of `holdfast bench broker`, each as its users run it, behind one interface.

Kafka runs with the flags of its own start script; ours is `holdfast broker` in a process of its own. Both keep their
data in a temporary folder on the same disk, leave flushing to the system and complete a group's first round at once.
For both, started means that the process answers ApiVersions on its port.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Protocol

from holdfast.testing.kafka import RealKafka
from holdfast.testing.kafka_node import answers, free_port

START_S = 90.0
"""Kafka takes 3–4 s on an idle machine, and several times that on a busy one."""

STOP_S = 20.0

LOOK_EVERY_S = 0.005


class System(Protocol):
    name: str

    @property
    def bootstrap(self) -> str: ...

    def start(self) -> float:
        """From the process's start to its first answer, in seconds."""
        ...

    def stop(self) -> None:
        """Stop cleanly; the data stay."""
        ...

    def resident_bytes(self) -> int: ...

    def cpu_seconds(self) -> float:
        """CPU time of the process since its start, on all cores."""
        ...

    def close(self) -> None: ...


class KafkaSystem:
    """A real Apache Kafka of one node."""

    name = "kafka"

    def __init__(self, *, initial_rebalance_delay_ms: int | None = 0) -> None:
        """None leaves Kafka's own default."""
        self._kafka = RealKafka(benchmark=True, initial_rebalance_delay_ms=initial_rebalance_delay_ms)

    @property
    def bootstrap(self) -> str:
        return self._kafka.bootstrap

    def start(self) -> float:
        (node,) = self._kafka.nodes
        began = time.monotonic()
        node.spawn()
        node.await_answer(began + START_S)
        return time.monotonic() - began

    def stop(self) -> None:
        self._kafka.stop()

    def resident_bytes(self) -> int:
        return self._kafka.resident_bytes()

    def cpu_seconds(self) -> float:
        return cpu_seconds(self._kafka.nodes[0].pid)

    def close(self) -> None:
        self._kafka.close()


class EmbeddedSystem:
    """`holdfast broker --data` as a process."""

    name = "holdfast"

    def __init__(self, *arguments: str, rebalance_delay_ms: int | None = 0) -> None:
        """`arguments` go to the command line; `{folder}` in them is the broker's own folder. A delay of None means the
        command's default, which is the same as Kafka's."""
        self._delay = [] if rebalance_delay_ms is None else ["--rebalance-delay-ms", str(rebalance_delay_ms)]
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-bench-")
        self._arguments = [argument.format(folder=self._folder.name) for argument in arguments]
        self._port = free_port()
        self._log = Path(self._folder.name) / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def folder(self) -> Path:
        return Path(self._folder.name)

    def log_bytes(self) -> int:
        """The size of its log."""
        return self._log.stat().st_size

    def start(self) -> float:
        command = [sys.executable, "-c", "from holdfast.cli.main import main; main()", "broker"]
        command += ["--data", str(Path(self._folder.name) / "data"), "--listen", self.bootstrap]
        command += [*self._delay, *self._arguments]
        with self._log.open("ab") as log:
            began = time.monotonic()
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        while not answers(self._port):
            late = time.monotonic() - began > START_S
            if late or self._process.poll() is not None:
                raise RuntimeError(f"holdfast broker did not start:\n{self._log.read_text(errors='replace')}")
            time.sleep(LOOK_EVERY_S)
        return time.monotonic() - began

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def resident_bytes(self) -> int:
        assert self._process is not None, "the broker is not running"
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        assert self._process is not None, "the broker is not running"
        return cpu_seconds(self._process.pid)

    def close(self) -> None:
        self.stop()
        self._folder.cleanup()


class Running:
    """A system for as long as a block lasts."""

    def __init__(self, system: System) -> None:
        self._system = system

    def __enter__(self) -> System:
        return self._system

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._system.close()


def cpu_seconds(pid: int) -> float:
    """User and system time, from the fields after the program's name, which may contain anything."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
