"""What reads a consumer's partitions: one interface, two forms.

- `librdkafka_reader.LibrdkafkaReader`, for poll() and consume();
- `batch_reader.BatchReader`, our own fetcher and decoder, for consume_arrow() and for `AsyncConsumer`.

The code above asks the reader in charge and need not know which it is. `DataPlane` decides that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import confluent_kafka as ck

    from holdfast.client.reading.book import Book
    from holdfast.group.messages import OffsetEntry
    from holdfast.model import TopicPartition


class Reader(Protocol):
    """Reads the partitions in its book, while it is in charge of the book.

    Calls come from the thread that polls, or from others in their turn (`turns`). A call that is refused raises
    librdkafka's error for it and changes nothing.
    """

    @property
    def book(self) -> Book:
        """What is read, and where the application stands. Both readers of a consumer have the same."""

    @property
    def finds_committed(self) -> bool:
        """Whether it asks the group itself where a partition without an offset starts. If not, such a partition must
        not be added: ask the group first."""

    @property
    def in_statistics(self) -> bool:
        """Whether the figures that stats_cb gets include the watermarks of what it reads."""

    # -- what is read

    def add(self, partitions: Sequence[ck.TopicPartition]) -> None:
        """Read these too, each from the offset it names: a number, the beginning, the end, or n before the end. Those
        that are read already go on undisturbed, and must not be among these. What is paused stays paused."""

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these, which must be assigned. When this returns, no record of theirs will be handed out."""

    def drop_again(self, partitions: Collection[TopicPartition]) -> None:
        """The same for partitions of which some may not be read any more, or not yet: a call was interrupted."""

    def replace(self, partitions: Sequence[ck.TopicPartition]) -> None:
        """Read exactly these, each from the offset it names."""

    def seek(self, partition: ck.TopicPartition) -> None:
        """Read an assigned partition from another offset. When this returns, no record from before will be handed
        out, and the partition has no position until the next one is."""

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Hand out no record of these until they are resumed. Their positions stay, and nothing is lost."""

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Go on with these where they were paused. Those that are not paused are not disturbed."""

    # -- where it stands

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        """One past the last record of each that was handed out, with that record's leader epoch if known. How far the
        reader itself is ahead of that does not matter. Records that nobody gets, such as the markers of transactions,
        are passed with the record before them. A partition of which nothing was handed out or passed is left out."""

    def handed_out(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        """The same, quickly: a position may be before records that nobody gets."""

    def watermarks(self, partition: TopicPartition) -> tuple[int, int] | None:
        """The low and high watermark that were last seen; None if none were."""

    # -- records

    def take(self, count: int, wait_s: float) -> list[ck.Message]:
        """Hand out up to `count` messages: records in the order of each partition, and errors in their place. Waits
        this long at most if there is none."""

    # -- who reads

    # Each of these three can be repeated if it was interrupted.

    def write_down(self) -> None:
        """Write into the book all positions, and where each partition goes on: at the first record that was not handed
        out, or at its start. Reading goes on undisturbed."""

    def stop(self) -> None:
        """Stop reading everything, so that another reader can take over from what was written down."""

    def take_over(self) -> None:
        """Read everything in the book, from where it says, with the same partitions paused."""

    def close(self) -> None:
        """Stop for good, and release what it holds."""
