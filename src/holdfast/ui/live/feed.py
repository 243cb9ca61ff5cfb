"""Server-sent events for one viewer: the list of groups, the chosen group's stories, and problems.

A viewer has no queue: after each event it gets the newest one that it has not seen. So a slow viewer costs no memory,
and misses what was in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from holdfast.model import HoldfastError
from holdfast.ui.live.hub import Hub
from holdfast.ui.live.watch import Watch, message

QUIET_S = 2.0
"""After this long without news a comment is sent, so that the page sees that the connection lives."""


async def events(hub: Hub, watch: Watch | None, ending: asyncio.Event) -> AsyncIterator[bytes]:
    """Events until the server ends."""
    lists = number = -1
    trouble = ""
    yield b": holdfast\n\n"
    while not ending.is_set():
        sent = False
        if hub.lists != lists:
            lists, sent = hub.lists, True
            yield message("groups", hub.listed)
        problem = (watch and watch.problem) or hub.list_problem
        if (str(problem) if problem else "") != trouble:
            trouble, sent = str(problem) if problem else "", True
            yield message("problem", _as_json(problem))
        if watch is not None and watch.number > max(0, number):
            number, sent = watch.number, True
            yield watch.message
        if not sent and not await hub.news(QUIET_S):
            yield b": still here\n\n"


def _as_json(problem: HoldfastError | None) -> dict[str, str] | None:
    return None if problem is None else {"code": problem.code, "what": problem.what, "do": problem.do}
