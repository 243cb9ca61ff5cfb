"""The consumer's half of `holdfast run`: the supervisor of this process may ask its consumers to drain.

`holdfast run` names a socket of its own in the environment. Every member of a supervised process reports there, in
lines of JSON: that it is a member, and later that it is out of its group. The only order it gets is to drain. Most
processes have no supervisor, which costs nothing. If the supervisor goes away, nothing changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable

ENVIRONMENT = "HOLDFAST_SUPERVISOR"
"""The path of the supervisor's socket."""

MAX_LINE = 4_096
DRAIN, MEMBER, DRAINED, STOP = "drain", "member", "drained", "please-drain"
"""To a member; from a member; from a member that is out, and to a client that asked for a drain; from such a client."""


def socket_path() -> str | None:
    return os.environ.get(ENVIRONMENT) or None


async def obey(path: str, *, group: str, drain: Callable[[], None], out: asyncio.Event) -> None:
    """Report to the supervisor, drain when it asks, and report when we are out. Ends with the connection."""
    with contextlib.suppress(OSError, ValueError):
        reader, writer = await asyncio.open_unix_connection(path, limit=MAX_LINE)
        try:
            writer.write(said(MEMBER, pid=os.getpid(), group=group))
            leaving = asyncio.ensure_future(_report(writer, out))
            try:
                while line := await reader.readline():
                    if word(line) == DRAIN:
                        drain()
            finally:
                leaving.cancel()
        finally:
            writer.close()


async def _report(writer: asyncio.StreamWriter, out: asyncio.Event) -> None:
    await out.wait()
    with contextlib.suppress(OSError):
        writer.write(said(DRAINED))
        await writer.drain()


def said(what: str, **more: object) -> bytes:
    """One message on the supervisor's socket."""
    return json.dumps({"say": what, **more}, sort_keys=True).encode() + b"\n"


def word(line: bytes) -> str | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    found = message.get("say") if isinstance(message, dict) else None
    return found if isinstance(found, str) else None
