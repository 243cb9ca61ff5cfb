"""Syncing without holding up the event loop: appends that came while one sync ran share the next (group commit).

Only for `--flush always`; the other policies acknowledge at once. A round runs in a thread, one at a time; whoever
waits is told on the loop, with the error if the disk refused. Groups sync their journal themselves, on the loop: a
record there must be durable before anything else happens to the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.store import Store
from holdfast.broker.storage.sync import FlushPolicy, SyncRound

Told = Callable[[StorageError | None], None]


class Flusher:
    """One per broker."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[Told] = []
        self._round: asyncio.Future[SyncRound] | None = None

    @property
    def needed(self) -> bool:
        """Whether an append may be acknowledged only after a sync."""
        return self._store.flush is FlushPolicy.ALWAYS

    def after_sync(self, told: Told) -> None:
        """Call `told` once everything appended so far is on the disk, or can't be."""
        self._waiting.append(told)
        if self._round is None:
            self._begin()

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        taken = self._store.take_sync()
        if taken is None:
            # The journal's own sync took our files along.
            _tell(waiting, None)
            return
        self._round = asyncio.get_running_loop().run_in_executor(None, taken.run)
        self._round.add_done_callback(lambda done: self._end(done, waiting))

    def _end(self, done: asyncio.Future[SyncRound], waiting: list[Told]) -> None:
        self._round = None
        if done.cancelled():
            return
        error = None
        try:
            self._store.finish_sync(done.result())
        except StorageError as refused:
            error = refused
        _tell(waiting, error)
        if self._waiting and self._round is None:
            self._begin()


def _tell(waiting: list[Told], error: StorageError | None) -> None:
    for told in waiting:
        told(error)
