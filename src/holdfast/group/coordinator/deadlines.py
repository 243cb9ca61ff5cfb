"""Deadlines by key: the one timer of a machine.

Moving a deadline later, which every heartbeat does, costs two dictionary operations: the heap keeps the old entry and
looks at the new deadline when the old one comes up. Entries that mean nothing any more are dropped on the way, and the
heap is rebuilt when they outnumber the others, so that it stays as large as what is really awaited (KAFKA-8896).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", str, tuple[int, str])

SPARE_ENTRIES = 64
"""Stale heap entries that are not worth a rebuild."""


class Deadlines(Generic[K]):
    """When each key is due. Keys are comparable, so that equal deadlines have an order."""

    __slots__ = ("_armed", "_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._armed: dict[K, float] = {}
        """The earliest heap entry of each key; the others are stale."""
        self._heap: list[tuple[float, K]] = []

    def __len__(self) -> int:
        return len(self._due)

    @property
    def entries(self) -> int:
        """How many entries are in memory, stale ones included."""
        return max(len(self._heap), len(self._armed))

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def get(self, key: K) -> float | None:
        return self._due.get(key)

    def set(self, key: K, at: float) -> None:
        self._due[key] = at
        armed = self._armed.get(key)
        if armed is None or at < armed:
            self._armed[key] = at
            heappush(self._heap, (at, key))
            if len(self._heap) > 2 * len(self._due) + SPARE_ENTRIES:
                self._rebuild()

    def clear(self, key: K) -> None:
        self._due.pop(key, None)

    def clear_all(self) -> None:
        self._due.clear()
        self._rebuild()

    def next(self) -> float | None:
        """The earliest deadline."""
        heap = self._heap
        while heap:
            at, key = heap[0]
            due = self._due.get(key)
            if due == at and self._armed.get(key) == at:
                return at
            heappop(heap)
            if self._armed.get(key) != at:
                continue
            if due is None:
                del self._armed[key]
            else:
                self._armed[key] = due
                heappush(heap, (due, key))
        return None

    def pop_due(self, now: float) -> K | None:
        """Take the earliest key that is due, if there is one."""
        at = self.next()
        if at is None or at > now:
            return None
        _, key = heappop(self._heap)
        del self._due[key]
        del self._armed[key]
        return key

    def _rebuild(self) -> None:
        self._armed = dict(self._due)
        self._heap = [(at, key) for key, at in self._due.items()]
        heapify(self._heap)
