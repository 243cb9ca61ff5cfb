"""`holdfast demo --live`: an embedded broker, a producer, and members that obey the page's buttons.

Everything is a process of its own, as a user would start it. Every action on a member is written to a trace, like the
member's own steps and the coordinator's; the page reads only these traces. Only members that were started here can be
acted on: a name is looked up among them, and never becomes a command.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from holdfast.model import HoldfastError
from holdfast.spark.pipeline.processes import Command
from holdfast.trace.starting import StarterTrace

TOPIC, GROUP = "orders", "billing"
ACTS = ("add", "drain", "kill", "hang", "restart")
MOST_MEMBERS = 12
MAX_POLL_MS = 10_000
"""How long after a hang the group goes on without the member: long enough to see, short enough to wait for."""
SESSION_MS = 6_000
START_S = 60.0
STOP_S = 10.0
WATCHED_EVERY_S = 0.05

MEMBER = "from holdfast.ui.live.demo_member import main; main()"


@dataclass(slots=True)
class Member:
    name: str
    process: subprocess.Popen[str]
    ending: bool = False
    """Whether it was asked to end, so that its end is no crash."""
    again: bool = False
    """Whether to start it again when it has ended."""


class Demo:
    """The demo, as a context manager; `act` is what the buttons do."""

    names: tuple[str, ...] = ACTS

    def __init__(
        self,
        folder: Path,
        *,
        members: int,
        partitions: int,
        rate: int,
        say: Callable[[str], None],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self.traces = folder / "traces"
        self._members: dict[str, Member] = {}
        self._started = 0
        self._wanted = members
        self._partitions = partitions
        self._rate = rate
        self._say = say
        self._check = check
        self._commands: list[Command] = []
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="demo-members", daemon=True)
        self._trace = StarterTrace(self.traces / "demo.jsonl", GROUP)
        self.bootstrap = ""

    def __enter__(self) -> Demo:
        try:
            self._set_up()
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end_all()

    def _set_up(self) -> None:
        self._say("starting the embedded broker")
        trace = str(self.traces / "broker.jsonl")
        arguments = ["broker", "--memory", "--listen", "127.0.0.1:0", "--rebalance-delay-ms", "0", "--trace", trace]
        broker = self._command("broker", arguments)
        broker.wait("it was ready", lambda: bool(broker.lines), START_S, meanwhile=self._check)
        self.bootstrap = str(broker.lines[0]["bootstrap"])
        where = ["--bootstrap-server", self.bootstrap]
        topic = self._command("topic", ["topics", "create", TOPIC, "--partitions", str(self._partitions), *where])
        topic.wait_for_end(START_S, meanwhile=self._check)
        self._say(f"a producer sends {self._rate} orders a second to {self._partitions} partitions")
        self._command("producer", ["produce", TOPIC, "--rate", str(self._rate), "--keys", "500", *where])
        self._check()
        for _ in range(self._wanted):
            self.act("add", "")
        self._watcher.start()

    def _command(self, name: str, arguments: list[str]) -> Command:
        command = Command(name, arguments, log=self._folder / f"{name}.log")
        self._commands.append(command)
        return command

    # -- the buttons

    def act(self, name: str, member: str) -> str:
        with self._lock:
            if self._over.is_set():  # it waited for the lock while everything was ended: nothing may start now
                raise HoldfastError("DEMO_ENDS", "the demo is being ended.", "Start it again: holdfast demo --live.")
            if name == "add":
                return self._add()
            found = self._members.get(member)
            if found is None:
                raise HoldfastError(
                    "NOT_OUR_MEMBER",
                    f"{member!r} is not a member that this demo runs.",
                    f"Choose one of {', '.join(self._members) or 'those that are added'}.",
                )
            done: dict[str, Callable[[Member], str]] = {
                "drain": self._drain, "kill": self._kill, "hang": self._hang, "restart": self._restart,
            }  # fmt: skip
            self._trace.tell("happened", what=f"{name} {member}")
            return done[name](found)

    def _add(self) -> str:
        if len(self._members) >= MOST_MEMBERS:
            raise HoldfastError("DEMO_FULL", f"{MOST_MEMBERS} members run already.", "Drain or kill one first.")
        name = f"c{self._started}"
        self._started += 1
        self._trace.tell("happened", what=f"add {name}")
        self._start(name)
        return f"{name} starts; it joins in a second or two."

    def _drain(self, member: Member) -> str:
        member.ending = True
        self._order(member, "drain")
        return f"{member.name} hands everything over while it works, and leaves."

    def _kill(self, member: Member) -> str:
        member.process.kill()
        member.process.wait(STOP_S)
        self._ended(member)
        return f"{member.name} is dead: kill -9. Its watchdog commits and leaves in its name."

    def _hang(self, member: Member) -> str:
        self._order(member, "hang")
        self._trace.tell("application-hung", member.name)
        return (
            f"{member.name} polls no more. In {MAX_POLL_MS / 1000:g} s it is out of the group; restart brings it back."
        )

    def _restart(self, member: Member) -> str:
        """A clean restart; a member that hangs does not react to it."""
        member.ending = member.again = True
        member.process.terminate()
        return f"{member.name} closes and starts again, as in a deploy."

    def _order(self, member: Member, order: str) -> None:
        assert member.process.stdin is not None
        try:
            member.process.stdin.write(f"{order}\n")
            member.process.stdin.flush()
        except OSError as error:
            raise HoldfastError("NOT_OUR_MEMBER", f"{member.name} has just ended.", "Choose another one.") from error

    # -- processes

    def _start(self, name: str) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": GROUP,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "max.poll.interval.ms": MAX_POLL_MS,
            "holdfast.trace.file": str(self.traces / f"{name}.jsonl"),
        }
        self._trace.tell("process-started", name)
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", MEMBER, json.dumps(settings), TOPIC],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C in the terminal is for the demo, which then stops its members
            )
        self._members[name] = Member(name, process)

    def _watch(self) -> None:
        """Also record members that end by themselves or are killed from outside."""
        while not self._over.wait(WATCHED_EVERY_S):
            with self._lock:
                for member in list(self._members.values()):
                    if member.process.poll() is not None and not self._over.is_set():
                        self._ended(member)

    def _ended(self, member: Member) -> None:
        del self._members[member.name]
        if member.process.stdin is not None:
            with contextlib.suppress(OSError):
                member.process.stdin.close()
        clean = member.ending and member.process.returncode == 0
        self._trace.tell("process-ended" if clean else "process-died", member.name, code=member.process.returncode)
        if member.again:
            self._start(member.name)

    def _end_all(self) -> None:
        self._over.set()
        with self._lock:
            processes = [member.process for member in self._members.values()]
            for process in processes:
                process.terminate()
            deadline = time.monotonic() + STOP_S
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, deadline - time.monotonic()))
                if process.poll() is None:
                    process.kill()
                    process.wait()
                if process.stdin is not None:
                    with contextlib.suppress(OSError):
                        process.stdin.close()
            self._members.clear()
        for command in reversed(self._commands):
            # One that does not end in time is killed with an error; the others still have to be stopped.
            with contextlib.suppress(HoldfastError):
                command.stop()
        self._trace.close()
