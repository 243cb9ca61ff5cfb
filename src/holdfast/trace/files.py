"""Traces on disk: a file of bounded size that rotates, and how to read it together with the rotated files.

Rules. A record is written with one call and flushed, so that a reader beside us sees whole lines. What a crash cut
short stays a line of its own. With `max_bytes` reached the file becomes `NAME.1`, that one `NAME.2` and so on; beyond
`keep` they are removed. Files are private (0600): a trace names members and topics.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from holdfast.model import HoldfastError, TraceRecord
from holdfast.trace.codec import BadLine, encode, read_trace

MAX_BYTES = 64 * 1024 * 1024
"""About 300,000 records: days of a quiet group, hours of a storm."""

KEEP = 4
"""Older files beside the current one, so that a trace takes at most 320 MiB unless told otherwise."""


class TraceFile:
    """Appends records to a file, and rotates it. Use it as a context manager."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = MAX_BYTES,
        keep: int = KEEP,
        wall_ms: Callable[[], float] = lambda: round(time.time() * 1_000.0, 3),
    ) -> None:
        """`wall_ms` is the wall clock; records without a `wall` time get it when written."""
        if max_bytes < 1 or keep < 0:
            raise HoldfastError(
                "BAD_TRACE_LIMIT",
                f"a trace file of {max_bytes} bytes with {keep} older ones makes no sense.",
                "Give at least 1 byte, and 0 or more files to keep.",
            )
        path = self.path = Path(path)
        self._max_bytes = max_bytes
        self._keep = keep
        self._wall_ms = wall_ms
        self._file = _open(path)
        self._size = self._file.tell()
        if self._size and not _ends_with_newline(path):
            self._append(b"\n")

    def write(self, record: TraceRecord) -> None:
        if record.wall is None:
            record = replace(record, wall=self._wall_ms())
        line = encode(record).encode() + b"\n"
        if self._size and self._size + len(line) > self._max_bytes:
            self._rotate()
        self._append(line)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self._size += len(data)

    def _rotate(self) -> None:
        self._file.close()
        if self._keep == 0:
            self.path.unlink(missing_ok=True)
        for number in range(self._keep, 0, -1):
            older = self.path if number == 1 else rotated(self.path, number - 1)
            if older.exists():
                older.replace(rotated(self.path, number))
        self._file = _open(self.path)
        self._size = self._file.tell()


def rotated(path: Path, number: int) -> Path:
    """The name of the file `number` rotations ago."""
    return path.with_name(f"{path.name}.{number}")


def read_trace_file(
    path: str | os.PathLike[str], *, on_bad: Callable[[BadLine], None], older: bool = False
) -> Iterator[TraceRecord]:
    """The records of a file, with `older` also of the files it was rotated from, oldest first."""
    path = Path(path)
    paths = [path]
    if older:
        number = 1
        while rotated(path, number).exists():
            paths.insert(0, rotated(path, number))
            number += 1
    for each in paths:
        try:
            lines = each.open(encoding="utf-8", errors="replace")
        except OSError as error:
            raise HoldfastError(
                "NO_TRACE", f"{each} can't be read ({error.strerror}).", "Check the path and its permissions."
            ) from error
        with lines:
            yield from read_trace(lines, on_bad=on_bad)


def _open(path: Path) -> BinaryIO:
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab", buffering=0)
    except OSError as error:
        raise HoldfastError(
            "NO_TRACE", f"{path} can't be written ({error.strerror}).", "Choose a folder that exists and is yours."
        ) from error


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
