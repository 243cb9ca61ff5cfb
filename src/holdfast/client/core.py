"""What the two consumers have in common. Each has a core of its own over this one: `polling` and `aio.core`.

The cores are separate from the public classes, `Consumer` and `AsyncConsumer`, so that an application's subclass of
those can't override anything in here by accident.

One thread polls. It makes the listener's calls, and no other thread calls librdkafka, except in its turn (`turns`).
The control plane runs on a thread of its own and queues the listener's calls in order. Records of partitions that are
kept are handed out between two calls of one round.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from holdfast.client import group_metadata
from holdfast.client.clock import now_ms
from holdfast.client.config import settings as cfg
from holdfast.client.config.keys import read_committed
from holdfast.client.config.pitfalls import Pitfalls
from holdfast.client.errors import FATAL, as_kafka_exception, refused_here
from holdfast.client.member.assigning import Assigning
from holdfast.client.member.commits import Offsets
from holdfast.client.member.control import DEFECT, ControlPlane
from holdfast.client.member.engine import Engine
from holdfast.client.member.entries import Entries, after, entries_of
from holdfast.client.member.events import fatal_error
from holdfast.client.member.link import Link
from holdfast.client.member.listener import Listener, callbacks
from holdfast.client.member.news import News
from holdfast.client.member.round_calls import RoundCalls
from holdfast.client.partitions import confluent_at, name_of
from holdfast.client.reading.data_plane import DataPlane
from holdfast.client.telemetry import metrics_port
from holdfast.client.telemetry.connections import BrokersSeen, Outage
from holdfast.client.telemetry.group_part import group_part
from holdfast.client.telemetry.metrics import prometheus_text
from holdfast.client.telemetry.stack import Stuck
from holdfast.client.telemetry.statistics import GroupPart, Statistics
from holdfast.client.telemetry.tracing import open_trace
from holdfast.client.watchdog.guard import watched
from holdfast.client.watchdog.positions import Noting
from holdfast.group import member as mb
from holdfast.model import NOBODY, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import cimpl

LOOK_EVERY_S = 0.001
"""How often unsubscribe, drain and close look for listener's calls to make while they wait."""

RESPONSIVE_MS = 1_000.0
"""A member whose application has not polled for this long joins no round until it polls. Partitions that others revoke
in a round are read by nobody until every listener has returned."""

CLOSE_TIMEOUT_S = 10.0
"""How long close() waits for the coordinator to confirm the leave. After that the session timeout ends the membership.
"""

OUTSIDE = frozenset({mb.Phase.UNSUBSCRIBED, mb.Phase.FAILED, mb.Phase.CLOSED})
"""Phases without a membership."""

CLOSE_TRIES = 5
"""How many times closing librdkafka is tried while callbacks raise; each try leaves fewer callbacks to make."""

