"""Rewrites a segment after an fsync of it failed.

The kernel may have dropped pages that it could not write, and reports that only once. Usually the bytes can still be
read, and every batch has a checksum. So the file is read, checked, copied to a new file, synced, and renamed into
place. Nothing is appended to it meanwhile, so this may run in a thread.

What does not match its checksum is treated as after a crash: a torn tail is cut off, damage in the middle stays, and
the log is opened again, which reports it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast.broker.storage.errors import disk_trouble
from holdfast.broker.storage.files import Files
from holdfast.broker.storage.scan import WINDOW_BYTES, scan
from holdfast.broker.storage.segment import INDEX_SUFFIX
from holdfast.broker.storage.sync import Syncer

FIRST_WAIT_MS, LONGEST_WAIT_MS = 500, 30_000
"""Before rewriting is tried again after the disk refused; it doubles each time. A file may have 64 MiB."""

_NEW_SUFFIX = ".new"


@dataclass(slots=True)
class Mend:
    """One file to be rewritten: call `run` on any thread, then look at `error`."""

    files: Files
    path: str
    base_offset: int
    error: OSError | None = None
    kept_bytes: int = 0
    end_offset: int = 0
    """The offset after the last complete batch."""

    def run(self) -> Mend:
        try:
            self._write_anew()
        except OSError as error:
            self.error = error
            with contextlib.suppress(OSError):
                self.files.unlink(self.path + _NEW_SUFFIX)
        return self

    def _write_anew(self) -> None:
        old = self.files.open(self.path)
        found = scan(old, start=0, end=old.size(), offset=self.base_offset)
        new = self.files.open(self.path + _NEW_SUFFIX, create=True)
        new.truncate(0)
        at = 0
        while at < found.position:
            piece = old.pread(min(WINDOW_BYTES, found.position - at), at)
            new.write([piece], at)
            at += len(piece)
        new.fsync()
        self.files.rename(self.path + _NEW_SUFFIX, self.path)
        self.files.fsync_dir(self.path.rpartition("/")[0])
        self.kept_bytes, self.end_offset = found.position, found.offset


class Mender:
    """Which file is to be rewritten next, and when. One at a time, none twice at once."""

    def __init__(self, syncer: Syncer, *, steady: Callable[[], float]) -> None:
        self._syncer = syncer
        self._steady = steady
        self._not_before, self._wait = 0.0, 0.0
        self._under_way: set[str] = set()

    def take(self, wanted: Iterable[Mend]) -> Mend | None:
        """The first that is wanted and not under way; None if there is none, or it is too early."""
        if not self._syncer.broken_files() or self._steady() < self._not_before:
            return None
        for path in self._syncer.broken_files():
            if path.endswith(INDEX_SUFFIX):
                self._syncer.renewed(path)  # an index: it has a checksum, and can be rebuilt from the log
        mend = next((mend for mend in wanted if mend.path not in self._under_way), None)
        if mend is not None:
            self._under_way.add(mend.path)
        return mend

    def finish(self, mend: Mend) -> None:
        """Raises if the disk refused again; `take` then returns the file again after a while."""
        self._under_way.discard(mend.path)
        if mend.error is not None:
            self._wait = min(max(FIRST_WAIT_MS, 2 * self._wait), LONGEST_WAIT_MS)
            self._not_before = self._steady() + self._wait
            raise disk_trouble(f"Rewriting {mend.path}", mend.error)
        self._wait = 0.0
        self._syncer.renewed(mend.path)

    def hurry(self) -> None:
        """Don't wait any longer: the store is being closed."""
        self._not_before = 0.0
