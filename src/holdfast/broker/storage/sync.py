"""When written data is forced to the disk, and how many appends share one fsync.

An append always ends in the operating system's page cache before it is acknowledged. What that and more protects
against:

- `os` (default): a killed or crashed *process* loses nothing acknowledged. A crash of the machine may lose what the
  operating system had not written yet (Linux: up to about 30 s). A clean stop syncs everything.
- `interval`: as `os`, and a crash of the machine loses at most the last `interval_ms`.
- `always`: every acknowledged append survives a crash of the machine. One fsync serves all files and all appends that
  came in since the last (group commit).

Rule: an append only notes what became dirty; `commit()` stands between the append and its acknowledgement. A failed
fsync is never repeated and believed: the kernel may have dropped the pages, so every file of that round is reported
as failed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from holdfast.broker.storage.errors import disk_trouble
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


class Syncer:
    """Keeps the list of what is dirty for a whole store."""

    def __init__(
        self,
        files: Files,
        *,
        policy: FlushPolicy = FlushPolicy.OS,
        interval_ms: int = DEFAULT_INTERVAL_MS,
        clock: Callable[[], int],
    ) -> None:
        self.policy = policy
        self._files = files
        self._interval_ms = interval_ms
        self._clock = clock
        self._paths: dict[str, None] = {}
        self._folders: dict[str, None] = {}
        self._failed: set[str] = set()
        self._last_sync = clock()

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

    def broken(self, path: str) -> bool:
        """True once an fsync of this file failed: what it holds in memory may not be what is on disk."""
        return path in self._failed

    def take(self) -> SyncRound | None:
        """What is dirty now, to be `run` (anywhere) and given back to `done`; None if nothing is."""
        if not self._paths and not self._folders:
            return None
        taken = SyncRound(self._files, sorted(self._paths), sorted(self._folders))
        self._paths, self._folders = {}, {}
        return taken

    def done(self, taken: SyncRound) -> None:
        """Book a finished round; raises if the disk refused, and then nothing of the round may be acknowledged."""
        self._last_sync = self._clock()
        if taken.failed:
            self._failed.update(taken.failed)
            path, error = next(iter(taken.failed.items()))
            raise disk_trouble(f"Forcing {path} to disk", error)

    def sync(self) -> None:
        """Everything, now, here."""
        taken = self.take()
        if taken is not None:
            self.done(taken.run())

    def commit(self) -> None:
        """Between append and acknowledgement: nothing to do unless the policy is `always`."""
        if self.policy is FlushPolicy.ALWAYS:
            self.sync()

    def tick(self) -> None:
        """Called now and then: the interval policy's turn."""
        if self.policy is FlushPolicy.INTERVAL and self._clock() - self._last_sync >= self._interval_ms:
            self.sync()
