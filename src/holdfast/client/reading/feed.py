"""What fills a batch reader's buffer: our fetcher on the shared engine, and the cluster as its connections see it.

A `BatchReader` asks for a `Feed` and does not know engines or connections, so its tests need none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Protocol

from holdfast.client.member import engine as engines
from holdfast.net.cluster import Address
from holdfast.net.config import ClientConfig
from holdfast.net.errors import NetError
from holdfast.net.fetched_bytes import FetchedBytes
from holdfast.net.fetching import Fetcher
from holdfast.net.flow_values import FetchSettings
from holdfast.net.flows import Flows
from holdfast.net.metadata import ClusterInfo

CLOSE_S = 5.0
"""How long closing connections may take."""

Watcher = Callable[[Address, NetError | None], None]


class Feed(Protocol):
    """Fills `flows` while it is open."""

    @property
    def flows(self) -> Flows: ...

    @property
    def info(self) -> ClusterInfo:
        """Immutable and replaced as a whole, so any thread may read it."""

    def addresses(self) -> list[Address]: ...

    def watch(self, watcher: Watcher) -> None:
        """Call this, on another thread, with the result of every attempt to connect."""

    def close(self) -> None: ...


class EngineFeed:
    """A `Feed` on the engine that this process's consumers share."""

    def __init__(
        self,
        config: ClientConfig,
        settings: FetchSettings,
        *,
        wake: Callable[[], None],
        throttled: Callable[[int, int], None],
        fetched: FetchedBytes | None,
    ) -> None:
        self._engine = engines.acquire()
        self._watchers: list[Watcher] = []

        async def opened() -> Fetcher:
            self._cluster = self._engine.cluster(config)
            return Fetcher(self._cluster, settings, wake=wake, throttled=throttled, fetched=fetched)

        self._fetcher = self._engine.call(opened())
        self.flows = self._fetcher.flows

    @property
    def info(self) -> ClusterInfo:
        return self._cluster.info

    def addresses(self) -> list[Address]:
        return self._cluster.addresses()

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)
        self._engine.loop.call_soon_threadsafe(self._cluster.watchers.append, watcher)

    def close(self) -> None:
        engine = self._engine

        async def shut() -> None:
            self._cluster.watchers = [watcher for watcher in self._cluster.watchers if watcher not in self._watchers]
            await self._fetcher.close()
            await engine.let_go(self._cluster)

        with contextlib.suppress(TimeoutError):  # what takes longer goes on
            engine.submit(shut()).result(CLOSE_S)
        engines.release(engine)
