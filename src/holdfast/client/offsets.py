"""What a consumer commits, and when: stored offsets or positions, by hand or by itself, waiting or not.

Positions are asked of librdkafka at commit time and never tracked record by record. Outcomes of commits that nobody
waited for are kept until the next poll, where on_commit hears of them.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

import confluent_kafka as ck

from holdfast.client.config import ConsumerConfig
from holdfast.client.control import ControlPlane
from holdfast.client.data import DataPlane
from holdfast.client.errors import as_kafka_exception, refused
from holdfast.group.messages import CommitAnswer, OffsetEntry
from holdfast.model import ErrorCode, HoldfastError, TopicPartition

COMMIT_TIMEOUT_S = 60.0
REVOKE_COMMIT_TIMEOUT_S = 5.0
"""The commit before a revoke is one, and bounded: the group waits for it (KAFKA-13310)."""

Entries = dict[TopicPartition, OffsetEntry]


class Offsets:
    """One consumer's offsets on their way to the group."""

    def __init__(self, config: ConsumerConfig, data: DataPlane, now: float) -> None:
        self.touched = False
        """Whether anything was returned or stored since the last commit."""
        self.acknowledged: dict[TopicPartition, int] = {}
        """What the application committed and waited for: as good a place to start from as any position."""
        self._config = config
        self._data = data
        self._stored: Entries = {}
        self._due_at = now + config.auto_commit_interval_ms
        self._reports: deque[tuple[Any, list[ck.TopicPartition]]] = deque()

    def committable(self, partitions: Iterable[TopicPartition]) -> Entries:
        """What an offset-less commit would commit: stored offsets, or where the application stands."""
        wanted = set(partitions)
        if not self._config.auto_offset_store:
            return {p: entry for p, entry in sorted(self._stored.items()) if p in wanted}
        return {p: OffsetEntry(offset) for p, offset in sorted(self._data.positions(wanted).items())}

    def store(self, entries: Entries) -> None:
        """Keep these for the next commit. Only of partitions that are ours: another's would rewind the group."""
        if self._config.auto_offset_store:
            raise ck.KafkaException(
                ck.KafkaError(ck.KafkaError._INVALID_ARG, "enable.auto.offset.store must be false to store offsets")
            )
        strangers = sorted(set(entries) - self._data.assigned)
        if strangers:
            names = ", ".join(map(str, strangers))
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._STATE, f"not assigned to this consumer: {names}"))
        self._stored.update(entries)
        self.touched = True

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._stored.pop(partition, None)

    # -- committing

    def commit_if_due(self, plane: ControlPlane, now: float) -> None:
        """Auto-commit, from poll: what was returned before is processed by now."""
        if not self._config.auto_commit or now < self._due_at:
            return
        self._due_at = now + self._config.auto_commit_interval_ms
        entries = self.committable(self._data.assigned) if self.touched else {}
        if entries:
            self.touched = False
            self.commit_later(plane, entries, member=True)

    def commit_later(self, plane: ControlPlane, entries: Entries, *, member: bool) -> None:
        plane.submit(self._report(plane, entries, plane.commit_soon(entries, member=member)))

    async def _report(
        self, plane: ControlPlane, entries: Entries, under_way: Coroutine[Any, Any, CommitAnswer]
    ) -> None:
        try:
            answer = await under_way
        except HoldfastError as error:
            self._reports.append((as_kafka_exception(error).args[0], listed(entries, None)))
        else:
            first = answer.first_error
            told = None if first is ErrorCode.NONE else ck.KafkaError(int(first))
            self._reports.append((told, listed(entries, answer)))
        plane.wake()

    def commit_now(self, plane: ControlPlane, entries: Entries, *, member: bool) -> list[ck.TopicPartition]:
        """Commit and wait. Raises when nothing of it was accepted."""
        try:
            answer = plane.call(plane.commit(entries, member=member), COMMIT_TIMEOUT_S)
        except HoldfastError as error:
            raise as_kafka_exception(error) from None
        return self.settled(entries, answer)

    def settled(self, entries: Entries, answer: CommitAnswer) -> list[ck.TopicPartition]:
        """What a commit that somebody waited for has come to. Raises when nothing of it was accepted."""
        self.acknowledged.update({p: e.offset for p, e in entries.items() if answer.errors.get(p) is ErrorCode.NONE})
        if answer.errors and all(code is not ErrorCode.NONE for code in answer.errors.values()):
            raise refused(answer.first_error)
        return listed(entries, answer)

    def commit_before_revoke(
        self, plane: ControlPlane, partitions: frozenset[TopicPartition], *, handed_over: bool
    ) -> None:
        """Once, bounded, and before the listener hears of it; where positions reach the next owner nobody waits for it.

        Where they may not (a foreign leader, a foreign member that can't read them, the eager protocol), the next owner
        asks the coordinator: a join that overtakes this commit would make it do again what we did.
        """
        entries = self.committable(partitions) if self._config.auto_commit else {}
        if not entries:
            return
        future = plane.submit(plane.commit_soon(entries))
        if handed_over:
            return  # the positions travel with the join; the commit is for whoever looks at the group meanwhile
        with contextlib.suppress(HoldfastError, TimeoutError):
            future.result(REVOKE_COMMIT_TIMEOUT_S)

    def report(self) -> None:
        """Tell on_commit how the commits went that nobody waited for."""
        while self._reports:
            error, partitions = self._reports.popleft()
            if self._config.on_commit is not None:
                self._config.on_commit(error, partitions)

    # -- reading back

    def committed(
        self, plane: ControlPlane, partitions: list[ck.TopicPartition], timeout_s: float | None
    ) -> list[ck.TopicPartition]:
        asked = tuple(TopicPartition(p.topic, p.partition) for p in partitions)
        try:
            answer = plane.call(plane.committed(asked), COMMIT_TIMEOUT_S if timeout_s is None else timeout_s)
        except HoldfastError as error:
            raise as_kafka_exception(error) from None
        except TimeoutError:
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._TIMED_OUT, "the coordinator did not answer")) from None
        if answer.error is not ErrorCode.NONE:
            raise refused(answer.error)
        found = answer.offsets
        return [
            ck.TopicPartition(p.topic, p.partition, found[p].offset, found[p].metadata)
            if p in found
            else ck.TopicPartition(p.topic, p.partition, ck.OFFSET_INVALID)
            for p in asked
        ]


