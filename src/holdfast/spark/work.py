"""What a query owns, what it is processing, and what is not committed yet. Pure: no clock, no socket.

One rule decides everything: *a finished range counts if its partition is ours and its position is the range's start.*
It covers the batch that just ran, a batch that an earlier run of the query finished without committing (a restart), and
a batch during which the membership was lost and regained: nobody has moved the partition's position, so our work is
valid. If the position is elsewhere, another member did the work, and ours does not count. If there is no position,
because the group has no offset, `starting` finds it before anything counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.model import TopicPartition
from holdfast.spark.offsets import BatchOffset, Ranges, Seen


@dataclass(slots=True)
class Held:
    """One partition of ours."""

    committed: int | None
    """The group's offset, as far as we know; None before anything was committed."""
    position: int | None
    """Where our finished work ends and the next batch begins; None until it is looked up."""


@dataclass(slots=True)
class Work:
    """The state between two of Spark's calls."""

    held: dict[TopicPartition, Held] = field(default_factory=dict)
    leaving: set[TopicPartition] = field(default_factory=set)
    """Being revoked: they get into no further batch."""
    running: BatchOffset | None = None
    """The batch that is planned and not known to be finished."""
    finished: dict[TopicPartition, tuple[int | None, int]] = field(default_factory=dict)
    """Finished ranges, perhaps not committed, of partitions that are not ours now."""

    # -- the group's side

    def assign(self, offsets: Mapping[TopicPartition, int | None], handed: Collection[TopicPartition] = ()) -> None:
        """These are ours now, from these offsets on. `handed`: offsets handed over by the last owner, not committed."""
        for partition, offset in offsets.items():
            held = Held(committed=None if partition in handed else offset, position=offset)
            done = self.finished.pop(partition, None)
            if done is not None and offset == done[0]:
                held.position = done[1]
            self.held[partition] = held
            self.leaving.discard(partition)

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Plan no further batch with these. They are ours until `release`."""
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
        """Partitions without a committed offset begin here."""
        for partition, offset in found.items():
            held = self.held.get(partition)
            if held is not None and held.position is None:
                held.position = offset

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Their offset in the group means nothing: it is looked up where they begin."""
        for partition in partitions:
            if partition in self.held:
                self.held[partition].position = None

    def move(self, positions: Mapping[TopicPartition, int]) -> None:
        """Continue from here instead, because the log was recreated or truncated."""
        for partition, offset in positions.items():
            if partition in self.held:
                self.held[partition].position = offset

    def plan(
        self, ranges: Ranges, *, after: BatchOffset, generation: int, topics: Mapping[str, Seen] | None = None
    ) -> BatchOffset:
        """`topics` are the subscribed topics, for the checkpoint."""
        assert self.running is None, "Spark runs one batch at a time"
        others = {p: at for p, at in self._positions().items() if p not in ranges}
        self.running = BatchOffset(
            number=after.number + 1, generation=generation, ranges=dict(ranges), stands=others, topics=topics or {}
        )
        return self.running

    def _positions(self) -> dict[TopicPartition, int]:
        return {p: held.position for p, held in sorted(self.held.items()) if held.position is not None}

    def replay(self, planned: BatchOffset) -> BatchOffset:
        """The part of an earlier run's batch that is ours and begins at our position. Others do or did the rest."""
        kept = {}
        for partition, (start, end) in planned.ranges.items():
            held = self.held.get(partition)
            if held is not None and partition not in self.leaving and held.position == start:
                kept[partition] = (start, end)
        self.running = replace(planned, ranges=kept)
        return self.running

    def finish(self, done: BatchOffset) -> None:
        """Spark has finished this batch, in this run or in an earlier one."""
        if self.running is not None and self.running.number == done.number:
            done, self.running = self.running, None
        for partition, (start, end) in done.ranges.items():
            held = self.held.get(partition)
            if held is None:
                self.finished[partition] = (start, end)
            elif held.position == start:
                held.position = end

    # -- what is to be committed

    def owed(self) -> dict[TopicPartition, int]:
        """Positions that are not committed yet, sorted."""
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
        """Positions from which the next batch may read: ours, known, and not being revoked. Sorted."""
        return {p: at for p, at in self._positions().items() if p not in self.leaving}

    def unknown(self) -> list[TopicPartition]:
        """Our partitions whose beginning is not known yet. Sorted."""
        return sorted(p for p, held in self.held.items() if held.position is None)
