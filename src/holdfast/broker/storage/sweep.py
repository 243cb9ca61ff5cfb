"""Removes the files of deleted topics, a share at a time: thousands of partitions take long.

The catalog keeps a deleted topic's entry until its last file is gone; that is how a removal interrupted by a crash,
or put off by a failing disk, is found again.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass

from holdfast.broker.storage.errors import disk_trouble
from holdfast.broker.storage.log import Log
from holdfast.broker.storage.pool import FilePool
from holdfast.broker.storage.topics import Catalog, Topic, partitions_on_disk, topic_folder

FOLDERS_AT_A_TIME = 64
"""Partitions in one share: some milliseconds. A stop waits for the share that is under way."""


@dataclass(slots=True)
class TopicRemoval:
    """A share of the work: call `run` on any thread, then give it to `Sweeper.finish`."""

    pool: FilePool
    topic: Topic
    logs: list[Log]
    """Those of the topic that were open; nobody else has them."""
    removed: int = 0
    """How many partitions."""
    emptied: bool = False
    """Nothing of the topic is left."""
    error: OSError | None = None

    def run(self) -> TopicRemoval:
        while self.logs:
            self.logs.pop()  # what they have in memory is freed here too, one after the other
        try:
            self._remove_some()
        except OSError as error:
            self.error = error
        return self

    def _remove_some(self) -> None:
        folder = topic_folder(self.topic)
        partitions = partitions_on_disk(self.pool.files, self.topic)
        for partition in partitions[:FOLDERS_AT_A_TIME]:
            self._remove_folder(f"{folder}/{partition}")
            self.removed += 1
        if len(partitions) > FOLDERS_AT_A_TIME:
            return
        with contextlib.suppress(FileNotFoundError):
            self.pool.files.rmdir(folder)
        self.emptied = True

    def _remove_folder(self, folder: str) -> None:
        for name in self.pool.files.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                self.pool.files.unlink(f"{folder}/{name}")
            self.pool.forget(f"{folder}/{name}")
        self.pool.files.rmdir(folder)


class Sweeper:
    def __init__(self, pool: FilePool, catalog: Catalog) -> None:
        self._pool = pool
        self._catalog = catalog
        self._queue: deque[tuple[Topic, list[Log]]] = deque((topic, []) for topic in catalog.leftover)
        self._busy = False
        self._emptied: list[Topic] = []

    def __len__(self) -> int:
        """Topics whose deletion is not complete."""
        return len(self._queue) + len(self._emptied)

    def add(self, topic: Topic, logs: list[Log]) -> None:
        """`logs` are those of its partitions that were open, and are not used any more."""
        self._queue.append((topic, logs))

    def take(self) -> TopicRemoval | None:
        """A share of the work; None if there is nothing to do, or one is under way."""
        if self._busy or not self._queue:
            return None
        self._busy = True
        topic, logs = self._queue[0]
        return TopicRemoval(self._pool, topic, logs)

    def finish(self, removal: TopicRemoval) -> None:
        """Raises if the disk refused: then the topic goes to the end of the queue."""
        self._busy = False
        if removal.error is not None:
            self._queue.rotate(-1)
            raise disk_trouble(f"Removing the files of the deleted topic {removal.topic.name}", removal.error)
        if removal.emptied:
            self._queue.popleft()
            self._emptied.append(removal.topic)

    def complete(self) -> None:
        """Take the topics that have no files any more out of the catalog, which nobody may be writing."""
        if self._emptied:
            self._catalog.finish_delete(self._emptied)
            self._emptied = []

    def run(self) -> None:
        """Do a share of the work on this thread."""
        left = FOLDERS_AT_A_TIME
        while left > 0 and (removal := self.take()) is not None:
            self.finish(removal.run())
            left -= max(removal.removed, 1)
        self.complete()