def after(message: ck.Message) -> Entries:
    """The position behind a record."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None or offset < 0:
        raise ValueError("this message carries no position: it is an event, not a record")
    return {TopicPartition(topic, partition): OffsetEntry(offset + 1)}


def entries_of(offsets: Iterable[ck.TopicPartition]) -> Entries:
    return {
        TopicPartition(p.topic, p.partition): OffsetEntry(p.offset, metadata=p.metadata or "")
        for p in offsets
        if p.offset >= 0
    }


class Committed(ck.TopicPartition):
    """A partition whose commit was refused. confluent-kafka's own class does not let anybody set its error."""

    def __init__(self, partition: TopicPartition, offset: int, error: ck.KafkaError) -> None:
        super().__init__(partition.topic, partition.partition, offset)
        self._error = error

    @property
    def error(self) -> ck.KafkaError:  # type: ignore[override]  # their stub says writable, their class is not
        return self._error


def listed(entries: Mapping[TopicPartition, OffsetEntry], answer: CommitAnswer | None) -> list[ck.TopicPartition]:
    """The partitions of a commit, each with its own verdict."""
    shown: list[ck.TopicPartition] = []
    for partition, entry in sorted(entries.items()):
        code = ErrorCode.NONE if answer is None else answer.errors.get(partition, ErrorCode.NONE)
        if code is ErrorCode.NONE:
            shown.append(ck.TopicPartition(partition.topic, partition.partition, entry.offset))
        else:
            shown.append(Committed(partition, entry.offset, ck.KafkaError(int(code))))
    return shown
