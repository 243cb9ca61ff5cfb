"""The way from a driver's Python to the reader of one of its queries: a socket, one question a connection.

Spark gives the reader a process of its own and no way to talk to it but the source's own calls. So it listens on a Unix
socket whose name tells whose child it is. Both are on one machine and of one user; anybody else is turned away. A
question is one line, an answer is one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.model import HoldfastError

if TYPE_CHECKING:
    import asyncio

PREFIX = "holdfast-spark"
SOCKETS = Path("/proc/net/unix")
MAX_LINE = 1_000_000
"""A report of ten thousand partitions is half of this."""
_CREDENTIALS = struct.Struct("=3i")

Answerer = Callable[[str], Awaitable[dict[str, Any]]]


def _name(driver: int, reader: int) -> str:
    return f"\0{PREFIX}-{driver}-{reader}"  # abstract: it ends with the process and leaves no file


async def open_door(answer: Answerer) -> asyncio.Server:
    """Answer questions until closed. Runs in the reader, whose parent is the driver's JVM."""
    import asyncio  # here: drivers and planners import this module and have no loop

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError):  # whoever asked has gone, or never asked
            if _user(writer.get_extra_info("socket")) == os.getuid():
                question = (await reader.readline()).decode().strip()
                writer.write(json.dumps(await answer(question)).encode() + b"\n")
                await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(serve, path=_name(os.getppid(), os.getpid()), limit=MAX_LINE)


def _user(link: Any) -> int:
    data = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(data)
    return int(user)


def readers(driver: int) -> list[int]:
    """The process ids of all readers that belong to this JVM, sorted."""
    start = f"@{PREFIX}-{driver}-"
    names = {line.split()[-1] for line in SOCKETS.read_text().splitlines() if start in line}
    return sorted(int(name.removeprefix(start)) for name in names)


def ask(driver: int, reader: int, question: str, *, timeout_s: float) -> dict[str, Any]:
    """One question to one reader."""
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(timeout_s)
            link.connect(_name(driver, reader))
            link.sendall(question.encode() + b"\n")
            with link.makefile("r") as answers:
                line = answers.readline(MAX_LINE)
        found: dict[str, Any] = json.loads(line)
    except TimeoutError:
        raise HoldfastError(
            "READER_SILENT",
            f"the query's reader (process {reader}) did not answer {question!r} within {timeout_s:g} s.",
            "A batch that takes long holds up a drain: wait longer, or stop the query.",
        ) from None
    except (OSError, ValueError):
        raise HoldfastError(
            "READER_GONE", f"the query's reader (process {reader}) has ended.", "Look at query.exception()."
        ) from None
    return found
