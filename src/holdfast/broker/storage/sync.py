"""When written data is forced to the disk, and how many appends share one fsync.

An append always ends in the operating system's page cache before it is acknowledged. What that and more protects
against:

- `os` (default): a killed or crashed *process* loses nothing acknowledged. A crash of the machine may lose what the
  operating system had not written yet (Linux: up to about 30 s). A clean stop syncs everything.
- `interval`: as `os`, and a crash of the machine loses at most the last `interval_ms`.
- `always`: every acknowledged append survives a crash of the machine. One fsync serves all files and all appends that
  came in since the last (group commit).

Rules. An append only notes which file is dirty; `commit()`, or a round, comes between the append and its
acknowledgement. After a failed fsync of a file a later success means nothing: the kernel may have dropped the pages. So
the file is *broken* from then on, whatever later syncs say, until `renewed` reports that its content was rewritten to
another file. A folder is synced again until that works: its entries are in the file system's own journal, and a file
system that can't write its journal stops altogether. While a folder fails, every round fails. Intervals are measured by
a clock that never goes back.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from holdfast.broker.storage.errors import StorageError, disk_trouble
from holdfast.broker.storage.files import Files

DEFAULT_INTERVAL_MS = 1_000


class FlushPolicy(Enum):
    OS = "os"
    INTERVAL = "interval"
    ALWAYS = "always"


@dataclass(slots=True)
class SyncRound:
    """A set of files and folders to force to disk. `run` touches nothing else, so it may run in another thread."""

    files: Files
    paths: list[str]
    folders: list[str]
    given_up: list[str] = field(default_factory=list)
    """Files that were broken before: appends to them can't be acknowledged, whatever an fsync says."""
    failed: dict[str, OSError] = field(default_factory=dict)

    def run(self) -> SyncRound:
        for path in self.paths:
            self._attempt(path, self._sync_file)
        for folder in self.folders:
            self._attempt(folder, self.files.fsync_dir)
        return self

    def _sync_file(self, path: str) -> None:
        """Through a handle of its own: any handle forces all of a file's pages, and this one nobody else closes."""
        self.files.open(path).fsync()

    def _attempt(self, path: str, sync: Callable[[str], None]) -> None:
        try:
            sync(path)
        except FileNotFoundError:
            return  # deleted by retention or with its topic since it was written
        except OSError as error:
            self.failed[path] = error


@dataclass(frozen=True, slots=True)
class Failures:
    """What a round could not sync; false if that is nothing."""

    by_path: Mapping[str, StorageError]
    folders: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.by_path)

    @property
    def first(self) -> StorageError:
        return next(iter(self.by_path.values()))

    def of(self, path: str) -> StorageError | None:
        """Why what was written to `path`, or below it, can't be acknowledged. A folder's failure concerns all."""
        for failed, error in self.by_path.items():
            if failed.startswith(path) or failed in self.folders:
                return error
        return None


NO_FAILURES = Failures({}, frozenset())


class Syncer:
    """Keeps the list of what is dirty for a whole store, and of what can't be relied on."""

    def __init__(
        self,
        files: Files,
        *,
        policy: FlushPolicy = FlushPolicy.OS,
        interval_ms: int = DEFAULT_INTERVAL_MS,
        steady: Callable[[], float],
    ) -> None:
        """`steady` is a clock in milliseconds that never goes back."""
        self.policy = policy
        self._files = files
        self._interval_ms = interval_ms
        self._steady = steady
        self._paths: dict[str, None] = {}
        self._folders: dict[str, None] = {}
        self._broken: dict[str, None] = {}
        self._last_sync = steady()

    def wrote(self, path: str) -> None:
        self._paths[path] = None

    def changed_folder(self, path: str) -> None:
        """A file was created, renamed or removed in `path`."""
        self._folders[path] = None

    def made_folder(self, path: str) -> None:
        """`path` may be new: its entry, and those of the folders above it, must reach the disk too."""
        while path:
            path = path.rpartition("/")[0]
            self._folders[path] = None

    # What can't be relied on

    def broken(self, path: str) -> bool:
        """True once an fsync of this file failed: what it holds in memory may not be what is on disk."""
        return path in self._broken

    def broken_files(self) -> list[str]:
        return list(self._broken)

    def renewed(self, path: str) -> None:
        """The file was replaced by a synced copy under its name, or it was deleted."""
        self._broken.pop(path, None)
        self._paths.pop(path, None)

    # Rounds

    def take(self) -> SyncRound | None:
        """What is dirty now, to be `run` (anywhere) and given back to `done`; None if nothing is."""
        dirty, folders = list(self._paths), list(self._folders)
        if not dirty and not folders:
            return None
        self._paths, self._folders = {}, {}
        sound = sorted(path for path in dirty if path not in self._broken)
        return SyncRound(self._files, sound, sorted(folders), [path for path in dirty if path in self._broken])

    def done(self, taken: SyncRound) -> Failures:
        """Book a finished round; returns what the disk refused. Nothing that was written there may be acknowledged."""
        self._last_sync = self._steady()
        failures = {path: disk_trouble(f"Forcing {path} to disk", error) for path, error in taken.failed.items()}
        # Broken when the round began, or since, by another one.
        late = [*taken.given_up, *(path for path in taken.paths if path in self._broken)]
        failures |= {path: disk_trouble(f"Forcing {path} to disk", _before()) for path in late}
        self._broken.update((path, None) for path in taken.paths if path in taken.failed)
        self._folders.update((folder, None) for folder in taken.folders if folder in taken.failed)
        return Failures(failures, frozenset(taken.folders))

    def sync(self, path: str = "") -> None:
        """Sync everything now, on this thread. Raises if the disk refused `path` or anything below it."""
        taken = self.take()
        error = None if taken is None else self.done(taken.run()).of(path)
        if error is not None:
            raise error

    def commit(self, path: str = "") -> None:
        """Between append and acknowledgement: nothing to do unless the policy is `always`."""
        if self.policy is FlushPolicy.ALWAYS:
            self.sync(path)

    def due(self) -> bool:
        """Whether the interval policy wants a sync now."""
        return self.policy is FlushPolicy.INTERVAL and self._steady() - self._last_sync >= self._interval_ms


def _before() -> OSError:
    return OSError(errno.EIO, "an earlier attempt failed, and the file was not rewritten since")
