"""Copies what counts of a journal into a new file: each key's last entry, checked, in the order of writing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from holdfast.broker.storage.files import File
from holdfast.broker.storage.frames import FRAME_BYTES, HEADER_BYTES, file_header, frame_head

_FRAME_BYTES = 1024 * 1024
"""A frame of the new file is written when its entries take this much."""
_WINDOW_BYTES = 256 * 1024
"""Read from the old file at a time."""


class Place(NamedTuple):
    """Where an entry lies in a journal's file. A tuple, because there is one for every key."""

    position: int
    size: int
    crc: int

    def holds(self, entry: bytes) -> bool:
        """Whether these bytes are what was written here."""
        return len(entry) == self.size and crc32c(entry) == self.crc


@dataclass(slots=True)
class Copied:
    """The new file's size, where the entries lie in it, and the old places of those that can't be read any more."""

    size: int = HEADER_BYTES
    live: dict[bytes, Place] = field(default_factory=dict)
    lost: list[Place] = field(default_factory=list)


def copy_live(
    live: Mapping[bytes, Place], old: File, new: File, salt: bytes, *, kept: Mapping[bytes, bytes] | None
) -> Copied:
    """Write the live entries into `new`, from memory if they are `kept` there, else from `old`."""
    copied = Copied()
    new.write([file_header(salt)], 0)
    body = bytearray()

    def write_frame() -> None:
        nonlocal body
        new.write([frame_head(body, copied.size, salt), body], copied.size)
        copied.size += FRAME_BYTES + len(body)
        body = bytearray()

    for key, place, entry in _entries(live, old, kept):
        if not place.holds(entry):
            copied.lost.append(place)
            continue
        copied.live[key] = Place(copied.size + FRAME_BYTES + len(body), place.size, place.crc)
        body += entry
        if len(body) >= _FRAME_BYTES:
            write_frame()
    if body:
        write_frame()
    return copied


def _entries(
    live: Mapping[bytes, Place], old: File, kept: Mapping[bytes, bytes] | None
) -> Iterator[tuple[bytes, Place, bytes]]:
    """Live entries are in the order of the file, so one window passes over it."""
    window, start = b"", 0
    for key, place in live.items():
        if kept is not None:
            yield key, place, kept[key]
            continue
        if place.position + place.size > start + len(window):
            window, start = old.pread(max(place.size, _WINDOW_BYTES), place.position), place.position
        at = place.position - start
        yield key, place, window[at : at + place.size]
