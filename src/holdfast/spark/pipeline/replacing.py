"""`pipeline run --replace`: a new version starts and rehearses beside the old one, joins, and then makes it drain.

    old    works ───────────────────────────────── drains ── ends
    new         Spark starts ── rehearses ── joins ─┘ takes over

A running pipeline listens on a Unix socket whose name is made from its group and its own name. The new version finds
it, and asks it to drain once it is a member itself. The connection stays open until the old process has ended, however
it ends.

Two queries can't share a checkpoint, and the old version still uses its own when the new one starts. So versions
alternate between two: the named checkpoint and one beside it. That loses nothing, because a query continues at the
group's offsets.

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
from types import TracebackType
from typing import Any

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
MAX_LINE = 65_536


def key_of(pipeline: Pipeline) -> str:
    """Pipelines with the same group and name are versions of one application."""
    return hashlib.sha256(json.dumps([pipeline.group, pipeline.name]).encode()).hexdigest()[:16]


class Announced:
    """A running pipeline that can be found and asked to drain."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._about = {"pid": os.getpid(), "checkpoint": pipeline.checkpoint, "name": pipeline.name}
        self._drain = threading.Event()
        self._held: list[socket.socket] = []
        self._ear = socket.socket(socket.AF_UNIX)
        self._ear.bind(door.new_name(KIND, key_of(pipeline)))
        self._ear.listen(8)
        threading.Thread(target=self._serve, name="holdfast-replace", daemon=True).start()

    def asked(self) -> bool:
        """Whether a newer version wants to take over."""
        return self._drain.is_set()

    def __enter__(self) -> Announced:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # `close` alone would not wake a thread that waits in `accept`. Held connections end with the process.
        with contextlib.suppress(OSError):
            self._ear.shutdown(socket.SHUT_RDWR)
        self._ear.close()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._ear.accept()
            except OSError:
                return
            with contextlib.suppress(OSError, ValueError):
                self._answer(link)

    def _answer(self, link: socket.socket) -> None:
        link.settimeout(ANSWER_S)
        if door.user_of(link) != os.getuid():
            return link.close()
        question = link.makefile("r").readline(MAX_LINE).strip()
        if question == "drain":
            self._drain.set()
            self._held.append(link)
        link.sendall(json.dumps(self._about).encode() + b"\n")
        if question != "drain":
            link.close()


@dataclass(frozen=True, slots=True)
class Predecessor:
    """An older version that is running."""

    process: int
    socket_name: str
    checkpoint: str

    def drain(self) -> Ending:
        link = _connected(self.socket_name, self.process)
        _question(link, "drain")
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
    """Other versions of this application that run on this machine as our user, by process id."""
    names = {name: process for name, process in door.sockets(KIND, key_of(pipeline)) if process != os.getpid()}
    known = []
    for name, process in sorted(names.items(), key=lambda one: one[1]):
        with contextlib.suppress(OSError, ValueError, KeyError):  # it has just ended, or is another program
            with _connected(name, process) as link:
                told = _question(link, "who")
            known.append(Predecessor(process, name, str(told["checkpoint"])))
    return known


class Succession:
    """Takes over from the running versions, step by step."""

    def __init__(self, pipeline: Pipeline, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._waits = predecessors(pipeline)
        self._ending: list[Ending] = []
        self._since = time.monotonic()
        used = {one.checkpoint for one in self._waits}
        self.checkpoint = pipeline.checkpoint
        if pipeline.checkpoint in used:
            self.checkpoint = pipeline.checkpoint + NEXT
        if self.checkpoint in used:
            raise HoldfastError(
                "REPLACE_UNDER_WAY",
                f"two versions of {pipeline.name or 'this pipeline'} run already, on {' and '.join(sorted(used))}.",
                "Another replacement is under way: wait until the older version has ended, or end it.",
            )
        if not self._waits:
            tell("replacing", message="no older version runs here: nothing to replace")

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


def _connected(name: str, process: int) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(ANSWER_S)
        link.connect(name)
        if door.peer_of(link) != (process, os.getuid()):
            raise ConnectionError("another process uses a pipeline's name")
    except BaseException:
        link.close()
        raise
    return link


def _question(link: socket.socket, text: str) -> dict[str, Any]:
    link.sendall(text.encode() + b"\n")
    found: dict[str, Any] = json.loads(link.makefile("r").readline(MAX_LINE))
    return found
