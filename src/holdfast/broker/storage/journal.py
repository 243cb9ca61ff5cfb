"""A durable map with its history: keys and values are appended in order, replayed in order, and compacted when mostly
stale.

The coordinator keeps groups and offsets in one, the store its catalog in another. `frames` has the file format.

Rules
- An append is all or nothing, in memory, on disk and after a restart. One that could not be synced is cut off again,
  and only what is on disk counts in memory.
- After a failed fsync nothing is appended until everything was copied to a new file that could be synced. Entries are
  checked while they are copied.
- Replay tolerates what compaction leaves: tombstones of unknown keys, and values before what they refer to (K-17306,
  K-20254).
- The order of writing is kept. Compaction keeps for each key the place of its last entry (K-10614, K-5247).
- Compaction writes a new file (`compact`), syncs it, renames it into place, and removes the old one only when the new
  name is on disk. So a crash at any step leaves exactly one complete journal.
- Values are opaque here. One thread at a time uses a journal; others wait.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Sequence

from crc32c import crc32c

from holdfast.broker.storage.compact import Place, copy_live
from holdfast.broker.storage.errors import Recovery, StorageError, disk_trouble, disk_work
from holdfast.broker.storage.files import File, Files
from holdfast.broker.storage.frames import (
    ENTRY_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    SALT_BYTES,
    Entry,
    encode,
    entries_of,
    file_header,
    frame_end,
    frame_head,
    next_frame,
    read_header,
)
from holdfast.broker.storage.numbered import DAMAGED_SUFFIX, NumberedFiles
from holdfast.broker.storage.sync import FlushPolicy, Syncer
from holdfast.model import ErrorCode

OnEntry = Callable[[bytes, bytes | None], None]
MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Largest append: the record of a group of about sixty members with 1 MiB of metadata each. A larger one is refused,
and with it the round that made it."""
COMPACT_MIN_BYTES = 1024 * 1024
"""A smaller file is not worth compacting."""
DIRTY_RATIO = 0.5
"""Kafka's min.cleanable.dirty.ratio: rewrite when half of the file is stale, so each byte is copied about once more."""


