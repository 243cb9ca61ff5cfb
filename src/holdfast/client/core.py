"""What the two consumers have in common. Each has a core of its own over this one: `polling` and `aio.core`.

The cores are separate from the public classes, `Consumer` and `AsyncConsumer`, so that an application's subclass of
those can't override anything in here by accident.

One thread polls. It makes the listener's calls, and no other thread calls librdkafka, except in its turn (`turns`).
The control plane runs on a thread of its own and queues the listener's calls in order. Records of partitions that are
kept are handed out between two calls of one round.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from holdfast.client.clock import now_ms
from holdfast.client.cluster_calls import Cluster, ClusterCalls
from holdfast.client.config import settings as cfg
from holdfast.client.config.pitfalls import Pitfalls
from holdfast.client.errors import CLOSED, as_kafka_exception, refused_here
from holdfast.client.member.commits import Offsets
from holdfast.client.member.control import DEFECT, ControlPlane
from holdfast.client.member.engine import Engine
from holdfast.client.member.link import Link
from holdfast.client.member.listener import Listener
from holdfast.client.member.news import News
from holdfast.client.member.round_calls import RoundCalls
from holdfast.client.offset_calls import OffsetCalls
from holdfast.client.partition_calls import PartitionCalls
from holdfast.client.parts import Parts
from holdfast.client.reading.data_plane import DataPlane, close_readers
from holdfast.client.self_report import SelfReport
from holdfast.client.telemetry import metrics_port
from holdfast.client.telemetry.stack import PollingStack
from holdfast.client.telemetry.statistics import WithGroupPart
from holdfast.client.telemetry.tracing import open_trace
from holdfast.client.watchdog.positions import WatchdogNotes, watch
from holdfast.group import member as mb
from holdfast.group.session.closing import CLOSE_MS
from holdfast.model import HoldfastError

if TYPE_CHECKING:
    import pyarrow as pa

LOOK_EVERY_S = 0.001
"""How often unsubscribe, drain and close look for listener's calls to make while they wait."""

RESPONSIVE_MS = 1_000.0
"""A member whose application has not polled for this long joins no round until it polls. Partitions that others revoke
in a round are read by nobody until every listener has returned."""

CLOSE_TIMEOUT_S = CLOSE_MS / 1_000.0

OUTSIDE = frozenset({mb.Phase.UNSUBSCRIBED, mb.Phase.FAILED, mb.Phase.CLOSED})
"""Phases without a membership."""

NOT_SUBSCRIBED = frozenset({mb.Phase.UNSUBSCRIBED, mb.Phase.FAILED})
"""Phases in which an unsubscribe is done."""

LEFT = "this consumer was drained and has left its group for good: close it, and make another one to join again"


class Life(Enum):
    """How far the end of a consumer is."""

    OPEN = auto()
    CLOSE_ASKED = auto()
    """A callback has asked for it: it closes when the callbacks under way have returned."""
    CLOSING = auto()
    CLOSED = auto()


