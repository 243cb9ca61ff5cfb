"""The buffer between the loop that fetches and the thread that reads, with the state of each partition.

Rules
- One lock, held briefly. Nothing here waits, and no callback is called while it is held.
- Every change of a partition's read position (seek, drop, reset) gives its flow a new version. The answer to an earlier
  request has the old version, and is dropped.
- Bounded: `room()` is how much more may be asked for, counting requests under way as if their answers had come.
- Partitions take turns, one answer each, so that none starves.

It must not know sockets, requests, groups or what records hold.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from holdfast.fetch.values import Track
from holdfast.model import HoldfastError, TopicPartition
from holdfast.net.flow_values import (
    END,
    NO_END,
    NOWHERE,
    TAIL,
    Fetched,
    FetchSettings,
    Trouble,
    is_place,
    log_truncated,
    no_place_to_start,
    no_such_place,
)


@dataclass(slots=True, eq=False)
class Flow:
    """One partition being read."""

    partition: TopicPartition
    at: int
    """The next offset to fetch, or a symbolic one to be looked up."""
    version: int = 0
    era: int = 0
    paused: bool = False
    under_way: bool = False
    stopped: bool = False
    """Stopped by an error that only a seek can clear."""
    track: Track = field(default_factory=Track)
    """What the planner knows about it."""
    turn: int = 0
    """When it was last asked for; the partition that has waited longest comes first."""
    queued_bytes: int = 0
    high_watermark: int = -1
    log_start: int = -1
    ended_at: int = NO_END
    """The end that was reported to the application."""
    last_stable: int = -1
    epoch: int = -1
    """Of the last batch that came."""
    epoch_before: int = -1
    """The epoch of the record before `at`, as far as it is known: with it the leader sees whether it has that record.
    """
    topic_id: UUID | None = None
    """Of the topic that it was last fetched from. One that was recreated has the same epochs and other records."""
    rows: int = 0
    received_bytes: int = 0
    """Received since the start, for the statistics."""
    listed: bool = False
    answers: deque[Fetched] = field(default_factory=deque)

    @property
    def follower(self) -> int | None:
        """The follower that was last read instead of the leader, if one was. For statistics."""
        return None if self.track.replica is None else self.track.replica.node


class Flows:
    """The partitions of one reader. The reader's thread calls the first half of its methods, the fetcher's loop the
    second."""

    def __init__(self, settings: FetchSettings, *, wake: Callable[[], None], changed: Callable[[], None]) -> None:
        """`wake` is called when there is something to read or an error, `changed` when there is something to fetch."""
        self.settings = settings
        self.lock = threading.Lock()
        self.flows: dict[TopicPartition, Flow] = {}
        self.wake = wake
        self._changed = changed
        self._readable: deque[Flow] = deque()
        self._errors: deque[Trouble] = deque()
        self.queued_bytes = 0
        self.reserved_bytes = 0
        """Asked for and not yet answered."""

    # -- what the reader wants

    def add(self, starts: Mapping[TopicPartition, int], *, paused: Iterable[TopicPartition] = ()) -> None:
        """Read these from here: an offset, or a place to be looked up."""
        to_pause = set(paused)
        with self.lock:
            for partition, at in starts.items():
                self._forget(partition)
                flow = Flow(partition, at, paused=partition in to_pause)
                self.flows[partition] = flow
                if at == NOWHERE:
                    self._fail(flow, Trouble(no_place_to_start(partition), partition))
        self._changed()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget these, with everything that was fetched of them."""
        with self.lock:
            for partition in partitions:
                self._forget(partition)
        self._changed()

    def seek(self, partition: TopicPartition, at: int, *, not_before: float = 0.0) -> None:
        """Read on from here. A negative number without a meaning means auto.offset.reset, as in librdkafka."""
        goal = at if is_place(at) else self.settings.reset
        with self.lock:
            flow = self.flows.get(partition)
            if flow is None:
                return
            if not is_place(at) and at != NOWHERE:
                self._errors.append(Trouble(no_such_place(partition, at), partition))
            self._empty(flow)
            flow.at, flow.stopped, flow.high_watermark, flow.ended_at = goal, False, -1, NO_END
            flow.epoch_before = -1
            flow.track = replace(flow.track, ready_at=not_before, told="", quiet=0, stalled_since=None)
            if goal == NOWHERE:
                self._fail(flow, Trouble(no_place_to_start(partition), partition))
        self._changed()

    def pause(self, partition: TopicPartition, unread: Iterable[Fetched] = ()) -> None:
        """Pause it. Answers that were taken and not read are put back at its front, for when it is resumed."""
        with self.lock:
            flow = self.flows.get(partition)
            if flow is None:
                return
            flow.paused = True
            flow.answers.extendleft(one.copied() for one in reversed(list(unread)))

    def resume(self, partition: TopicPartition) -> None:
        with self.lock:
            flow = self.flows.get(partition)
            if flow is None or not flow.paused:
                return
            flow.paused = False
            self._list(flow)
        self._changed()

    def next_answer(self) -> tuple[Flow, Fetched] | None:
        """The next answer to read; its bytes count as queued until `read` is called for them."""
        with self.lock:
            while self._readable:
                flow = self._readable.popleft()
                flow.listed = False
                if flow.answers and not flow.paused:
                    answer = flow.answers.popleft()
                    self._list(flow)
                    return flow, answer
        return None

    def put_back(self, flow: Flow, answer: Fetched) -> None:
        """Return an answer that can't be read yet: `next_answer` gives it again."""
        with self.lock:
            flow.answers.appendleft(answer)
            self._list(flow)

    def read(self, partition: TopicPartition, size: int) -> None:
        """So many bytes of it have been read: there is room for more."""
        with self.lock:
            flow = self.flows.get(partition)
            if flow is None:
                return
            flow.queued_bytes -= size
            self.queued_bytes -= size
        self._changed()

    def next_error(self) -> Trouble | None:
        """The oldest error that was not reported yet; each is reported once."""
        with self.lock:
            return self._errors.popleft() if self._errors else None

    def unread_from(self, partition: TopicPartition) -> int | None:
        """Where the next unread answer begins, or will: an offset, or a place that was not looked up yet."""
        with self.lock:
            flow = self.flows.get(partition)
            return None if flow is None else flow.answers[0].start if flow.answers else flow.at

    def watermarks(self, partition: TopicPartition) -> tuple[int, int] | None:
        """Where the partition begins and ends, according to the last answer."""
        with self.lock:
            flow = self.flows.get(partition)
            return None if flow is None or flow.high_watermark < 0 else (flow.log_start, flow.high_watermark)

    def epoch(self, partition: TopicPartition | None) -> int | None:
        """The leader epoch of the last records that came; None while it is not known."""
        with self.lock:
            flow = None if partition is None else self.flows.get(partition)
            return None if flow is None or flow.epoch < 0 else flow.epoch

    # -- what the loop does, with the lock held

    def room(self) -> int:
        return self.settings.queued_bytes - self.queued_bytes - self.reserved_bytes

    def wants(self, flow: Flow, now: float) -> bool:
        """Whether to fetch it: no request is under way, and less than one full answer is queued."""
        if flow.paused or flow.under_way or flow.stopped or now < flow.track.ready_at:
            return False
        return flow.queued_bytes < self.settings.partition_bytes

    def arrived(self, flow: Flow, answer: Fetched) -> None:
        flow.at = answer.next_offset
        flow.answers.append(answer.copied() if flow.paused else answer)
        flow.queued_bytes += answer.size
        self.queued_bytes += answer.size
        flow.rows += answer.rows
        flow.received_bytes += answer.size
        if answer.epochs:
            flow.epoch = flow.epoch_before = answer.epochs[-1][1]
        self._list(flow)

    def known_epoch(self, flow: Flow, topic_id: UUID | None) -> int:
        """The epoch of the record before `at` in this topic; -1: not known, or no topic ids to be sure by."""
        if topic_id != flow.topic_id:
            flow.topic_id, flow.epoch_before = topic_id, -1
        return -1 if topic_id is None else flow.epoch_before

    def place(self, flow: Flow, offset: int) -> None:
        """The place where it starts was looked up."""
        if offset < 0:
            flow.at = END  # the partition is empty, so it has no newest record
            return
        before_end = TAIL - flow.at if flow.at <= TAIL else 0
        flow.at = max(0, offset - before_end)
        flow.track = replace(flow.track, told="", unknown_since=None, failing_since=None)

    def ended(self, flow: Flow, high_watermark: int) -> None:
        """Everything was fetched. If the application wants to know, tell it after the last record, once for each
        end."""
        if self.settings.tell_ends and flow.ended_at != flow.at:
            flow.ended_at = flow.at
            self.arrived(flow, Fetched(b"", flow.at, flow.at, 0, None, flow.era, end=high_watermark))

    def report(self, flow: Flow, error: HoldfastError, *, number: int = 0) -> None:
        """Tell the application."""
        self._errors.append(Trouble(error, flow.partition, flow.at if flow.at >= 0 else None, number))

    def broken(self, error: BaseException) -> None:
        """Our own code failed in the background: tell the reader. Takes the lock itself."""
        with self.lock:
            failed = HoldfastError(
                "FETCHER_FAILED",
                f"fetching failed: {type(error).__name__}: {error}.",
                "This is a defect in holdfast: please report it. Fetching is tried again.",
            )
            self._errors.append(Trouble(failed))
        self.wake()

    def reset(self, flow: Flow, error: HoldfastError) -> None:
        """The offset is not in the log: go where the settings say, or stop."""
        if self.settings.reset == NOWHERE:
            why = HoldfastError("AUTO_OFFSET_RESET", error.what, error.do)
            self._fail(flow, Trouble(why, flow.partition, flow.at if flow.at >= 0 else None))
        else:
            flow.at, flow.epoch_before = self.settings.reset, -1
            flow.era += 1

    def truncated(self, flow: Flow, offset: int, epoch: int) -> HoldfastError:
        """Records that were read are gone from the log: go back to where it departs from them, or stop. Returns what to
        log."""
        error = log_truncated(flow.partition, flow.at, offset)
        if self.settings.reset == NOWHERE:
            self._fail(flow, Trouble(error, flow.partition, flow.at))
        else:
            flow.at, flow.epoch_before = offset, epoch
            flow.era += 1
        return error

    # -- inside

    def _fail(self, flow: Flow, trouble: Trouble) -> None:
        flow.stopped = True
        self._errors.append(trouble)

    def _list(self, flow: Flow) -> None:
        if flow.answers and not flow.listed and not flow.paused:
            flow.listed = True
            self._readable.append(flow)

    def _empty(self, flow: Flow) -> None:
        flow.version += 1
        flow.under_way = False  # an answer under way has the old version, and is dropped
        self.queued_bytes -= flow.queued_bytes
        flow.queued_bytes = 0
        flow.answers.clear()

    def _forget(self, partition: TopicPartition) -> None:
        flow = self.flows.pop(partition, None)
        if flow is not None:
            self._empty(flow)
