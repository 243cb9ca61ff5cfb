"""Open file handles, bounded: thousands of partitions must not mean thousands of descriptors."""

from __future__ import annotations

from collections import OrderedDict

from holdfast.broker.storage.files import File, Files

DEFAULT_OPEN_FILES = 512
"""Open file handles kept: the usual soft limit is 1,024 a process, 256 go to connections, the rest is head room."""


class FilePool:
    """Open handles by path, the least recently used let go beyond `limit`: thousands of partitions, few descriptors."""

    def __init__(self, files: Files, *, limit: int = DEFAULT_OPEN_FILES) -> None:
        self.files = files
        self._limit = limit
        self._open: OrderedDict[str, File] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, path: str, *, create: bool = False) -> File:
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        file = self._open[path] = self.files.open(path, create=create)
        while len(self._open) > self._limit:
            self._open.popitem(last=False)
        return file

    def forget(self, path: str) -> None:
        """Drop the handle of a file that is about to go. Slices in flight keep it alive until they are sent."""
        self._open.pop(path, None)

    def clear(self) -> None:
        self._open.clear()
