"""Stand-ins for what a consumer's parts lean on, so that each is tested by itself: no broker, no thread, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Coroutine, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import confluent_kafka as ck

from holdfast.assign import by_name
from holdfast.client.config.settings import ConsumerConfig, parse
from holdfast.client.partitions import name_of, offsets_of
from holdfast.client.reading.book import Book
from holdfast.group import member as mb
from holdfast.group.messages import CommitAnswer, OffsetEntry
from holdfast.model import ErrorCode, HoldfastError, Membership, RebalanceProtocol, TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)

MEMBER = mb.MemberState(
    config=mb.MemberConfig(
        group="g", assignors=(by_name("cooperative-sticky"),), protocol=RebalanceProtocol.COOPERATIVE
    ),
    membership=Membership("m-1", 5),
    phase=mb.Phase.STABLE,
    owned=frozenset({A, B}),
)


def config_of(**settings: Any) -> ConsumerConfig:
    """A consumer's settings; dots are written as underscores."""
    given = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    named = {key if key == "on_commit" else key.replace("_", "."): value for key, value in settings.items()}
    return parse(given | named)


class FakeReader:
    """A `Reader` that keeps its promises and reads nothing: what it hands out is up to the test."""

    finds_committed = False
    in_statistics = True

    def __init__(self, book: Book | None = None) -> None:
        self.book = book or Book()
        self.calls: list[str] = []
        """The changes that were asked of it, by name."""
        self.stands: dict[TopicPartition, OffsetEntry] = {}
        self.marks: dict[TopicPartition, tuple[int, int]] = {}
        self.raises: dict[str, deque[BaseException]] = {}
        """What the next calls of a method raise, before they do anything."""

    def will_raise(self, method: str, *errors: BaseException) -> None:
        self.raises.setdefault(method, deque()).extend(errors)

    def hand_out(self, partition: TopicPartition, offset: int) -> None:
        """The application gets this record."""
        self.book.before_seek.pop(partition, None)
        self.stands[partition] = OffsetEntry(offset + 1)

    def _asked(self, method: str) -> None:
        self.calls.append(method)
        if waiting := self.raises.get(method):
            raise waiting.popleft()

    def add(self, partitions: Sequence[ck.TopicPartition]) -> None:
        self._asked("add")
        self.book.begin(offsets_of(partitions))

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        self._asked("drop")
        self._forget(partitions)

    def drop_again(self, partitions: Collection[TopicPartition]) -> None:
        self._asked("drop_again")
        self._forget(partitions)

    def replace(self, partitions: Sequence[ck.TopicPartition]) -> None:
        self._asked("replace")
        self._forget(list(self.book.assigned))
        self.book.begin(offsets_of(partitions))

    def seek(self, partition: ck.TopicPartition) -> None:
        self._asked("seek")
        self.stands.pop(name_of(partition), None)
        self.book.restart(name_of(partition), partition.offset)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._asked("pause")
        self.book.paused |= set(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._asked("resume")
        self.book.paused -= set(partitions)

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetEntry]:
        return {p: found for p in partitions if (found := self.stands.get(p, self.book.reached.get(p))) is not None}

    handed_out = positions

    def watermarks(self, partition: TopicPartition) -> tuple[int, int] | None:
        return self.marks.get(partition)

    def take(self, count: int, wait_s: float) -> list[ck.Message]:
        return []

    def write_down(self) -> None:
        self._asked("write_down")
        self.book.reached.update(self.stands)
        self.book.starts.update({p: entry.offset for p, entry in self.stands.items()})

    def stop(self) -> None:
        self._asked("stop")

    def take_over(self) -> None:
        self._asked("take_over")

    def close(self) -> None:
        self._asked("close")

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = list(partitions)
        self.book.forget(gone)
        for partition in gone:
            self.stands.pop(partition, None)


class Answer:
    """What a commit under way waits for."""

    def __await__(self) -> Generator[None, CommitAnswer | BaseException | None, CommitAnswer | BaseException | None]:
        return (yield)


class Sent:
    """One commit on its way: what was sent, and how."""

    def __init__(self, offsets: Mapping[TopicPartition, OffsetEntry], **how: Any) -> None:
        self.offsets = {p: entry.offset for p, entry in offsets.items()}
        self.entries = dict(offsets)
        self.how = how


class Plane:
    """A control plane whose coordinator answers when the test says so, or `at_once`."""

    def __init__(self, state: mb.MemberState = MEMBER, *, at_once: bool = False) -> None:
        self.state = state
        self.at_once = at_once
        self.handed: dict[TopicPartition, OffsetEntry] = {}
        self.fed: list[mb.Event] = []
        self.sent: list[Sent] = []
        self.woken = 0
        self.offsets = self
        """It takes the commits itself, in place of `GroupOffsets`."""
        self._waiting: deque[tuple[Coroutine[Any, Any, Any], Future[Any]]] = deque()

    # -- as a control plane

    def feed(self, event: mb.Event) -> None:
        self.fed.append(event)

    def wake(self) -> None:
        self.woken += 1

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        future: Future[Any] = Future()
        work.send(None)  # up to the answer
        self._waiting.append((work, future))
        if self.at_once:
            self.accept()
        return future

    # -- as `GroupOffsets`

    def commit_soon(
        self, offsets: Mapping[TopicPartition, OffsetEntry], **how: Any
    ) -> Coroutine[Any, Any, CommitAnswer]:
        self.sent.append(Sent(offsets, **how))

        async def answered() -> CommitAnswer:
            answer = await Answer()
            if isinstance(answer, BaseException):
                raise answer
            if answer is not None:
                return answer
            return CommitAnswer(errors=dict.fromkeys(offsets, ErrorCode.NONE))

        return answered()

    # -- as the coordinator

    def accept(self) -> None:
        """The oldest commit under way is accepted."""
        self._end(None)

    def refuse(self, code: ErrorCode, *partitions: TopicPartition) -> None:
        """The oldest commit under way is refused for these partitions, which are all that it answers about."""
        self._end(CommitAnswer(errors=dict.fromkeys(partitions or (A,), code)))

    def fail(self, error: BaseException) -> None:
        """The oldest commit under way gets no answer."""
        self._end(error)

    def _end(self, answer: CommitAnswer | BaseException | None) -> None:
        work, future = self._waiting.popleft()
        try:
            work.send(answer)
        except StopIteration as end:
            future.set_result(end.value)
        except HoldfastError as error:
            future.set_exception(error)

    def in_phase(self, phase: mb.Phase, **more: Any) -> None:
        self.state = replace(self.state, phase=phase, **more)
