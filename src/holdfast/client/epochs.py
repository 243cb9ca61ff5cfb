"""Under which leader epoch records were written.

A committed offset carries the epoch of the record before it, and a message tells its own: whoever reads on under a
leader that has lost records finds out by it (KIP-320).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.model import TopicPartition

NO_EPOCH = -1
"""What a batch of an old broker says. confluent-kafka's message shows it as None."""


class Epochs:
    """Of what is being read: an epoch stands in the header of a batch, and in no column of its rows."""

    def __init__(self) -> None:
        self._runs: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Per partition (first offset, epoch) wherever it changes, in order."""
        self._only: int | None = None
        """The one epoch of everything, if there is but one: mostly there is."""

    def note(self, partition: TopicPartition, runs: Iterable[tuple[int, int]]) -> None:
        known = self._runs.setdefault(partition, [])
        for first, epoch in runs:
            while known and known[-1][0] >= first:
                known.pop()  # it is read again
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
        """Of each of these rows; -1 where there is none."""
        if self._only is not None:
            return [self._only] * len(offsets)
        return [self.one(TopicPartition(*row[:2]), row[2]) for row in zip(topics, partitions, offsets, strict=True)]

    def one(self, partition: TopicPartition, offset: int) -> int:
        """Of the record at this offset; -1 if it is not known."""
        runs = self._runs.get(partition, ())
        at = bisect_right(runs, offset, key=lambda run: run[0]) - 1
        return runs[at][1] if at >= 0 else NO_EPOCH
