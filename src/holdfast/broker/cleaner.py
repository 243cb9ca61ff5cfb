"""Frees space without blocking the event loop: files are removed in a thread, retention is decided in slices.

One share of files is removed at a time, oldest work first. What the disk refuses is tried again after a while. A
stop waits for the share under way, and the store sees to the rest: now, or at the next start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from holdfast.broker.slices import DELETE, Slices, in_lane
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.space import Removal, Space

log = logging.getLogger("holdfast.broker")

AGAIN_SECONDS = 10.0
"""After the disk refused: trying again at once would fill the log."""


class Cleaner:
    """One per broker."""

    def __init__(self, space: Space, slices: Slices) -> None:
        self._space = space
        self._slices = slices
        self._removal: asyncio.Future[Removal] | None = None
        self._retaining = False
        self._closed = False
        self._not_before = 0.0
        space.remove_later()

    def tick(self) -> None:
        """Call every second or so."""
        if self._closed:
            return
        self._retain()
        if time.monotonic() >= self._not_before:
            try:
                self._space.complete()
            except StorageError as error:
                self._put_off(error)
        self._remove()

    async def drained(self) -> None:
        """Wait for what runs in the thread, and begin nothing more."""
        self._closed = True
        while self._removal is not None:
            await asyncio.wait([self._removal])
            await asyncio.sleep(0)  # its callback runs in the loop's next turn

    def _remove(self) -> None:
        if self._removal is not None or self._closed or time.monotonic() < self._not_before:
            return
        removal = self._space.take()
        if removal is not None:
            self._removal = asyncio.get_running_loop().run_in_executor(None, removal.run)
            self._removal.add_done_callback(self._removed)

    def _removed(self, done: asyncio.Future[Removal]) -> None:
        self._removal = None
        if done.cancelled():
            return
        try:
            self._space.finish(done.result())
        except StorageError as error:
            self._put_off(error)
        self._remove()

    def _put_off(self, error: StorageError) -> None:
        log.error("%s %s", error.what, error.do)
        self._not_before = time.monotonic() + AGAIN_SECONDS

    def _retain(self) -> None:
        share = None if self._retaining else self._space.retention_due()
        if share is not None:
            self._retaining = True
            self._slices.run_later(in_lane(share, DELETE), self._retained)

    def _retained(self, outcome: Callable[[], object]) -> None:
        self._retaining = False
        try:
            outcome()
        except StorageError as error:
            log.error("%s %s", error.what, error.do)
        self._remove()
