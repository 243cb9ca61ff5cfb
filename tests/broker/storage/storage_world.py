"""A disk for tests: it counts every operation, stops the world at any of them, and knows what a power cut would leave.

Two kinds of death. A killed process leaves everything it wrote. A crashed machine leaves what was forced to disk, and
of the rest whatever the dice say: each later write may be there, missing or torn, each later folder change there or
not.
"""

from __future__ import annotations

import errno
import random
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.broker.storage.files import Buffer


class Crash(BaseException):
    """The world ends here. Not an Exception: no handler for errors may catch it."""


@dataclass
class Inode:
    now: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    later: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes since the last sync: (position, data), or (size, None) for a truncation."""

    def after_power_cut(self, dice: random.Random) -> Inode:
        data = bytearray(self.synced)
        for position, piece in self.later:
            fate = dice.random()
            if piece is None:
                if fate < 0.5:
                    resize(data, position)
            elif fate < 0.4:
                put(data, position, piece)
            elif fate < 0.7:
                put(data, position, piece[: dice.randrange(len(piece) + 1)])
        return Inode(now=data, synced=bytes(data))


def resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


def put(data: bytearray, position: int, piece: bytes) -> None:
    if piece and position > len(data):
        resize(data, position)
    data[position : position + len(piece)] = piece


class SimFile:
    def __init__(self, world: SimFiles, path: str, inode: Inode) -> None:
        self._world = world
        self._path = path
        self._inode = inode

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        data = b"".join(bytes(buffer) for buffer in buffers)
        allowed = self._world.room_for(len(data))

        def torn(part: float) -> None:
            self._apply(position, data[: int(len(data) * part)])

        self._world.step("write", self._path, torn)
        self._apply(position, data[:allowed])
        if allowed < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def _apply(self, position: int, data: bytes) -> None:
        put(self._inode.now, position, data)
        self._inode.later.append((position, data))

    def pread(self, count: int, position: int) -> bytes:
        self._world.reads += 1
        return bytes(self._inode.now[position : position + count])

    def size(self) -> int:
        return len(self._inode.now)

    def truncate(self, size: int) -> None:
        if self._world.refuse_to_truncate:
            raise OSError(errno.EIO, "Input/output error")
        self._world.step("truncate", self._path)
        resize(self._inode.now, size)
        self._inode.later.append((size, None))

    def fsync(self) -> None:
        self._world.step("fsync", self._path)
        if self._world.sync_fails():
            if self._world.failed_pages == "written":
                self._inode.synced = bytes(self._inode.now)
            if self._world.failed_pages == "forgotten":
                resize(self._inode.now, min(len(self._inode.synced), size := len(self._inode.now)))
                self._inode.now[:] = self._inode.synced[:size]
                resize(self._inode.now, size)
            self._inode.later = []
            raise OSError(errno.EIO, "Input/output error")
        self._inode.synced, self._inode.later = bytes(self._inode.now), []

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        pass


class SimLock:
    def release(self) -> None:
        pass


class SimFiles:
    """Files and folders, as seen now and as they are on the platters."""

    def __init__(self, *, crash_at: int = -1, tear: float | None = None) -> None:
        self.now: dict[str, Inode] = {}
        self.folders = {""}
        self.synced: dict[str, Inode] = {}
        self.synced_folders = {""}
        self.crash_at = crash_at
        self.tear = tear
        self.steps: list[tuple[str, str]] = []
        """Every operation that changes something, in order."""
        self.calls = 0
        """Every operation of the layer itself, also those that only look."""
        self.reads = 0
        self.room: int | None = None
        """Bytes left on the device; None for plenty."""
        self.fail_fsync = False
        self.fail_syncs: Callable[[int], bool] = lambda number: False
        """Which of all syncs, files' and folders', fail, by their number from 0."""
        self.syncs = 0
        self.failed_pages = "dropped"
        """What a failed sync of a file does to what it should have written: "dropped" never reaches the platters, but
        reading shows it; "forgotten" is gone for reading too; "written" is there although the sync said no."""
        self.descriptors: int | None = None
        """How many files may be open at a time; None for plenty."""
        self.open_files: weakref.WeakSet[SimFile] = weakref.WeakSet()
        self.refuse_to_open: set[str] = set()
        self.refuse_to_truncate = False
        self.refuse_to_unlink = False

    # What tests do to the world

    def step(self, kind: str, path: str, torn: Callable[[float], None] | None = None) -> None:
        """Book an operation that changes something; die before it (or half-way through a write) when its turn has
        come.
        """
        if len(self.steps) == self.crash_at:
            if self.tear is not None and torn is not None:
                torn(self.tear)
            raise Crash(f"{kind} {path}")
        self.steps.append((kind, path))

    def sync_fails(self) -> bool:
        self.syncs += 1
        return self.fail_fsync or self.fail_syncs(self.syncs - 1)

    def room_for(self, count: int) -> int:
        if self.room is None:
            return count
        allowed = min(count, self.room)
        self.room -= allowed
        return allowed

    def flip(self, path: str, bit: int) -> None:
        self.now[path].now[bit // 8] ^= 1 << (bit % 8)

    def paths(self, ending: str) -> list[str]:
        return sorted(path for path in self.now if path.endswith(ending))

    def after_kill(self) -> SimFiles:
        """The world as a killed process leaves it: unsynced, but all there."""
        other = SimFiles()
        for path, inode in self.now.items():
            other.now[path] = Inode(now=bytearray(inode.now), synced=inode.synced, later=list(inode.later))
        other.folders = set(self.folders)
        other.synced, other.synced_folders = dict(self.synced), set(self.synced_folders)
        return other

    def after_power_cut(self, dice: random.Random) -> SimFiles:
        """The world after the machine died: synced things are there, the rest is up to the dice."""
        other = SimFiles()
        other.folders = set(self.synced_folders)
        for folder in sorted(self.folders - self.synced_folders):
            if folder.rpartition("/")[0] in other.folders and dice.random() < 0.5:
                other.folders.add(folder)
        names = dict(self.synced)
        for path in sorted(self.now.keys() | self.synced.keys()):
            if self.now.get(path) is not self.synced.get(path) and dice.random() < 0.5:
                if path in self.now:
                    names[path] = self.now[path]
                else:
                    del names[path]
        names = {path: inode for path, inode in names.items() if path.rpartition("/")[0] in other.folders}
        twins = {id(inode): inode.after_power_cut(dice) for inode in names.values()}
        other.now = {path: twins[id(inode)] for path, inode in names.items()}
        other.synced, other.synced_folders = dict(other.now), set(other.folders)
        return other

    # The file layer

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.calls += 1
        if path in self.refuse_to_open:
            raise OSError(errno.EIO, "Input/output error")
        if self.descriptors is not None and len(self.open_files) >= self.descriptors:
            raise OSError(errno.EMFILE, "Too many open files")
        inode = self.now.get(path)
        if inode is None:
            if not create or path.rpartition("/")[0] not in self.folders:
                raise FileNotFoundError(path)
            self.step("create", path)
            inode = self.now[path] = Inode()
        file = SimFile(self, path, inode)
        self.open_files.add(file)
        return file

    def size(self, path: str) -> int:
        self.calls += 1
        if path not in self.now:
            raise FileNotFoundError(path)
        return len(self.now[path].now)

    def mkdir(self, path: str) -> None:
        self.calls += 1
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            if folder not in self.folders:
                self.step("mkdir", folder)
                self.folders.add(folder)

    def listdir(self, path: str) -> list[str]:
        self.calls += 1
        if path not in self.folders:
            raise FileNotFoundError(path)
        prefix = f"{path}/" if path else ""
        below = (name[len(prefix) :] for name in (*self.now, *self.folders) if name.startswith(prefix))
        return sorted({name for name in below if name and "/" not in name})

    def rename(self, old: str, new: str) -> None:
        self.calls += 1
        if old not in self.now:
            raise FileNotFoundError(old)
        self.step("rename", new)
        self.now[new] = self.now.pop(old)

    def unlink(self, path: str) -> None:
        self.calls += 1
        if path not in self.now:
            raise FileNotFoundError(path)
        if self.refuse_to_unlink:
            raise OSError(errno.EIO, "Input/output error")
        self.step("unlink", path)
        del self.now[path]

    def rmdir(self, path: str) -> None:
        self.calls += 1
        if path not in self.folders:
            raise FileNotFoundError(path)
        if self.listdir(path):
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        self.step("rmdir", path)
        self.folders.discard(path)

    def fsync_dir(self, path: str) -> None:
        self.calls += 1
        if path not in self.folders:
            raise FileNotFoundError(path)
        self.step("fsync_dir", path)
        if self.sync_fails():
            raise OSError(errno.EIO, "Input/output error")
        for name in {*self.now, *self.synced}:
            if name.rpartition("/")[0] == path:
                if name in self.now:
                    self.synced[name] = self.now[name]
                else:
                    self.synced.pop(name)
        for folder in {*self.folders, *self.synced_folders}:
            if folder and folder.rpartition("/")[0] == path:
                (self.synced_folders.add if folder in self.folders else self.synced_folders.discard)(folder)

    def lock(self, path: str) -> SimLock:
        return SimLock()
