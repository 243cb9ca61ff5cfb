"""The leader epochs under which records were written.

A committed offset carries the epoch of the record before it, and a message its own epoch. By these a consumer detects
that a new leader has lost records (KIP-320).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.model import TopicPartition

NO_EPOCH = -1
"""The epoch in batches of old brokers. confluent-kafka's messages show it as None."""


class Epochs:
    """The epochs of what is being read. An epoch is in a batch's header, and not in any column of its rows."""

    def __init__(self) -> None:
        self._runs: dict[TopicPartition, list[tuple[int, int]]] = {}
        """For each partition, in order, (first offset, epoch) wherever the epoch changes."""
        self._only: int | None = None
        """The one epoch of all partitions, if they have the same, as they usually do."""

    def note(self, partition: TopicPartition, runs: Iterable[tuple[int, int]]) -> None:
        known = self._runs.setdefault(partition, [])
        for first, epoch in runs:
            while known and known[-1][0] >= first:
                known.pop()  # these offsets are read again
            if not known or known[-1][1] != epoch:
                known.append((first, epoch))
                self._look()

    def forget(self, partition: TopicPartition) -> None:
        if self._runs.pop(partition, None) is not None:
            self._look()

    def _look(self) -> None:
        epochs = {epoch for runs in self._runs.values() for _, epoch in runs}
        self._only = epochs.pop() if len(epochs) == 1 else None

    def of(self, topics: Sequence[Any], partitions: Sequence[Any], offsets: Sequence[Any]) -> list[int]:
        """The epoch of each of these rows; -1 where it is not known."""
        if self._only is not None:
            return [self._only] * len(offsets)
        return [self.one(TopicPartition(*row[:2]), row[2]) for row in zip(topics, partitions, offsets, strict=True)]

    def one(self, partition: TopicPartition, offset: int) -> int:
        """The epoch of the record at this offset; -1 if it is not known."""
        runs = self._runs.get(partition, ())
        at = bisect_right(runs, offset, key=lambda run: run[0]) - 1
        return runs[at][1] if at >= 0 else NO_EPOCH
