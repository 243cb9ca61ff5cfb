"""Segments that were cut off from their logs, until their files are gone: a log may lose thousands at a time.

Rules. What is in here nobody reads any more, except through a handle that is open already. The files of a folder go
oldest first: if the work is interrupted, what is left is whole, without a gap. A folder whose file can't be removed
waits, and does not keep the others from being done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.broker.storage.errors import disk_trouble
from holdfast.broker.storage.segment import Segment
from holdfast.broker.storage.sync import Syncer

SEGMENTS_AT_A_TIME = 500
"""In one share: a stop waits for the one under way."""


@dataclass(slots=True)
class SegmentRemoval:
    """A share of the work: call `run` on any thread, then give it to `Trash.finish`."""

    folders: dict[str, deque[Segment]]
    failed: dict[str, OSError] = field(default_factory=dict)

    def run(self) -> SegmentRemoval:
        for folder, segments in self.folders.items():
            try:
                while segments:
                    segments[0].remove()
                    segments.popleft()
            except OSError as error:
                self.failed[folder] = error
        return self


class Trash:
    """One for a store."""

    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer
        self._waiting: dict[str, deque[Segment]] = {}
        """By folder. One that failed goes to the end."""
        self._taken: dict[str, frozenset[int]] = {}
        """First offsets of the segments that are being removed, by folder."""
        self.at_once = True
        """Whether files are removed as they come. False if somebody takes them, and removes them in a thread."""

    def __len__(self) -> int:
        """Folders with something to remove."""
        return len(self._waiting.keys() | self._taken.keys())

    def put(self, folder: str, segments: Iterable[Segment]) -> None:
        """With `at_once`, raises an OSError if the disk refuses; what is left is tried again with the next call, or the
        next share."""
        waiting = self._waiting.setdefault(folder, deque())
        waiting.extend(segments)
        if not waiting:
            del self._waiting[folder]
        elif self.at_once:
            removal = self._take([folder], None).run()
            self._book(removal)
            if folder in removal.failed:
                raise removal.failed[folder]

    def bases(self, folder: str) -> frozenset[int]:
        """The first offsets of this folder's segments whose files may still be there."""
        waiting = frozenset(segment.base_offset for segment in self._waiting.get(folder, ()))
        return waiting | self._taken.get(folder, frozenset())

    def take(self) -> SegmentRemoval | None:
        """A share of the work; None if there is nothing to do, or one is under way."""
        if not self._waiting or self._taken:
            return None
        return self._take(list(self._waiting), SEGMENTS_AT_A_TIME)

    def _take(self, folders: list[str], most: int | None) -> SegmentRemoval:
        share: dict[str, deque[Segment]] = {}
        left = most
        for folder in folders:
            if left == 0:
                break
            segments = self._waiting[folder]
            if left is None or len(segments) <= left:
                share[folder] = self._waiting.pop(folder)
            else:
                share[folder] = deque(segments.popleft() for _ in range(left))
            if left is not None:
                left -= len(share[folder])
        self._taken = {folder: frozenset(each.base_offset for each in segments) for folder, segments in share.items()}
        return SegmentRemoval(share)

    def finish(self, removal: SegmentRemoval) -> None:
        """Raises if the disk refused something; that is then tried again."""
        self._book(removal)
        for folder, error in removal.failed.items():
            raise disk_trouble(f"Deleting old segments in {folder}", error)

    def _book(self, removal: SegmentRemoval) -> None:
        self._taken = {}
        for folder, left in removal.folders.items():
            self._syncer.changed_folder(folder)
            if left:
                left.extend(self._waiting.pop(folder, ()))
                self._waiting[folder] = left
