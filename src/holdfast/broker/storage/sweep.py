"""Removes the files of deleted topics, a few folders at a time, so that thousands of partitions never stall the loop.

The catalog keeps a deleted topic's entry until its last file is gone; that is how a removal interrupted by a crash,
or put off by a failing disk, is found again.
"""

from __future__ import annotations

import contextlib
from collections import deque

from holdfast.broker.storage.errors import StorageError, disk_work
from holdfast.broker.storage.pool import FilePool
from holdfast.broker.storage.topics import Catalog, Topic, partitions_on_disk, topic_folder

FOLDERS_AT_A_TIME = 64
"""Partitions removed in one go: some milliseconds."""


class Sweeper:
    def __init__(self, pool: FilePool, catalog: Catalog) -> None:
        self._pool = pool
        self._files = pool.files
        self._catalog = catalog
        self._queue: deque[Topic] = deque(catalog.leftover)

    def __len__(self) -> int:
        """Topics whose files are not all gone."""
        return len(self._queue)

    def add(self, topic: Topic) -> None:
        self._queue.append(topic)

    def run(self) -> None:
        """Do a share of the work. A topic the disk refuses to give up goes to the end of the queue."""
        budget = FOLDERS_AT_A_TIME
        for _ in range(len(self._queue)):
            topic = self._queue[0]
            try:
                budget = self._remove(topic, budget)
            except StorageError:
                self._queue.rotate(-1)
                raise
            if budget <= 0:
                return
            self._queue.popleft()

    def _remove(self, topic: Topic, budget: int) -> int:
        """Remove up to `budget` of a topic's partitions, and its entry if that was all; returns what is left of it."""
        folder = topic_folder(topic)
        with disk_work(f"Removing the files of the deleted topic {topic.name}"):
            for partition in partitions_on_disk(self._files, topic):
                if budget <= 0:
                    return 0
                self._remove_folder(f"{folder}/{partition}")
                budget -= 1
            with contextlib.suppress(FileNotFoundError):
                self._files.rmdir(folder)
        self._catalog.finish_delete(topic)
        return max(budget, 1)

    def _remove_folder(self, folder: str) -> None:
        for name in self._files.listdir(folder):
            self._pool.forget(f"{folder}/{name}")
            self._files.unlink(f"{folder}/{name}")
        self._files.rmdir(folder)
