"""A large remote file, read by ranges."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import IO, Any

WHOLE_BYTES = 8 * 1024 * 1024
"""Files up to this size are read in one request."""
RANGE_BYTES = 1024 * 1024
"""The least that is read at a time from larger files."""


def opened(start: bytes, size: int, ask: Callable[[int, int], bytes]) -> IO[bytes]:
    """A file whose beginning is already in memory. `ask(start, end)` reads the bytes in [start, end)."""
    if size <= len(start):
        return io.BytesIO(start)
    return io.BufferedReader(_Ranges(start, size, ask), RANGE_BYTES)


class _Ranges(io.RawIOBase):
    def __init__(self, start: bytes, size: int, ask: Callable[[int, int], bytes]) -> None:
        self._start, self._size, self._ask = start, size, ask
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._size, self._at + len(buffer))
        if end <= self._at:
            return 0
        data = self._start[self._at : end] if end <= len(self._start) else self._ask(self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
