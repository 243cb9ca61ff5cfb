"""Growing trace files: what was added since the last read.

A path is a file or a folder of them. Files appear, grow, and are rotated (the name then belongs to a new file). An
unfinished line waits for its end. Of a large file only the end is read, because older records are not shown anyway. A
line that is no record is counted and left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.model import HoldfastError, TraceRecord
from holdfast.trace import BadLine, read_trace
from holdfast.trace.codec import MAX_LINE_CHARS

MOST_BYTES = 8 * 1024 * 1024
"""The most read from one file at a time: about 30,000 records."""
MOST_FILES = 1_000
SUFFIXES = (".jsonl", ".trace")


@dataclass(slots=True)
class Tail:
    """One file."""

    path: Path
    _inode: int = 0
    _at: int = 0
    _rest: bytes = b""

    def grown(self) -> bool:
        """Whether there is something to read. Called often, so it only checks the file's size and inode."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for somebody to write
            return False
        return found.st_size != self._at or found.st_ino != self._inode

    def read(self, on_bad: list[BadLine]) -> list[TraceRecord]:
        try:
            with self.path.open("rb") as file:
                return self._read(file.fileno(), on_bad)
        except OSError:
            return []  # in the middle of a rotation there is no file of this name

    def _read(self, number: int, on_bad: list[BadLine]) -> list[TraceRecord]:
        found = os.fstat(number)
        if found.st_ino != self._inode or found.st_size < self._at:
            self._inode, self._at, self._rest = found.st_ino, 0, b""
        begins_within = found.st_size - self._at > MOST_BYTES
        if begins_within:
            self._at, self._rest = found.st_size - MOST_BYTES, b""
        data = self._rest + os.pread(number, found.st_size - self._at, self._at)
        self._at = found.st_size
        lines = data.split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_LINE_CHARS:  # no record is so long: damage up to the next line feed
            self._rest = self._rest[-1:]
        if begins_within and lines:
            del lines[0]
        return list(read_trace((line.decode(errors="replace") for line in lines), on_bad=on_bad.append))


@dataclass(slots=True)
class Tails:
    """All files under some paths."""

    paths: tuple[Path, ...]
    bad: list[BadLine] = field(default_factory=list)
    _tails: dict[Path, Tail] = field(default_factory=dict)

    def find(self) -> None:
        """Look for new files."""
        for path in files_under(self.paths):
            if path not in self._tails and len(self._tails) < MOST_FILES:
                self._tails[path] = Tail(path)

    def grown(self) -> bool:
        return any(tail.grown() for tail in self._tails.values())

    def read(self) -> list[TraceRecord]:
        records = [record for tail in self._tails.values() if tail.grown() for record in tail.read(self.bad)]
        del self.bad[:-10]
        return records


def files_under(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        try:
            found += sorted(each for each in path.iterdir() if each.suffix in SUFFIXES) if path.is_dir() else [path]
        except OSError:
            continue  # a folder that has just gone, or that we may not read: it is looked at again
    return found


def check_paths(paths: Iterable[Path]) -> None:
    """Refuse a path that does not exist: it is more likely a typo than a file that will appear."""
    for path in paths:
        if not path.exists():
            raise HoldfastError("NO_TRACE", f"{path} can't be read (it does not exist).", "Check the path.")
