"""The file layer in memory, for `--memory` and quick tests: nothing survives the process, by request."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.broker.storage.files import Buffer, File, Lock


class MemoryFile:
    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        data = self.data
        if not any(buffers):  # as with a file: writing nothing makes no hole
            return
        if position > len(data):
            data.extend(bytes(position - len(data)))
        for buffer in buffers:
            data[position : position + len(buffer)] = buffer
            position += len(buffer)

    def pread(self, count: int, position: int) -> bytes:
        with memoryview(self.data) as view:
            return bytes(view[position : position + count])

    def size(self) -> int:
        return len(self.data)

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))

    def fsync(self) -> None:
        """Memory has nothing to sync to."""

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        """The data stays: it belongs to the folder, not to the handle."""


class MemoryLock:
    def release(self) -> None:
        """Nobody else can reach this memory."""


class MemoryFiles:
    """A folder tree in dictionaries."""

    def __init__(self) -> None:
        self._files: dict[str, MemoryFile] = {}
        self._folders: dict[str, set[str]] = {"": set()}
        """Each folder, with the names in it."""

    def open(self, path: str, *, create: bool = False) -> File:
        file = self._files.get(path)
        if file is None:
            if not create or path.rpartition("/")[0] not in self._folders:
                raise FileNotFoundError(path)
            file = self._files[path] = MemoryFile()
            self._enter(path)
        return file

    def _enter(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self._folders[folder].add(name)

    def _leave(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self._folders[folder].discard(name)

    def size(self, path: str) -> int:
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path].size()

    def mkdir(self, path: str) -> None:
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            if folder not in self._folders:
                self._folders[folder] = set()
                self._enter(folder)

    def listdir(self, path: str) -> list[str]:
        if path not in self._folders:
            raise FileNotFoundError(path)
        return sorted(self._folders[path])

    def rename(self, old: str, new: str) -> None:
        if old not in self._files:
            raise FileNotFoundError(old)
        self._files[new] = self._files.pop(old)
        self._leave(old)
        self._enter(new)

    def unlink(self, path: str) -> None:
        if self._files.pop(path, None) is None:
            raise FileNotFoundError(path)
        self._leave(path)

    def rmdir(self, path: str) -> None:
        if self._folders.pop(path, None) is not None:
            self._leave(path)

    def fsync_dir(self, path: str) -> None:
        """Memory has nothing to sync to."""

    def lock(self, path: str) -> Lock:
        return MemoryLock()
