"""The members of one group of `holdfast bench groups`: starts their processes, and evaluates what they report.

Every process ends when its input ends, so that none outlives the bench, however that ends. Their log lines are counted,
and only the first is kept: a thousand members may write a thousand of them.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from holdfast.bench.broker_systems import cpu_seconds

QUIET_S = 4.0
"""Longer than a heartbeat interval: by then every member knows of another round, if there is one."""

READY_S = 120.0
"""How long all processes may take to load their programs."""

TELL_EVERY_S = 5.0
JVM_ARGS = ("-Xmx2g", "-Xss512k", "-XX:+UseSerialGC")
"""For about 250 consumers in one JVM: two threads and 1 to 2 MB for each."""


class NotSettled(Exception):
    """The group did not settle in time, or one of its members failed."""


@dataclass(slots=True)
class Members:
    """The processes of one group, and what they report."""

    kind: str
    bootstrap: str
    group: str
    topic: str
    partitions: int
    owner: dict[int, set[str]] = field(default_factory=dict)
    revoked_at: dict[int, float] = field(default_factory=dict)
    pauses: dict[int, float] = field(default_factory=dict)
    """By partition that has moved since this was cleared: ms from revoke to assign."""
    last_change: float = 0.0
    failed: list[str] = field(default_factory=list)
    log_lines: int = 0
    first_log_line: str = ""
    progress: Callable[[str], None] = lambda _text: None
    _processes: list[subprocess.Popen[str]] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _said: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)

    def start(self, members: int, processes: int) -> None:
        """Start the processes and wait until they are ready; no member joins yet."""
        shares = [members // processes + (number < members % processes) for number in range(processes)]
        for number, count in enumerate(shares):
            process = subprocess.Popen(
                self.command(count, f"p{number}"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            self._processes.append(process)
            for work, stream in ((self._listen, process.stdout), (self._count, process.stderr)):
                thread = threading.Thread(target=work, args=(stream,), daemon=True)
                self._threads.append(thread)
                thread.start()
        deadline = time.monotonic() + READY_S
        for _ in shares:
            try:
                self._said.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise NotSettled(f"not all processes started within {READY_S:.0f} s{self._complaint()}") from None

    def command(self, count: int, name: str) -> Sequence[str]:
        if self.kind == "java":
            from holdfast.testing.java import compile_java, java_command, kafka_classpath, log_args

            classes = compile_java([Path(__file__).parent / "java" / "GroupsBench.java"])
            arguments = [self.bootstrap, self.group, self.topic, str(count), name]
            jvm_args = [*JVM_ARGS, *log_args("error")]
            return java_command("GroupsBench", arguments, jvm_args=jvm_args, classpath=kafka_classpath(classes))
        options = {
            "kind": self.kind,
            "bootstrap": self.bootstrap,
            "group": self.group,
            "topic": self.topic,
            "count": count,
            "name": name,
        }
        return [sys.executable, "-m", "holdfast.bench.groups_worker", json.dumps(options)]

    def _listen(self, said: IO[str]) -> None:
        for line in said:
            self._said.put(json.loads(line))

    def _count(self, log: IO[str]) -> None:
        for line in log:
            self.first_log_line = self.first_log_line or line.strip()
            self.log_lines += 1

    def _complaint(self) -> str:
        return f"; in the members' logs: {self.first_log_line}" if self.log_lines else ""

    def tell(self, line: str, *, to: int | None = None) -> float:
        """Send this line to one process or to all. Returns when, in ms."""
        began = time.monotonic() * 1_000.0
        for process in self._processes if to is None else [self._processes[to]]:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()
        return began

    def settle(self, limit_s: float, *, moved: bool = False) -> float:
        """Wait for the group to settle. Returns when its last change was, in ms."""
        began = time.monotonic()
        tell_at = began + TELL_EVERY_S
        while (now := time.monotonic()) < began + limit_s:
            if now >= tell_at:
                tell_at = now + TELL_EVERY_S
                self.progress(f"{now - began:.0f} s: {self._so_far()}")
            try:
                self.take(self._said.get(timeout=0.2))
                continue
            except queue.Empty:
                pass
            self._look_for_failures()
            quiet = time.monotonic() * 1_000.0 - self.last_change > QUIET_S * 1_000.0
            if quiet and self.whole and (self.pauses or not moved):
                return self.last_change
        raise NotSettled(f"after {limit_s:.0f} s {self._so_far()}{self._complaint()}")

    def _look_for_failures(self) -> None:
        if self.failed:
            raise NotSettled(f"{len(self.failed)} members failed; the first: {self.failed[0]}")
        ended = [process.returncode for process in self._processes if process.poll() is not None]
        if ended:
            raise NotSettled(f"{len(ended)} processes ended, the first with {ended[0]}{self._complaint()}")

    def _so_far(self) -> str:
        owners = [len(members) for members in self.owner.values()]
        twice = sum(count > 1 for count in owners)
        told = f"{sum(count > 0 for count in owners)} of {self.partitions} partitions were owned"
        return f"{told}, {twice} of them more than once" if twice else told

    @property
    def whole(self) -> bool:
        """Whether every partition has exactly one owner."""
        return len(self.owner) == self.partitions and all(len(members) == 1 for members in self.owner.values())

    @property
    def sharers(self) -> int:
        return len(set().union(*self.owner.values())) if self.owner else 0

    def take(self, said: dict[str, Any]) -> None:
        what, member = said["e"], said["m"]
        if what.startswith("failed"):
            self.failed.append(f"{member} {what}")
        for partition in said["p"]:
            owners = self.owner.setdefault(partition, set())
            if what == "assigned":
                owners.add(member)
                if partition in self.revoked_at:
                    self.pauses[partition] = said["t"] - self.revoked_at.pop(partition)
            else:
                owners.discard(member)
                self.revoked_at[partition] = said["t"]
            self.last_change = max(self.last_change, said["t"])

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(process.pid) for process in self._processes)

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        for thread in self._threads:  # they end when everything written has been read
            thread.join()
        for process in self._processes:
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