class Journal:
    """Call `replay` once before anything else. Otherwise `append` and `compact` do so, without a callback."""

    def __init__(
        self,
        *,
        name: str,
        folder: str,
        files: Files,
        syncer: Syncer,
        report: Callable[[Recovery], None],
        compact_min_bytes: int = COMPACT_MIN_BYTES,
        keep_entries: bool = False,
        salt: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """With `keep_entries` live entries are kept in memory too, so that a rewrite does not have to read from a
        failing disk."""
        self.name = name
        self._folder = folder
        self._files = files
        self._syncer = syncer
        self._report = report
        self.compact_min_bytes = compact_min_bytes
        self._new_salt = salt
        self._salt = b""
        self._numbered = NumberedFiles(files, folder)
        self._file: File | None = None
        self._size = 0
        self._live: dict[bytes, Place] = {}
        """Key to the place of its last entry, in the order of writing."""
        self._live_bytes = 0
        self._kept: dict[bytes, bytes] | None = {} if keep_entries else None
        self._retry_at = 0
        self._confirmed = 0
        """The size of the part that is known to be on disk; see `confirm` and `take_back`."""
        self._unsure = False
        """Something was cut off, but the cut may not be on disk: only a new file surely does not have it."""
        self._cut_at: int | None = None
        """Where the file should end, if even cutting it failed."""
        self._alone = threading.RLock()
        self.housekept = True
        """Whether the store compacts it when it is due. False if its owner does so, in a thread."""

    def __len__(self) -> int:
        """Keys that have a value."""
        return len(self._live)

    @property
    def size(self) -> int:
        return self._size

    @property
    def path(self) -> str:
        """The current file; compaction and rewrites move to another one."""
        return self._numbered.path

    def live(self, wanted: Callable[[bytes], bool]) -> list[tuple[bytes, bytes]]:
        """The keys that are wanted, with their values, in the order of writing."""
        with self._alone, disk_work(f"Reading the journal {self.name}"):
            file = self._opened()
            found = []
            for key, place in self._live.items():
                if wanted(key):
                    entry = file.pread(place.size, place.position)
                    if not place.holds(entry):
                        raise OSError(errno.EIO, f"an entry of {self.path} changed on disk")
                    found.append((key, entry[ENTRY_BYTES + len(key) :]))
            return found

    # Replay

    def replay(self, on_entry: OnEntry | None = None) -> None:
        """Read everything in the order it was written, stale entries and tombstones included."""
        with self._alone, disk_work(f"Opening the journal {self.name}"):
            self._numbered.choose()
            file = self._open_file()
            self._read_all(file, on_entry)
            self._file = file
            self._confirmed = self._size
            if not self._syncer.broken(self.path):
                # What was read may be in the page cache only: the process died, not the machine.
                self._syncer.wrote(self.path)
                self._syncer.changed_folder(self._folder)

    def _open_file(self) -> File:
        file = self._files.open(self.path, create=True)
        self._size = file.size() if self._cut_at is None else min(file.size(), self._cut_at)
        salt = read_header(file.pread(HEADER_BYTES, 0))
        if salt is not None and self._size >= HEADER_BYTES:
            self._salt = salt
            return file
        if self._size > HEADER_BYTES:
            file = self._set_aside()
        self._salt = self._new_salt(SALT_BYTES)
        try:
            file.truncate(0)
            file.write([file_header(self._salt)], 0)
            file.fsync()  # whatever the policy: without its header the file is noise
        except OSError:
            with contextlib.suppress(OSError):
                self._files.unlink(self.path)  # or the next attempt would find the header, and it may not be on disk
            raise
        self._size = HEADER_BYTES
        self._syncer.changed_folder(self._folder)
        self._syncer.made_folder(self._folder)
        return file

    def _set_aside(self) -> File:
        """Both copies of the header are damaged, so nothing in the file can be verified. Keep the file for a person to
        look at, and start with an empty one.
        """
        kept = f"the file is kept with the ending {DAMAGED_SUFFIX}, a new one begun"
        self._found(0, damaged_bytes=self._size, reason=f"the header is unreadable; {kept}")
        return self._numbered.set_aside()

    def _read_all(self, file: File, on_entry: OnEntry | None) -> None:
        self._live, self._live_bytes = {}, 0
        if self._kept is not None:
            self._kept = {}
        data = file.pread(self._size, 0)
        position = HEADER_BYTES
        while position < len(data):
            end = frame_end(data, position, self._salt)
            if end is None:
                following = next_frame(data, position, self._salt)
                self._report_damage(position, following)
                if following is None:
                    file.truncate(position)
                    self._syncer.wrote(self.path)
                    self._size = position
                    return
                position = following
                continue
            for key, value, at, size in entries_of(data, position + FRAME_BYTES, end):
                self._book(key, value, at, data[at : at + size])
                if on_entry is not None:
                    on_entry(key, value)
            position = end

    def _report_damage(self, position: int, following: int | None) -> None:
        if following is None:
            self._found(position, cut_bytes=self._size - position, reason="an entry is incomplete")
        else:
            self._found(position, damaged_bytes=following - position, reason="the checksum does not match")

    def _found(self, position: int, *, cut_bytes: int = 0, damaged_bytes: int = 0, reason: str) -> None:
        self._report(
            Recovery(
                topic=self.name,
                partition=-1,
                file=self.path,
                position=position,
                cut_bytes=cut_bytes,
                damaged_bytes=damaged_bytes,
                reason=reason,
            )
        )

    # Writing

    def append(self, entries: Sequence[Entry], *, commit: bool = True) -> None:
        """Write all of `entries` or none. A None value deletes the key. With `commit=False` nothing is synced here;
        the caller has it synced before the ack, and then calls `confirm` or `take_back`.
        """
        with self._alone:
            body, places = encode(entries)
            if len(body) > MAX_FRAME_BYTES:
                what = f"An entry of {len(body)} bytes for the journal {self.name} is larger than {MAX_FRAME_BYTES}."
                raise StorageError(ErrorCode.MESSAGE_TOO_LARGE, what, "Send less at a time.")
            self._make_sure()
            self._write(body)
            if commit and self._syncer.policy is FlushPolicy.ALWAYS:
                self._commit()
            start = self._size + FRAME_BYTES
            for (key, value), (at, size) in zip(entries, places, strict=True):
                self._book(key, value, start + at, body[at : at + size])
            self._size = start + len(body)
            if commit:
                self._confirmed = self._size

    def _write(self, body: bytes) -> None:
        file = self._opened()
        try:
            file.write([frame_head(body, self._size, self._salt), body], self._size)
        except OSError as error:
            with contextlib.suppress(OSError):
                file.truncate(self._size)  # what is left of half a frame is overwritten by the next, or cut by a replay
            raise disk_trouble(f"Writing to the journal {self.name}", error) from error
        self._syncer.wrote(self.path)

    def _commit(self) -> None:
        """Sync the frame just written. If that fails it is cut off: it was refused, so it must never come back."""
        try:
            self._syncer.commit(self.path)
        except StorageError:
            self._cut()
            raise

    def _cut(self) -> None:
        """Cut the file to what counts. Until that is known to be on disk, only a new file may be appended to."""
        self._unsure, self._cut_at = True, self._size
        file = self._opened()
        with contextlib.suppress(OSError):
            file.truncate(self._size)
            self._cut_at = None
            if not self._syncer.broken(self.path):
                file.fsync()
                self._unsure = False

    def confirm(self, position: int) -> None:
        """Everything up to `position` (an earlier `size`) is on disk."""
        self._confirmed = max(self._confirmed, position)

    def take_back(self) -> None:
        """The appends that are not confirmed could not be synced: remove them. Call `replay` next, to read the rest."""
        with self._alone:
            self._size = min(self._size, self._confirmed)
            self._cut()

    def make_sure(self) -> None:
        """Before an append, and before closing: move to a new file if this one can't be relied on."""
        with self._alone:
            if self._file is not None:
                self._make_sure()

    def _make_sure(self) -> None:
        self._opened()
        if self._unsure or self._syncer.broken(self.path):
            self.compact()
        if self._numbered.replaced and self._syncer.policy is FlushPolicy.ALWAYS:
            self._drop_replaced()

    def _opened(self) -> File:
        if self._file is None:
            self.replay()
        assert self._file is not None
        return self._file

    def _book(self, key: bytes, value: bytes | None, position: int, entry: bytes) -> None:
        before = self._live.pop(key, None)
        if before is not None:
            self._live_bytes -= before.size
        if value is not None:
            self._live[key] = Place(position, len(entry), crc32c(entry))
            self._live_bytes += len(entry)
        if self._kept is not None:
            self._kept.pop(key, None)
            if value is not None:
                self._kept[key] = entry

    # Compaction

    def compaction_due(self) -> bool:
        stale = self._size - self._live_bytes
        return self._size >= max(self.compact_min_bytes, self._retry_at) and stale > DIRTY_RATIO * self._size

    def compact_if_due(self) -> bool:
        """Compact when it is worth it. If the disk is full, try again when the journal has grown by half."""
        with self._alone:
            if self._numbered.replaced:
                self._drop_replaced()
            if not self.compaction_due():
                return False
            try:
                self.compact()
            except StorageError:
                self._retry_at = self._size + self._size // 2
                raise
            return True

    def compact(self) -> None:
        """Keep each key's last value, in the order they were written, in a new file that replaces the old one at
        once.
        """
        with self._alone:
            old = self._opened()
            salt = self._new_salt(SALT_BYTES)
            try:
                new = self._numbered.begin_next()
                copied = copy_live(self._live, old, new, salt, kept=self._kept)
                new.fsync()
                self._numbered.name_next()
            except OSError as error:
                if not self._numbered.give_up_next():
                    self._unsure = True  # a newer name would hide what is appended to this file later
                raise disk_trouble(f"Compacting the journal {self.name}", error) from error
            self._report_lost(copied.lost)
            self._syncer.renewed(self.path)
            self._numbered.move_on()
            self._file, self._salt = new, salt
            self._size, self._live = copied.size, copied.live
            self._live_bytes = sum(place.size for place in copied.live.values())
            self._confirmed, self._unsure, self._cut_at, self._retry_at = copied.size, False, None, 0
            self._syncer.changed_folder(self._folder)
            self._drop_replaced()

    def _drop_replaced(self) -> None:
        with disk_work(f"Replacing a file of the journal {self.name}"):
            self._numbered.drop_replaced()

    def _report_lost(self, places: Sequence[Place]) -> None:
        for place in places:
            reason = "an entry changed on disk since it was written, and is left out"
            self._found(place.position, damaged_bytes=place.size, reason=reason)

    def close(self) -> None:
        with self._alone:
            if self._file is None:
                return
            if self._cut_at is not None:
                self._file.truncate(self._cut_at)
            self._file.close()
            self._file = None
