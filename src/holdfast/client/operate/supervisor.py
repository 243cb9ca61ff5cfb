"""`holdfast run`'s engine: one child process, drained before it is stopped, restarted when it fails.

    running --SIGTERM--> draining --all are out-------> stopping --it ends--> over
                             |  its time is up             |  its time is up
                             +---------> stopping          +-----> killed

The child's consumers report on a unix socket that the environment names (`supervised` is their half). When we are told
to stop they are asked to hand over what they own, and go on working meanwhile; only when all are out of their groups
does the child get its SIGTERM. A child without consumers gets it at once.

Rules. Every wait has an end. One line per event. As process 1 of a container it also reaps orphans. Messages on the
socket are not trusted: they can ask for a drain, and nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.client.operate.supervised import DRAIN, DRAINED, ENVIRONMENT, MAX_LINE, MEMBER, STOP, said, word
from holdfast.model import HoldfastError

STOPPING = (signal.SIGTERM, signal.SIGINT)
PASSED_ON = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
"""Signals that mean something to the child only."""

MAX_CONNECTIONS = 1_024
"""More connections are refused: a process with as many consumers has other problems."""

BACKOFF_S = (1.0, 60.0)
"""Before a restart: a second, doubled each time up to a minute."""

PR_SET_PDEATHSIG = 1
"""Linux's prctl: the signal that the child gets when we are killed ourselves."""

STEADY_S = 60.0
"""A child that ran for this long was healthy: its next failure counts as the first."""

Say = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """How to treat the child."""

    command: tuple[str, ...]
    control: str | None = None
    """The path of the socket; None makes a temporary one."""
    drain_s: float = 20.0
    grace_s: float = 10.0
    """From SIGTERM to SIGKILL. Together with the drain this is what a terminationGracePeriod has to allow."""
    restart: str = "no"
    """"no", "on-failure" or "always"."""
    max_restarts: int = 10
    """In a row; after a minute of steady running the count starts again."""


@dataclass(slots=True)
class Peer:
    """One connection: a consumer, or a client that asks for a drain."""

    link: socket.socket
    heard: bytes = b""
    member: bool = False
    out: bool = False
    waits: bool = False


