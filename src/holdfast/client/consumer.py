"""`holdfast.Consumer`: the surface of `confluent_kafka.Consumer`, with handovers that take milliseconds.

One thread polls; it makes the listener's calls and is the only one that touches librdkafka. The control plane lives on
its own thread and hands calls over in order. Records of kept partitions flow between two calls of one round.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from holdfast.client import config as cfg
from holdfast.client.control import ControlPlane, now_ms
from holdfast.client.data import RESET, DataPlane, librdkafka
from holdfast.client.engine import Engine
from holdfast.client.errors import as_kafka_exception, no_offset
from holdfast.client.listener import Listener, callbacks
from holdfast.client.metrics import prometheus_text
from holdfast.client.noting import Noting
from holdfast.client.offsets import Entries, Offsets, after, entries_of
from holdfast.client.pitfalls import Pitfalls
from holdfast.client.round_calls import RoundCalls
from holdfast.client.stuck import Stuck
from holdfast.client.tokens import Tokens
from holdfast.client.tracing import open_trace
from holdfast.client.watchdog import Watchdog
from holdfast.group import member as mb
from holdfast.model import NOBODY, HoldfastError, TopicPartition
from holdfast.net.config import client_config

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.client.arrow import ArrowPlane

MAX_RECORDS = 65_536
"""Rows of an Arrow batch unless asked otherwise: 8 MB of 100-byte records, which hides the fixed cost of a batch."""

MOST_RECORDS = 10_000_000
"""More rows than fit into one batch of Arrow's: its columns hold a gigabyte."""

SLICE_S = 0.005
"""How long librdkafka may block at a time: a call for the listener waits this long at the most."""

BUSY_SLICE_S = 0.001
"""The same while a round is under way."""

RESPONSIVE_MS = 1_000.0
"""A member whose application has not polled for so long takes part in no round until it does: what others revoke for a
round stands still until everybody's listener has returned."""

CLOSE_TIMEOUT_S = 10.0
"""How long close() waits for the coordinator to hear of it; the session timeout does the rest."""

FROZEN_MS = 100.0
"""A wait of at most 5 ms that took so much longer: this process did not run meanwhile, and must look around first."""


