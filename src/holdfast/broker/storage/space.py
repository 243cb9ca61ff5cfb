"""What frees space: removing files that nothing needs any more, and retention.

A store removes files as soon as it can, a share at a time. A caller with a loop takes the shares, and runs them in a
thread: `removal = take()`, `removal.run()` in the thread, `finish(removal)`. Retention is decided in pieces (see
`work`), and what it cuts off is removed like everything else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.logs import Logs
from holdfast.broker.storage.retention import Retention
from holdfast.broker.storage.sweep import Sweeper, TopicRemoval
from holdfast.broker.storage.topics import Catalog, Topic
from holdfast.broker.storage.trash import SegmentRemoval, Trash
from holdfast.broker.storage.work import Work, run_here

Removal = SegmentRemoval | TopicRemoval
"""A share of the files to be removed. `run` touches nothing else, so it may run in another thread."""


class Space:
    """One for a store."""

    def __init__(self, sweeper: Sweeper, trash: Trash, retention: Retention, logs: Logs, catalog: Catalog) -> None:
        self._sweeper = sweeper
        self._trash = trash
        self._retention = retention
        self._logs = logs
        self._catalog = catalog
        self._trash_next = True
        """Both have their turn, so that one that the disk refuses does not keep the other from being done."""

    def topic_deleted(self, topic: Topic) -> None:
        """What the disk refuses now is tried again with the ticks."""
        self._sweeper.add(topic, self._logs.forget(topic))
        if self._trash.at_once:
            with contextlib.suppress(StorageError):
                self.sweep()

    # By a caller with a loop

    def remove_later(self) -> None:
        """From now on no file is removed here: the caller takes what is to be removed."""
        self._trash.at_once = False

    def take(self) -> Removal | None:
        """None if there is nothing to remove, or shares are under way."""
        if self._trash_next:
            return self._trash.take() or self._sweeper.take()
        return self._sweeper.take() or self._trash.take()

    def finish(self, removal: Removal) -> None:
        """Raises if the disk refused something, which is then taken again."""
        self._trash_next = not isinstance(removal, SegmentRemoval)
        if isinstance(removal, SegmentRemoval):
            self._trash.finish(removal)
        else:
            self._sweeper.finish(removal)
        self.complete()

    def complete(self) -> None:
        """Finish the deletion of topics whose files are gone. Not while the catalog is being written: its journal would
        make us wait. Call it again later."""
        if not self._catalog.writing:
            self._sweeper.complete()

    def retention_due(self) -> Work[None] | None:
        """A tick's share of retention; None if none is due."""
        return self._retention.share() if self._retention.due() else None

    # On this thread

    def sweep(self) -> None:
        """Remove a share of what deleted topics left."""
        if not self._catalog.writing:
            self._sweeper.run()

    def empty_trash(self) -> None:
        while (removal := self._trash.take()) is not None:
            self._trash.finish(removal.run())

    def retain(self) -> None:
        share = self.retention_due()
        if share is not None:
            run_here(share)


def all_of(*work: Callable[[], object]) -> None:
    """Do all of it, whatever fails; then raise the first failure."""
    failures: list[StorageError] = []
    for each in work:
        try:
            each()
        except StorageError as error:
            failures.append(error)
    if failures:
        raise failures[0]
