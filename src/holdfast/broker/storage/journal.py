"""A durable map with its history: keys and values appended in order, replayed in order, rewritten when mostly stale.

The coordinator keeps groups and offsets in one, the store its catalog in another. The framing is our own rather than
record batches: nobody fetches it, so timestamps, varints and codecs would only be weight, and a frame of ours is
atomic for all its entries and starts with a marker by which the way is found again behind damage.

    file    two copies of: "HFJ1", salt 8, CRC-32C 4; then frames
    frame   marker 4, length of the body 4, CRC-32C of salt, position, length and body 4, body
    body    entries: key length 4, value length 4 (-1: a tombstone), key, value

The salt is random and secret to the file. Values come from clients; without it, a value that contains a well-made
frame could be taken for one when the way is searched behind a torn write.

Rules: an append is all or nothing, in memory and on disk. Replay tolerates what compaction leaves: tombstones of
unknown keys, values before what they refer to (K-17306, K-20254); the order of writing is kept, also by compaction,
which keeps for each key its last place (K-10614, K-5247). Compaction writes a new file beside, syncs it, renames it
into place and only then removes the old one, so that a crash at any step leaves exactly one complete journal. Values
are opaque here.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence

from crc32c import crc32c

from holdfast.broker.storage.errors import Recovery, StorageError, disk_trouble, disk_work
from holdfast.broker.storage.files import File, Files
from holdfast.broker.storage.sync import Syncer
from holdfast.model import ErrorCode

Entry = tuple[bytes, bytes | None]
OnEntry = Callable[[bytes, bytes | None], None]

FILE_MAGIC = b"HFJ1"
MAX_FRAME_BYTES = 64 * 1024 * 1024
"""More than a group of 1,000 members with 1 MiB of metadata each would be hostile; one member's fits 60 times."""
COMPACT_MIN_BYTES = 1024 * 1024
"""Below this a rewrite gains nothing."""
DIRTY_RATIO = 0.5
"""Kafka's min.cleanable.dirty.ratio: rewrite when half of the file is stale, so each byte is copied about once more."""

_SUFFIX = ".journal"
_NEW_SUFFIX = ".new"
_DAMAGED_SUFFIX = ".damaged"
_MARKER = b"\xf5HJ\n"
_FRAME = struct.Struct("<4sII")
_SEED = struct.Struct("<8sqI")
_SALT_BYTES = 8
_HEADER_BYTES = 32
_ENTRY = struct.Struct("<Ii")
_TOMBSTONE = -1
_COMPACTED_FRAME_BYTES = 1024 * 1024
_COPY_WINDOW_BYTES = 256 * 1024


