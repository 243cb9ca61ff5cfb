"""The files of a journal, numbered: the newest complete one counts.

0000000002.journal             replaced, and removed once a crash can't undo the next one's name
0000000003.journal             the one that counts
0000000004.journal.new         being written
0000000001.journal.damaged     set aside for a person to look at
"""

from __future__ import annotations

import contextlib

from holdfast.broker.storage.files import File, Files

DAMAGED_SUFFIX = ".damaged"
_SUFFIX = ".journal"
_NEW_SUFFIX = ".new"


class NumberedFiles:
    """Which file of a journal counts. Its methods raise the disk's OSErrors."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._number = 0
        self.replaced: list[str] = []
        """Older files, kept until the new one's name is on disk."""

    @property
    def path(self) -> str:
        """The file that counts."""
        return self._path_of(self._number)

    def _path_of(self, number: int) -> str:
        return f"{self._folder}/{number:010d}{_SUFFIX}"

    @property
    def _next_path(self) -> str:
        return self._path_of(self._number + 1)

    def choose(self) -> None:
        """Find the newest complete file. Older ones and unfinished rewrites are left-overs of a crash."""
        self._files.mkdir(self._folder)
        names = self._files.listdir(self._folder)
        stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
        self._number = max((int(stem) for stem in stems if stem.isdigit()), default=0)
        stale = [name for name in names if name.endswith((_SUFFIX, _NEW_SUFFIX))]
        stale = [path for name in stale if (path := f"{self._folder}/{name}") != self.path]
        if stale:
            self._files.fsync_dir(self._folder)  # the newest file's name may not be on disk yet
        for path in stale:
            self._files.unlink(path)
        self.replaced = []

    def set_aside(self) -> File:
        """Keep the current file under another name, and begin an empty one in its place."""
        self._files.rename(self.path, self.path + DAMAGED_SUFFIX)
        self._files.fsync_dir(self._folder)
        return self._files.open(self.path, create=True)

    # The next file: begin_next, then name_next and move_on, or give_up_next

    def begin_next(self) -> File:
        new = self._files.open(self._next_path + _NEW_SUFFIX, create=True)
        new.truncate(0)
        return new

    def name_next(self) -> None:
        """The next file is complete and synced: give it its name."""
        self._files.rename(self._next_path + _NEW_SUFFIX, self._next_path)

    def give_up_next(self) -> bool:
        """Remove what there is of the next file. False if it may have its name for good: a rename that failed may have
        happened."""
        with contextlib.suppress(OSError):
            self._files.unlink(self._next_path + _NEW_SUFFIX)
        try:
            self._files.unlink(self._next_path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def move_on(self) -> None:
        """From now on the next file counts."""
        self.replaced.append(self.path)
        self._number += 1

    def drop_replaced(self) -> None:
        """Remove the files before this one, once this one's name is surely on disk."""
        self._files.fsync_dir(self._folder)
        for path in self.replaced:
            with contextlib.suppress(OSError):
                self._files.unlink(path)
        self.replaced = []
