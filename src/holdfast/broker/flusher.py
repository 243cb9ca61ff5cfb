"""Syncs without blocking the event loop: all appends that came during one sync share the next (group commit).

Under `--flush always` an append is acknowledged after the sync; under `interval` a round starts when it is due. A round
runs in a thread, one at a time. Waiting callbacks are called on the loop, with the error if the disk refused.

A file whose sync failed is rewritten, also in a thread, beside the rounds. Nothing is appended to it meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.mend import Mend
from holdfast.broker.storage.store import Store
from holdfast.broker.storage.sync import NO_FAILURES, Failures, FlushPolicy, SyncRound

log = logging.getLogger("holdfast.broker")

WhenSynced = Callable[[Failures], None]
"""Called with what could not be synced; `Failures` is false if that is nothing."""


class Flusher:
    """One per broker."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[WhenSynced] = []
        self._round: asyncio.Future[SyncRound] | None = None
        self._mend: asyncio.Future[Mend] | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many wait for the next sync, which has not begun."""
        return len(self._waiting)

    @property
    def needed(self) -> bool:
        """Whether an append may be acknowledged only after a sync."""
        return self._store.flush is FlushPolicy.ALWAYS

    def after_sync(self, when_synced: WhenSynced) -> None:
        """Call `when_synced` when everything appended so far has been synced, or its sync has failed."""
        self._waiting.append(when_synced)
        if self._round is None:
            self._begin()

    def tick(self) -> None:
        """Call now and then: starts the interval policy's round, and rewrites broken files."""
        if self._round is None and self._store.sync_due():
            self._begin()
        self._begin_mend()

    async def drained(self) -> None:
        """Wait for what runs in threads, and begin nothing more."""
        self._closed = True
        while (running := self._round or self._mend) is not None:
            await asyncio.wait([running])
            await asyncio.sleep(0)  # its callback runs in the loop's next turn

    # Rounds

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        taken = self._store.take_sync()
        if taken is None:
            for when_synced in waiting:
                when_synced(NO_FAILURES)
            return
        self._round = asyncio.get_running_loop().run_in_executor(None, taken.run)
        self._round.add_done_callback(lambda done: self._end(done, waiting))

    def _end(self, done: asyncio.Future[SyncRound], waiting: list[WhenSynced]) -> None:
        self._round = None
        if done.cancelled():
            return
        failures = self._store.finish_sync(done.result())
        if failures:
            log.error("%s %s", failures.first.what, failures.first.do)
        for when_synced in waiting:
            when_synced(failures)
        if self._waiting and self._round is None:
            self._begin()
        if failures:
            self._begin_mend()

    # Rewriting files

    def _begin_mend(self) -> None:
        if self._mend is not None or self._closed:
            return
        mend = self._store.take_mend()
        if mend is not None:
            self._mend = asyncio.get_running_loop().run_in_executor(None, mend.run)
            self._mend.add_done_callback(self._end_mend)

    def _end_mend(self, done: asyncio.Future[Mend]) -> None:
        self._mend = None
        if done.cancelled():
            return
        try:
            self._store.finish_mend(done.result())
        except StorageError as error:
            log.error("%s %s", error.what, error.do)
        else:
            log.warning("%s was rewritten after its sync had failed", done.result().path)
            self._begin_mend()
