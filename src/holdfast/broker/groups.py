"""Drives the coordinator: performs its effects in order, keeps its one timer, and lets it see clients come and go.

Rules. A record is in the journal before the answer that depends on it is sent. Effects of one call are performed before
those of the next, even when answering one client makes its next request arrive on the spot. If the journal can't be
written, memory and log would differ: everybody waiting is told to come back, and the coordinator starts again from its
log, as a restarted broker would.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable

from holdfast.broker.clock import Clock, Timer
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.journal import Journal
from holdfast.group.coordinator.checks import refusal
from holdfast.group.coordinator.codec import decode_record, encode_record
from holdfast.group.coordinator.coordinator import Coordinator
from holdfast.group.coordinator.effects import Effect, Emit, Persist, Reply
from holdfast.group.coordinator.records import Record
from holdfast.group.coordinator.requests import AdminAnswer, AdminRequest, GroupListing, GroupView
from holdfast.group.coordinator.settings import CoordinatorSettings
from holdfast.group.messages import Answer, Request
from holdfast.model import ErrorCode, TopicPartition, TraceRecord

log = logging.getLogger("holdfast.broker")


class Question:
    """One request to the coordinator, and its token while it waits."""

    __slots__ = ("answered", "request")

    def __init__(self, request: Request | AdminRequest, answered: Callable[[Answer | AdminAnswer], None]) -> None:
        self.request = request
        self.answered = answered


class Groups:
    """The groups of this broker."""

    def __init__(
        self,
        *,
        journal: Journal,
        clock: Clock,
        settings: CoordinatorSettings,
        trace: Callable[[TraceRecord], None] | None = None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._settings = settings
        self._trace = trace
        self._queue: deque[Effect] = deque()
        self._performing = False
        self._timer: Timer | None = None
        self._armed_at = 0.0
        self._coordinator = self._load()

    def _load(self) -> Coordinator:
        records: list[Record] = []
        self._journal.replay(lambda key, value: records.append(decode_record(key, value)))
        return Coordinator.replay(
            records, self._clock.now_ms(), settings=self._settings, new_member_id=lambda name: f"{name}-{uuid.uuid4()}"
        )

    def start(self) -> None:
        """Arm the timer: sessions of members from before a restart run from now on."""
        self._arm()

    # What clients ask

    def ask(self, request: Request | AdminRequest, answered: Callable[[Answer | AdminAnswer], None]) -> Question:
        """Hand a request to the coordinator. `answered` is called once: now, or when a round completes."""
        question = Question(request, answered)
        self._perform(self._coordinator.handle(question, request, self._clock.now_ms()))
        return question

    def gone(self, question: Question) -> None:
        """The client behind a question went away."""
        self._perform(self._coordinator.disconnected(question, self._clock.now_ms()))

    def partitions_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        self._perform(self._coordinator.drop_partitions(partitions, self._clock.now_ms()))

    def describe(self, group: str) -> GroupView:
        return self._coordinator.describe(group)

    def list(self) -> list[GroupListing]:
        return self._coordinator.list_groups()

    @property
    def waiting(self) -> int:
        return self._coordinator.waiting

    def stop(self) -> None:
        """Answer everybody who waits, so that they look for another coordinator at once."""
        if self._timer is not None:
            self._timer.cancel()
        self._perform(self._coordinator.close(self._clock.now_ms()), arm=False)

    # What the coordinator wants done

    def _tick(self) -> None:
        self._timer = None
        self._perform(self._coordinator.tick(self._clock.now_ms()))

    def _perform(self, effects: Iterable[Effect], *, arm: bool = True) -> None:
        self._queue.extend(effects)
        if self._performing:
            return
        self._performing = True
        try:
            while self._queue:
                self._do(self._queue.popleft())
        finally:
            self._performing = False
        if arm:
            self._arm()

    def _do(self, effect: Effect) -> None:
        match effect:
            case Persist(records):
                try:
                    self._journal.append([encode_record(record) for record in records])
                except StorageError as error:
                    self._start_over(error)
            case Reply(token, answer):
                assert isinstance(token, Question)
                token.answered(answer)
            case Emit(record):
                if self._trace is not None:
                    self._trace(record)

    def _start_over(self, error: StorageError) -> None:
        """The journal refused: nothing that was still to be done may be said to have happened."""
        log.error("groups: %s %s", error.what, error.do)
        failed = [effect.token for effect in self._queue if isinstance(effect, Reply)]
        self._queue.clear()
        now = self._clock.now_ms()
        failed += [effect.token for effect in self._coordinator.close(now) if isinstance(effect, Reply)]
        self._coordinator = self._load()
        for token in failed:
            assert isinstance(token, Question)
            self._queue.append(Reply(token, refusal(token.request, ErrorCode.COORDINATOR_NOT_AVAILABLE)))

    def _arm(self) -> None:
        """One timer. One that fires too early costs a look, so it is only ever moved forward."""
        deadline = self._coordinator.next_deadline()
        if deadline is None or (self._timer is not None and self._armed_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at = deadline
        self._timer = self._clock.call_at(deadline, self._tick)