class Supervisor:
    """Runs one child until it ends for good."""

    def __init__(self, orders: Orders, say: Say) -> None:
        self._orders = orders
        self._say = say
        self._selector = selectors.DefaultSelector()
        self._peers: dict[int, Peer] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._code: int | None = None
        self._asked = 0
        self._draining_since: float | None = None
        self._had_members = False
        self._stopping = False
        self._deadline: float | None = None

    def run(self) -> int:
        """The exit code of the last child; 128 + n if a signal ended it."""
        with contextlib.ExitStack() as stack:
            path = self._listen(stack)
            self._hear_signals(stack)
            environment = {**os.environ, ENVIRONMENT: path}
            restarts = 0
            while True:
                began = time.monotonic()
                code = self._one_life(environment)
                restarts = 0 if time.monotonic() - began >= STEADY_S else restarts
                if not self._decide_restart(code, restarts):
                    return code
                wait_s = min(BACKOFF_S[0] * 2**restarts, BACKOFF_S[1])
                restarts += 1
                self._say("restarting", wait_s=wait_s, restart=restarts)
                self._deadline = time.monotonic() + wait_s
                while not self._asked and not self._expired():
                    self._wait()
                if self._asked:
                    return code

    def _decide_restart(self, code: int, restarts: int) -> bool:
        wanted = self._orders.restart == "always" or (self._orders.restart == "on-failure" and code != 0)
        if not wanted or self._asked:
            return False
        if restarts >= self._orders.max_restarts:
            self._say("given-up", restarts=restarts)
            return False
        return True

    # -- one life of the child

    def _one_life(self, environment: Mapping[str, str]) -> int:
        self._begin()
        self._child = start(self._orders.command, environment)
        program = Path(self._orders.command[0]).name  # without its arguments, which may hold secrets
        self._say("started", pid=self._child.pid, program=program)
        if self._asked:  # told to stop while it was starting
            self._stop_child("asked to stop")
        while (code := self._reap()) is None:
            if self._draining_since is not None and not self._stopping:
                self._while_draining()
            elif self._stopping and self._expired():
                self._say("killed", after_s=self._orders.grace_s)
                self._signal_child(signal.SIGKILL)
                self._deadline = None
            self._wait()
        self._answer_waiting()
        self._signal_child(signal.SIGKILL)  # what is left of its process group
        self._say("ended", code=code)
        return code

    def _begin(self) -> None:
        self._code = self._draining_since = self._deadline = None
        self._stopping = False

    def _while_draining(self) -> None:
        assert self._draining_since is not None
        if not self._inside():
            if self._had_members:
                self._say("drained", took_ms=round(1_000 * (time.monotonic() - self._draining_since)))
            self._draining_since, self._deadline = None, None
            self._answer_waiting()
            if self._asked:
                self._stop_child(
                    "its consumers are out"
                    if self._had_members
                    else "it has no holdfast consumers: there is nothing to drain"
                )
        elif self._expired():
            self._say("drain-timed-out", after_s=self._orders.drain_s, members=len(self._inside()))
            self._draining_since, self._deadline = None, None
            if self._asked:
                self._stop_child("the drain took too long")

    def _inside(self) -> list[Peer]:
        return [peer for peer in self._peers.values() if peer.member and not peer.out]

    def _drain(self) -> None:
        if self._draining_since is not None:
            return
        self._draining_since = time.monotonic()
        self._deadline = self._draining_since + self._orders.drain_s
        inside = self._inside()
        self._had_members = bool(inside)
        if inside:
            self._say("draining", members=len(inside))
        for peer in inside:
            self._tell(peer, DRAIN)

    def _stop_child(self, why: str) -> None:
        self._stopping = True
        self._say("stopping", why=why)
        self._signal_child(signal.SIGTERM, group=False)
        self._deadline = time.monotonic() + self._orders.grace_s

    def _signal_child(self, number: int, *, group: bool = True) -> None:
        assert self._child is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(self._child.pid, number)  # it leads a group of its own
            elif self._code is None:
                os.kill(self._child.pid, number)

    def _reap(self) -> int | None:
        """The child's exit code, once it has one."""
        assert self._child is not None
        everybody = os.getpid() == 1  # process 1 of a container must reap orphans
        while self._code is None:
            try:
                pid, status = os.waitpid(-1 if everybody else self._child.pid, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if pid == 0:
                break
            if pid == self._child.pid:
                code = os.waitstatus_to_exitcode(status)
                self._child.returncode = code
                self._code = code if code >= 0 else 128 - code
        return self._code

    # -- what happens

    def _expired(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _wait(self) -> None:
        timeout = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        for key, _ in self._selector.select(timeout):
            key.data()

    def _hear_signals(self, stack: contextlib.ExitStack) -> None:
        """Signals wake the loop through a socket; `_signalled` handles them."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
            stack.callback(end.close)
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        stack.callback(signal.set_wakeup_fd, before)
        for number in (*STOPPING, *PASSED_ON, signal.SIGCHLD):
            stack.callback(signal.signal, number, signal.signal(number, lambda *_: None))
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._signalled(ours))
        stack.callback(self._selector.close)

    def _signalled(self, ours: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in ours.recv(4_096):
                if number in STOPPING:
                    self._told_to_stop(signal.Signals(number).name)
                elif number in PASSED_ON and self._child is not None:
                    self._signal_child(number, group=False)

    def _told_to_stop(self, name: str) -> None:
        self._asked += 1
        self._say("signalled", signal=name)
        if self._child is None or self._code is not None:
            return
        if self._asked == 1:
            self._drain()
        elif not self._stopping:
            self._stop_child("asked twice")
        else:
            self._signal_child(signal.SIGKILL)

    # -- the socket

    def _listen(self, stack: contextlib.ExitStack) -> str:
        path = self._orders.control
        if path is None:
            path = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-run-"))) / "control")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stack.callback(listener.close)
        mask = os.umask(0o177)  # only this user may connect
        try:
            _bind(listener, path)
        finally:
            os.umask(mask)
        stack.callback(Path(path).unlink, missing_ok=True)
        listener.listen()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        stack.callback(self._hang_up)
        return path

    def _hang_up(self) -> None:
        for peer in self._peers.values():
            peer.link.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            link, _ = listener.accept()
            if len(self._peers) >= MAX_CONNECTIONS:
                link.close()
                return
            link.setblocking(False)
            self._peers[link.fileno()] = peer = Peer(link)
            self._selector.register(link, selectors.EVENT_READ, lambda: self._heard(peer))

    def _heard(self, peer: Peer) -> None:
        try:
            data = peer.link.recv(MAX_LINE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        peer.heard += data
        if not data or len(peer.heard) > 2 * MAX_LINE:
            self._forget(peer)
            return
        *lines, peer.heard = peer.heard.split(b"\n")
        for line in lines:
            self._obey(peer, word(line))

    def _obey(self, peer: Peer, what: str | None) -> None:
        if what == MEMBER:
            peer.member = True
            if self._draining_since is not None or self._stopping:
                self._tell(peer, DRAIN)  # it joined after the drain began
        elif what == DRAINED:
            peer.out = True
        elif what == STOP:
            peer.waits = True
            self._drain()
            if self._draining_since is not None:
                self._while_draining()

    def _tell(self, peer: Peer, what: str) -> None:
        with contextlib.suppress(OSError):
            peer.link.send(said(what))

    def _answer_waiting(self) -> None:
        for peer in list(self._peers.values()):
            if peer.waits:
                peer.waits = False
                self._tell(peer, DRAINED)

    def _forget(self, peer: Peer) -> None:
        self._selector.unregister(peer.link)
        del self._peers[peer.link.fileno()]
        peer.link.close()


def start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start it in a session of its own: Ctrl-C reaches only us, and its own children can be ended with it."""
    control = ctypes.CDLL(None, use_errno=True).prctl

    def end_with_us() -> None:
        control(PR_SET_PDEATHSIG, signal.SIGTERM)

    try:
        return subprocess.Popen(
            list(command),
            env=dict(environment),
            start_new_session=True,
            preexec_fn=end_with_us,  # noqa: PLW1509  # no thread runs here that could hold a lock over the fork
        )
    except OSError as error:
        raise HoldfastError(
            "COMMAND_NOT_STARTED",
            f"{command[0]} can't be started: {error.strerror}.",
            "Check its name, its path and its permissions.",
        ) from None


def _bind(listener: socket.socket, path: str) -> None:
    try:
        listener.bind(path)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise HoldfastError(
                "CONTROL_SOCKET", f"{path} can't be a socket: {error.strerror}.", "Choose a folder that can be written."
            ) from None
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
            probe.connect(path)
            raise HoldfastError(
                "CONTROL_SOCKET", f"another holdfast run listens on {path}.", "Give each its own --control."
            ) from None
        Path(path).unlink()  # left by a supervisor that was killed
        listener.bind(path)


def ask_to_drain(path: str, timeout_s: float) -> bool:
    """For a preStop hook: ask for a drain, and return when the consumers are out of their groups."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(timeout_s)
        try:
            link.connect(path)
            link.sendall(said(STOP))
            heard = b""
            while b"\n" not in heard:
                data = link.recv(MAX_LINE)
                if not data:
                    return True  # the supervisor ended, and its child with it
                heard += data
        except TimeoutError:
            return False
        except OSError as error:
            raise HoldfastError(
                "NO_SUPERVISOR", f"nobody listens on {path}: {error.strerror}.", "Is holdfast run running there?"
            ) from None
    return word(heard.split(b"\n")[0]) == DRAINED