class Consumer:
    """A member of a consumer group, or a reader of partitions it was given by hand."""

    def __init__(self, config: Mapping[str, Any] | None = None, *, logger: Any = None, **more: Any) -> None:
        raw = {**(config or {}), **more}
        self._tokens = Tokens(raw["oauth_cb"]) if callable(raw.get("oauth_cb")) else None
        self._config = cfg.parse(raw if self._tokens is None else {**raw, "oauth_cb": self._tokens})
        self._engine: Engine | None = None
        self._data = self._open_data(logger)
        self._offsets = Offsets(self._config, self._data, now_ms())
        self._trace = open_trace(self._config, now_ms())
        self._stuck = Stuck(self._trace.write)
        self._pitfalls = Pitfalls(self._config, self._trace.write, name=self._config.client_id)
        self._polled_at = now_ms()
        self._control: ControlPlane | None = None
        self._noting = Noting(self._data)
        self._round = RoundCalls(self, self._config, self._data, self._offsets, self._noting, self._trace)
        self._subscribed = False
        self._closed = False
        self._awake_since = 0.0
        self._serving = False
        self._closing = False
        self._close_asked = False

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
        """Become a member that wants these topics; a name that starts with ^ is a pattern."""
        self._open()
        if isinstance(topics, str):
            raise TypeError("expected list of topic unicode strings")
        self._round.listener = listener or callbacks(on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
        self._subscribed = True
        self._polled_at = now_ms()
        self._plane().subscribe([str(topic) for topic in topics])
        self._data.warm(topics)

    def unsubscribe(self) -> None:
        self._open()
        if self._control is not None and self._subscribed:
            self._control.unsubscribe()
            if self._serving:  # inside a callback: what it was told comes first, then the revoke, from the next poll
                self._subscribed = False
                return
            self._serve_until(lambda plane: plane.state.phase is mb.Phase.UNSUBSCRIBED, CLOSE_TIMEOUT_S)
        self._subscribed = False
        self._data.replace([])

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        self._plane().feed(mb.Enforce(reason))

    # -- records

    def poll(self, timeout: float | None = None) -> ck.Message | None:
        """One record, event or error; None when none came in time. Listener calls are made from here."""
        self._open()
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        while True:
            if self._serve() and self._closed:
                return None  # a callback closed it
            if not self._may_process():
                self._stand(deadline)
            elif (message := self._data.to_records().poll(self._slice(deadline))) is not None and (
                now_ms() - self._polled_at <= FROZEN_MS or self._kept([message])
            ):
                self._returned([message])
                return message
            if deadline is not None and time.monotonic() >= deadline:
                self._serve()
                return None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        """Up to so many records; fewer when the time is up."""
        self._open()
        if not 0 <= num_messages <= 1_000_000:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        deadline = None if timeout < 0 else time.monotonic() + timeout
        messages: list[ck.Message] = []
        while True:
            if not messages:
                if self._serve() and self._closed:
                    break
            elif self._wanted():
                break  # first the application does what it has: what is committed at a revoke includes it
            if self._may_process():
                messages += self._data.to_records().consume(num_messages - len(messages), self._slice(deadline))
            elif messages:
                break
            else:
                self._stand(deadline)
            if len(messages) >= num_messages or (deadline is not None and time.monotonic() >= deadline):
                break
        if not messages or not self._kept(messages):
            return []
        self._returned(messages)
        return messages

    def consume_arrow(
        self, max_records: int = MAX_RECORDS, timeout: float = -1, *, include_headers: bool = False
    ) -> pa.RecordBatch:
        """What is there, as one Arrow batch of at most so many rows; an empty one when nothing came in time.

        Columns and types are those of Spark's Kafka source. Positions, commits and everything of the group are shared
        with poll() and consume(); a program may use both.
        """
        self._open()
        if not 1 <= max_records <= MOST_RECORDS:
            raise ValueError(f"max_records must be between 1 and {MOST_RECORDS}")
        deadline = None if timeout < 0 else time.monotonic() + timeout
        while True:
            if self._serve() and self._closed:
                return _no_records(include_headers)
            if not self._may_process():
                self._stand(deadline)
            elif (batch := self._arrow_batch(max_records, self._slice(deadline), include_headers)) is not None:
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
        """Whether there is something to do that a batch under way must not wait for; and a sign that we are alive."""
        self._look_at_the_clock(now_ms())
        plane = self._control
        return plane is not None and (bool(plane.calls) or plane.failure is not None)

    def _returned(self, messages: list[ck.Message]) -> None:
        """What the application gets now counts as processed when it calls again, and not before."""
        self._offsets.touched = True
        self._noting.returned(messages)

    def _may_process(self) -> bool:
        """Whether records may be handed out; not while somebody else may own what they are of."""
        plane = self._control
        if plane is None or not self._subscribed:
            return True
        return mb.may_process(plane.state, self._polled_at, awake_since=self._awake_since)

    def _kept(self, messages: list[ck.Message]) -> bool:
        """Whether what librdkafka returned may still be handed out. A process that is frozen mostly is while it waits
        there; when it wakes its session may be over. What is not handed out is fetched again, if it is still ours."""
        self._look_at_the_clock(now_ms())
        if self._may_process():
            return True
        self._data.rewind(messages)
        return False

    def _look_at_the_clock(self, now: float) -> None:
        """A sign of life; and a note when this thread was away for so long that others may have taken over."""
        if now - self._polled_at > self._config.session_timeout_ms:
            self._awake_since = now
        self._polled_at = now

    def _stand(self, deadline: float | None) -> None:
        """Nothing is handed out: what librdkafka holds may belong to others by now. The control plane finds out."""
        time.sleep(self._slice(deadline))

    def _slice(self, deadline: float | None) -> float:
        plane = self._control
        busy = plane is not None and self._subscribed and plane.state.phase is not mb.Phase.STABLE
        slice_s = BUSY_SLICE_S if busy else SLICE_S
        return slice_s if deadline is None else max(0.0, min(slice_s, deadline - time.monotonic()))

    # -- what the group wants of the polling thread

    def _serve(self) -> bool:
        """Make the calls that wait, commit when it is time. True when partitions changed hands."""
        now = now_ms()
        if now - self._polled_at > self._pitfalls.slow_ms:
            self._pitfalls.paused(now - self._polled_at, now, self._stuck.where)
        self._look_at_the_clock(now)
        plane = self._control
        if plane is None:
            return False
        self._noting.catch_up(now)
        if plane.failure is not None:
            failure, plane.failure = plane.failure, None
            raise as_kafka_exception(failure)
        changed = bool(plane.calls) and self._make_calls(plane)
        if self._closed:
            return True
        if self._subscribed:
            self._offsets.commit_if_due(plane, now)
        if self._subscribed and plane.state.phase is mb.Phase.EVICTED:
            plane.feed(mb.Polled())
        self._offsets.report()
        self._round.raise_first()
        return changed

    def _make_calls(self, plane: ControlPlane) -> bool:
        if self._serving:  # poll inside a callback: the calls behind it wait
            return False
        changed = False
        self._serving = True
        self._stuck.thread = threading.get_ident()
        try:
            while plane.calls and plane.calls[0].ready:
                pending = plane.calls.popleft()
                changed |= self._round.make(plane, pending)
                if pending.last:
                    self._round.end(plane, pending)
        finally:
            self._serving = False
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
        """Commit a record's successor, a list of offsets, or where the application stands."""
        self._open()
        entries = self._to_commit(message, offsets)
        plane = self._plane()
        if asynchronous:
            self._offsets.commit_later(plane, entries, member=self._subscribed)
            return None
        return self._offsets.commit_now(plane, entries, member=self._subscribed)

    def _to_commit(self, message: ck.Message | None, offsets: list[ck.TopicPartition] | None) -> Entries:
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if message is not None:
            if message.error() is not None:
                raise ck.KafkaException(message.error())
            entries = after(message)
        elif offsets is not None:
            entries = entries_of(offsets)
        else:
            entries = self._offsets.committable(self._data.assigned)
        if not entries:
            raise no_offset()
        self._pitfalls.committed(entries, self._polled_at)
        return entries

    def store_offsets(self, message: ck.Message | None = None, offsets: list[ck.TopicPartition] | None = None) -> None:
        """Keep an offset for the next commit."""
        self._open()
        entries = after(message) if message is not None else entries_of(offsets or [])
        self._offsets.store(entries)
        self._noting.stored(entries)

    def committed(self, partitions: list[ck.TopicPartition], timeout: float | None = None) -> list[ck.TopicPartition]:
        self._open()
        return self._offsets.committed(self._plane(), partitions, timeout)

    # -- assignment and positions

    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        """Take exactly these. Inside on_assign: start where the list says."""
        self._open()
        self._data.replace(self._started_at(partitions))

    def unassign(self) -> None:
        self._open()
        self._data.replace([])

    def incremental_assign(self, partitions: list[ck.TopicPartition]) -> None:
        self._open()
        self._data.take(self._started_at(partitions))

    def incremental_unassign(self, partitions: list[ck.TopicPartition]) -> None:
        self._open()
        self._data.drop(TopicPartition(p.topic, p.partition) for p in partitions)

    def _started_at(self, partitions: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
        """Fill in committed offsets where the user named none, as a group member of librdkafka would."""
        unnamed = [p for p in partitions if p.offset in (ck.OFFSET_INVALID, ck.OFFSET_STORED)]
        if not unnamed:
            return partitions
        reset = RESET[self._config.auto_offset_reset]
        found = {(p.topic, p.partition): p.offset if p.offset >= 0 else reset for p in self.committed(unnamed)}
        return [
            ck.TopicPartition(p.topic, p.partition, found.get((p.topic, p.partition), p.offset)) for p in partitions
        ]

    def assignment(self) -> list[ck.TopicPartition]:
        self._open()
        return self._data.assignment()

    def position(self, partitions: list[ck.TopicPartition]) -> list[ck.TopicPartition]:
        self._open()
        return self._data.position(partitions)

    def seek(self, partition: ck.TopicPartition) -> None:
        self._open()
        self._data.seek(partition)

    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        self._open()
        self._data.pause(partitions)

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        self._open()
        self._data.resume(partitions)

    # -- the cluster

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        self._open()
        return (
            self._data.handle.list_topics(topic, timeout) if topic else self._data.handle.list_topics(timeout=timeout)
        )

    def get_watermark_offsets(
        self, partition: ck.TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        self._open()
        if cached and self._data.arrow is not None:
            seen = self._data.watermarks(TopicPartition(partition.topic, partition.partition))
            return seen or (ck.OFFSET_INVALID, ck.OFFSET_INVALID)
        return self._data.handle.get_watermark_offsets(partition, -1 if timeout is None else timeout, cached)

    def offsets_for_times(
        self, partitions: list[ck.TopicPartition], timeout: float | None = None
    ) -> list[ck.TopicPartition]:
        self._open()
        return list(self._data.handle.offsets_for_times(partitions, -1 if timeout is None else timeout))

    def cluster_id(self, timeout: float = -1) -> str | None:
        self._open()
        return self._data.handle.cluster_id(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self._open()
        self._data.handle.set_sasl_credentials(username, password)

    # -- who we are

    def memberid(self) -> str | None:
        self._open()
        return (self._control.state.membership.member_id or None) if self._control is not None else None

    def consumer_group_metadata(self) -> bytes:
        """What a transactional producer needs to commit in this member's name; librdkafka's own form of it."""
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
        """KIP-429's metrics and what belongs with them, by their Java names; latencies are milliseconds."""
        state = self._control.state if self._control is not None else None
        return self._trace.metrics.snapshot(
            now_ms(),
            assigned=len(self._data.assigned),
            heard_at=state.last_heard_at if state is not None else 0.0,
            lag_max=self._data.lag_max(),
        )

    def metrics_text(self) -> str:
        """The same in Prometheus's form."""
        return prometheus_text(self.metrics(), group=self._config.group, client_id=self._config.client_id)

    # -- the end

    def drain(self, timeout: float = 0.0, reason: str = "drain") -> bool:
        """Ask to hand over everything and leave; go on polling meanwhile. True once we are out of the group.

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

        Inside a callback it is done as soon as the callbacks under way have returned: what they were told comes first.
        """
        if self._closed or self._closing:
            return
        self._closing = True
        if self._serving:
            self._close_asked = True
        else:
            self._close()

    def _close(self) -> None:
        plane = self._control
        try:
            if plane is not None:
                if not plane.closed():
                    plane.feed(mb.Close("the consumer was closed"))
                    self._serve_until(_ended, CLOSE_TIMEOUT_S)
                plane.stop()
        finally:
            self._closed = True
            self._noting.end()
            self._data.close()
            self._trace.close()
        self._round.raise_first()

    def _serve_until(self, done: Callable[[ControlPlane], bool], timeout_s: float) -> None:
        plane = self._plane()
        deadline = time.monotonic() + timeout_s
        while not done(plane) and time.monotonic() < deadline:
            self._polled_at = now_ms()
            if plane.calls:
                self._make_calls(plane)
            time.sleep(BUSY_SLICE_S)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wake(self) -> None:
        """There is something to serve. Whoever waits in slices finds it; called from other threads."""

    def _open(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")

    def _open_data(self, logger: Any) -> DataPlane:
        handle = librdkafka(self._config.librdkafka(), logger=logger)
        return DataPlane(handle, reset=self._config.auto_offset_reset, open_arrow=self._open_arrow)

    def _open_arrow(self) -> ArrowPlane:
        from holdfast.client.arrow import open_arrow  # with what only consume_arrow() needs

        return open_arrow(self._config)

    def _plane(self) -> ControlPlane:
        if self._control is None:
            if self._config.inventions.watchdog:
                watchdog = Watchdog(client_config(self._config.raw).security)
                if self._tokens is not None:
                    self._tokens.tell(watchdog.token)
                self._noting.begin(watchdog, by_position=self._config.auto_commit and self._config.auto_offset_store)
            plane = ControlPlane(
                self._config,
                trace=self._stuck.write,
                last_poll=lambda: self._polled_at,
                watchdog=self._noting.watchdog,
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
        return self._control


def _no_records(include_headers: bool) -> pa.RecordBatch:
    from holdfast.records.arrow import empty_batch

    return empty_batch(include_headers=include_headers)


def _ended(plane: ControlPlane) -> bool:
    """Out of the group, or failed on the way: then no leave will be answered, and all that is left is to be told."""
    failed = plane.state.phase is mb.Phase.FAILED and plane.failure is not None  # told of after what was lost
    return (plane.closed() or failed) and not plane.calls
