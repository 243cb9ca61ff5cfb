"""What a query holds, what it is doing, and what the group does not know of it yet. Pure: no clock, no socket.

One rule decides everything: *a finished range counts if its partition is ours and stands at the range's start.* It
holds for the batch that just ran, for one that a former life of the query finished without telling the group (a
restart), and for one during which the membership was lost and won back: nobody has moved the partition meanwhile, so
what we did is done. Where the partition stands elsewhere, somebody else did it, and what we did does not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.model import TopicPartition
from holdfast.spark.offsets import BatchOffset, Ranges


@dataclass(slots=True)
class Held:
    """One partition of ours."""

    committed: int | None
    """What the group has, as far as we know; None before anything was committed."""
    position: int | None
    """Where our finished work ends, and so where the next batch begins; None until that is looked up."""


@dataclass(slots=True)
class Work:
    """The state between two calls of Spark's."""

    held: dict[TopicPartition, Held] = field(default_factory=dict)
    leaving: set[TopicPartition] = field(default_factory=set)
    """Being revoked: in no further batch."""
    running: BatchOffset | None = None
    """Planned, and not known to be finished."""
    finished: dict[TopicPartition, tuple[int | None, int]] = field(default_factory=dict)
    """Ranges that we have finished and the group may not know of, of partitions that are not ours now."""

    # -- the group's side

    def assign(self, offsets: Mapping[TopicPartition, int | None], handed: Collection[TopicPartition] = ()) -> None:
        """These are ours now, from there on. `handed`: their last owner said so, and nobody has committed it yet."""
        for partition, offset in offsets.items():
            held = Held(committed=None if partition in handed else offset, position=offset)
            done = self.finished.pop(partition, None)
            if done is not None and (offset is None or offset == done[0]):
                held.position = done[1]
            self.held[partition] = held
            self.leaving.discard(partition)

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """No further batch takes these. They are ours until `release`."""
        self.leaving |= self.held.keys() & set(partitions)

    def busy(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the running batch reads one of these."""
        return self.running is not None and not self.running.ranges.keys().isdisjoint(partitions)

    def release(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """No longer ours: handed over, or lost. Returns where our finished work on them ends."""
        final: dict[TopicPartition, int] = {}
        for partition in sorted(partitions):
            self.leaving.discard(partition)
            held = self.held.pop(partition, None)
            if held is None or held.position is None:
                continue
            final[partition] = held.position
            if held.position != held.committed:
                self.finished[partition] = (held.committed, held.position)
        return final

    # -- Spark's side

    def start_at(self, found: Mapping[TopicPartition, int]) -> None:
        """Partitions nobody has committed begin here."""
        for partition, offset in found.items():
            held = self.held.get(partition)
            if held is not None and held.position is None:
                held.position = offset

    def move(self, positions: Mapping[TopicPartition, int]) -> None:
        """Go on from here instead: the log is not what it was."""
        for partition, offset in positions.items():
            if partition in self.held:
                self.held[partition].position = offset

    def plan(
        self, ranges: Ranges, *, after: BatchOffset, generation: int, stands: Mapping[TopicPartition, int] | None = None
    ) -> BatchOffset:
        assert self.running is None, "Spark runs one batch at a time"
        number = after.number + 1
        self.running = BatchOffset(number=number, generation=generation, ranges=dict(ranges), stands=stands or {})
        return self.running

    def replay(self, planned: BatchOffset) -> BatchOffset:
        """Of a batch of a former life: what is ours and begins where the group stands. The rest others do or did."""
        kept = {}
        for partition, (start, end) in planned.ranges.items():
            held = self.held.get(partition)
            if held is not None and partition not in self.leaving and held.position in (start, None):
                kept[partition] = (start, end)
                held.position = start
        self.running = BatchOffset(number=planned.number, generation=planned.generation, ranges=kept)
        return self.running

    def finish(self, done: BatchOffset) -> None:
        """Spark has finished this batch, in this life or in a former one."""
        if self.running is not None and self.running.number == done.number:
            done, self.running = self.running, None
        for partition, (start, end) in done.ranges.items():
            held = self.held.get(partition)
            if held is None:
                self.finished[partition] = (start, end)
            elif held.position in (start, None):
                held.position = end

    # -- what is owed

    def owed(self) -> dict[TopicPartition, int]:
        """Positions that the group does not know yet, sorted."""
        return {
            p: held.position
            for p, held in sorted(self.held.items())
            if held.position is not None and held.position != held.committed
        }

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The group has these now."""
        for partition, offset in offsets.items():
            held = self.held.get(partition)
            if held is not None:
                held.committed = offset

    def open(self) -> dict[TopicPartition, int]:
        """Where the next batch may begin: ours, known, and not on its way to somebody else. Sorted."""
        return {
            p: held.position
            for p, held in sorted(self.held.items())
            if held.position is not None and p not in self.leaving
        }

    def unknown(self) -> list[TopicPartition]:
        """Ours, and nobody knows yet where they begin. Sorted."""
        return sorted(p for p, held in self.held.items() if held.position is None)
