"""The consumer itself, behind its two public classes: `Consumer` and, for asyncio, `AsyncConsumer`.

It is a separate class, so that an application's subclass of those two can't override anything in here by accident.

One thread polls. It makes the listener's calls, and no other thread calls librdkafka, except to ask for positions
(`DataPlane.standing`). The control plane runs on a thread of its own and queues the listener's calls in order. Records
of partitions that are kept are handed out between two calls of one round.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from holdfast.client.config import settings as cfg
from holdfast.client.config.keys import read_committed
from holdfast.client.config.pitfalls import Pitfalls
from holdfast.client.errors import FATAL, as_kafka_exception, no_group, refused_here
from holdfast.client.member.commits import Entries, Offsets, after, entries_of
from holdfast.client.member.control import DEFECT, ControlPlane, now_ms
from holdfast.client.member.duplicate_errors import OneVoice
from holdfast.client.member.engine import Engine
from holdfast.client.member.events import fatal_error, fatal_message
from holdfast.client.member.listener import Listener, callbacks
from holdfast.client.member.round_calls import RoundCalls
from holdfast.client.reading.data_plane import AS_COMMITTED, RESET, DataPlane, librdkafka
from holdfast.client.reading.start_offsets import check_starts
from holdfast.client.reading.taken_ahead import Raised
from holdfast.client.telemetry import metrics_port
from holdfast.client.telemetry.connections import BrokersSeen, Outage
from holdfast.client.telemetry.metrics import prometheus_text
from holdfast.client.telemetry.stack import Stuck
from holdfast.client.telemetry.statistics import GroupPart, Standing, Statistics
from holdfast.client.telemetry.tracing import open_trace
from holdfast.client.watchdog.guard import watched
from holdfast.client.watchdog.positions import Noting
from holdfast.group import member as mb
from holdfast.model import NOBODY, HoldfastError, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import cimpl

    from holdfast.client.reading.arrow import ArrowPlane

MAX_RECORDS = 65_536
"""Default limit of rows in one Arrow batch: 8 MB of 100-byte records, enough to hide the fixed cost of a batch."""

MOST_RECORDS = 10_000_000
"""Upper bound of max_records. It is more than one Arrow batch can hold, because its columns are limited to 1 GB."""

SLICE_S = 0.005
"""How long one call to librdkafka may block, and so how long a call for the listener may have to wait. The wait can't
be interrupted: confluent-kafka's handle lets no other thread in meanwhile."""

BUSY_SLICE_S = 0.001
"""The same while a round is under way."""

IDLE_SLICE_S = 0.03
"""The same after nothing has arrived or changed for `IDLE_AFTER_MS`. Waking up every 5 ms would cost a hundredth of a
core. A round needs about 30 ms from its first sign, which ends the idle slices, to the listener's call."""

IDLE_SLICES = 10
"""How many idle slices are waited in a row while nothing changes in the control plane: 0.3 s until poll looks at
anything else."""

IDLE_AFTER_MS = 1_000.0
"""How long nothing must have arrived or changed before idle slices are used."""

CALM_MS = 10.0
"""How long poll skips serving the group after it last did. Only if a record is ready or the caller does not wait, and
only while nothing changes in the control plane."""

RESPONSIVE_MS = 1_000.0
"""A member whose application has not polled for this long joins no round until it polls. Partitions that others revoke
in a round are read by nobody until every listener has returned."""

CLOSE_TIMEOUT_S = 10.0
"""How long close() waits for the coordinator to confirm the leave. After that the session timeout ends the membership.
"""

OUTSIDE = frozenset({mb.Phase.UNSUBSCRIBED, mb.Phase.FAILED, mb.Phase.CLOSED})
QUIET = OUTSIDE | {mb.Phase.STABLE}
"""Phases without a round under way."""

FATAL_EVERY_S = 1.0
"""How often a poll with time left returns the fatal error: an application that polls on regardless must not spin."""

CLOSE_TRIES = 5
"""How many times closing librdkafka is tried while callbacks raise; each try leaves fewer callbacks to make."""

FROZEN_MS = 100.0
"""After a wait longer than this, poll checks the membership before it hands out a record: either the wait was an idle
one, or the process was frozen and its session may be over."""

NOT_SUBSCRIBED = frozenset({mb.Phase.UNSUBSCRIBED, mb.Phase.FAILED})

LEFT = "this consumer was drained and has left its group for good: close it, and make another one to join again"

CLOSED = "Consumer closed"
"""confluent-kafka's text for a call on a closed consumer."""

HANDLE_CLOSED = "Handle has been closed"
"""Its text for calls that its producers have too: list_topics, cluster_id, set_sasl_credentials."""


