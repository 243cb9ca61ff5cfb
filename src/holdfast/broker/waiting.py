"""Fetches that wait for records: woken by appends, never by polling.

A fetch that found less than its `min_bytes` is entered with the partitions it asked for. Appends count towards it; when
there is enough, or its time is up, it is run again. Wake-ups happen in the event loop's next turn, so that a produce
request to many partitions wakes a fetch once, and an append never runs another request's code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from uuid import UUID

Partition = tuple[UUID, int]


class Waiter:
    __slots__ = ("done", "partitions", "run", "timer", "wanted")

    def __init__(self, partitions: tuple[Partition, ...], wanted: int, run: Callable[[], None]) -> None:
        self.partitions = partitions
        self.wanted = wanted
        self.run = run
        self.timer: asyncio.TimerHandle | None = None
        self.done = False


class Waiting:
    """All waiting fetches of a broker."""

    def __init__(self) -> None:
        self._by_partition: dict[Partition, set[Waiter]] = {}

    def __len__(self) -> int:
        return len({waiter for waiters in self._by_partition.values() for waiter in waiters})

    def wait(
        self, partitions: Iterable[Partition], *, wanted: int, seconds: float, run: Callable[[], None]
    ) -> Callable[[], None]:
        """Call `run` once `wanted` more bytes came to `partitions`, or after `seconds`. Returns a way to cancel it."""
        waiter = Waiter(tuple(partitions), wanted, run)
        for partition in waiter.partitions:
            self._by_partition.setdefault(partition, set()).add(waiter)
        waiter.timer = asyncio.get_running_loop().call_later(seconds, self._wake, waiter)
        return lambda: self._forget(waiter)

    def appended(self, partition: Partition, count: int) -> None:
        """`count` bytes were appended, and may be read."""
        waiters = self._by_partition.get(partition)
        if waiters is None:
            return
        for waiter in tuple(waiters):
            waiter.wanted -= count
            if waiter.wanted <= 0:
                self._soon(waiter)

    def changed(self, partitions: Iterable[Partition]) -> None:
        """Something else happened to these partitions (deleted, cut): fetches that wait for them must look again."""
        for partition in partitions:
            for waiter in tuple(self._by_partition.get(partition, ())):
                self._soon(waiter)

    def _soon(self, waiter: Waiter) -> None:
        self._forget(waiter)
        asyncio.get_running_loop().call_soon(waiter.run)

    def _wake(self, waiter: Waiter) -> None:
        if not waiter.done:
            self._forget(waiter)
            waiter.run()

    def _forget(self, waiter: Waiter) -> None:
        if waiter.done:
            return
        waiter.done = True
        if waiter.timer is not None:
            waiter.timer.cancel()
        for partition in waiter.partitions:
            waiters = self._by_partition.get(partition)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    del self._by_partition[partition]
