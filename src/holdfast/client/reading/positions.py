"""Where the application stands in partitions that librdkafka reads.

Three know something about it. `ahead` knows the partitions that have records it has not handed out. librdkafka knows
the others, once it has returned a record of them. Before that it is where the partition was told to start, or what our
own fetcher had reached when it handed the partition over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from confluent_kafka import cimpl

from holdfast.client.partitions import confluent_list, epoch_of, name_of
from holdfast.client.reading.taken_ahead import Ahead
from holdfast.client.reading.turns import Turns
from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition


class Positions:
    """One consumer's positions in what librdkafka reads."""

    def __init__(self, handle: cimpl.Consumer, ahead: Ahead, turns: Turns) -> None:
        self._handle = handle
        self._ahead = ahead
        self._turns = turns
        self.starts: dict[TopicPartition, int] = {}
        """Where librdkafka was told to start: the position until it has delivered something."""
        self.carried: dict[TopicPartition, int] = {}
        """Positions reached by our fetcher, until librdkafka has one of its own."""

    def of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        """One past the last record that was handed out, with that record's leader epoch if known. Partitions of which
        nothing was handed out are left out."""
        if not partitions:
            return {}
        found = {p: OffsetEntry(self.carried[p]) for p in partitions if p in self.carried}
        unread, theirs = self._of_librdkafka(partitions)
        return found | theirs | {p: entry for p in unread if (entry := self._ahead.reached(p)) is not None}

    def _of_librdkafka(
        self, asked: Collection[TopicPartition]
    ) -> tuple[Collection[TopicPartition], dict[TopicPartition, OffsetEntry]]:
        """The partitions with unread records, and librdkafka's positions in the others.

        Its positions are past every record it returns, also past records that are still on their way into `ahead`. So
        they don't count while it is being asked for records (then one of its callbacks asks, or another thread polls),
        nor if it was asked for records in between. While it is being asked, all partitions count as unread.
        """
        ahead = self._ahead
        while not ahead.filling:
            fills = ahead.fills
            unread = sorted(ahead.unread().keys() & asked) if ahead else []
            theirs = self.returned(set(asked).difference(unread))
            if ahead.fills == fills:
                return unread, theirs
        return asked, {}

    def returned(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        """librdkafka's own position: one past the last record it returned, for partitions where it returned one."""
        listed = confluent_list(partitions)
        if not listed:
            return {}
        with self._turns.asking():
            found = self._handle.position(listed)
        return {name_of(p): OffsetEntry(p.offset, epoch_of(p)) for p in found if p.error is None and p.offset >= 0}

    def restart(self, partition: TopicPartition, offset: int) -> None:
        """This partition is read from here, whatever came of it before."""
        self.starts[partition] = offset
        self._ahead.forget([partition])
        self.carried.pop(partition, None)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These are no longer read."""
        gone = list(partitions)
        for partition in gone:
            self.starts.pop(partition, None)
            self.carried.pop(partition, None)
        self._ahead.forget(gone)
