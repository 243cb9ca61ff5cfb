"""The file layer: the few operations the storage engine needs, behind a Protocol so that tests can make every one fail.

Rules: paths are relative to the layer's root and use "/". A write happens at a position the caller keeps, and is
complete or raises; the caller cuts off what a failed write left behind. Nothing here retries, caches or knows what is
in a file.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from holdfast.model import HoldfastError

Buffer = bytes | bytearray | memoryview

FILE_MODE = 0o600
FOLDER_MODE = 0o700

PREAD_LIMIT = 0x7FFFF000
"""What Linux transfers in one call at most (read(2))."""


class File(Protocol):
    """An open file. The last reference closes it, so a slice handed to the network stays readable after eviction."""

    def write(self, buffers: Sequence[Buffer], position: int) -> None: ...
    def pread(self, count: int, position: int) -> bytes: ...
    def size(self) -> int: ...
    def truncate(self, size: int) -> None: ...
    def fsync(self) -> None: ...
    def fileno(self) -> int | None: ...
    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    """A folder tree. Missing files raise FileNotFoundError, everything else that fails raises OSError."""

    def open(self, path: str, *, create: bool = False) -> File: ...
    def size(self, path: str) -> int: ...
    def mkdir(self, path: str) -> None: ...
    def listdir(self, path: str) -> list[str]: ...
    def rename(self, old: str, new: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def rmdir(self, path: str) -> None: ...
    def fsync_dir(self, path: str) -> None: ...
    def lock(self, path: str) -> Lock: ...


class RealFile:
    """A file descriptor with positions passed in, so that two handles on one file never disturb each other."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all of `buffers` at `position`. A short write (disk full, signal) is continued, so that the cause
        surfaces.
        """
        total = 0
        for buffer in buffers:
            total += len(buffer)
        done = os.pwritev(self._fd, buffers, position)
        while done < total:
            rest = memoryview(b"".join(buffers))[done:]
            done += os.pwrite(self._fd, rest, position + done)

    def pread(self, count: int, position: int) -> bytes:
        """All that is asked for, or what there is up to the file's end. A short read is continued: before a sector that
        can't be read Linux returns what it has, and reports the error only to the next read.
        """
        data = os.pread(self._fd, min(count, PREAD_LIMIT), position)
        if len(data) == count or not data:
            return data
        parts, done = [data], len(data)
        while done < count and (data := os.pread(self._fd, min(count - done, PREAD_LIMIT), position + done)):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def fsync(self) -> None:
        os.fdatasync(self._fd)

    def fileno(self) -> int | None:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class RealLock:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.release()


class RealFiles:
    """The operating system's files below `root`. Links are never followed, files are 0600, folders 0700."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)
        self._root.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        self._prefix = f"{self._root}/"

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(os.open(self._prefix + path, flags, FILE_MODE))

    def size(self, path: str) -> int:
        return os.lstat(self._prefix + path).st_size

    def mkdir(self, path: str) -> None:
        """Parents too, each with our mode (pathlib's own `parents` would give them the default one)."""
        try:
            Path(self._prefix + path).mkdir(mode=FOLDER_MODE, exist_ok=True)
        except FileNotFoundError:
            self.mkdir(path.rpartition("/")[0])
            self.mkdir(path)

    def listdir(self, path: str) -> list[str]:
        with os.scandir(self._prefix + path) as entries:
            return sorted(entry.name for entry in entries)

    def rename(self, old: str, new: str) -> None:
        Path(self._prefix + old).rename(self._prefix + new)

    def unlink(self, path: str) -> None:
        Path(self._prefix + path).unlink()

    def rmdir(self, path: str) -> None:
        Path(self._prefix + path).rmdir()

    def fsync_dir(self, path: str) -> None:
        fd = os.open(self._prefix + path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> Lock:
        """Take the folder for this process. flock goes away with the process, so a kill never leaves a stale lock."""
        fd = os.open(self._prefix + path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise HoldfastError(
                "DATA_FOLDER_IN_USE",
                f"{self._root} is in use by another broker (process {holder}).",
                "Stop that one, or choose another --data folder.",
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return RealLock(fd)
