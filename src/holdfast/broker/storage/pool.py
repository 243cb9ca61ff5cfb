"""Open file handles, bounded: thousands of partitions must not mean thousands of descriptors.

A process may have few descriptors, and connections need some too. When the system has none left, the pool closes half
of its own and the operation is tried again: a smaller pool is only slower, but a refused append is a failure.
"""

from __future__ import annotations

import errno
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from holdfast.broker.storage.files import File, Files, Lock

T = TypeVar("T")

MAX_OPEN_FILES = 512
"""Open file handles kept, at most: a busy broker writes to no more partitions at a time. The rest of what the process
may open is for connections."""
MIN_OPEN_FILES = 8
"""Fewer don't help: one append needs a log and its index."""

_NONE_LEFT = (errno.EMFILE, errno.ENFILE)


def open_files_allowed() -> int:
    """Half of what this process may open, and not more than is of use."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    half = MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else soft // 2
    return max(MIN_OPEN_FILES, min(MAX_OPEN_FILES, half))


class SparingFiles:
    """A file layer that makes room when there are no descriptors left, and tries once more."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.make_room: Callable[[], bool] = lambda: False
        """Set by the pool: closes some handles; False when there are none to close."""

    def _sparing(self, work: Callable[[], T]) -> T:
        while True:
            try:
                return work()
            except OSError as error:
                if error.errno not in _NONE_LEFT or not self.make_room():
                    raise

    def open(self, path: str, *, create: bool = False) -> File:
        return self._sparing(lambda: self._files.open(path, create=create))

    def size(self, path: str) -> int:
        return self._files.size(path)

    def mkdir(self, path: str) -> None:
        self._files.mkdir(path)

    def listdir(self, path: str) -> list[str]:
        return self._sparing(lambda: self._files.listdir(path))

    def rename(self, old: str, new: str) -> None:
        self._files.rename(old, new)

    def unlink(self, path: str) -> None:
        self._files.unlink(path)

    def rmdir(self, path: str) -> None:
        self._files.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        self._sparing(lambda: self._files.fsync_dir(path))

    def lock(self, path: str) -> Lock:
        return self._files.lock(path)


class FilePool:
    """Open handles by path, the least recently used let go beyond `limit`: thousands of partitions, few descriptors.

    Syncs open files in threads of their own and may ask for room there, so that handles are let go of under a lock.
    """

    def __init__(self, files: Files, *, limit: int = MAX_OPEN_FILES) -> None:
        self.files = SparingFiles(files)
        self.files.make_room = self.shrink
        self.limit = limit
        self._open: OrderedDict[str, File] = OrderedDict()
        self._alone = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, path: str, *, create: bool = False) -> File:
        file = self._open.get(path)
        if file is not None:
            # Without the lock, because it is done for every append; a thread that made room may have been quicker.
            try:  # noqa: SIM105  # `suppress` costs more than the whole look-up
                self._open.move_to_end(path)
            except KeyError:
                pass
            return file
        file = self.files.open(path, create=create)
        with self._alone:
            self._open[path] = file
            while len(self._open) > self.limit:
                self._open.popitem(last=False)
        return file

    def shrink(self) -> bool:
        """Close the least recently used half, and lower the limit to the rest; False if there was nothing to close."""
        with self._alone:
            keep = len(self._open) // 2
            if not self._open:
                return False
            self.limit = max(MIN_OPEN_FILES, keep)
            while len(self._open) > keep:
                self._open.popitem(last=False)
            return True

    def forget(self, path: str) -> None:
        """Drop the handle of a file that is about to go. Slices in flight keep it alive until they are sent."""
        with self._alone:
            gone = self._open.pop(path, None)
        del gone  # closed here and not under the lock: what a large file took is freed with its last handle

    def clear(self) -> None:
        with self._alone:
            self._open.clear()
