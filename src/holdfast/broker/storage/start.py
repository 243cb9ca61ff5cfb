"""The one number a partition can't derive from its segments: where DeleteRecords said that the log starts.

Written to a new file that is renamed into place, and synced whatever the policy: deleted records must not come back.
Afterwards either the new number is on disk, or the old one is restored: a refused deletion must not happen at the next
start.
"""

from __future__ import annotations

import contextlib
import struct

from crc32c import crc32c

from holdfast.broker.storage.files import Files

START_FILE = "start"
_START = struct.Struct("<qI")


def read_start(files: Files, folder: str) -> int:
    """The stored start offset; 0 if there is none, or if it can't be read: that only brings old records back."""
    try:
        data = files.open(f"{folder}/{START_FILE}").pread(_START.size, 0)
    except FileNotFoundError:
        return 0
    if len(data) < _START.size:
        return 0
    offset, crc = _START.unpack(data)
    return int(offset) if crc32c(data[:8]) == crc else 0


def write_start(files: Files, folder: str, offset: int) -> None:
    """Move the start to `offset`; never back: two deletions may overtake each other on their way here."""
    before = read_start(files, folder)
    if before >= offset:
        return
    try:
        _put(files, folder, offset, sync=True)
        files.fsync_dir(folder)
    except OSError:
        with contextlib.suppress(OSError):
            _put(files, folder, before, sync=False)
        raise


def _put(files: Files, folder: str, offset: int, *, sync: bool) -> None:
    path = f"{folder}/{START_FILE}"
    number = offset.to_bytes(8, "little", signed=True)
    file = files.open(f"{path}.new", create=True)
    file.truncate(0)
    file.write([_START.pack(offset, crc32c(number))], 0)
    if sync:
        file.fsync()
    file.close()
    files.rename(f"{path}.new", path)
