"""All watched groups, the list of all groups, and their one connection to the brokers.

The brokers are not asked while nobody watches. A viewer that comes back within `GRACE_S` still finds the past.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.model import HoldfastError
from holdfast.net.admin_groups import GroupAdmin
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.net.errors import NetError
from holdfast.net.group_snapshots import read_group
from holdfast.observe.snapshot import GroupSnapshot
from holdfast.ui.live.tails import Tails
from holdfast.ui.live.topic import TraceTopic
from holdfast.ui.live.watch import Watch
from holdfast.ui.work import in_thread

log = logging.getLogger("holdfast.ui")

MOST_VIEWERS = 64
MOST_GROUPS = 16
"""The most groups watched at a time."""
LIST_S = 2.0
GRACE_S = 3.0
"""How long a group is still watched after its last viewer has gone, who may just reload the page."""


class Hub:
    """Lives on the page's event loop."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        groups: tuple[str, ...] = (),
        traces: tuple[Path, ...] = (),
        trace_topic: str = "",
    ) -> None:
        """Only `groups` are shown; all groups if it is empty."""
        self._settings = settings
        self._only = groups
        self._traces = traces
        self._topic = TraceTopic(settings, trace_topic) if trace_topic else None
        self._cluster: Cluster | None = None
        self._opening = asyncio.Lock()
        self._watches: dict[str, Watch] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        self.viewers = 0
        self.listed: list[dict[str, str]] = []
        self.lists = 0
        """Goes up when the list changes."""
        self.list_problem: HoldfastError | None = None

    # -- viewers

    @contextlib.asynccontextmanager
    async def viewing(self, group: str) -> AsyncIterator[Watch | None]:
        """A viewer watches this group; without a name, only the list of groups."""
        if self.viewers >= MOST_VIEWERS:
            raise HoldfastError(
                "TOO_MANY_VIEWERS", f"{MOST_VIEWERS} pages look at groups already.", "Close some of them."
            )
        watch = self._watch(group) if group else None
        self.viewers += 1
        if "" not in self._tasks:
            self._start("", self._keep_listing())
        if watch is not None:
            watch.viewers += 1
        try:
            yield watch
        finally:
            self.viewers -= 1
            if watch is not None:
                watch.viewers -= 1
            asyncio.get_running_loop().call_later(GRACE_S, self._stop_unseen)

    def _watch(self, group: str) -> Watch:
        if self._only and group not in self._only:
            raise HoldfastError(
                "GROUP_NOT_SHOWN", f"{group!r} is not one of the groups shown here.", "Start the page without --group."
            )
        if group not in self._watches:
            if len(self._watches) >= MOST_GROUPS:
                raise HoldfastError(
                    "TOO_MANY_GROUPS", f"{MOST_GROUPS} groups are watched already.", "Close some of the pages."
                )
            watch = self._watches[group] = Watch(group, self.look, Tails(self._traces), self.changed, self._topic)
            self._start(group, watch.run())
        return self._watches[group]

    def _start(self, name: str, work: Any) -> None:
        task = self._tasks[name] = asyncio.create_task(work)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("watching failed", exc_info=error)

    def _stop_unseen(self) -> None:
        for group in [name for name, watch in self._watches.items() if watch.viewers == 0]:
            del self._watches[group]
            self._tasks.pop(group).cancel()
        if self.viewers == 0 and "" in self._tasks:
            self._tasks.pop("").cancel()

    @property
    def watching(self) -> tuple[Watch, ...]:
        """The groups that are watched, whoever looks at them."""
        return tuple(self._watches.values())

    @property
    def idle(self) -> bool:
        """Whether nothing is looked at."""
        return not self._watches and not self._tasks

    def watched(self, group: object) -> dict[str, Any]:
        """The newest story of a watched group."""
        watch = self._watches.get(group) if isinstance(group, str) else None
        if watch is None or watch.story is None:
            raise HoldfastError(
                "GROUP_NOT_WATCHED", f"nobody watches group {group!r}.", "Open it on the page and ask again."
            )
        return watch.story

    # -- news

    def changed(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def news(self, timeout_s: float) -> bool:
        """Wait for news; False if the time is up."""
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._news.wait(), timeout_s)
        return False

    # -- the brokers

    async def _reached(self) -> Cluster:
        async with self._opening:
            if self._cluster is None:
                cluster = Cluster(client_config(self._settings))
                await cluster.__aenter__()
                self._cluster = cluster
            return self._cluster

    async def look(self, group: str) -> GroupSnapshot:
        return await read_group(await self._reached(), group)

    async def _keep_listing(self) -> None:
        while True:
            began = time.monotonic()
            try:
                found = await self.list_groups()
                problem: HoldfastError | None = None
            except NetError as error:
                found, problem = self.listed, error
            except Exception as error:
                log.exception("listing the groups failed")
                found = self.listed
                problem = HoldfastError(
                    "PAGE_FAULT", f"listing the groups failed: {error}.", "That is a fault of holdfast."
                )
            if found != self.listed or str(problem) != str(self.list_problem):
                self.listed, self.list_problem = found, problem
                self.lists += 1
                self.changed()
            await asyncio.sleep(max(LIST_S, 4 * (time.monotonic() - began)))

    async def list_groups(self) -> list[dict[str, str]]:
        found = await GroupAdmin(await self._reached()).list_groups()
        groups = {one.group: one.state for one in found if one.protocol_type in ("consumer", "")}
        names = self._only or tuple(sorted(groups))
        return [{"group": name, "state": groups.get(name, "")} for name in names]

    async def close(self) -> None:
        """Stop all watching, and wake the viewers so that they see that the server ends."""
        self.changed()
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        self._watches.clear()
        if self._topic is not None:
            await in_thread(self._topic.close)
        if self._cluster is not None:
            await self._cluster.__aexit__(None, None, None)
            self._cluster = None
