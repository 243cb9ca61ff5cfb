"""Members of other kinds as processes: Java, confluent-kafka (librdkafka), kafka-python, aiokafka, and holdfast itself.

    with MemberProcess("java", MemberOptions(bootstrap=..., group="g", topic="orders")) as member:
        member.wait_assigned(6)
        member.records()

Every program writes the log described in `log.py` and obeys the same commands and signals. Leaving the context kills
what still runs; `terminate()` is the clean way out.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from holdfast.model import HoldfastError
from holdfast.testing.members.log import Event, MemberLog, Record
from holdfast.testing.members.options import MemberOptions

__all__ = ["KINDS", "Event", "MemberLog", "MemberOptions", "MemberProcess", "Record"]

WAIT_LIMIT_S = 120.0
"""Joining takes a second or two, or a session timeout if a dead member is waited for, and ten times that on a starved
machine. Then the test has failed."""

STOP_LIMIT_S = 60.0
"""A clean close commits and leaves, at most a few seconds; ten times that on a starved machine."""

_PROGRAMS = {
    "confluent": ["holdfast.testing.members.confluent_member"],
    "holdfast": ["holdfast.testing.members.confluent_member", "--implementation", "holdfast"],
    "kafka-python": ["holdfast.testing.members.kafka_python_member"],
    "aiokafka": ["holdfast.testing.members.aiokafka_member"],
}

KINDS = ("aiokafka", "confluent", "holdfast", "java", "kafka-python")


class MemberProcess:
    """One member in a process of its own; for Java, `members` of them in one JVM.

    With several members in one process, `index` picks one; without it a command goes to all, and a question is about
    the first.
    """

    def __init__(
        self,
        kind: str,
        options: MemberOptions,
        *,
        name: str | None = None,
        members: int = 1,
        folder: Path | None = None,
        jvm_args: Sequence[str] | None = None,
        python: str | None = None,
        program: Sequence[str] = (),
    ) -> None:
        """Logs go to `folder` (by default a temporary one), named after `name`. `jvm_args=()` is a JVM as it comes.

        `python` is another interpreter than ours: its own holdfast and its own member program are run. `program` is
        a Python file, with arguments, that takes the place of the kind's own and obeys the same commands.
        """
        if kind not in KINDS or (members > 1 and kind != "java"):
            raise HoldfastError(
                "MEMBER_KIND_UNKNOWN",
                f"There is no member program for {members} of kind {kind!r} in one process.",
                f"Use one of {', '.join(KINDS)}; only java takes several.",
            )
        self.kind = kind
        self.name = name or kind
        self._python = python or sys.executable
        self._program = program
        self._own_folder = folder is None
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-member-")) if folder is None else folder
        names = [self.name] if members == 1 else [f"{self.name}-{index}" for index in range(members)]
        self.logs = [MemberLog(each, self._folder / f"{each}.log") for each in names]
        self._output = self._folder / f"{self.name}.out"
        command = self._command(options, jvm_args)
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=output, text=True, start_new_session=True
            )

    def __enter__(self) -> MemberProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        if self._own_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def log(self, index: int = 0) -> MemberLog:
        """The log as it is now. It can be read after the end too."""
        return self.logs[index].refresh()

    def records(self, index: int = 0) -> list[Record]:
        return self.log(index).records

    def events(self, index: int = 0) -> list[Event]:
        return self.log(index).events

    def owned(self, index: int = 0) -> frozenset[int]:
        return self.log(index).owned

    def join(self) -> None:
        """For a member with `join_on_command`."""
        self._say("join")

    def hang(self, seconds: float, index: int | None = None) -> None:
        """Blocks the poll loop for that long; heartbeats go on, as in a process that is stuck in its own work."""
        self._say(f"hang {seconds}{'' if index is None else f' {index}'}")

    def close(self, index: int | None = None) -> None:
        """Asks for a clean close and does not wait for it."""
        self._say(f"close{'' if index is None else f' {index}'}")

    def metrics(self, *, limit_s: float = WAIT_LIMIT_S) -> dict[str, float]:
        """A Java or holdfast member's metrics as they are now, by their Java names."""
        before = len(self.log().named("metrics"))
        self._say("metrics")
        self.wait_for(lambda: len(self.log().named("metrics")) > before, "to log its metrics", limit_s=limit_s)
        found: dict[str, float] = json.loads(self.log().named("metrics")[-1].text)
        return found

    def drain(self) -> None:
        """Asks a holdfast member to hand everything over while still working, then leave."""
        self._say("drain")

    def pause(self) -> None:
        """Stops the whole process (SIGSTOP): heartbeats too, as on a frozen machine. `resume()` wakes it."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM, and waits until every member has closed cleanly; one that has not is an error."""
        if self.running:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                raise self._failed(f"did not end within {STOP_LIMIT_S:.0f} s of SIGTERM") from None
        self._hang_up()
        if not all(log.refresh().named("closed") for log in self.logs):
            raise self._failed("ended without a clean close")

    def kill(self) -> None:
        """SIGKILL: no commit, no LeaveGroup. Does nothing if it has ended."""
        if self.running:
            self._process.kill()
        self._process.wait()
        self._hang_up()

    def _hang_up(self) -> None:
        """Lets go of our end of its standard input; an ended process no longer takes commands."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # a command that it did not live to read
                self._process.stdin.close()

    def wait_ready(self, *, limit_s: float = WAIT_LIMIT_S) -> None:
        """Until the program has loaded."""
        self.wait_for(lambda: all(log.refresh().named("ready") for log in self.logs), "to be ready", limit_s=limit_s)

    def wait_assigned(
        self, count: int | None = None, *, index: int = 0, limit_s: float = WAIT_LIMIT_S
    ) -> frozenset[int]:
        """Until the member owns exactly `count` partitions (any number but none, by default); returns them."""
        self.wait_for(
            lambda: len(self.owned(index)) == count if count is not None else bool(self.owned(index)),
            f"to own {'some' if count is None else count} partitions",
            limit_s=limit_s,
        )
        return self.owned(index)

    def wait_records(self, count: int, *, index: int = 0, limit_s: float = WAIT_LIMIT_S) -> None:
        """Until the member has processed that many records."""
        self.wait_for(lambda: len(self.records(index)) >= count, f"to process {count} records", limit_s=limit_s)

    def wait_event(self, name: str, *, index: int = 0, limit_s: float = WAIT_LIMIT_S) -> Event:
        """Until an event of that name is in the log; returns the latest."""
        self.wait_for(lambda: bool(self.log(index).named(name)), f"to log #{name}", limit_s=limit_s)
        return self.log(index).named(name)[-1]

    def wait_for(self, holds: Callable[[], bool], what: str, *, limit_s: float = WAIT_LIMIT_S) -> None:
        """Until `holds()`; fails at once, with the program's output, if the process has ended."""
        deadline = time.monotonic() + limit_s
        while not holds():
            if not self.running and not holds():
                raise self._failed(f"ended with {self._process.returncode} while waiting for it {what}")
            if time.monotonic() > deadline:
                raise self._failed(f"was waited for {limit_s:.0f} s {what}")
            time.sleep(0.01)

    def output(self) -> str:
        """What the program printed."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def _say(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def _command(self, options: MemberOptions, jvm_args: Sequence[str] | None) -> list[str]:
        words = options.arguments()
        for log in self.logs:
            words += ["--log", str(log.path)]
        if self._program:
            return [self._python, *self._program, *words]
        if self.kind != "java":
            return [self._python, "-m", *_PROGRAMS[self.kind], *words]
        from holdfast.testing.java import TEST_JVM_ARGS, compile_java, java_command, kafka_classpath, log_args
        from holdfast.testing.kafka_node import JAVA_SOURCES

        classes = compile_java([JAVA_SOURCES / "GroupMember.java"])
        flags = ["-Xmx128m", *TEST_JVM_ARGS] if jvm_args is None else list(jvm_args)
        return java_command(
            "GroupMember", words, jvm_args=[*flags, *log_args("warn")], classpath=kafka_classpath(classes)
        )

    def _failed(self, how: str) -> HoldfastError:
        events = "\n".join(f"  {event}" for log in self.logs for event in log.refresh().events[-10:])
        said = "\n".join(self.output().splitlines()[-30:])
        return HoldfastError(
            "MEMBER_FAILED",
            f"Member {self.name} ({self.kind}) {how}.\nIts last events:\n{events}\nIts output:\n{said}",
            "Read its output above.",
        )
