"""Rewrites a segment after an fsync of it failed.

The kernel may have dropped pages that it could not write, and reports that only once. Usually the bytes can still be
read, and every batch has a checksum. So the file is read, checked, copied to a new file, synced, and renamed into
place. Nothing is appended to it meanwhile, so this may run in a thread.

What does not match its checksum is treated as after a crash: a torn tail is cut off, damage in the middle stays, and
the log is opened again, which reports it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from holdfast.broker.storage.files import Files
from holdfast.broker.storage.scan import WINDOW_BYTES, scan

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
