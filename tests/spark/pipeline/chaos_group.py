"""Pipelines of one group, each a process tree of its own, and ways to hurt them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import chaos_job

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files import positions
from holdfast.spark.pipeline.processes import Command, children_of

LIMIT_S = 300.0
"""For anything that is waited for: starting Spark on a machine that is busy with other tests takes minutes."""

SESSION_MS, MAX_POLL_MS = 6_000, 8_000


class ChaosGroup:
    """Members by name. A member that was hurt is restarted from its own checkpoint."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        partitions: int,
        *,
        job: str = chaos_job.__file__,
        more: Sequence[str] = (),
        stands: Callable[[], Mapping[TopicPartition, int]] | None = None,
        max_poll_ms: int = MAX_POLL_MS,
    ) -> None:
        """`stands` says how far each partition is, if that is not for the sink to say."""
        self.bootstrap = bootstrap
        self.folder = folder
        self.partitions = partitions
        self.sink = str(folder / "sink")
        self._job, self._more, self._max_poll_ms = job, list(more), max_poll_ms
        self._stands = stands or (lambda: positions(self.sink))
        self.members: dict[str, Command] = {}
        self._masters: dict[str, str] = {}
        self._lives: dict[str, int] = {}

    # -- lives

    def start(self, name: str, master: str = "local[1]") -> None:
        self._masters[name] = master
        self._lives[name] = self._lives.get(name, 0) + 1
        args = ["pipeline", "run", self._job, *self._more, "--name", name, "--subscribe", "orders", "--group", "chaos"]
        args += ["--sink", self.sink, "--checkpoint", str(self.folder / f"checkpoint-{name}"), "--master", master]
        args += ["--bootstrap-server", self.bootstrap, "--trigger", "100ms", "--every", "0.5"]
        args += ["--spark-log", str(self.folder / f"{name}-{self._lives[name]}-spark.log")]
        source = {
            "startingOffsets": "earliest",
            "kafka.session.timeout.ms": str(SESSION_MS),
            "kafka.heartbeat.interval.ms": "1000",
            "kafka.max.poll.interval.ms": str(self._max_poll_ms),
        }
        for key, value in source.items():
            args += ["--source-option", f"{key}={value}"]
        conf = {"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "512m", "spark.executor.memory": "512m"}
        for key, value in conf.items():
            args += ["--conf", f"{key}={value}"]
        os.environ[chaos_job.FLAG] = str(self.flag(name))
        log = self.folder / f"{name}-{self._lives[name]}.log"
        self.members[name] = Command(name, args, log=log)

    def restart(self, name: str) -> None:
        """From its checkpoint, after it has died."""
        assert self.members[name].process.poll() is not None
        self.start(name, self._masters[name])

    def flag(self, name: str) -> Path:
        return self.folder / f"{name}.sleep"

    def await_working(self, *names: str) -> None:
        """Until each of these lives and owns something, reviving whoever falls: a blow may take its time to tell."""
        for name in names:
            self.wait(f"{name} to work", lambda name=name: self._works(name))  # type: ignore[misc]

    def _works(self, name: str) -> bool:
        member = self.members[name]
        return member.process.poll() is None and _owns(member)

    def drain(self, name: str) -> None:
        assert self.members.pop(name).stop() == 0

    def end(self) -> None:
        for member in self.members.values():
            if member.process.poll() is None:
                member.kill()

    # -- blows

    def kill_driver(self, name: str) -> None:
        self.members[name].kill()

    def kill_executor(self, name: str) -> None:
        """The JVM of an executor on its own; there is one with a local-cluster master."""
        self.wait("an executor to run", lambda: bool(self._find(name, "CoarseGrainedExecutorBackend")))
        for pid in self._find(name, "CoarseGrainedExecutorBackend"):
            os.kill(pid, signal.SIGKILL)

    def kill_python_worker(self, name: str) -> None:
        """A forked worker of an executor: a child of pyspark.daemon. The query's reader is another process."""
        victims = self._await_worker(name)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)

    def _await_worker(self, name: str) -> list[int]:
        deadline = time.monotonic() + LIMIT_S
        while True:
            daemons = self._find(name, "pyspark.daemon")
            workers = sorted(child for pid in daemons for child in _descendants(pid))
            if workers:
                return workers
            assert time.monotonic() < deadline, f"{name} has no Python worker"
            time.sleep(0.01)

    def _find(self, name: str, text: str) -> list[int]:
        return sorted(
            pid for pid in _descendants(self.members[name].process.pid) if text.encode() in _command_line(pid)
        )

    def revive(self) -> None:
        """Restart whoever has ended of a blow; a query that fails ends its process, and somebody starts it again."""
        for name, member in list(self.members.items()):
            if member.process.poll() is not None:
                self.restart(name)

    # -- what the sink says

    def await_progress(self) -> None:
        """Until every partition has got new rows, reviving whoever falls."""
        before = self._stands()

        def went_on() -> bool:
            now = self._stands()
            return all(now.get(p, 0) > before.get(p, 0) for p in self._all())

        self.wait("every partition to go on", went_on)

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            self.revive()
            if time.monotonic() > deadline:
                told = {name: member.last() for name, member in self.members.items()}
                raise HoldfastError("CHAOS", f"waited {LIMIT_S:.0f} s for {what}: {told}.", f"See {self.folder}.")
            time.sleep(0.1)

    def _all(self) -> list[TopicPartition]:
        return [TopicPartition("orders", number) for number in range(self.partitions)]


def _owns(member: Command) -> bool:
    line = member.last("progress")
    return line is not None and bool(line["owned"])


def _descendants(pid: int) -> list[int]:
    return [found for child in children_of(pid) for found in (child, *_descendants(child))]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
