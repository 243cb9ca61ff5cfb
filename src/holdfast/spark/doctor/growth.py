"""How far growing files have been read, updated by one listing of the disk at a time.

A file is identified by its device and inode, so a rotation that renames it leaves it the same file. Its position is
always right after a line feed. A checksum of the bytes before the position is remembered: if those bytes are different
or missing, it is another file (copytruncate, or a new file on an old inode) and is read from its start. A new file that
is named after a followed one, and has the same bytes before the same position, is a copy of it (copytruncate again), or
the file itself on a device that got another number: it is read on from that position.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from holdfast.model import HoldfastError
from holdfast.spark.doctor.pieces import COMPRESSED, Found, identity_of
from holdfast.spark.doctor.reading import GZIP, HEAD_BYTES, ZSTD

MAX_FILES = 5_000
"""Every batch writes down the positions of all files: 5,000 of them take half a megabyte."""

FORGET_MS = 3_600_000.0
"""A file that was gone for an hour will not come back; its inode may be reused by another file."""

TAIL_BYTES = 256
BLOCK_BYTES = 65_536
MAX_LINE_BYTES = 16 * 1024 * 1024
"""So many bytes without a line feed are no log line; they are skipped, and the reader counts them."""

PACKED, LATE, BINARY, CLOSED = "packed", "late", "binary", "closed"
"""Why a file is not followed: compressed, so read once; compressed and appeared later; no log; not readable."""

WHY = {
    LATE: "is compressed and appeared while its folder was followed: taken for the rotation of a file that was read, "
    "and not read again",
    BINARY: "is binary, and no log: left alone",
    CLOSED: "can't be read: its permissions forbid it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """One file. `key` identifies its content: a copy keeps it, a truncated file gets a new one."""

    path: str
    key: str
    position: int = 0
    tail: int = 0
    written_ms: float = 0.0
    gone_ms: float = 0.0
    """Since when it has been missing; 0 if it is there."""
    left: str = ""
    copy_of: str = ""
    """The file that this one is a copy of, as long as that one is still read."""

    def to_json(self) -> list[Any]:
        return [self.path, self.key, self.position, self.tail, self.written_ms, self.gone_ms, self.left, self.copy_of]

    @classmethod
    def from_json(cls, data: list[Any]) -> Self:
        names = ("path", "key", "position", "tail", "written_ms", "gone_ms", "left", "copy_of")
        return cls(**dict(zip(names, data, strict=True)))


Growth = Mapping[str, Followed]
"""By identity."""


def to_json(growth: Growth) -> dict[str, Any]:
    return {"v": 1, "files": {name: one.to_json() for name, one in sorted(growth.items())}}


def from_json(data: Mapping[str, Any]) -> dict[str, Followed]:
    if data.get("v", 1) != 1:
        raise HoldfastError(
            "DOCTOR_NEWER_CHECKPOINT",
            "the checkpoint was written by a newer holdfast.",
            "Update holdfast, or follow into another folder.",
        )
    return {name: Followed.from_json(one) for name, one in data.get("files", {}).items()}


# -- one look


def looked(before: Growth, found: Iterable[Found], now_ms: float, *, first: bool) -> dict[str, Followed]:
    """What is known after this listing. With `first` nothing was followed before, so archives are read, too."""
    there = {one.identity: one for one in found}
    for identity, known in before.items():
        if identity not in there and (moved := _renamed(known, identity)) is not None:
            there[identity] = moved
    after: dict[str, Followed] = {}
    for identity, one in there.items():
        if identity in before:
            after[identity] = _again(before[identity], one, before, now_ms)
    for identity, one in there.items():
        if identity not in before and one.size:
            after[identity] = _new(one, before, now_ms, first=first)
    _twins(after, before)
    _step_in_line(after, before, there)
    for identity, known in before.items():
        since = known.gone_ms or now_ms
        if identity not in after and now_ms - since < FORGET_MS:
            after[identity] = replace(known, gone_ms=since)
    if len(after) > MAX_FILES:
        raise HoldfastError(
            "DOCTOR_TOO_MANY_FILES",
            f"{len(after):,} files are there to be followed, and {MAX_FILES:,} are the most.",
            "Follow the folders that matter, or ship the lines to a topic and follow that (--topic).",
        )
    return after


def _again(known: Followed, one: Found, before: Growth, now_ms: float) -> Followed:
    """The new state of a file that was there before."""
    if known.left == CLOSED:
        return _new(one, before, now_ms, first=False)
    here = replace(known, path=one.path, written_ms=one.written_ms, gone_ms=0.0)
    if known.left:
        return here
    if not _same(known, one):
        return _grown(_at_start(one, now_ms), one)
    return here if here.copy_of else _grown(here, one)


def _new(one: Found, before: Growth, now_ms: float, *, first: bool) -> Followed:
    fresh = _at_start(one, now_ms)
    try:
        head = _bytes(one.path, 0, HEAD_BYTES)
    except OSError:
        return replace(fresh, left=CLOSED)
    if one.path.endswith(COMPRESSED) or head.startswith((GZIP, ZSTD)):
        return replace(fresh, left=PACKED if first else LATE, position=one.size)
    if b"\0" in head:
        return replace(fresh, left=BINARY)
    for identity, known in before.items():
        if (
            identity != one.identity
            and known.position
            and not known.left
            and _named_after(one.path, known.path)
            and _same(known, one)
        ):
            return replace(fresh, key=known.key, position=known.position, tail=known.tail, copy_of=identity)
    return _grown(fresh, one)


def _twins(after: dict[str, Followed], before: Growth) -> None:
    """If a file and its copy are both new in this listing, mark the one with the longer name as the copy."""
    by_name: dict[str, list[str]] = {}
    for identity, one in after.items():
        if one.position and not one.left and not one.copy_of:
            by_name.setdefault(_stem(one.path), []).append(identity)
    for named_alike in by_name.values():
        new = [
            identity
            for identity in named_alike
            if identity not in before or before[identity].key != after[identity].key
        ]
        for identity in new if len(named_alike) > 1 else ():
            one = after[identity]
            for other in named_alike:
                original = after[other]
                if len(original.path) < len(one.path) and original.position >= one.position and not original.copy_of:
                    try:
                        alike = checksum(original.path, one.position) == one.tail
                    except OSError:
                        continue
                    if alike:
                        after[identity] = replace(one, key=original.key, copy_of=other)
                        break


def _step_in_line(after: dict[str, Followed], before: Growth, there: Mapping[str, Found]) -> None:
    """A copy has nothing new while its original is read. Once that was truncated or is gone, the rest is read."""
    for identity, one in after.items():
        if not one.copy_of:
            continue
        original = after.get(one.copy_of)
        if original is not None and original.key == one.key:
            at = min(original.position, there[identity].size)
            after[identity] = _at(one, at)
        else:
            last = before[one.copy_of].position if one.copy_of in before else one.position
            rest = _at(one, min(last, there[identity].size))
            after[identity] = _grown(replace(rest, copy_of=""), there[identity])


def _at_start(one: Found, now_ms: float) -> Followed:
    # In microseconds, so that a file truncated and read again within one millisecond still gets a new key.
    return Followed(path=one.path, key=f"{one.identity}-{int(now_ms * 1_000):x}", written_ms=one.written_ms)


def _grown(known: Followed, one: Found) -> Followed:
    if one.size <= known.position:
        return known
    try:
        return _at(known, last_line_end(one.path, known.position, one.size))
    except OSError:
        return known  # gone since the listing, or not readable: the next listing will tell


def _at(known: Followed, position: int) -> Followed:
    return (
        known if position == known.position else replace(known, position=position, tail=checksum(known.path, position))
    )


def _same(known: Followed, one: Found) -> bool:
    """Whether the bytes before the position are still those that were read."""
    if one.size < known.position:
        return False
    if not known.position or (one.size, one.written_ms) == (known.position, known.written_ms):
        return True  # unchanged, like nearly all files: not opened. A change within one clock tick is missed.
    try:
        return checksum(one.path, known.position) == known.tail
    except OSError:
        return True


def _named_after(path: str, original: str) -> bool:
    """broker.log.1, broker.log-20261118 and broker-20261118.log are named after broker.log; so is broker.log itself."""
    return path.rpartition("/")[2].startswith(_stem(original))


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


def _renamed(known: Followed, identity: str) -> Found | None:
    """Find a rotated file in its folder. If the user named the file and not the folder, no listing finds it."""
    if known.left or known.gone_ms:
        return None
    return beside(known.path, identity)


# -- the disk


def beside(path: str, identity: str) -> Found | None:
    """The file with this identity in the path's folder."""
    try:
        with os.scandir(Path(path).parent) as entries:
            for entry in entries:
                told = entry.stat()
                if identity_of(told) == identity and entry.is_file():
                    return Found(entry.path, told.st_size, told.st_mtime * 1000.0, identity)
    except OSError:
        return None
    return None


def last_line_end(path: str, start: int, end: int) -> int:
    """The position after the last line feed between the two; `start` if there is none yet."""
    with Path(path).open("rb") as file:
        at = end
        while at > start:
            block = max(start, at - BLOCK_BYTES)
            file.seek(block)
            feed = file.read(at - block).rfind(b"\n")
            if feed >= 0:
                return block + feed + 1
            if end - block > MAX_LINE_BYTES:
                return end
            at = block
    return start


def checksum(path: str, position: int) -> int:
    start = max(0, position - TAIL_BYTES)
    return zlib.crc32(_bytes(path, start, position - start))


def _bytes(path: str, start: int, count: int) -> bytes:
    with Path(path).open("rb") as file:
        file.seek(start)
        return file.read(count)
