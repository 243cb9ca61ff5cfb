"""How much a standby has read of the states it follows, and what it reads next. Pure.

The runs of a state are immutable, so what was read once stays right: when a state changes, only its new runs are read.
That also holds for a standby that followed the partition earlier. Nothing is taken from here: the partition's owner
opens the runs in the chain's last entry, and finds them in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.assign.following import ALL, Followed
from holdfast.model import TopicPartition
from holdfast.spark.state.chain import Entry, RunRef

PIECE_BYTES = 64 << 20
"""How much each worker reads at a time. It reads every two seconds, so 32 MB a second: a state of a gigabyte takes half
a minute. Reading and checking one such piece from the page cache takes about a tenth of a second."""

SMALL_BYTES = 1 << 20
"""New data up to this size is not read yet: every batch writes a small run, which is quick to open at any time."""

KEPT_NAMES = 4_096
"""How many runs are remembered, also of partitions no longer followed. A run costs only its name here."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one run to be read. With the last part the run is opened and checked."""

    partition: TopicPartition
    run: RunRef
    start: int
    end: int

    @property
    def last(self) -> bool:
        return self.end >= self.run.bytes


@dataclass(slots=True)
class Book:
    """How far one state's partitions are followed."""

    tips: dict[TopicPartition, Entry] = field(default_factory=dict)
    """The last entry seen of each."""
    read_upto: dict[str, int] = field(default_factory=dict)
    """Runs, and how many of their bytes were read."""

    def saw(self, partition: TopicPartition, tip: Entry) -> None:
        self.tips[partition] = tip

    def next(self, partitions: Iterable[TopicPartition], budget: int = PIECE_BYTES) -> list[Piece]:
        """What to read next, up to so many bytes. Partitions that lack least come first, so that as many as possible
        are ready soon."""
        pieces: list[Piece] = []
        for partition in sorted(self._seen(partitions), key=lambda p: (self._lacks(p), p)):
            for run in self.tips[partition].runs:
                start = self.read_upto.get(run.name, 0)
                if start < run.bytes and budget > 0:
                    pieces.append(Piece(partition, run, start, min(run.bytes, start + budget)))
                    budget -= pieces[-1].end - start
        return pieces

    def worth_it(self, pieces: Iterable[Piece]) -> bool:
        return sum(piece.end - piece.start for piece in pieces) > SMALL_BYTES

    def done(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self.read_upto.pop(piece.run.name, None)
            self.read_upto[piece.run.name] = piece.end
        needed = {run.name for tip in self.tips.values() for run in tip.runs}
        for name in [name for name in self.read_upto if name not in needed][: max(0, len(self.read_upto) - KEPT_NAMES)]:
            del self.read_upto[name]

    def lost(self, names: Iterable[str]) -> None:
        """These runs could not be read: they were rightly removed, or are damaged, which their owner will report."""
        for name in names:
            self.read_upto.pop(name, None)

    def followed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Followed]:
        """For the leader: each state's last seen offset, and how much of it has been read."""
        return {p: Followed(self.tips[p].end, self._share(p)) for p in sorted(self._seen(partitions))}

    def open(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, tuple[RunRef, ...]]:
        """By partition: the runs that have been read to their end. Workers keep only those open."""
        return {
            p: tuple(run for run in self.tips[p].runs if self.read_upto.get(run.name, 0) >= run.bytes)
            for p in sorted(self._seen(partitions))
        }

    def _seen(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        return {p for p in partitions if p in self.tips}

    def _lacks(self, partition: TopicPartition) -> int:
        return sum(run.bytes - self.read_upto.get(run.name, 0) for run in self.tips[partition].runs)

    def _share(self, partition: TopicPartition) -> int:
        total = sum(run.bytes for run in self.tips[partition].runs)
        return ALL if not total else (total - self._lacks(partition)) * ALL // total