class ConsumerCore:
    """A member of a consumer group, or a reader of manually assigned partitions.

    `owner` returns the object that callbacks get as their consumer: the public one that the application created.
    """

    def __init__(
        self, config: Mapping[str, Any], *, owner: Callable[[], Any] = lambda: None, logger: Any = None
    ) -> None:
        raw = dict(config)
        if callable(raw.get("stats_cb")):
            raw["stats_cb"] = WithGroupPart(raw["stats_cb"], lambda: self.about.group_part())  # noqa: PLW0108  # made later
        self._config = cfg.parse(raw)
        self._metrics_port = metrics_port.opened(self, self._config.metrics_host, self._config.metrics_port)
        self._engine: Engine | None = None
        self._data = self._open_data(logger)  # first: it refuses bad settings in the best words
        try:
            self._trace = open_trace(self._config)
        except BaseException:
            self._close_data()
            raise
        self._link = link = Link(self._config, self._new_plane)
        self._offsets = Offsets(self._config, self._data, now_ms(), handed=lambda: link.handed)
        self._polling_stack = PollingStack(self._trace.write)
        self._pitfalls = Pitfalls(self._config, self._trace.write, name=self._config.client_id)
        self._polled_at = now_ms()
        """When the application last polled, or did something else that shows it is alive."""
        self._notes = WatchdogNotes(self._data)
        self._round = RoundCalls(owner, self._config, self._data, self._offsets, self._notes, self._trace)
        parts = Parts(
            config=self._config,
            data=self._data,
            offsets=self._offsets,
            round=self._round,
            link=link,
            notes=self._notes,
            check_open=self.check_open,
        )
        self.offsets = OffsetCalls(parts, self._notes, self._pitfalls, polled_at=lambda: self._polled_at)
        self.partitions = PartitionCalls(parts, ask=self.offsets.ask)
        self.cluster = ClusterCalls(parts, self._asking)
        self.about = SelfReport(parts, self._trace.metrics, self._data.fetched)
        self._active_at = now_ms()
        """When the last record came, or the membership last changed its phase."""
        self._phase = mb.Phase.UNSUBSCRIBED
        self._news = News()
        self._serving = False
        """Whether a thread is making the listener's calls."""
        self._revoking_thread: int | None = None
        """The thread that makes the listener's calls or closes. It commits the application's positions."""
        self._life = Life.OPEN
        self._pid = os.getpid()
        if self._metrics_port is not None:
            self._metrics_port.show()

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Become a member that reads these topics, which `arguments.topics_of` has checked."""
        self.check_open()
        if self._link.plane is not None and self._link.plane.failure is not None:
            raise as_kafka_exception(self._link.plane.failure)
        if self._link.plane is not None and self._link.plane.closed():
            raise refused_here(ck.KafkaError._STATE, LEFT)
        plane = self._link.started()
        try:
            watch(self._config, self._notes, plane)
        except HoldfastError as error:
            raise as_kafka_exception(error) from error
        self._round.listener = listener  # nothing can be refused any more; a refused subscribe keeps the old listener
        self._link.begin()
        self._polled_at = now_ms()
        plane.subscribe(list(topics))
        self._warm(topics)

    def unsubscribe(self) -> None:
        self.check_open()
        if self._link.plane is not None and self._link.subscribed:
            count = self._link.subscriptions
            self._link.plane.unsubscribe()
            if self._serving:  # inside a callback: it returns first, then the next poll makes the revoke
                self._link.subscribed, self._link.unsubscribing = False, True
                return
            self._serve_until(
                lambda plane: plane.state.phase in NOT_SUBSCRIBED or self._link.subscriptions != count, CLOSE_TIMEOUT_S
            )
            if self._link.subscriptions != count:
                return  # on_revoke has subscribed again, or another thread: don't end what was begun since
        self._link.subscribed = False
        self._offsets.given_up.clear()
        self.partitions.replace([])

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        self.check_open()
        self._link.started().feed(mb.Enforce(reason))

    # -- records

    def _next_error(self, deadline: float | None) -> ck.Message | None:
        """An error to return instead of a record; None if there is none."""
        return self._news.of_member(self._link.plane, deadline)

    def _returned(self, messages: list[ck.Message]) -> None:
        """These are handed out. They count as processed when the application calls again, and not before."""
        self._offsets.touched = True
        self._notes.returned(messages)

    def _may_process(self) -> bool:
        """Whether records may be handed out: not while another member may own their partitions."""
        member, link = self._link.member, self._link
        if member is None:
            return not (link.unsubscribing and link.plane is not None and link.plane.state.phase not in OUTSIDE)
        return mb.may_process(member.state, self._polled_at)

    def _keep_or_rewind(self, taken: list[ck.Message] | pa.RecordBatch) -> bool:
        """Keep the records just taken if they may still be handed out. True if so. A frozen process is usually frozen
        while it waits or decodes, and its session may be over when it wakes. Records that may not be handed out are
        read again, if their partition is still ours."""
        self._polled_at = now_ms()
        if self._may_process():
            return True
        self._data.rewind(taken)
        return False

    def _called(self, now: float) -> None:
        """The application has called, and waits: what was handed out before is processed by now."""
        self._polled_at = now
        self._notes.catch_up(now)

    # -- what the group wants of the polling thread

    def _serve(self) -> bool:
        """Make the listener's calls that are due, and commit when it is time. True when partitions changed hands."""
        now = now_ms()
        if now - self._polled_at > self._pitfalls.slow_ms:
            self._pitfalls.paused(now - self._polled_at, now, self._polling_stack.where)
        self._called(now)
        self._look_at_handle()
        plane = self._link.plane
        if plane is None:
            if not self._commits_by_itself(now):
                return False
            plane = self._link.started()
        if plane.stirred:
            plane.stirred = False  # before looking, so that a change from here on is seen next time
            if plane.calls or plane.state.phase is not self._phase:
                self._active_at, self._phase = now, plane.state.phase
        if plane.failure is not None and plane.failure.code == DEFECT:
            raise as_kafka_exception(plane.failure)
        changed = bool(plane.calls) and self._make_calls(plane)
        if self._life is Life.CLOSED:
            return True
        if self._commits_by_itself(now):
            self._offsets.commit_due(plane, now, member=self._link.subscribed)
        if self._link.subscribed and plane.state.phase is mb.Phase.EVICTED:
            plane.feed(mb.Polled())
        self._offsets.report()
        self._round.raised.raise_first()
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
        before, self._revoking_thread = self._revoking_thread, threading.get_ident()
        self._polling_stack.thread = threading.get_ident()
        try:
            while plane.calls and plane.calls[0].ready:
                pending = plane.calls.popleft()
                try:
                    changed |= self._round.make(plane, pending)
                finally:
                    if pending.last:
                        self._round.end(plane, pending)
        finally:
            self._serving, self._revoking_thread = False, before
        self._pitfalls.tell(now_ms())
        if self._life is Life.CLOSE_ASKED:
            self._close()
        return changed

    def metrics_text(self) -> str:
        """For `metrics_port`."""
        return self.about.metrics_text()

    # -- the end

    def drain(self, timeout: float = 0.0, reason: str = "drain") -> bool:
        """Hand everything over and leave the group; keep polling meanwhile. True once the member is out of the group.

        With a timeout this call waits and makes the listener's calls, but returns no records.
        """
        self.check_open()
        plane = self._link.started()
        if plane.state.draining is None and not plane.closed():
            plane.feed(plane.drain_event(reason))
        if timeout > 0 and not self._serving:
            self._serve_until(ControlPlane.out, timeout)
        return plane.closed()

    def close(self) -> None:
        """Revoke, commit (if so configured), leave. A second close does nothing.

        Called inside a callback, it closes as soon as the callbacks under way have returned.
        """
        if self._life is not Life.OPEN:
            return
        if os.getpid() != self._pid:  # a forked copy: the member, its threads and its watchdog are the parent's
            self._life = Life.CLOSED
        elif self._serving:
            self._life = Life.CLOSE_ASKED
        else:
            self._close()

    def abandon(self) -> None:
        """The application has dropped the consumer: leave without calling any callback.

        On a thread of its own: the garbage collector may run on a thread that close would wait for.
        """
        if self._life is Life.OPEN:
            threading.Thread(target=self.close_silently, name="holdfast-abandoned", daemon=True).start()

    def close_silently(self) -> None:
        """Close without calling the listener any more."""
        self._round.listener = Listener()
        self.close()

    def _close(self) -> None:
        """Commit and leave the group, as `group.session.closing` says, and end everything that runs for this consumer;
        then raise what a callback raised."""
        left = False
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        self._life = Life.CLOSING
        self._revoking_thread = threading.get_ident()
        try:
            self.offsets.commit_the_rest()
            plane = self._link.plane
            if plane is not None:
                if not plane.closed():
                    plane.feed(mb.Close("the consumer was closed"))
                    self._serve_until(ControlPlane.out, CLOSE_TIMEOUT_S)
                self._offsets.wait(max(0.0, deadline - time.monotonic()))
                left = plane.out()
        finally:  # also when it was interrupted: a member that nobody polls must not go on
            self._life = Life.CLOSED
            if self._metrics_port is not None:
                self._metrics_port.close()
            if (last := self._link.shut()) is not None:
                last.stop()
            self._notes.end(left=left or self._link.plane is None)
            self._close_data()
            self._trace.close()
            self._revoking_thread = None
        self._offsets.report_all(self._round.raised)
        self._round.raised.raise_first()

    def _serve_until(self, done: Callable[[ControlPlane], bool], timeout_s: float) -> None:
        """Make the listener's calls, and nothing else, until this holds or the time is up."""
        plane = self._link.started()
        deadline = time.monotonic() + timeout_s
        while not done(plane) and time.monotonic() < deadline:
            self._called(now_ms())
            if plane.calls:
                self._make_calls(plane)
            time.sleep(LOOK_EVERY_S)

    # -- what differs between the two kinds

    def _asking(self) -> AbstractContextManager[Cluster]:
        """For a question about the cluster, from any thread."""
        raise NotImplementedError

    def _open_data(self, logger: Any) -> DataPlane:
        """The data plane. Which readers it has is up to the consumer's kind."""
        raise NotImplementedError

    def _close_data(self) -> None:
        """Close what `_open_data` has opened."""
        close_readers(self._data)

    def _warm(self, topics: Sequence[str]) -> None:
        """Prepare for reading these topics, if the reader has to."""

    def _look_at_handle(self) -> None:
        """Raise what callbacks raised outside of any call of ours."""

    def _new_plane(self) -> ControlPlane:
        return ControlPlane(
            self._config,
            trace=self._polling_stack.write,
            last_poll=lambda: self._polled_at,
            planned=self._pitfalls.planned,
            responsive_ms=RESPONSIVE_MS,
            engine=self._engine,
            wake=self._wake,
        )

    def _wake(self) -> None:
        """There is something to serve; called from other threads. Nothing to do here: poll waits in short slices and
        finds it. An asyncio consumer overrides this."""

    def check_open(self, says: str = CLOSED) -> None:
        """Called first by everything an application calls. Raises if the consumer is closed."""
        if self._life is Life.CLOSED:
            raise RuntimeError(says)
