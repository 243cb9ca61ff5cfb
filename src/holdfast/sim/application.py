"""The simulated application of one member: it processes what the member owns, and commits how far it got.

It owns the lanes; a lane is one member's work on one partition. The driver (`member`) tells it what was assigned and
what was taken away; it never decides that by itself. A lane opens once the machine says that the partition is owned,
and stops before the listener hears that it is not. So an overlap would show in its trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from holdfast.group.messages import OffsetEntry
from holdfast.group.session.progress import not_committed_yet
from holdfast.model import TopicPartition, Value
from holdfast.sim.broker import SimBroker
from holdfast.sim.logs import Lane

Tell = Callable[..., None]


class Application:
    """What one process does with its partitions."""

    __slots__ = (
        "_broker",
        "_restore_ms",
        "_restored_at",
        "_speed",
        "_tell",
        "committed",
        "lanes",
        "restoring",
        "stalled",
    )

    def __init__(self, broker: SimBroker, speed: float, tell: Tell, restore_ms: float = 0.0) -> None:
        self._broker = broker
        self._speed = speed * broker.config.records_per_s / 1000.0
        self._tell = tell
        self.lanes: dict[TopicPartition, Lane] = {}
        self.committed: dict[TopicPartition, OffsetEntry] = {}
        """What this process knows to be committed, so that it does not commit the same again."""
        self.stalled = False
        self.restoring: set[TopicPartition] = set()
        """Owned, but their state is not restored yet: nothing is processed. One is restored after the other."""
        self._restore_ms = restore_ms
        self._restored_at = 0.0

    def open(self, partition: TopicPartition, position: int, why: str) -> None:
        """Start to process a partition from a position, unless it has been deleted meanwhile."""
        log = self._broker.logs.get(partition)
        if log is None or partition in self.lanes:
            return
        now = self._broker.clock.now
        lane = Lane(log, position, self._speed, now)
        self.lanes[partition] = lane
        if self._restore_ms:
            lane.stall(now)
            self._restore(partition, lane, why)
        elif self.stalled:
            lane.stall(now)
        else:
            self._note("lane-opened", partition, position, why)

    def _restore(self, partition: TopicPartition, lane: Lane, why: str) -> None:
        """Its turn comes when the partitions before it are done."""
        clock = self._broker.clock
        self.restoring.add(partition)
        self._restored_at = max(clock.now, self._restored_at) + self._restore_ms
        self._note("lane-restoring", partition, lane.position(clock.now), why)
        clock.at(self._restored_at, self._restored, partition, lane)

    def _restored(self, partition: TopicPartition, lane: Lane) -> None:
        if self.lanes.get(partition) is not lane:  # taken away again, or the process has ended
            return
        self.restoring.discard(partition)
        if not self.stalled:
            self._note("lane-opened", partition, lane.go_on(self._broker.clock.now), "restored")

    def close(self, partitions: Iterable[TopicPartition], why: str) -> dict[TopicPartition, int]:
        """Stop for good; the final positions."""
        now = self._broker.clock.now
        positions: dict[TopicPartition, int] = {}
        for partition in sorted(partitions):
            self.committed.pop(partition, None)
            self.restoring.discard(partition)
            lane = self.lanes.pop(partition, None)
            if lane is None:
                continue
            running = lane.running
            positions[partition] = lane.stall(now)
            if running:
                self._note("lane-stopped", partition, positions[partition], why)
        return positions

    def stall(self, why: str) -> None:
        """Stop all lanes: the application hangs, or the process was stopped."""
        if self.stalled:
            return
        self.stalled = True
        for partition, lane in sorted(self.lanes.items()):
            if partition not in self.restoring:
                self._note("lane-stopped", partition, lane.stall(self._broker.clock.now), why)

    def go_on(self, why: str) -> None:
        """Go on where it stopped, without knowing what happened meanwhile."""
        if not self.stalled:
            return
        self.stalled = False
        for partition, lane in sorted(self.lanes.items()):
            if partition not in self.restoring:
                self._note("lane-opened", partition, lane.go_on(self._broker.clock.now), why)

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        now = self._broker.clock.now
        return {p: self.lanes[p].position(now) for p in sorted(partitions) if p in self.lanes}

    def noted(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The positions that a watchdog would know of: of partitions in which something was processed."""
        now = self._broker.clock.now
        return {p: at for p, at in self.positions(partitions).items() if self.lanes[p].has_moved(now)}

    def uncommitted(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        """The positions that are not committed yet."""
        reached = {partition: OffsetEntry(at) for partition, at in self.positions(partitions).items()}
        return not_committed_yet(reached, self.committed)

    def note_committed(self, offsets: Mapping[TopicPartition, OffsetEntry]) -> None:
        for partition, entry in offsets.items():
            if partition in self.lanes:
                self.committed[partition] = entry

    def _note(self, step: str, partition: TopicPartition, position: int, why: str) -> None:
        data: dict[str, Value] = {"topic": partition.topic, "partition": partition.partition, "position": position}
        self._tell(step, why, data)
