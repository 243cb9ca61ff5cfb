"""What applications call about offsets: commit, store_offsets, committed. `member.commits` does what follows."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import confluent_kafka as ck

from holdfast.client.config.pitfalls import Pitfalls
from holdfast.client.errors import FATAL, no_offset
from holdfast.client.member.entries import Entries, after, entries_of, sendable
from holdfast.client.member.events import fatal_error
from holdfast.client.partitions import confluent_at
from holdfast.client.parts import Parts
from holdfast.client.watchdog.positions import WatchdogNotes
from holdfast.group.messages import CommitAnswer
from holdfast.model import TopicPartition

LOST = "the group went on without this member, so it has nothing to commit; poll to join again"


class OffsetCalls:
    """One consumer's calls. `polled_at` is when it last polled."""

    def __init__(
        self, parts: Parts, notes: WatchdogNotes, pitfalls: Pitfalls, *, polled_at: Callable[[], float]
    ) -> None:
        self._config = parts.config
        self._data = parts.data
        self._offsets = parts.offsets
        self._round = parts.round
        self._link = parts.link
        self._check_open = parts.check_open
        self._notes = notes
        self._pitfalls = pitfalls
        self.polled_at = polled_at

    def commit(
        self,
        message: ck.Message | None = None,
        offsets: list[ck.TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[ck.TopicPartition] | None:
        """Commit the offset after a record, a list of offsets, or the application's positions."""
        self._check_open()
        entries = self._to_commit(message, offsets)
        plane = self._link.started()
        forbidden = self._forbidden(message is None and offsets is None)
        if asynchronous:
            self._offsets.commit_later(plane, entries, member=self._link.subscribed, forbidden=forbidden)
            return None
        if forbidden is not None:
            raise ck.KafkaException(forbidden)
        return self._offsets.commit_now(plane, entries, member=self._link.subscribed)

    def begin_commit(
        self, message: ck.Message | None, offsets: list[ck.TopicPartition] | None
    ) -> tuple[Entries, Future[CommitAnswer]]:
        """Begin the same commit without waiting for it; `settled` then gives its result. Raises if there is nothing to
        commit."""
        self._check_open()
        entries = self._to_commit(message, offsets)
        if (forbidden := self._forbidden(message is None and offsets is None)) is not None:
            raise ck.KafkaException(forbidden)
        if not sendable(entries):
            raise no_offset()
        return entries, self._offsets.begin(self._link.started(), entries, member=self._link.subscribed)

    def settled(self, entries: Entries, answer: CommitAnswer) -> list[ck.TopicPartition]:
        """The result of a commit. Raises when any partition was not accepted."""
        return self._offsets.settled(entries, answer)

    def _forbidden(self, everything: bool) -> ck.KafkaError | None:
        """The error that forbids a commit, if there is one. It is reported even if there is nothing to commit.

        After a fatal error no commit is sent. A commit of everything is not sent either when the group has taken
        everything from us, until on_lost has returned. Offsets that are named are sent: the coordinator answers for
        them.
        """
        plane, member = self._link.plane, self._link.member
        if plane is not None and plane.failure is not None and plane.failure.code in FATAL:
            return fatal_error(plane.failure)
        if everything and member is not None and member.state.lost and (self._data.assigned or self._round.leaving):
            return ck.KafkaError(ck.KafkaError._ASSIGNMENT_LOST, LOST)
        return None

    def _to_commit(self, message: ck.Message | None, offsets: list[ck.TopicPartition] | None) -> Entries:
        if message is not None or offsets is not None:
            entries = _entries_given(message, offsets)
        else:
            entries = self._offsets.with_all_assigned(self._offsets.uncommitted(self._data.assigned))
        self._notes.committed(entries)
        self._pitfalls.committed(sendable(entries), self.polled_at())
        return entries

    def store_offsets(self, message: ck.Message | None = None, offsets: list[ck.TopicPartition] | None = None) -> None:
        """Store an offset for the next commit."""
        self._check_open()
        if message is None and offsets is None:
            raise ValueError("expected either message or offsets")
        self._notes.stored(self._offsets.store(_entries_given(message, offsets)))

    def committed(self, partitions: list[ck.TopicPartition], timeout: float | None = None) -> list[ck.TopicPartition]:
        self._check_open()
        return self._offsets.committed(self._link.started(), partitions, timeout)

    def ask(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where it has committed nothing."""
        found = self.committed([confluent_at(p, ck.OFFSET_INVALID) for p in partitions])
        return {p: at.offset if at.offset >= 0 else None for p, at in zip(partitions, found, strict=True)}

    def commit_the_rest(self) -> None:
        """The consumer closes: commit manual assignments here, because no revoke will do it."""
        rest = set(self._data.assigned)
        if self._link.plane is not None and self._link.subscribed:
            rest -= self._link.ours()
        if self._config.auto_commit and self._config.group and self._offsets.committable(rest):
            self._offsets.commit_positions(self._link.started(), rest, member=self._link.subscribed)


def _entries_given(message: ck.Message | None, offsets: list[ck.TopicPartition] | None) -> Entries:
    """The offset after a record, or a list of offsets. `arguments.message_of` has refused both at once."""
    return after(message) if message is not None else entries_of(offsets or [])
