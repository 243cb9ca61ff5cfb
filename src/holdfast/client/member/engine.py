"""One loop on one thread for the background work of many consumers: fetching, and the control planes of asyncio ones.

Two hundred members in a process would otherwise need two hundred threads. Consumers with the same connection settings
share the cluster's metadata and one connection for short requests. Requests that a broker may hold back (joins,
fetches) use connections of their own, per consumer. The thread ends with its last user.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from holdfast.net.cluster import Cluster
from holdfast.net.config import ClientConfig
from holdfast.net.loop_thread import Broken, LoopThread

T = TypeVar("T")


class Engine:
    """A loop on a thread, and the clusters that its users share. Use `acquire` and `release`."""

    def __init__(self) -> None:
        self.users = 0
        self.pid = os.getpid()
        self._listeners: list[Broken] = []
        self._clusters: dict[tuple[ClientConfig, int], tuple[Cluster, int]] = {}
        self.thread = LoopThread("holdfast-engine", broken=self._broken)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.thread.loop

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return self.thread.submit(work)

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        return self.thread.call(work, timeout_s)

    # -- on the loop

    def cluster(self, config: ClientConfig) -> Cluster:
        """The shared Cluster for this configuration; call `let_go` when done with it."""
        key = (config, _whose(config))
        found, users = self._clusters.get(key, (None, 0))
        cluster = Cluster(config) if found is None else found
        self._clusters[key] = (cluster, users + 1)
        return cluster

    async def let_go(self, cluster: Cluster) -> None:
        key = (cluster.config, _whose(cluster.config))
        held, users = self._clusters[key]
        if users > 1:
            self._clusters[key] = (held, users - 1)
            return
        del self._clusters[key]
        await held.close()

    def listen(self, broken: Broken) -> None:
        """Be told of uncaught exceptions: a defect in shared code concerns every consumer."""
        self._listeners.append(broken)

    def unlisten(self, broken: Broken) -> None:
        if broken in self._listeners:
            self._listeners.remove(broken)

    def _broken(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._listeners:
            loop.default_exception_handler(context)
        for listener in list(self._listeners):
            listener(loop, context)


def _whose(config: ClientConfig) -> int:
    """Part of the key for sharing. A consumer with user and password may change them, so it shares with nobody."""
    sasl = config.security.sasl
    return 0 if sasl is None or sasl.token is not None else id(sasl.login)


_LOCK = threading.Lock()
_current: list[Engine] = []


def acquire() -> Engine:
    """This process's engine. A forked child does not inherit its parent's thread, so it gets an engine of its own."""
    with _LOCK:
        if not _current or _current[0].pid != os.getpid():
            _current[:] = [Engine()]
        engine = _current[0]
        engine.users += 1
        return engine


def release(engine: Engine) -> None:
    with _LOCK:
        engine.users -= 1
        if engine.users > 0 or engine.pid != os.getpid():
            return
        if _current and _current[0] is engine:
            _current.clear()
    engine.thread.stop()
