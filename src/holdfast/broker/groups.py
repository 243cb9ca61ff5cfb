"""Drives the coordinator: performs its effects in order, keeps its one timer, and lets it see clients come and go.

Rules. A record is in the journal before the answer that depends on it is sent, and under `--flush always` on the disk.
Then effects are queued while the flusher's thread syncs, and all queued records share one sync. The effects of one call
are performed before those of the next, even if answering a client makes its next request arrive at once. If a record
can't be written, memory and log would differ, so its group is reloaded from the log; other groups are not affected. If
records were written and can't be synced, all waiting clients get an error that makes them come back, and the
coordinator is reloaded from its log, as after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable

from holdfast.broker.clock import Clock, Timer
from holdfast.broker.flusher import Flusher
from holdfast.broker.slices import MANY_ITEMS, PAUSE, Steps, Until
from holdfast.broker.storage.errors import StorageError, disk_trouble
from holdfast.broker.storage.journal import Journal
from holdfast.group.coordinator.checks import refusal
from holdfast.group.coordinator.codec import decode_record, encode_record, of_group
from holdfast.group.coordinator.coordinator import Coordinator
from holdfast.group.coordinator.effects import Effect, Emit, Persist, Reply
from holdfast.group.coordinator.records import Record
from holdfast.group.coordinator.requests import AdminAnswer, AdminRequest, GroupListing, GroupView
from holdfast.group.coordinator.settings import CoordinatorSettings
from holdfast.group.messages import Answer, CommitRequest, Request
from holdfast.model import ErrorCode, HoldfastError, TopicPartition, TraceRecord

log = logging.getLogger("holdfast.broker")

RELOAD_AFTER_MS = 1_000.0
"""Before a journal that could not be read is tried again."""


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
        flusher: Flusher | None = None,
        trace: Callable[[TraceRecord], None] | None = None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._settings = settings
        self._flusher = flusher if flusher is not None and flusher.needed else None
        """Syncs the journal before answers are sent; None if the flush policy does not ask for that."""
        self._free = asyncio.Event()
        """Set unless effects are queued because a thread is at work on the journal."""
        self._free.set()
        self._behind_thread: list[Callable[[Callable[[], None]], None]] = []
        """Called when that thread is done."""
        journal.housekept = False
        self._trace = trace
        self._queue: deque[Effect] = deque()
        self._unwritten: deque[Persist] = deque()
        """Records that are being written together; empty at all other times."""
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

    def start(self, exists: Callable[[TopicPartition], bool]) -> None:
        """Arm the timer: sessions of members from before a restart run from now on. Forget the offsets of partitions
        that don't exist: a broker that ends right after a deletion has not forgotten all of them."""
        gone = [partition for partition in self._coordinator.committed() if not exists(partition)]
        self._perform(self._coordinator.drop_partitions(gone, self._clock.now_ms()))

    # What clients ask

    def ask(self, request: Request | AdminRequest, answered: Callable[[Answer | AdminAnswer], None]) -> Question:
        """Hand a request to the coordinator. `answered` is called once: now, or when a round completes."""
        question = Question(request, answered)
        self._perform(self._coordinator.handle(question, request, self._clock.now_ms()))
        return question

    def answer_to(self, request: Request | AdminRequest) -> Steps:
        """The same in steps. The answer may come later even where the coordinator has it at once: it is behind effects
        that wait for a thread at work on the journal."""
        answers: list[Answer | AdminAnswer] = []
        wake: list[Callable[[Callable[[], None]], None]] = []

        def answered(answer: Answer | AdminAnswer) -> None:
            answers.append(answer)
            for call in wake:
                call(lambda: None)

        self.ask(request, answered)
        if not answers:
            yield Until(wake.append)
        return answers[0]

    def gone(self, question: Question) -> None:
        """The client behind a question went away."""
        self._perform(self._coordinator.disconnected(question, self._clock.now_ms()))

    def partitions_deleted(self, partitions: Iterable[TopicPartition]) -> Steps:
        """Forget these partitions' offsets: of thousands of groups, or tens of thousands of one, so some at a time."""
        gone = frozenset(partitions)
        for group in self._coordinator.group_ids():
            left = deque(self._coordinator.committed_among(group, gone))
            while left:
                some = [left.popleft() for _ in range(min(len(left), MANY_ITEMS))]
                self._perform(self._coordinator.drop_partitions_of(group, some, self._clock.now_ms()))
                yield from self._caught_up()
            yield PAUSE

    def _caught_up(self) -> Steps:
        """While a thread is at work on the journal: wait for it, or all records that pile up meanwhile would be written
        in one piece."""
        if self._free.is_set():
            yield PAUSE
        else:
            yield Until(self._behind_thread.append)

    def describe(self, group: str) -> GroupView:
        return self._coordinator.describe(group)

    def list(self) -> list[GroupListing]:
        return self._coordinator.list_groups()

    @property
    def waiting(self) -> int:
        return self._coordinator.waiting

    def stop(self) -> None:
        """Answer all waiting clients, so that they look for another coordinator at once."""
        if self._timer is not None:
            self._timer.cancel()
        self._perform(self._coordinator.close(self._clock.now_ms()), arm=False)

    async def drained(self) -> None:
        """Wait until no effects are queued."""
        while not self._free.is_set():
            await self._free.wait()

    def keep_house(self) -> None:
        """Call now and then: compacts the journal in a thread when that is due. Effects are queued meanwhile."""
        if not self._free.is_set() or not self._journal.compaction_due():
            return
        self._free.clear()
        work = asyncio.get_running_loop().run_in_executor(None, self._journal.compact_if_due)
        work.add_done_callback(self._compacted)

    def _compacted(self, done: asyncio.Future[bool]) -> None:
        self._thread_done()
        error = None if done.cancelled() else done.exception()
        if isinstance(error, StorageError):
            log.error("groups: %s %s", error.what, error.do)
        elif error is not None:
            log.error("groups: the journal could not be rewritten", exc_info=error)
        self._go_on()
        self._arm()

    def _thread_done(self) -> None:
        self._free.set()
        calls, self._behind_thread = self._behind_thread, []
        for call in calls:
            call(lambda: None)

    # What the coordinator wants done

    def _tick(self) -> None:
        self._timer = None
        self._perform(self._coordinator.tick(self._clock.now_ms()))

    def _perform(self, effects: Iterable[Effect], *, arm: bool = True) -> None:
        self._queue.extend(effects)
        self._go_on()
        if arm:
            self._arm()

    def _go_on(self) -> None:
        if self._performing:
            return
        self._performing = True
        try:
            while self._queue and self._free.is_set():
                self._do(self._queue.popleft())
        finally:
            self._performing = False

    def _do(self, effect: Effect) -> None:
        match effect:
            case Persist():
                self._persist(effect)
            case Reply(token, answer):
                assert isinstance(token, Question)
                token.answered(answer)
            case Emit(record):
                if self._trace is not None:
                    self._trace(record)

    # What is written down

    def _persist(self, first: Persist) -> None:
        """Write this record. If a sync follows, write the other queued records too, so that they share it."""
        if self._flusher is None:
            self._append(first)
            return
        self._take_records(first)
        while self._unwritten:  # a reset takes out those that must not be written any more
            self._append(self._unwritten.popleft())
        end, path = self._journal.size, self._journal.path
        self._free.clear()
        self._flusher.after_sync(lambda failures: self._synced(end, failures.of(path)))

    def _take_records(self, first: Persist) -> None:
        """Take all records out of the queue in one pass: thousands of commits may wait for one sync."""
        self._unwritten.append(first)
        others: deque[Effect] = deque()
        for effect in self._queue:
            if isinstance(effect, Persist):
                self._unwritten.append(effect)
            else:
                others.append(effect)
        self._queue = others

    def _append(self, effect: Persist) -> None:
        entries = [encode_record(record) for record in effect.records]
        try:
            self._journal.append(entries, commit=self._flusher is None)
        except StorageError as error:
            group = effect.records[0].group
            if error.error is ErrorCode.MESSAGE_TOO_LARGE:
                self._reset_group(group, error, ErrorCode.UNKNOWN_SERVER_ERROR)
            elif self._flusher is None:  # nothing waits for a sync: what the others did is in the journal
                self._reset_group(group, error, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                self._reset_all(error)

    def _synced(self, end: int, error: StorageError | None) -> None:
        self._thread_done()
        if error is None:
            self._journal.confirm(end)
        else:
            self._reset_all(error)
        self._go_on()
        self._arm()

    def _reset_all(self, error: StorageError) -> None:
        """The journal failed: drop all queued effects, so that nothing is answered as done that is not written."""
        log.error("groups: %s %s", error.what, error.do)
        failed = [effect.token for effect in self._queue if isinstance(effect, Reply)]
        self._queue.clear()
        self._unwritten.clear()
        now = self._clock.now_ms()
        failed += [effect.token for effect in self._coordinator.close(now) if isinstance(effect, Reply)]
        self._refuse(failed, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._journal.take_back()
        self._reload()

    def _reload(self) -> None:
        """Reload from the log. If that can't be read, no group is served until it can."""
        try:
            self._coordinator = self._load()
        except HoldfastError as error:
            log.error("groups: not served until the journal can be read. %s %s", error.what, error.do)
            self._clock.call_at(self._clock.now_ms() + RELOAD_AFTER_MS, self._reload)
            return
        self._arm()

    def _reset_group(self, group: str, error: StorageError, code: ErrorCode) -> None:
        """One group's record can't be written: reset this group to what is written. Other groups are not affected: on a
        full disk this happens with every commit, and reloading all groups each time would delay everybody."""
        log.error("groups: %s is reset to what its log says: %s %s", group, error.what, error.do)
        mine = [effect for effect in self._queue if _concerns(effect, group)]
        self._queue = deque(effect for effect in self._queue if not _concerns(effect, group))
        self._unwritten = deque(effect for effect in self._unwritten if not _concerns(effect, group))
        failed = [effect.token for effect in mine if isinstance(effect, Reply)]
        try:
            records = [decode_record(key, value) for key, value in self._journal.live(of_group(group))]
        except HoldfastError as unreadable:
            self._refuse(failed, code)
            self._reset_all(disk_trouble(f"Reading the group {group}", OSError(unreadable.what)))
            return
        self._queue.extendleft(reversed(self._coordinator.reload(group, records, self._clock.now_ms())))
        self._refuse(failed, code)

    def _refuse(self, tokens: Iterable[object], error: ErrorCode) -> None:
        """Kafka answers what its log refuses as too large with these two codes."""
        for token in tokens:
            assert isinstance(token, Question)
            is_large_commit = error is ErrorCode.UNKNOWN_SERVER_ERROR and isinstance(token.request, CommitRequest)
            code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_large_commit else error
            self._queue.append(Reply(token, refusal(token.request, code)))

    def _arm(self) -> None:
        """Set the one timer. It is only ever moved to an earlier time: one that fires too early does no harm."""
        deadline = self._coordinator.next_deadline()
        if deadline is None or (self._timer is not None and self._armed_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at = deadline
        self._timer = self._clock.call_at(deadline, self._tick)


def _concerns(effect: Effect, group: str) -> bool:
    match effect:
        case Persist(records):
            return records[0].group == group
        case Reply(token, _):
            assert isinstance(token, Question)
            return token.request.group == group
        case Emit(record):
            return record.group == group
