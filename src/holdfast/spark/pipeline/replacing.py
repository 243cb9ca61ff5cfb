"""`pipeline run --replace`: a new version starts and rehearses beside the old one, joins, and then makes it drain.

    old    works ───────────────────────────────── drains ── ends
    new         Spark starts ── rehearses ── joins ─┘ takes over

A running pipeline listens on a Unix socket whose name is made from its group and its own name. The new version finds
it, and asks it to drain once it is a member itself. The connection stays open until the old process has ended, however
it ends.

Two queries can't share a checkpoint, and the old version still uses its own when the new one starts. So versions
alternate between two: the named checkpoint and one beside it. That loses nothing, because a query continues at the
group's offsets. The checkpoint also tells versions of one application from the group's other applications, which go on.

This works only on one machine, for processes of the same user. Across machines, whatever starts the new version must
send the old one SIGTERM when the new one reports `progress`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from holdfast.model import HoldfastError
from holdfast.spark import door
from holdfast.spark.pipeline.settings import Pipeline

KIND = "holdfast-pipeline"
NEXT = "-next"
"""Suffix of the second checkpoint."""

ANSWER_S = 10.0
END_S = 180.0
"""How long the old version may take to drain and end: its longest batch, and Spark's shutdown."""

NO_WAIT_S = 0.001


def key_of(pipeline: Pipeline) -> str:
    """What pipelines of the same group and name are found by."""
    return hashlib.sha256(json.dumps([pipeline.group, pipeline.name]).encode()).hexdigest()[:16]


class Announced:
    """A running pipeline that can be found and asked to drain."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._about = {"pid": os.getpid(), "checkpoint": folder_of(pipeline.checkpoint), "name": pipeline.name}
        self._drain = threading.Event()
        self._held: list[socket.socket] = []
        """Connections that asked for a drain. They end with the process, and so tell that it has ended."""
        self._listener = door.Listener(door.new_name(KIND, key_of(pipeline)), self._answer, thread="holdfast-replace")

    def asked(self) -> bool:
        """Whether a newer version wants to take over."""
        return self._drain.is_set()

    def __enter__(self) -> Announced:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.close()

    def _answer(self, link: socket.socket) -> None:
        link.settimeout(ANSWER_S)
        question = link.makefile("r").readline(door.MAX_LINE).strip()
        if question == "drain":
            self._drain.set()
            self._held.append(link)
        link.sendall(json.dumps(self._about).encode() + b"\n")
        if question != "drain":
            link.close()


def folder_of(checkpoint: str) -> str:
    """One text for one folder, whichever way it was written."""
    path = checkpoint.removeprefix("file://").removeprefix("file:")
    return path.rstrip("/") if "://" in path else str(Path(path).resolve())


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A pipeline of the same group and name that is running."""

    process: int
    socket_name: str
    checkpoint: str

    def drain(self) -> Ending:
        link = door.connected(self.socket_name, self.process, timeout_s=ANSWER_S)
        door.exchange(link, "drain")
        return Ending(self.process, link)


class Ending:
    """An older version that was asked to drain."""

    def __init__(self, process: int, link: socket.socket) -> None:
        self.process = process
        self._link = link

    def wait(self, wait_s: float) -> bool:
        """Wait for its end, at most this long; True once it has ended."""
        self._link.settimeout(wait_s)
        try:
            ended = self._link.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            ended = True
        if ended:
            self.forget()
        return ended

    def forget(self) -> None:
        self._link.close()


def predecessors(pipeline: Pipeline) -> list[Predecessor]:
    """Other pipelines of this group and name that run on this machine as our user, by process id."""
    names = {name: process for name, process in door.sockets(KIND, key_of(pipeline)) if process != os.getpid()}
    known = []
    for name, process in sorted(names.items(), key=lambda one: one[1]):
        with contextlib.suppress(OSError, ValueError, KeyError):  # it has just ended, or is another program
            with door.connected(name, process, timeout_s=ANSWER_S) as link:
                told = door.exchange(link, "who")
            known.append(Predecessor(process, name, str(told["checkpoint"])))
    return known


class Succession:
    """Takes over from the running versions, step by step."""

    def __init__(self, pipeline: Pipeline, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._ending: list[Ending] = []
        self._since = time.monotonic()
        ours = folder_of(pipeline.checkpoint)
        found = predecessors(pipeline)
        self._waits = [one for one in found if folder_of(one.checkpoint) in (ours, ours + NEXT)]
        used = {folder_of(one.checkpoint) for one in self._waits}
        self.checkpoint = pipeline.checkpoint if ours not in used else pipeline.checkpoint.rstrip("/") + NEXT
        if folder_of(self.checkpoint) in used:
            raise HoldfastError(
                "REPLACE_UNDER_WAY",
                f"two versions of {pipeline.name or 'this pipeline'} run already, on {' and '.join(sorted(used))}.",
                "Another replacement is under way: wait until the older version has ended, or end it.",
            )
        if not self._waits:
            others = "".join(
                f"; process {one.process} of this group is on {one.checkpoint}, and goes on" for one in found
            )
            tell("replacing", message=f"no older version runs here: nothing to replace{others}")

    @property
    def done(self) -> bool:
        return not self._waits and not self._ending

    def go_on(self, *, joined: bool) -> None:
        """One step, without waiting: once we are a member, the others are asked to drain."""
        if joined and self._waits:
            for older in self._waits:
                with contextlib.suppress(OSError, ValueError):  # it has already ended by itself
                    self._ending.append(older.drain())
            gone = ", ".join(str(older.process) for older in self._waits)
            self._waits, self._since = [], time.monotonic()
            self._tell("replacing", message=f"joined; the older version (process {gone}) drains")
        for one in [each for each in self._ending if each.wait(NO_WAIT_S)]:
            self._ending.remove(one)
            self._tell("replaced", message=f"process {one.process} has ended")
        if self._ending and time.monotonic() - self._since > END_S:
            late = ", ".join(str(one.process) for one in self._ending)
            for one in self._ending:
                one.forget()
            self._ending = []
            self._tell("replaced", message=f"process {late} was asked to drain and still runs: end it by hand")