NOT_SUBSCRIBED = frozenset({mb.Phase.UNSUBSCRIBED, mb.Phase.FAILED})
"""Phases in which an unsubscribe is done."""

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
        self._link = link = Link(self._config, self._new_plane)
        self._offsets = Offsets(self._config, self._data, now_ms(), handed=lambda: link.handed)
        self._trace = open_trace(self._config)
        self._stuck = Stuck(self._trace.write)
        self._pitfalls = Pitfalls(self._config, self._trace.write, name=self._config.client_id)
        self._polled_at = now_ms()
        """When the application last polled, or did something else that shows it is alive."""
        self._noting = Noting(self._data)
        self._round = RoundCalls(owner, self._config, self._data, self._offsets, self._noting, self._trace)
        self._assigning = Assigning(
            self._config, self._data, self._offsets, self._round, self._link, ask=self._committed_of
        )
        self._subscriptions = 0
        """How many there have been."""
        self._unsubscribing = False
        """True from an unsubscribe inside a callback until its revoke: nothing is handed out meanwhile."""
        self._closed = False
        self._awake_since = 0.0
        """When the application last came back after a session timeout or more without a poll."""
        self._lively_at = now_ms()
        """When the last record came, or the membership last changed its phase."""
        self._phase = mb.Phase.UNSUBSCRIBED
        self._news = News()
        self._serving = False
        """Whether a thread is making the listener's calls."""
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
        self._check_open()
        if self._link.plane is not None and self._link.plane.failure is not None:
            raise as_kafka_exception(self._link.plane.failure)
        if self._link.plane is not None and self._link.plane.closed():
            raise refused_here(ck.KafkaError._STATE, LEFT)
        told = listener or callbacks(on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
        plane = self._link.started()
        self._watch(plane)
        self._round.listener = told  # nothing can be refused any more; a refused subscribe keeps the old listener
        self._unsubscribing = False
        self._link.subscribed = True
        self._subscriptions += 1
        self._polled_at = now_ms()
        plane.subscribe(list(topics))
        self._data.warm(topics)

    def unsubscribe(self) -> None:
        self._check_open()
        if self._link.plane is not None and self._link.subscribed:
            count = self._subscriptions
            self._link.plane.unsubscribe()
            if self._serving:  # inside a callback: it returns first, then the next poll makes the revoke
                self._link.subscribed, self._unsubscribing = False, True
                return
            self._serve_until(
                lambda plane: plane.state.phase in NOT_SUBSCRIBED or self._subscriptions != count, CLOSE_TIMEOUT_S
            )
            if self._subscriptions != count:
                return  # on_revoke has subscribed again, or another thread: what was begun since is not ours to end
        self._link.subscribed = False
        self._offsets.given_up.clear()
        self._assigning.replace([])

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        self._check_open()
        self._link.started().feed(mb.Enforce(reason))

    # -- records

    def _next_error(self, deadline: float | None) -> ck.Message | None:
        """An error to return instead of a record; None if there is none."""
        return self._news.of_member(self._link.plane, deadline)

    def _returned(self, messages: list[ck.Message]) -> None:
        """These are handed out. They count as processed when the application calls again, and not before."""
        self._offsets.touched = True
        self._noting.returned(messages)

    def _may_process(self) -> bool:
        """Whether records may be handed out: not while another member may own their partitions."""
        member, plane = self._link.member, self._link.plane
        if member is None:
            self._unsubscribing &= plane is not None and plane.state.phase not in OUTSIDE
            return not self._unsubscribing
        return mb.may_process(member.state, self._polled_at, awake_since=self._awake_since)

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

    # -- what the group wants of the polling thread

    def _serve(self) -> bool:
        """Make the listener's calls that are due, and commit when it is time. True when partitions changed hands."""
        now = now_ms()
        if now - self._polled_at > self._pitfalls.slow_ms:
            self._pitfalls.paused(now - self._polled_at, now, self._stuck.where)
        self._look_at_the_clock(now)
        self._data.raised.raise_first()
        if self._brokers.down and not self._link.subscribed:  # for a member the control plane reports it
            self._brokers.look(self._data.handle)
        plane = self._link.plane
        if plane is None:
            if not self._commits_by_itself(now):
                return False
            plane = self._link.started()
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
            self._offsets.commit_due(plane, now, member=self._link.subscribed)
        if self._link.subscribed and plane.state.phase is mb.Phase.EVICTED:
            plane.feed(mb.Polled())
        self._offsets.report()
        self._round.raise_first()
        return changed

    def _commits_by_itself(self, now: float) -> bool:
        """Whether an auto-commit is due. Manual assignments are committed too, if there is a group to commit to."""
        return self._offsets.due(now) and bool(self._config.group)

    def _make_calls(self, plane: ControlPlane) -> bool:
        """Make the listener's calls that are ready, then close if a callback asked for it. True when partitions
        changed hands."""
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
        self._check_open()
        entries = self._to_commit(message, offsets)
        plane = self._link.started()
        if asynchronous:
            self._offsets.commit_later(plane, entries, member=self._link.subscribed, fenced=self._fenced())
            return None
        self._raise_fenced()
        return self._offsets.commit_now(plane, entries, member=self._link.subscribed)

    def _fenced(self) -> ck.KafkaError | None:
        """The fatal error that forbids commits, if there is one. It is reported even if there is nothing to commit."""
        failure = None if self._link.plane is None else self._link.plane.failure
        return None if failure is None or failure.code not in FATAL else fatal_error(failure)

    def _raise_fenced(self) -> None:
        if (fenced := self._fenced()) is not None:
            raise ck.KafkaException(fenced)

    def _to_commit(self, message: ck.Message | None, offsets: list[ck.TopicPartition] | None) -> Entries:
        if message is not None or offsets is not None:
            entries = _entries_given(message, offsets)
        else:
            entries = self._offsets.with_all_assigned(self._offsets.uncommitted(self._data.assigned))
        self._noting.committed(entries)
        self._pitfalls.committed({p: entry for p, entry in entries.items() if entry.offset >= 0}, self._polled_at)
        return entries

    def store_offsets(self, message: ck.Message | None = None, offsets: list[ck.TopicPartition] | None = None) -> None:
        """Store an offset for the next commit."""
        self._check_open()
        if message is None and offsets is None:
            raise ValueError("expected either message or offsets")
        self._noting.stored(self._offsets.store(_entries_given(message, offsets)))

    def committed(self, partitions: list[ck.TopicPartition], timeout: float | None = None) -> list[ck.TopicPartition]:
        self._check_open()
        return self._offsets.committed(self._link.started(), partitions, timeout)

    # -- assignment and positions

    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        self._check_open()
        self._assigning.assign(partitions)

    def unassign(self) -> None:
        self._check_open()
        self._assigning.unassign()

    def incremental_assign(self, partitions: list[ck.TopicPartition]) -> None:
        self._check_open()
        self._assigning.add(partitions)

    def incremental_unassign(self, partitions: list[ck.TopicPartition]) -> None:
        self._check_open()
        self._assigning.remove(partitions)

    def seek(self, partition: ck.TopicPartition) -> None:
        self._check_open()
        if not isinstance(partition, ck.TopicPartition):
            raise TypeError("expected cimpl.TopicPartition")
        self._assigning.seek(partition)

    def _committed_of(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where it has committed nothing."""
        found = self.committed([confluent_at(p, ck.OFFSET_INVALID) for p in partitions])
        return {p: at.offset if at.offset >= 0 else None for p, at in zip(partitions, found, strict=True)}

    def assignment(self) -> list[ck.TopicPartition]:
        self._check_open()
        return self._data.assignment()

    def position(self, partitions: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
        self._check_open()
        return self._data.position(partitions)

    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        self._check_open()
        self._data.pause(partitions)

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        self._check_open()
        self._data.resume(partitions)

    # -- the cluster

    @contextlib.contextmanager
    def _asking(self) -> Iterator[cimpl.Consumer]:
        """For a question to librdkafka, from any thread."""
        with self._data.turns.asking():
            yield self._data.handle

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        self._check_open(HANDLE_CLOSED)
        with self._asking() as handle:
            return handle.list_topics(topic, timeout) if topic else handle.list_topics(timeout=timeout)

    def get_watermark_offsets(
        self, partition: ck.TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        self._check_open()
        if cached and self._data.arrow is not None:
            seen = self._data.watermarks(name_of(partition))
            return seen or (ck.OFFSET_INVALID, ck.OFFSET_INVALID)
        with self._asking() as handle:
            return handle.get_watermark_offsets(partition, -1 if timeout is None else timeout, cached)

    def offsets_for_times(
        self, partitions: list[ck.TopicPartition], timeout: float | None = None
    ) -> list[ck.TopicPartition]:
        self._check_open()
        with self._asking() as handle:
            return list(handle.offsets_for_times(partitions, -1 if timeout is None else timeout))

    def cluster_id(self, timeout: float = -1) -> str | None:
        self._check_open(HANDLE_CLOSED)
        with self._asking() as handle:
            return handle.cluster_id(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self._check_open(HANDLE_CLOSED)
        with self._asking() as handle:
            handle.set_sasl_credentials(username, password)
        if self._config.login is not None:
            self._config.login.change(username, password)

    # -- who we are

    def memberid(self) -> str | None:
        self._check_open()
        return (self._link.plane.state.membership.member_id or None) if self._link.plane is not None else None

    def consumer_group_metadata(self) -> bytes:
        """What a transactional producer needs to commit in this member's name, in librdkafka's format."""
        self._check_open()
        membership = self._link.plane.state.membership if self._link.plane is not None else NOBODY
        return group_metadata.encoded(self._config.group, membership, self._config.instance_id)

    def metrics(self) -> dict[str, float]:
        """The consumer's metrics under their Java names, KIP-429's among them; latencies are in milliseconds."""
        state = self._link.plane.state if self._link.plane is not None else None
        return self._trace.metrics.snapshot(
            now_ms(),
            assigned=len(self._data.assigned),
            heartbeat_at=state.requests.heartbeat_at if state is not None else 0.0,
            lag_max=self._data.lag_max(),
        )

    def _group_part(self) -> GroupPart:
        """The group's part of the statistics. Called on the polling thread, from inside librdkafka's poll."""
        isolated = read_committed(self._config.raw)
        return group_part(self._link.plane, self._data, self._offsets, self._trace.metrics, read_committed=isolated)

    def metrics_text(self) -> str:
        """The metrics in Prometheus's form."""
        return prometheus_text(self.metrics(), group=self._config.group, client_id=self._config.client_id)

    # -- the end

    def drain(self, timeout: float = 0.0, reason: str = "drain") -> bool:
        """Hand everything over and leave the group; keep polling meanwhile. True once the member is out of the group.

        With a timeout this call waits and makes the listener's calls, but returns no records.
        """
        self._check_open()
        plane = self._link.started()
        if plane.state.draining is None and not plane.closed():
            plane.feed(plane.drain_event(reason))
        if timeout > 0 and not self._serving:
            self._serve_until(_ended, timeout)
        return plane.closed()

    def close(self) -> None:
        """Revoke, commit (if so configured), leave. A second close does nothing.

        Called inside a callback, it closes as soon as the callbacks under way have returned.
        """
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
        """Commit, leave the group and end everything that runs for this consumer; then raise what a callback raised."""
        left = False
        self._gives_up = threading.get_ident()
        try:
            self._commit_the_rest()
            plane = self._link.plane
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
            if self._link.plane is not None:
                self._link.plane.stop()
            self._noting.end(left=left or self._link.plane is None)
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
        if self._link.plane is not None and self._link.subscribed:
            rest -= self._link.ours()
        if self._config.auto_commit and self._config.group and self._offsets.committable(rest):
            self._offsets.commit_positions(self._link.started(), rest, member=self._link.subscribed)

    def _serve_until(self, done: Callable[[ControlPlane], bool], timeout_s: float) -> None:
        """Make the listener's calls, and nothing else, until this holds or the time is up."""
        plane = self._link.started()
        deadline = time.monotonic() + timeout_s
        while not done(plane) and time.monotonic() < deadline:
            self._polled_at = now_ms()
            if plane.calls:
                self._make_calls(plane)
            time.sleep(LOOK_EVERY_S)

    def _open_data(self, logger: Any) -> DataPlane:
        """The data plane. Which readers it has is up to the consumer's kind."""
        raise NotImplementedError

    def _new_plane(self) -> ControlPlane:
        return ControlPlane(
            self._config,
            trace=self._stuck.write,
            last_poll=lambda: self._polled_at,
            planned=self._pitfalls.planned,
            responsive_ms=RESPONSIVE_MS,
            engine=self._engine,
            wake=self._wake,
        )

    def _watch(self, plane: ControlPlane) -> None:
        """Start the member's watchdog. A consumer that never subscribes needs none."""
        if not self._config.inventions.watchdog or self._noting.watchdog is not None:
            return
        watchdog = watched(self._config)
        self._noting.begin(watchdog, by_position=self._config.auto_commit and self._config.auto_offset_store)
        plane.keep_informed(watchdog)

    def _wake(self) -> None:
        """There is something to serve; called from other threads. Nothing to do here: poll waits in short slices and
        finds it. An asyncio consumer overrides this."""

    def _check_open(self, says: str = CLOSED) -> None:
        """Called first by everything an application calls. Raises if the consumer is closed."""
        if self._closed:
            raise RuntimeError(says)


def _entries_given(message: ck.Message | None, offsets: list[ck.TopicPartition] | None) -> Entries:
    """The offset after a record, or a list of offsets: one of the two."""
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    return after(message) if message is not None else entries_of(offsets or [])


def _ended(plane: ControlPlane) -> bool:
    """Out of the group, or failed on the way, so that no leave will be answered; and no listener's call is left."""
    failed = plane.state.phase is mb.Phase.FAILED and plane.failure is not None  # set after the loss was queued
    return (plane.closed() or failed) and not plane.calls