class ConsumerCore:
    """A member of a consumer group, or a reader of manually assigned partitions.

    `owner` returns the object that callbacks get as their consumer: the public one that the application created.
    """

    def __init__(
        self, config: Mapping[str, Any], *, owner: Callable[[], Any] = lambda: None, logger: Any = None
    ) -> None:
        raw = dict(config)
        if callable(raw.get("stats_cb")):
            raw["stats_cb"] = Statistics(raw["stats_cb"], self._group_part)
        self._config = cfg.parse(raw)
        self._metrics_port = metrics_port.opened(self, self._config.metrics_host, self._config.metrics_port)
        self._engine: Engine | None = None
        self._brokers = BrokersSeen(Outage(self._config.shown))
        self._data = self._open_data(logger)
        self._offsets = Offsets(self._config, self._data, now_ms())
        self._trace = open_trace(self._config)
        self._stuck = Stuck(self._trace.write)
        self._pitfalls = Pitfalls(self._config, self._trace.write, name=self._config.client_id)
        self._polled_at = now_ms()
        self._control: ControlPlane | None = None
        self._one_plane = threading.RLock()  # not a plain one: a signal's handler may close us on the same thread
        self._noting = Noting(self._data)
        self._round = RoundCalls(owner, self._config, self._data, self._offsets, self._noting, self._trace)
        self._subscribed = False
        self._subscriptions = 0
        """How many there have been."""
        self._unsubscribing = False
        """True from an unsubscribe inside a callback until its revoke: nothing is handed out meanwhile."""
        self._closed = False
        self._awake_since = 0.0
        self._ready = self._data.ahead.ready
        """Records taken from librdkafka that poll has not handed out yet."""
        self._calm_until = 0.0
        """Until then poll hands out what is ready without serving the group, unless the control plane has news."""
        self._idle_until = 0.0
        """Until then a poll with timeout 0 asks only librdkafka. Set by a poll that had nothing to do or to return."""
        self._lively_at = now_ms()
        """When the last record came, or the membership last changed its phase."""
        self._phase = mb.Phase.UNSUBSCRIBED
        self._fatal_at = -FATAL_EVERY_S
        self._voice = OneVoice()
        self._serving = False
        self._gives_up: int | None = None
        """The thread that makes the listener's calls or closes: what it commits is where the application stands."""
        self._closing = False
        self._close_asked = False
        self._pid = os.getpid()
        if self._metrics_port is not None:
            self._metrics_port.tell()

    # -- subscription

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Callable[..., Any] | None = None,
        on_revoke: Callable[..., Any] | None = None,
        on_lost: Callable[..., Any] | None = None,
        *,
        listener: Listener | None = None,
    ) -> None:
        """Become a member that reads these topics, which `arguments.topics_of` has checked."""
        self._open()
        if self._control is not None and self._control.failure is not None:
            raise as_kafka_exception(self._control.failure)
        if self._control is not None and self._control.closed():
            raise refused_here(ck.KafkaError._STATE, LEFT)
        told = listener or callbacks(on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
        plane = self._plane()
        self._watch(plane)
        self._round.listener = told  # nothing can be refused any more; a refused subscribe keeps the old listener
        self._unsubscribing = False
        self._subscribed = True
        self._subscriptions += 1
        self._polled_at = now_ms()
        plane.subscribe(list(topics))
        self._data.warm(topics)

    def unsubscribe(self) -> None:
        self._open()
        if self._control is not None and self._subscribed:
            count = self._subscriptions
            self._control.unsubscribe()
            if self._serving:  # inside a callback: it returns first, then the next poll makes the revoke
                self._subscribed, self._unsubscribing = False, True
                return
            self._serve_until(
                lambda plane: plane.state.phase in NOT_SUBSCRIBED or self._subscriptions != count, CLOSE_TIMEOUT_S
            )
            if self._subscriptions != count:
                return  # on_revoke has subscribed again, or another thread: what was begun since is not ours to end
        self._subscribed = False
        self._offsets.given_up.clear()
        self._replace([])

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        self._open()
        self._plane().feed(mb.Enforce(reason))

    # -- records

    def poll(self, timeout: float | None = None) -> ck.Message | None:
        """One record, event or error; None when none came in time. Listener calls are made from here."""
        if self._ready and self._gives_up is None:
            if (now := time.monotonic() * 1_000.0) < self._calm_until:
                plane = self._control
                if plane is None or not plane.stirred:
                    self._polled_at = now
                    self._noting.catch_up_one()
                    if (message := self._handed_out()) is not None:
                        return message
        elif timeout == 0 and time.monotonic() * 1_000.0 < self._idle_until:
            plane = self._control
            if (plane is None or not plane.stirred) and self._data.brings_nothing():
                return None
        self._open()
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        while True:
            if self._serve() and self._closed:
                return None  # a callback closed it
            if (news := self._news(deadline)) is not None:
                return news
            stands = not self._may_process() or self._given_up_elsewhere()
            if stands:
                self._stand(deadline)
            elif self._gathered(deadline):
                self._lively_at, self._calm_until = self._polled_at, self._calm_end()
                if (message := self._handed_out()) is not None and (once := self._once([message])):
                    return once[0]
            if deadline is not None and time.monotonic() >= deadline:
                self._serve()
                if self._closed:
                    return None
                news = self._news(deadline)
                self._idle_until = 0.0 if stands or news is not None else self._calm_end()
                return news

    def _gathered(self, deadline: float | None) -> bool:
        """Wait for a record. True when there is one that may be handed out."""
        wait_s = self._slice(deadline)
        if wait_s < IDLE_SLICE_S:
            self._data.gather(wait_s)
        else:
            left = IDLE_SLICES if deadline is None else int((deadline - time.monotonic()) / wait_s)
            self._data.gather(wait_s, slices=min(left, IDLE_SLICES), calm=self._calm)
        self._data.raised.raise_first()
        if not self._ready or self._given_up_elsewhere():
            return False
        if now_ms() - self._polled_at <= FROZEN_MS:
            return True
        self._look_at_the_clock(now_ms())  # the process may have been frozen while it waited: see `_kept`
        return self._may_process()

    def _once(self, came: list[ck.Message]) -> list[ck.Message]:
        """Drop errors that the member has reported already (`OneVoice`). Not needed once it has joined: then librdkafka
        no longer looks for a coordinator."""
        if not self._subscribed or self._control is None or self._control.state.membership.joined:
            return came
        return [one for one in came if not self._voice.again("librdkafka", one, now_ms())]

    def _calm_end(self) -> float:
        """Until when poll may hand out records without serving the group; at most until the session could end."""
        end = self._polled_at + CALM_MS
        plane = self._control
        if plane is None or not self._subscribed or not plane.state.membership.joined:
            return end
        return min(end, plane.state.vouched_at + self._config.session_timeout_ms)

    def _calm(self) -> bool:
        return self._control is None or not self._control.stirred

    def _handed_out(self) -> ck.Message | None:
        """The next record. It counts as processed when the application calls again, and not before. None if another
        thread was faster: it polls too, or has paused or unassigned what was ready."""
        try:
            message = self._ready.popleft()
        except IndexError:
            return None
        self._offsets.touched = True
        self._noting.returned_one(message)
        return message

    def _news(self, deadline: float | None) -> ck.Message | None:
        """An error to return instead of a record, as confluent-kafka does; None if there is none.

        After a fatal error every poll without time left returns it, and any other poll returns it once a second.
        """
        plane = self._control
        if plane is None or not (plane.told or plane.failure):
            return None
        while plane.told:
            news = plane.told.popleft().message()
            if not self._voice.again("member", news, now_ms()):
                return news
        if plane.failure is None:
            return None
        now = time.monotonic()
        if now - self._fatal_at < FATAL_EVERY_S and (deadline is None or now < deadline):
            return None
        self._fatal_at = now
        return fatal_message(plane.failure)

    def _raise_news(self) -> None:
        """The same for calls that can't return an error in place of a record."""
        if (news := self._news(0.0)) is not None and (error := news.error()) is not None:
            raise ck.KafkaException(error)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        """Up to `num_messages` records; fewer when the time is up."""
        self._open()
        if not 0 <= num_messages <= 1_000_000:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        messages: list[ck.Message] = []
        try:
            news = self._gather(messages, num_messages, None if timeout < 0 else time.monotonic() + timeout)
        except BaseException:  # Ctrl-C: what was gathered is read again, and not committed
            self._data.rewind(messages)
            raise
        if news is not None:
            return [news]
        if not messages or not self._kept(messages):
            return []
        self._lively_at = self._polled_at
        self._returned(messages)
        return messages

    def _gather(self, messages: list[ck.Message], enough: int, deadline: float | None) -> ck.Message | None:
        """Collect up to `enough` records into `messages`. Returns an error to hand out in their place, or None."""
        while True:
            if not messages:
                if self._serve() and self._closed:
                    return None
                if enough and (news := self._news(deadline)) is not None:
                    return news
            elif self._wanted():
                return None  # the application processes these first, so that the commit at a revoke includes them
            if self._may_process() and not self._given_up_elsewhere():
                messages += self._once(self._data.consume(enough - len(messages), self._slice(deadline)))
            elif messages:
                return None
            else:
                self._stand(deadline)
            if len(messages) >= enough or (deadline is not None and time.monotonic() >= deadline):
                return None

    def consume_arrow(
        self, max_records: int = MAX_RECORDS, timeout: float = -1, *, include_headers: bool = False
    ) -> pa.RecordBatch:
        """The records at hand as one Arrow batch of at most `max_records` rows; empty when none came in time.

        Columns and types are those of Spark's Kafka source. Positions, commits and membership are shared with poll()
        and consume(); a program may use both.
        """
        self._open()
        if not 1 <= max_records <= MOST_RECORDS:
            raise ValueError(f"max_records must be between 1 and {MOST_RECORDS}")
        deadline = None if timeout < 0 else time.monotonic() + timeout
        while True:
            if self._serve() and self._closed:
                return _no_records(include_headers)
            self._raise_news()
            if not self._may_process() or self._given_up_elsewhere():
                self._stand(deadline)
            elif (batch := self._arrow_batch(max_records, self._slice(deadline), include_headers)) is None:
                pass
            elif self._kept(batch):
                self._lively_at = self._polled_at
                self._offsets.touched = True
                self._noting.returned_batch(batch.num_rows)
                return batch
            if deadline is not None and time.monotonic() >= deadline:
                self._serve()
                return _no_records(include_headers)

    def _arrow_batch(self, max_records: int, wait_s: float, include_headers: bool) -> pa.RecordBatch | None:
        arrow = self._data.to_arrow()
        try:
            batch = arrow.take(max_records, include_headers=include_headers)
        except HoldfastError as error:
            raise as_kafka_exception(error) from error
        if batch is None:
            arrow.wait(wait_s)
        return batch

    def _wanted(self) -> bool:
        """Whether something must be served before more records are added to a batch. Counts as a poll."""
        self._look_at_the_clock(now_ms())
        plane = self._control
        raised = self._data.raised.first is not None
        return raised or (plane is not None and bool(plane.calls or plane.told or plane.failure))

    def _returned(self, messages: list[ck.Message]) -> None:
        """The same as `_handed_out` for a list."""
        self._offsets.touched = True
        self._noting.returned(messages)

    def _may_process(self) -> bool:
        """Whether records may be handed out: not while another member may own their partitions."""
        plane = self._control
        if plane is None or not self._subscribed:
            self._unsubscribing &= plane is not None and plane.state.phase not in OUTSIDE
            return not self._unsubscribing
        return mb.may_process(plane.state, self._polled_at, awake_since=self._awake_since)

    def _given_up_elsewhere(self) -> bool:
        """Whether another thread closes, unsubscribes or hears of a round: what we handed out now would be behind what
        it commits, and the next owner would do it again. Inside a callback records are handed out."""
        return self._gives_up is not None and self._gives_up != threading.get_ident()

    def _kept(self, taken: list[ck.Message] | pa.RecordBatch) -> bool:
        """Whether the records just taken may still be handed out. A frozen process is usually frozen while it waits or
        decodes, and its session may be over when it wakes. What may not be handed out is fetched again if it is still
        ours."""
        self._look_at_the_clock(now_ms())
        if self._may_process():
            return True
        self._data.rewind(taken)
        return False

    def _look_at_the_clock(self, now: float) -> None:
        """Note that the application polls. If it was away for a session timeout, others may have taken over: note when
        it came back."""
        if now - self._polled_at > self._config.session_timeout_ms:
            self._awake_since = now
        self._polled_at = now

    def _stand(self, deadline: float | None) -> None:
        """Wait without handing anything out: another member may own it by now, and the control plane will find out."""
        time.sleep(self._slice(deadline))

    def _slice(self, deadline: float | None) -> float:
        plane = self._control
        idle = self._polled_at - self._lively_at > IDLE_AFTER_MS
        if plane is None or not self._subscribed or plane.state.phase in QUIET:
            slice_s = IDLE_SLICE_S if idle else SLICE_S
        else:
            slice_s = SLICE_S if idle else BUSY_SLICE_S
        return slice_s if deadline is None else max(0.0, min(slice_s, deadline - time.monotonic()))

    # -- what the group wants of the polling thread

    def _serve(self) -> bool:
        """Make the listener's calls that are due, and commit when it is time. True when partitions changed hands."""
        now = now_ms()
        if now - self._polled_at > self._pitfalls.slow_ms:
            self._pitfalls.paused(now - self._polled_at, now, self._stuck.where)
        self._look_at_the_clock(now)
        self._data.raised.raise_first()
        if self._brokers.down and not self._subscribed:  # for a member the control plane reports it
            self._brokers.look(self._data.handle)
        plane = self._control
        if plane is None:
            if not self._commits_by_itself(now):
                return False
            plane = self._plane()
        if plane.stirred:
            plane.stirred = False  # before looking, so that a change from here on is seen next time
            if plane.calls or plane.state.phase is not self._phase:
                self._lively_at, self._phase = now, plane.state.phase
        self._noting.catch_up(now)
        if plane.failure is not None and plane.failure.code == DEFECT:
            raise as_kafka_exception(plane.failure)
        changed = bool(plane.calls) and self._make_calls(plane)
        if self._closed:
            return True
        if self._commits_by_itself(now):
            self._offsets.commit_due(plane, now, member=self._subscribed)
        if self._subscribed and plane.state.phase is mb.Phase.EVICTED:
            plane.feed(mb.Polled())
        self._offsets.report()
        self._round.raise_first()
        return changed

    def _commits_by_itself(self, now: float) -> bool:
        """Whether an auto-commit is due. Manual assignments are committed too, if there is a group to commit to."""
        return self._offsets.due(now) and bool(self._config.group)

    def _make_calls(self, plane: ControlPlane) -> bool:
        if self._serving:  # a poll inside a callback: the remaining calls wait for the callback
            return False
        changed = False
        self._serving = True
        before, self._gives_up = self._gives_up, threading.get_ident()
        self._stuck.thread = threading.get_ident()
        try:
            while plane.calls and plane.calls[0].ready:
                pending = plane.calls.popleft()
                try:
                    changed |= self._round.make(plane, pending)
                finally:
                    if pending.last:
                        self._round.end(plane, pending)
        finally:
            self._serving, self._gives_up = False, before
        self._pitfalls.tell(now_ms())
        if self._close_asked:
            self._close_asked = False
            self._close()
        return changed

    # -- offsets

    def commit(
        self,
        message: ck.Message | None = None,
        offsets: list[ck.TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[ck.TopicPartition] | None:
        """Commit the offset after a record, a list of offsets, or the application's positions."""
        self._open()
        entries = self._to_commit(message, offsets)
        plane = self._plane()
        if asynchronous:
            self._offsets.commit_later(plane, entries, member=self._subscribed, fenced=self._fenced())
            return None
        self._raise_fenced()
        return self._offsets.commit_now(plane, entries, member=self._subscribed)

    def _fenced(self) -> ck.KafkaError | None:
        """The fatal error that forbids commits, if there is one. It is reported even if there is nothing to commit."""
        failure = None if self._control is None else self._control.failure
        return None if failure is None or failure.code not in FATAL else fatal_error(failure)

    def _raise_fenced(self) -> None:
        if (fenced := self._fenced()) is not None:
            raise ck.KafkaException(fenced)

    def _to_commit(self, message: ck.Message | None, offsets: list[ck.TopicPartition] | None) -> Entries:
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if message is not None:
            entries = after(message)
        elif offsets is not None:
            entries = entries_of(offsets)
        else:
            entries = self._offsets.shown_with(self._offsets.uncommitted(self._data.assigned))
        self._noting.committed(entries)
        self._pitfalls.committed({p: entry for p, entry in entries.items() if entry.offset >= 0}, self._polled_at)
        return entries

    def store_offsets(self, message: ck.Message | None = None, offsets: list[ck.TopicPartition] | None = None) -> None:
        """Store an offset for the next commit."""
        self._open()
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if message is None and offsets is None:
            raise ValueError("expected either message or offsets")
        entries = after(message) if message is not None else entries_of(offsets or [])
        self._noting.stored(self._offsets.store(entries))

    def committed(self, partitions: list[ck.TopicPartition], timeout: float | None = None) -> list[ck.TopicPartition]:
        self._open()
        return self._offsets.committed(self._plane(), partitions, timeout)

    # -- assignment and positions

    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        """Read exactly these. Inside on_assign of a cooperative member: start these as listed, beside those kept."""
        self._open()
        if self._round.adding is not None and self._cooperative():
            self._round.begin(partitions)
            others = [p for p in partitions if TopicPartition(p.topic, p.partition) not in self._data.assigned]
            self._data.take(self._started_at(others))
            return
        check_starts(partitions)
        self._check_replacing(partitions)
        self._replace(partitions)
        self._round.replaced = self._round.adding is not None

    def unassign(self) -> None:
        self._open()
        self._check_replacing([])
        self._replace([])

    def _cooperative(self) -> bool:
        return self._control is not None and self._control.state.cooperative

    def _check_replacing(self, partitions: list[ck.TopicPartition]) -> None:
        """Refuse an assignment that leaves out a partition which this cooperative member owns: nobody would read it."""
        plane = self._control
        if plane is None or not self._subscribed or not self._cooperative() or not plane.state.membership.joined:
            return
        adding, leaving = self._round.adding or {}, self._round.leaving or frozenset()
        unread = (
            (_ours(plane.state) | adding.keys()) - leaving - {TopicPartition(p.topic, p.partition) for p in partitions}
        )
        if unread:
            names = ", ".join(map(str, sorted(unread)[:5])) + (" …" if len(unread) > 5 else "")
            raise refused_here(
                ck.KafkaError._STATE,
                f"{names}: owned by this member of a cooperative group, and would be read by nobody. "
                "Use incremental_assign, incremental_unassign, pause or unsubscribe.",
            )

    def _replace(self, partitions: list[ck.TopicPartition]) -> None:
        gone = set(self._data.assigned)
        self._part(gone)
        self._data.replace(self._started_at(partitions))
        self._parted(gone)

    def _part(self, gone: set[TopicPartition]) -> None:
        """The application is about to unassign these: commit and remember where it stands in them."""
        commits = self._config.auto_commit and self._offsets.committable(gone) and bool(self._config.group)
        self._offsets.part(self._plane() if commits else self._control, gone, member=self._subscribed)

    def _parted(self, gone: set[TopicPartition]) -> None:
        if not self._subscribed:
            self._offsets.forget(gone)

    def incremental_assign(self, partitions: list[ck.TopicPartition]) -> None:
        self._open()
        self._data.take(self._started_at(partitions))

    def incremental_unassign(self, partitions: list[ck.TopicPartition]) -> None:
        self._open()
        named = {TopicPartition(p.topic, p.partition) for p in partitions}
        strangers = sorted(named - self._data.assigned - (self._round.leaving or frozenset()))
        if strangers:
            text = f"{strangers[0]} can't be unassigned since it is not in the current assignment"
            raise refused_here(ck.KafkaError._INVALID_ARG, text)
        gone = named & self._data.assigned
        self._part(gone)
        self._data.drop(named)
        self._parted(gone)

    def _started_at(self, partitions: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
        """Fill in a start where the user named no offset.

        A partition that is being added starts where the round says, and one with a commit under way at that offset:
        librdkafka would ask for the committed offset in the background and overtake the commit. For the rest librdkafka
        asks by itself; our own fetcher can't, so the group is asked here.
        """
        known: dict[TopicPartition, int | None] = {**self._offsets.being_told(), **(self._round.adding or {})}
        where = {TopicPartition(p.topic, p.partition): p.offset for p in partitions}
        unasked = [p for p, at in where.items() if at in AS_COMMITTED and p not in known]
        if unasked and self._data.arrow is not None and self._config.group:
            known.update(self._asked(unasked))
        reset = RESET[self._config.auto_offset_reset]
        started = []
        for partition in partitions:
            name = TopicPartition(partition.topic, partition.partition)
            if partition.offset in AS_COMMITTED and name in known:
                at = known[name]
                started.append(ck.TopicPartition(name.topic, name.partition, reset if at is None else at))
            else:
                started.append(partition)
        return started

    def _asked(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where it has committed nothing."""
        found = self.committed([ck.TopicPartition(p.topic, p.partition) for p in partitions])
        return {p: at.offset if at.offset >= 0 else None for p, at in zip(partitions, found, strict=True)}

    def assignment(self) -> list[ck.TopicPartition]:
        self._open()
        return self._data.assignment()

    def position(self, partitions: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
        self._open()
        return self._data.position(partitions)

    def seek(self, partition: ck.TopicPartition) -> None:
        self._open()
        if not isinstance(partition, ck.TopicPartition):
            raise TypeError("expected cimpl.TopicPartition")
        if self._adds(partition):
            self._round.begin([partition])
        else:
            self._data.seek(partition)

    def _adds(self, partition: ck.TopicPartition) -> bool:
        """Inside on_assign: whether this partition is being added and not read yet."""
        name = TopicPartition(partition.topic, partition.partition)
        return self._round.adding is not None and name in self._round.adding and name not in self._data.assigned

    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        self._open()
        self._data.pause(partitions)

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        self._open()
        self._data.resume(partitions)

    # -- the cluster

    @contextlib.contextmanager
    def _asking(self) -> Iterator[cimpl.Consumer]:
        """For a question to librdkafka, from any thread."""
        with self._data.turns.first():
            yield self._data.handle

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        self._open(HANDLE_CLOSED)
        with self._asking() as handle:
            return handle.list_topics(topic, timeout) if topic else handle.list_topics(timeout=timeout)

    def get_watermark_offsets(
        self, partition: ck.TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        self._open()
        if cached and self._data.arrow is not None:
            seen = self._data.watermarks(TopicPartition(partition.topic, partition.partition))
            return seen or (ck.OFFSET_INVALID, ck.OFFSET_INVALID)
        with self._asking() as handle:
            return handle.get_watermark_offsets(partition, -1 if timeout is None else timeout, cached)

    def offsets_for_times(
        self, partitions: list[ck.TopicPartition], timeout: float | None = None
    ) -> list[ck.TopicPartition]:
        self._open()
        with self._asking() as handle:
            return list(handle.offsets_for_times(partitions, -1 if timeout is None else timeout))

    def cluster_id(self, timeout: float = -1) -> str | None:
        self._open(HANDLE_CLOSED)
        with self._asking() as handle:
            return handle.cluster_id(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self._open(HANDLE_CLOSED)
        with self._asking() as handle:
            handle.set_sasl_credentials(username, password)
        if self._config.login is not None:
            self._config.login.change(username, password)

    # -- who we are

    def memberid(self) -> str | None:
        self._open()
        return (self._control.state.membership.member_id or None) if self._control is not None else None

    def consumer_group_metadata(self) -> bytes:
        """What a transactional producer needs to commit in this member's name, in librdkafka's format."""
        self._open()
        membership = self._control.state.membership if self._control is not None else NOBODY
        instance = self._config.instance_id
        return (
            b"CGMDv2:"
            + membership.generation.to_bytes(4, sys.byteorder, signed=True)
            + self._config.group.encode()
            + b"\x00"
            + membership.member_id.encode()
            + b"\x00"
            + (b"\x01" if instance is None else b"\x00" + instance.encode() + b"\x00")
        )

    def metrics(self) -> dict[str, float]:
        """The consumer's metrics under their Java names, KIP-429's among them; latencies are in milliseconds."""
        state = self._control.state if self._control is not None else None
        return self._trace.metrics.snapshot(
            now_ms(),
            assigned=len(self._data.assigned),
            heartbeat_at=state.heartbeat_at if state is not None else 0.0,
            lag_max=self._data.lag_max(),
        )

    def _group_part(self) -> GroupPart:
        """The group's part of the statistics. Called on the polling thread, from inside librdkafka's poll."""
        plane, data = self._control, self._data
        known = plane.known_committed if plane is not None else {}
        reached = {p: entry.offset for p, entry in data.positions(data.assigned).items()}
        stored = {p: entry.offset for p, entry in self._offsets.committable(data.assigned).items()}
        standings = {}
        for p in sorted(data.assigned):
            low, high = (data.watermarks(p) or (None, None)) if data.arrow is not None else (None, None)
            standings[p] = Standing(
                app=reached.get(p), stored=stored.get(p), committed=known.get(p), low=low, high=high
            )
        seen = self._trace.metrics
        return GroupPart(
            phase=plane.state.phase if plane is not None else mb.Phase.UNSUBSCRIBED,
            rebalances=seen.rebalances,
            rebalance_age_s=seen.last_rebalance_s(now_ms()),
            reason=plane.state.join_reason if plane is not None else "",
            partitions=standings,
            read_committed=read_committed(self._config.raw),
        )

    def metrics_text(self) -> str:
        """The metrics in Prometheus's form."""
        return prometheus_text(self.metrics(), group=self._config.group, client_id=self._config.client_id)

    # -- the end

    def drain(self, timeout: float = 0.0, reason: str = "drain") -> bool:
        """Hand everything over and leave the group; keep polling meanwhile. True once the member is out of the group.

        With a timeout this call waits and makes the listener's calls, but returns no records.
        """
        self._open()
        plane = self._plane()
        if plane.state.draining is None and not plane.closed():
            plane.feed(plane.drained(reason))
        if timeout > 0 and not self._serving:
            self._serve_until(_ended, timeout)
        return plane.closed()

    def close(self) -> None:
        """Revoke, commit (if so configured), leave. A second close does nothing.

        Called inside a callback, it closes as soon as the callbacks under way have returned.
        """
        self._calm_until = self._idle_until = 0.0
        if self._closed or self._closing:
            return
        if os.getpid() != self._pid:  # a forked copy: the member, its threads and its watchdog are the parent's
            self._closed = True
            return
        self._closing = True
        if self._serving:
            self._close_asked = True
        else:
            self._close()

    def abandon(self) -> None:
        """The application has dropped the consumer: leave without calling any callback.

        On a thread of its own: the garbage collector may run on a thread that close would wait for.
        """
        if self._closed or self._closing:
            return
        self._round.listener = Listener()
        threading.Thread(target=self.close, name="holdfast-abandoned", daemon=True).start()

    def _close(self) -> None:
        left = False
        self._gives_up = threading.get_ident()
        try:
            self._commit_the_rest()
            plane = self._control
            if plane is not None:
                if not plane.closed():
                    plane.feed(mb.Close("the consumer was closed"))
                    self._serve_until(_ended, CLOSE_TIMEOUT_S)
                self._offsets.wait(CLOSE_TIMEOUT_S)
                left = _ended(plane)
        finally:  # also when it was interrupted: a member that nobody polls must not go on
            self._closed = True
            if self._metrics_port is not None:
                self._metrics_port.close()
            if self._control is not None:
                self._control.stop()
            self._noting.end(left=left or self._control is None)
            self._close_data()
            self._trace.close()
            self._gives_up = None
        self._offsets.report()
        self._round.raise_first()

    def _close_data(self) -> None:
        """While closing, librdkafka makes the error_cb calls that are left, and stops if one raises: then it is closed
        again. Such an exception must not keep the consumer from closing, so it is logged."""
        for _ in range(CLOSE_TRIES):
            try:
                self._data.close()
                return
            except Exception as error:  # noqa: BLE001  # an application's callback may raise anything
                logging.getLogger("holdfast").warning("a callback raised while the consumer was closed: %r", error)

    def _commit_the_rest(self) -> None:
        """Commit manual assignments here: no revoke will do it."""
        rest = set(self._data.assigned)
        if self._control is not None and self._subscribed:
            rest -= _ours(self._control.state)
        if self._config.auto_commit and self._config.group and self._offsets.committable(rest):
            self._offsets.commit_rest(self._plane(), rest, member=self._subscribed)

    def _serve_until(self, done: Callable[[ControlPlane], bool], timeout_s: float) -> None:
        plane = self._plane()
        deadline = time.monotonic() + timeout_s
        while not done(plane) and time.monotonic() < deadline:
            self._polled_at = now_ms()
            if plane.calls:
                self._make_calls(plane)
            time.sleep(BUSY_SLICE_S)

    def _wake(self) -> None:
        """There is something to serve; called from other threads. Nothing to do here: poll waits in short slices and
        finds it. An asyncio consumer overrides this."""

    def _open(self, says: str = CLOSED) -> None:
        """Called first by everything an application calls. Ends poll's short cuts, because the call may change what
        poll hands out, and raises if the consumer is closed."""
        self._calm_until = self._idle_until = 0.0
        if self._closed:
            raise RuntimeError(says)

    def _open_data(self, logger: Any) -> DataPlane:
        raised = Raised()
        handle = librdkafka(raised.guarded(self._brokers.heeding(self._config.librdkafka())), logger=logger)
        return DataPlane(handle, reset=self._config.auto_offset_reset, open_arrow=self._open_arrow, raised=raised)

    def _open_arrow(self) -> ArrowPlane:
        from holdfast.client.reading.arrow import open_arrow  # imported late: it loads what only consume_arrow() needs

        return open_arrow(self._config)

    def _plane(self) -> ControlPlane:
        """The control plane, started when it is first needed. May be called from several threads at once."""
        with self._one_plane:
            return self._control or self._begun_plane()

    def _begun_plane(self) -> ControlPlane:
        if not self._config.group:
            raise no_group()
        plane = ControlPlane(
            self._config,
            trace=self._stuck.write,
            last_poll=lambda: self._polled_at,
            planned=self._pitfalls.planned,
            responsive_ms=RESPONSIVE_MS,
            engine=self._engine,
            wake=self._wake,
        )
        try:
            plane.start()
        except HoldfastError as error:
            raise as_kafka_exception(error) from None
        self._control = plane
        self._offsets.handed = plane.handed
        return plane

    def _watch(self, plane: ControlPlane) -> None:
        """Start the member's watchdog. A consumer that never subscribes needs none."""
        if not self._config.inventions.watchdog or self._noting.watchdog is not None:
            return
        watchdog = watched(self._config)
        self._noting.begin(watchdog, by_position=self._config.auto_commit and self._config.auto_offset_store)
        plane.guard(watchdog)


def _no_records(include_headers: bool) -> pa.RecordBatch:
    from holdfast.records.arrow import empty_batch

    return empty_batch(include_headers=include_headers)


def _ours(state: mb.MemberState) -> frozenset[TopicPartition]:
    """The group's partitions that we read: owned, or owned as soon as the machine hears that the listener returned."""
    return state.owned | state.next_phase_owned if state.phase is mb.Phase.APPLYING else state.owned


def _ended(plane: ControlPlane) -> bool:
    """Out of the group, or failed on the way, so that no leave will be answered; and no listener's call is left."""
    failed = plane.state.phase is mb.Phase.FAILED and plane.failure is not None  # set after the loss was queued
    return (plane.closed() or failed) and not plane.calls
