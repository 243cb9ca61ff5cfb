"""Which partitions a consumer reads, and where its application stands in them. One book per consumer.

Both readers write into it, one at a time: the one that reads is in charge of it. When the other takes over, it finds
everything here, so no position is ever copied from one reader to the other.

A reader may know a position better than the book does: what it handed out since it last wrote it down. So the reader is
asked for the application's position (`Reader.positions`), and looks here for those that it does not know itself.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping

from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition


class Book:
    """The partitions of one consumer."""

    def __init__(self) -> None:
        self.starts: dict[TopicPartition, int] = {}
        """Where each partition was told to start, by number or symbolic: the position until it has delivered something.
        Only what is assigned is in here."""
        self.named: dict[TopicPartition, OffsetEntry] = {}
        """What the application gave to `assign`, where it named an offset: `assignment` returns it."""
        self.reached: dict[TopicPartition, OffsetEntry] = {}
        """One past the last record that was handed out, as of when the reader last wrote it down."""
        self.went_back: dict[TopicPartition, int | None] = {}
        """Where librdkafka began again at a lower offset by itself, because the topic was deleted and made again. Its
        own position may be the old one: the number, once it was seen."""
        self.before_seek: dict[TopicPartition, OffsetEntry] = {}
        """Where the application stood before a seek. A commit uses it until the application gets a new record."""
        self.paused: set[TopicPartition] = set()
        """Stays until resumed, also while another member owns the partition, as in librdkafka."""
        self.known: set[TopicPartition] = set()
        """Every partition that was ever read here. Others can't be paused, as in librdkafka."""
        self.topics: set[str] = set()
        """The topics of these."""

    @property
    def assigned(self) -> KeysView[TopicPartition]:
        return self.starts.keys()

    def begin(self, starts: Mapping[TopicPartition, int]) -> None:
        """These are read from now on."""
        self.starts.update(starts)
        self.known.update(starts)
        self.topics.update(partition.topic for partition in starts)

    def restart(self, partition: TopicPartition, offset: int) -> None:
        """This one is read from here, whatever came of it before."""
        self.starts[partition] = offset
        for kept in (self.reached, self.went_back):
            kept.pop(partition, None)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These are no longer read. Whether they are paused is remembered."""
        for partition in list(partitions):
            for kept in (self.starts, self.named, self.reached, self.went_back, self.before_seek):
                kept.pop(partition, None)
