"""Keeps up to date the positions that the watchdog would commit if this process died.

A record counts as processed when the application calls again, and not before; with that call its position is noted.
Where the application stores offsets itself, only those are noted. Only the polling thread calls this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.client.member.entries import Entries, after
from holdfast.client.partitions import NO_OFFSET
from holdfast.client.watchdog.child import NO_EPOCH
from holdfast.client.watchdog.guard import Watchdog, watched
from holdfast.model import TopicPartition

if TYPE_CHECKING:
    import confluent_kafka as ck

    from holdfast.client.config.settings import ConsumerConfig
    from holdfast.client.member.control import ControlPlane
    from holdfast.client.reading.data_plane import DataPlane

SMALL_BATCH = 64
"""Up to this many records are noted one by one. For a larger batch the positions of all partitions are asked for."""

NOTE_EVERY_MS = 10.0
"""How often all positions are asked for when there are more partitions than records in the batch. After a kill, others
may have to repeat this much work."""


class WatchdogNotes:
    """One consumer's notes for its watchdog, if it has one."""

    def __init__(self, data: DataPlane) -> None:
        self.watchdog: Watchdog | None = None
        self._data = data
        self._by_position = False
        self._messages: list[ck.Message] = []
        self._one: ck.Message | None = None
        self._batch = 0
        self._next_at = 0.0

    def begin(self, watchdog: Watchdog, *, by_position: bool) -> None:
        """Start noting: what was returned if `by_position`, otherwise what is stored."""
        self.watchdog = watchdog
        self._by_position = by_position

    def returned(self, messages: list[ck.Message]) -> None:
        if self._by_position:
            small = len(messages) <= SMALL_BATCH
            self._messages, self._batch = (list(messages), 0) if small else ([], len(messages))

    def returned_one(self, message: ck.Message) -> None:
        if self._by_position:
            self._one = message

    def returned_batch(self, rows: int) -> None:
        self._batch = rows if self._by_position else 0

    def catch_up(self, now: float) -> None:
        """The application calls again: what was returned before is processed by now."""
        if self._one is not None:
            self.catch_up_one()
        if self.watchdog is None or not (self._messages or self._batch):
            return
        noted, self._messages = self._messages, []
        for message in noted:
            if message.error() is None:
                self.watchdog.positions(after(message))
        if self._batch and (len(self._data.assigned) <= self._batch or now >= self._next_at):
            self._batch = 0
            self._next_at = now + NOTE_EVERY_MS
            self.watchdog.positions(self._data.handed_out())

    def catch_up_one(self) -> None:
        """The same for one record. Every poll calls it, so it is written for speed."""
        message, self._one = self._one, None
        if self.watchdog is not None and message is not None and message.error() is None:
            epoch = message.leader_epoch()
            self.watchdog.position(
                (message.topic(), message.partition()),  # type: ignore[arg-type]  # a record has them
                message.offset() + 1,  # type: ignore[operator]  # and an offset
                NO_EPOCH if epoch is None else epoch,
            )

    def stored(self, entries: Entries) -> None:
        """The application stores these for its next commit. An offset with metadata is removed from the note: the
        watchdog would commit it without the metadata, which may mean something else."""
        if self.watchdog is not None:
            self.watchdog.positions({p: NO_OFFSET if entry.metadata else entry for p, entry in entries.items()})

    def committed(self, entries: Entries) -> None:
        """The application commits these by hand. From any thread: a worker may commit while another one polls."""
        if self.watchdog is None:
            return
        for partition, entry in entries.items():
            one = self._one
            if one is not None and (one.topic(), one.partition()) == partition and (one.offset() or 0) < entry.offset:
                self._one = None  # the next poll would note it again, before this commit's offset
            if entry.offset >= 0:
                self.watchdog.committed(partition, entry)

    def gave_up(self, partitions: Iterable[TopicPartition]) -> None:
        if self.watchdog is not None:
            self.watchdog.gave_up(partitions)

    def end(self, *, left: bool) -> None:
        """The consumer is closed. If its member could not leave, the watchdog leaves for it now, as after a kill."""
        if self.watchdog is not None:
            self.watchdog.dismiss(clean=left)


def watch(config: ConsumerConfig, notes: WatchdogNotes, plane: ControlPlane) -> None:
    """Start the member's watchdog, if it wants one and has none. A consumer that never subscribes needs none."""
    if not config.inventions.watchdog or notes.watchdog is not None:
        return
    watchdog = watched(config)
    if watchdog is None:
        return
    notes.begin(watchdog, by_position=config.auto_commit and config.auto_offset_store)
    plane.keep_informed(watchdog)
