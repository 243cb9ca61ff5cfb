"""The way from a driver's Python to the reader of one of its queries: a socket, one question a connection.

Spark gives the reader a process of its own and no way to talk to it but the source's own calls. So it listens on a Unix
socket whose name tells whose child it is. A question is one line, an answer is one line of JSON.

Names of abstract sockets belong to the network, which containers may share while each counts its processes from 1. So a
name begins with the reader's process namespace, and ends with something that nobody can guess and take first. Anybody
may bind a name that looks like ours, so what is found is believed only if its process is the driver's child, and what
answers only if it is that process and of our user. Readers turn away other users in turn.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.model import HoldfastError

if TYPE_CHECKING:
    import asyncio

KIND = "holdfast-spark"
SOCKETS = Path("/proc/net/unix")
PROCESSES = Path("/proc")
MAX_LINE = 1_000_000
"""A report of ten thousand partitions is half of this."""
_CREDENTIALS = struct.Struct("=3i")

Answerer = Callable[[str], Awaitable[dict[str, Any]]]


def namespace() -> int:
    """The namespace that our process ids are counted in; 0 where the kernel does not say."""
    try:
        return (PROCESSES / "self/ns/pid").stat().st_ino
    except OSError:
        return 0


async def open_door(answer: Answerer) -> asyncio.Server:
    """Answer questions until closed. Runs in the reader, whose parent is the driver's JVM."""
    import asyncio  # here: drivers and planners import this module and have no loop

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError):  # whoever asked has gone, or never asked
            if user_of(writer.get_extra_info("socket")) == os.getuid():
                question = (await reader.readline()).decode().strip()
                writer.write(json.dumps(await answer(question)).encode() + b"\n")
                await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(serve, path=new_name(KIND, os.getppid()), limit=MAX_LINE)


def new_name(kind: str, parent: int) -> str:
    """Of a socket of this process. Abstract: it ends with the process and leaves no file."""
    return f"\0{kind}-{namespace()}-{parent}-{os.getpid()}-{secrets.token_hex(8)}"


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
    """The names of sockets that say they are of this parent's children, by child. A stranger may have made some."""
    wanted = re.compile(rf"@({kind}-{namespace()}-{parent}-(\d{{1,9}})-[0-9a-f]{{16}})$")
    found: dict[int, list[str]] = {}
    # A name may hold any bytes.
    for line in SOCKETS.read_text(errors="replace").splitlines():
        matched = wanted.search(line)
        if matched is not None and _is_child(int(matched[2]), parent):
            names = found.setdefault(int(matched[2]), [])
            if f"\0{matched[1]}" not in names:  # a connection that is open is listed under its name too
                names.append(f"\0{matched[1]}")
    return found


def _is_child(process: int, parent: int) -> bool:
    try:
        status = (PROCESSES / str(process) / "status").read_text()
    except OSError:
        return False  # it has ended, or never was
    found = re.search(r"^PPid:\s*(\d+)$", status, re.MULTILINE)
    return found is not None and int(found[1]) == parent


def ask(driver: int, reader: int, question: str, *, timeout_s: float, kind: str = KIND) -> dict[str, Any]:
    """One question to one reader."""
    try:
        for name in _names(kind, driver).get(reader, ()):
            with contextlib.suppress(ConnectionError), socket.socket(socket.AF_UNIX) as link:
                link.settimeout(timeout_s)
                link.connect(name)
                if peer_of(link) != (reader, os.getuid()):
                    continue  # somebody else under a reader's name
                link.sendall(question.encode() + b"\n")
                with link.makefile("r") as answers:
                    found: dict[str, Any] = json.loads(answers.readline(MAX_LINE))
                return found
    except TimeoutError:
        raise HoldfastError(
            "READER_SILENT",
            f"the query's reader (process {reader}) did not answer {question!r} within {timeout_s:g} s.",
            "A batch that takes long holds up a drain: wait longer, or stop the query.",
        ) from None
    except (OSError, ValueError):
        pass  # it ended in the middle of its answer
    raise HoldfastError(
        "READER_GONE", f"the query's reader (process {reader}) has ended.", "Look at query.exception()."
    )
