"""How a driver's Python talks to the reader of one of its queries: over a Unix socket, one question per connection.

Spark runs the reader in a process of its own, and offers no way to talk to it but the source's own calls. So the reader
listens on a Unix socket whose name says which process is its parent. A question is one line, an answer is one line of
JSON.

Names of abstract sockets are shared within a network namespace. Containers may share one while each counts its
processes from 1. So a name contains the reader's process namespace, and ends with a random part that nobody can guess
and take first. Anybody may bind a name that looks like ours, so a name is used only if its process is the driver's
child, and an answer only if it comes from that process and our user. Readers refuse other users, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.model import HoldfastError

if TYPE_CHECKING:
    import asyncio

KIND = "holdfast-spark"
SOCKETS = Path("/proc/net/unix")
PROCESSES = Path("/proc")
MAX_LINE = 1_000_000
"""A report of ten thousand partitions takes half of this."""
_CREDENTIALS = struct.Struct("=3i")

Answerer = Callable[[str], Awaitable[dict[str, Any]]]


def namespace() -> int:
    """The PID namespace of this process; 0 if the kernel does not say."""
    try:
        return (PROCESSES / "self/ns/pid").stat().st_ino
    except OSError:
        return 0


async def open_door(answer: Answerer) -> asyncio.Server:
    """Answer questions until closed. Runs in the reader, whose parent is the driver's JVM."""
    import asyncio  # not at the top: drivers and planners import this module and need no loop

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError):  # the asker has gone, or sent no question
            if user_of(writer.get_extra_info("socket")) == os.getuid():
                question = (await reader.readline()).decode().strip()
                writer.write(json.dumps(await answer(question)).encode() + b"\n")
                await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(serve, path=new_name(KIND, os.getppid()), limit=MAX_LINE)


def new_name(kind: str, owner: int | str) -> str:
    """A name for a socket of this process. It is abstract: it ends with the process and leaves no file.

    `owner` is what seekers look for: the parent's process id, or a key.
    """
    return f"\0{kind}-{namespace()}-{owner}-{os.getpid()}-{secrets.token_hex(8)}"


def sockets(kind: str, owner: int | str) -> Iterator[tuple[str, int]]:
    """(name, process) of sockets whose names claim this kind and owner. The claim may be false."""
    wanted = re.compile(rf"@({kind}-{namespace()}-{owner}-(\d{{1,9}})-[0-9a-f]{{16}})$")
    for line in SOCKETS.read_text(errors="replace").splitlines():  # a name may hold any bytes
        if (matched := wanted.search(line)) is not None:
            yield f"\0{matched[1]}", int(matched[2])


def user_of(link: Any) -> int:
    return peer_of(link)[1]


def peer_of(link: Any) -> tuple[int, int]:
    """The process (0 if it is not in our namespace) and the user at the other end."""
    data = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(data)
    return int(process), int(user)


def readers(driver: int) -> list[int]:
    """The process ids of all readers that belong to this JVM, sorted."""
    return processes(KIND, driver)


def processes(kind: str, parent: int) -> list[int]:
    """The children of a process that have a socket of this kind, sorted."""
    return sorted(_names(kind, parent))


def _names(kind: str, parent: int) -> dict[int, list[str]]:
    """By child of this process: sockets whose names claim to be that child's. The claim may be false."""
    found: dict[int, list[str]] = {}
    for name, process in dict.fromkeys(sockets(kind, parent)):  # each open connection is listed under its name again
        if _is_child(process, parent):
            found.setdefault(process, []).append(name)
    return found


def _is_child(process: int, parent: int) -> bool:
    try:
        status = (PROCESSES / str(process) / "status").read_text()
    except OSError:
        return False  # it has ended, or never was
    found = re.search(r"^PPid:\s*(\d+)$", status, re.MULTILINE)
    return found is not None and int(found[1]) == parent


def connected(name: str, process: int, *, timeout_s: float) -> socket.socket:
    """A connection to a socket of this process. Raises ConnectionError if another process uses the name."""
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(timeout_s)
        link.connect(name)
        if peer_of(link) != (process, os.getuid()):
            raise ConnectionError("another process uses this name")
    except BaseException:
        link.close()
        raise
    return link


def exchange(link: socket.socket, question: str) -> dict[str, Any]:
    """Ask one question; returns the answer."""
    link.sendall(question.encode() + b"\n")
    with link.makefile("r") as answers:
        found: dict[str, Any] = json.loads(answers.readline(MAX_LINE))
    return found


class Listener:
    """A socket under a name of ours, served by a thread of its own until `close`, or until the process ends.

    `serve` gets each connection of our own user, and closes it, or keeps it open.
    """

    def __init__(self, name: str, serve: Callable[[socket.socket], None], *, thread: str) -> None:
        self._serve = serve
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(name)
        self._socket.listen()
        threading.Thread(target=self._run, name=thread, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread; `close` alone does not
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                link, _ = self._socket.accept()
            except OSError:
                return  # closed
            try:
                if user_of(link) != os.getuid():
                    raise ConnectionError("another user")
                self._serve(link)
            except (OSError, ValueError):  # it has gone, or asked nothing that we understand
                link.close()


def ask(driver: int, reader: int, question: str, *, timeout_s: float, kind: str = KIND) -> dict[str, Any]:
    """One question to one reader."""
    try:
        for name in _names(kind, driver).get(reader, ()):
            # A ConnectionError: the socket is another process's, or is closed. The next name may be the reader's.
            with contextlib.suppress(ConnectionError), connected(name, reader, timeout_s=timeout_s) as link:
                return exchange(link, question)
    except TimeoutError:
        raise HoldfastError(
            "READER_SILENT",
            f"the query's reader (process {reader}) did not answer {question!r} within {timeout_s:g} s.",
            "A batch that takes long holds up a drain: wait longer, or stop the query.",
        ) from None
    except (OSError, ValueError):
        pass  # the reader ended in the middle of its answer: reported below
    raise HoldfastError(
        "READER_GONE", f"the query's reader (process {reader}) has ended.", "Look at query.exception()."
    )
