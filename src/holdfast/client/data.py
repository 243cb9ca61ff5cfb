"""The data plane: librdkafka in manual-assign mode, with explicit offsets and no group behaviour of its own.

All calls come from the thread that polls: confluent-kafka's handle starves calls from a second thread for up to a
second while one loops in poll. What may be delivered is decided by what is assigned here; a partition that is taken
away is gone from librdkafka's queue before this returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka as ck

from holdfast.model import TopicPartition

RESET = {"earliest": ck.OFFSET_BEGINNING, "latest": ck.OFFSET_END, "error": ck.OFFSET_INVALID}


class DataPlane:
    """librdkafka's consumer as a fetcher."""

    def __init__(self, config: Mapping[str, Any], *, logger: Any = None, reset: str) -> None:
        self.handle = ck.Consumer(dict(config), logger=logger) if logger is not None else ck.Consumer(dict(config))
        self.assigned: set[TopicPartition] = set()
        self._reset = RESET[reset]

    def add(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Start these; None means that the group has no offset yet, so auto.offset.reset decides."""
        fresh = {p: offset for p, offset in offsets.items() if p not in self.assigned}
        if fresh:
            self.handle.incremental_assign(
                [
                    ck.TopicPartition(p.topic, p.partition, self._reset if offset is None else offset)
                    for p, offset in sorted(fresh.items())
                ]
            )
            self.assigned |= set(fresh)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        gone = sorted(set(partitions) & self.assigned)
        if gone:
            self.handle.incremental_unassign([ck.TopicPartition(p.topic, p.partition) for p in gone])
            self.assigned -= set(gone)

    def replace(self, partitions: Iterable[ck.TopicPartition]) -> None:
        """A manual assignment of the user's own."""
        wanted = list(partitions)
        self.handle.assign(wanted)
        self.assigned = {TopicPartition(p.topic, p.partition) for p in wanted}

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the application stands: one past the last record it got. Partitions it got nothing of are absent."""
        asked = [ck.TopicPartition(p.topic, p.partition) for p in sorted(set(partitions) & self.assigned)]
        if not asked:
            return {}
        return {
            TopicPartition(p.topic, p.partition): p.offset
            for p in self.handle.position(asked)
            if p.error is None and p.offset >= 0
        }

    def lag_max(self) -> int | None:
        """The largest distance between a position and the end of its partition, as far as librdkafka has seen it."""
        lags = []
        for partition, position in self.positions(self.assigned).items():
            seen = self.handle.get_watermark_offsets(
                ck.TopicPartition(partition.topic, partition.partition), cached=True
            )
            if seen[1] >= 0:
                lags.append(max(0, seen[1] - position))
        return max(lags, default=None)

    def close(self) -> None:
        self.assigned = set()
        self.handle.close()