class Journal:
    """Call `replay` once before anything else; `append` and `compact` do it with nobody listening if it was not
    called.
    """

    def __init__(
        self,
        *,
        name: str,
        folder: str,
        files: Files,
        syncer: Syncer,
        report: Callable[[Recovery], None],
        compact_min_bytes: int = COMPACT_MIN_BYTES,
        salt: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.name = name
        self._folder = folder
        self._files = files
        self._syncer = syncer
        self._report = report
        self._compact_min_bytes = compact_min_bytes
        self._new_salt = salt
        self._salt = b""
        self._generation = 0
        self._file: File | None = None
        self._size = 0
        self._live: dict[bytes, tuple[int, int]] = {}
        """Key to the place (position, bytes) of its last entry, in the order of writing."""
        self._live_bytes = 0
        self._retry_at = 0

    def __len__(self) -> int:
        """Keys that have a value."""
        return len(self._live)

    @property
    def size(self) -> int:
        return self._size

    @property
    def _path(self) -> str:
        return self._path_of(self._generation)

    def _path_of(self, generation: int) -> str:
        return f"{self._folder}/{generation:010d}{_SUFFIX}"

    # Replay

    def replay(self, on_entry: OnEntry | None = None) -> None:
        """Read everything in the order it was written, stale entries and tombstones included."""
        with disk_work(f"Opening the journal {self.name}"):
            self._choose_file()
            file = self._open_file()
            self._read_all(file, on_entry)
        self._file = file

    def _choose_file(self) -> None:
        """The newest complete file counts; older ones and unfinished rewrites are left-overs of a crash."""
        self._files.mkdir(self._folder)
        names = self._files.listdir(self._folder)
        stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
        generations = sorted(int(stem) for stem in stems if stem.isdigit())
        self._generation = generations[-1] if generations else 0
        for name in names:
            if f"{self._folder}/{name}" != self._path and name.endswith((_SUFFIX, _NEW_SUFFIX)):
                self._files.unlink(f"{self._folder}/{name}")

    def _open_file(self) -> File:
        file = self._files.open(self._path, create=True)
        self._size = file.size()
        salt = _read_header(file.pread(_HEADER_BYTES, 0))
        if salt is not None and self._size >= _HEADER_BYTES:
            self._salt = salt
            return file
        if self._size > _HEADER_BYTES:
            file = self._set_aside()
        self._salt = self._new_salt(_SALT_BYTES)
        file.truncate(0)
        file.write([_file_header(self._salt)], 0)
        file.fsync()  # whatever the policy: without its header the file is noise
        self._size = _HEADER_BYTES
        self._syncer.changed_folder(self._folder)
        self._syncer.made_folder(self._folder)
        return file

    def _set_aside(self) -> File:
        """Both copies of the header are gone: nothing in the file can be told from noise. Keep it for whoever can,
        start anew.
        """
        self._report(
            Recovery(
                topic=self.name,
                partition=-1,
                file=self._path,
                position=0,
                cut_bytes=0,
                damaged_bytes=self._size,
                reason=f"the header is unreadable; the file is kept with the ending {_DAMAGED_SUFFIX}, a new one begun",
            )
        )
        self._files.rename(self._path, self._path + _DAMAGED_SUFFIX)
        self._files.fsync_dir(self._folder)
        return self._files.open(self._path, create=True)

    def _read_all(self, file: File, on_entry: OnEntry | None) -> None:
        self._live, self._live_bytes = {}, 0
        data = file.pread(self._size, 0)
        position = _HEADER_BYTES
        while position < len(data):
            end = _frame_end(data, position, self._salt)
            if end is None:
                following = _next_frame(data, position, self._salt)
                self._report_damage(position, following)
                if following is None:
                    file.truncate(position)
                    self._syncer.wrote(self._path)
                    self._size = position
                    return
                position = following
                continue
            for key, value, at, size in _entries(data, position + _FRAME.size, end):
                self._book(key, value, at, size)
                if on_entry is not None:
                    on_entry(key, value)
            position = end

    def _report_damage(self, position: int, following: int | None) -> None:
        self._report(
            Recovery(
                topic=self.name,
                partition=-1,
                file=self._path,
                position=position,
                cut_bytes=self._size - position if following is None else 0,
                damaged_bytes=0 if following is None else following - position,
                reason="an entry is incomplete" if following is None else "the checksum does not match",
            )
        )

    # Writing

    def append(self, entries: Sequence[Entry], *, commit: bool = True) -> None:
        """Write all of `entries` or none. A None value deletes the key. With `commit=False` call `Store.commit`
        before the ack.
        """
        file = self._opened()
        if self._syncer.broken(self._path):
            # An fsync of this file failed, so it can't be relied on: move to a new one, which is synced before it
            # counts.
            self.compact()
            file = self._opened()
        body, places = _encode(entries)
        if len(body) > MAX_FRAME_BYTES:
            what = f"An entry of {len(body)} bytes for the journal {self.name} is larger than {MAX_FRAME_BYTES}."
            raise StorageError(ErrorCode.MESSAGE_TOO_LARGE, what, "Send less at a time.")
        try:
            file.write([_frame_head(body, self._size, self._salt), body], self._size)
        except OSError as error:
            with contextlib.suppress(OSError):
                file.truncate(self._size)
            raise disk_trouble(f"Writing to the journal {self.name}", error) from error
        start = self._size + _FRAME.size
        for (key, value), (at, size) in zip(entries, places, strict=True):
            self._book(key, value, start + at, size)
        self._size = start + len(body)
        self._syncer.wrote(self._path)
        if commit:
            self._syncer.commit()

    def _opened(self) -> File:
        if self._file is None:
            self.replay()
        assert self._file is not None
        return self._file

    def _book(self, key: bytes, value: bytes | None, position: int, size: int) -> None:
        before = self._live.pop(key, None)
        if before is not None:
            self._live_bytes -= before[1]
        if value is not None:
            self._live[key] = (position, size)
            self._live_bytes += size

    # Compaction

    def compaction_due(self) -> bool:
        stale = self._size - self._live_bytes
        return self._size >= max(self._compact_min_bytes, self._retry_at) and stale > DIRTY_RATIO * self._size

    def compact_if_due(self) -> bool:
        """Compact when it pays. A disk without room puts it off until the journal has grown by half."""
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
        old = self._opened()
        generation = self._generation + 1
        path = self._path_of(generation)
        salt = self._new_salt(_SALT_BYTES)
        try:
            new = self._files.open(path + _NEW_SUFFIX, create=True)
            new.truncate(0)
            size, live = self._copy_live(old, new, salt)
            new.fsync()
            self._files.rename(path + _NEW_SUFFIX, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._files.unlink(path + _NEW_SUFFIX)
            raise disk_trouble(f"Compacting the journal {self.name}", error) from error
        old_path = self._path
        self._generation, self._file, self._size, self._live, self._salt = generation, new, size, live, salt
        self._retry_at = 0
        # From here on the new file is the journal. The old one goes once the rename can't be undone by a crash.
        with contextlib.suppress(OSError):
            self._files.fsync_dir(self._folder)
            self._files.unlink(old_path)

    def _copy_live(self, old: File, new: File, salt: bytes) -> tuple[int, dict[bytes, tuple[int, int]]]:
        """Write the live entries into `new`; returns its size and where they lie now."""
        live: dict[bytes, tuple[int, int]] = {}
        new.write([_file_header(salt)], 0)
        size, body = _HEADER_BYTES, bytearray()
        window, start = b"", 0
        for key, (position, count) in self._live.items():  # in the order of the file, so one window passes over it
            if position + count > start + len(window):
                window, start = old.pread(max(count, _COPY_WINDOW_BYTES), position), position
            live[key] = (size + _FRAME.size + len(body), count)
            body += window[position - start : position - start + count]
            if len(body) >= _COMPACTED_FRAME_BYTES:
                new.write([_frame_head(body, size, salt), body], size)
                size += _FRAME.size + len(body)
                body = bytearray()
        if body:
            new.write([_frame_head(body, size, salt), body], size)
            size += _FRAME.size + len(body)
        return size, live

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _encode(entries: Sequence[Entry]) -> tuple[bytes, list[tuple[int, int]]]:
    """The body of a frame, and where in it each entry lies."""
    parts: list[bytes] = []
    places: list[tuple[int, int]] = []
    at = 0
    for key, value in entries:
        parts += (_ENTRY.pack(len(key), _TOMBSTONE if value is None else len(value)), key, value or b"")
        size = _ENTRY.size + len(key) + len(value or b"")
        places.append((at, size))
        at += size
    return b"".join(parts), places


def _file_header(salt: bytes) -> bytes:
    """Twice, so that one flipped bit in it does not cost the whole file."""
    once = FILE_MAGIC + salt
    return 2 * (once + crc32c(once).to_bytes(4, "little"))


def _read_header(data: bytes) -> bytes | None:
    for copy in (data[:16], data[16:32]):
        if len(copy) == 16 and copy[:4] == FILE_MAGIC and crc32c(copy[:12]).to_bytes(4, "little") == copy[12:]:
            return copy[4:12]
    return None


def _frame_head(body: bytes | bytearray, position: int, salt: bytes) -> bytes:
    length = len(body)
    return _FRAME.pack(_MARKER, length, crc32c(body, crc32c(_SEED.pack(salt, position, length))))


def _frame_end(data: bytes, position: int, salt: bytes) -> int | None:
    """Where the frame at `position` ends, None if it is not whole and sound."""
    if position + _FRAME.size > len(data):
        return None
    marker, length, crc = _FRAME.unpack_from(data, position)
    end = position + _FRAME.size + length
    if marker != _MARKER or end > len(data):
        return None
    body = memoryview(data)[position + _FRAME.size : end]
    if crc32c(body, crc32c(_SEED.pack(salt, position, length))) != crc:
        return None
    return end if _well_formed(body) else None


def _well_formed(body: memoryview) -> bool:
    at = 0
    while at < len(body):
        if at + _ENTRY.size > len(body):
            return False
        key_bytes, value_bytes = _ENTRY.unpack_from(body, at)
        at += _ENTRY.size + key_bytes + max(value_bytes, 0)
    return at == len(body)


def _next_frame(data: bytes, position: int, salt: bytes) -> int | None:
    """The next sound frame behind a bad one, None if there is none: then the bad one is a torn tail."""
    at = data.find(_MARKER, position + 1)
    while at >= 0:
        if _frame_end(data, at, salt) is not None:
            return at
        at = data.find(_MARKER, at + 1)
    return None


def _entries(data: bytes, position: int, end: int) -> Iterator[tuple[bytes, bytes | None, int, int]]:
    while position < end:
        key_bytes, value_bytes = _ENTRY.unpack_from(data, position)
        start = position + _ENTRY.size
        middle = start + key_bytes
        stop = middle + max(value_bytes, 0)
        value = None if value_bytes == _TOMBSTONE else data[middle:stop]
        yield data[start:middle], value, position, stop - position
        position = stop
