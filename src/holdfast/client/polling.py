"""The core of a `Consumer`: one thread polls, librdkafka reads, and consume_arrow() has a fetcher of its own.

poll is quick because most calls do nothing but hand out a record, or wait for one. Two short cuts lead there: after a
record was handed out, while the control plane has no news (`_calm_until`), and while nothing comes at all
(`_idle_until`). Every other call of the application ends both, because it may change what poll hands out.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from holdfast.client.arguments import count_of
from holdfast.client.clock import now_ms
from holdfast.client.cluster_calls import Cluster
from holdfast.client.core import OUTSIDE, ConsumerCore, Life
from holdfast.client.errors import CLOSED, as_kafka_exception
from holdfast.client.partitions import RESET
from holdfast.client.raised import Raised
from holdfast.client.reading.book import Book
from holdfast.client.reading.data_plane import DataPlane
from holdfast.client.reading.librdkafka import open_handle, warm
from holdfast.client.reading.librdkafka_reader import LibrdkafkaReader
from holdfast.client.reading.turns import Turns
from holdfast.client.telemetry.broker_bytes import BrokerBytes
from holdfast.client.telemetry.connections import BrokersSeen, Outage
from holdfast.group import member as mb
from holdfast.model import HoldfastError
from holdfast.net.fetched_bytes import FetchedBytes

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.client.reading.batch_reader import BatchReader

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

SILENT_SLICE_S = 0.06
"""The same after `SILENT_AFTER_MS`: half as many wake-ups again. A call for the listener is then up to 30 ms late, of
partitions that had no record for seconds."""

IDLE_SLICES = 10
"""How many idle slices are waited in a row while nothing changes in the control plane: 0.3 s, and later 0.6, until poll
looks at anything else."""

IDLE_AFTER_MS = 1_000.0
"""How long nothing must have arrived or changed before idle slices are used."""

SILENT_AFTER_MS = 5_000.0
"""The same for silent slices."""

CALM_MS = 10.0
"""How long poll skips serving the group after it last did; only while nothing changes in the control plane."""

FROZEN_MS = 100.0
"""After a wait longer than this, poll checks the membership before it hands out a record: either the wait was an idle
one, or the process was frozen and its session may be over."""

QUIET = OUTSIDE | {mb.Phase.STABLE}
"""Phases without a round under way."""


class PollingCore(ConsumerCore):
    """A consumer whose application polls."""

    def __init__(
        self, config: Mapping[str, Any], *, owner: Callable[[], Any] = lambda: None, logger: Any = None
    ) -> None:
        super().__init__(config, owner=owner, logger=logger)
        self._ready = self._librdkafka.ahead.ready
        """Records taken from librdkafka that poll has not handed out yet."""
        self._calm_until = 0.0
        """Until then poll hands out what is ready without serving the group, unless the control plane has news."""
        self._idle_until = 0.0
        """Until then a poll with timeout 0 asks only librdkafka. Set by a poll that had nothing to do or to return."""
        self._slice_s = BUSY_SLICE_S
        """How long the last wait for a record was to last at most."""

    def _open_data(self, logger: Any) -> DataPlane:
        reset = self._config.auto_offset_reset
        raised, brokers, turns = Raised(), BrokersSeen(Outage(self._config.shown)), Turns()
        fetched = FetchedBytes(self._config.rack)
        placed = BrokerBytes(fetched, self._racks)
        ours = placed.with_our_stats_cb(brokers.with_our_error_cb(self._config.librdkafka()))
        noting = None if logger is None else raised.noting(logger)
        handle = open_handle(raised.guarded(ours), logger=noting)
        self._librdkafka = LibrdkafkaReader(
            handle, Book(), turns=turns, raised=raised, reset=RESET[reset], brokers=brokers
        )
        self._batches: BatchReader | None = None
        """Opened by the first consume_arrow()."""
        return DataPlane(self._librdkafka, reset=reset, turns=turns, fetched=fetched)

    def _racks(self) -> Mapping[int, str | None]:
        """The brokers' racks. confluent-kafka doesn't tell them, so only the control plane knows."""
        return self._link.plane.racks() if self._link.plane is not None else {}

    def _warm(self, topics: Sequence[str]) -> None:
        if self._data.reader is self._librdkafka:
            warm(self._librdkafka.handle, topics)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[Cluster]:
        with self._data.turns.asking():
            yield self._librdkafka.handle

    def _look_at_handle(self) -> None:
        self._librdkafka.raised.raise_first()
        if not self._link.subscribed:  # for a member the control plane reports it
            self._librdkafka.look_for_brokers()

    def check_open(self, says: str = CLOSED) -> None:
        self._calm_until = self._idle_until = 0.0
        super().check_open(says)

    def close(self) -> None:
        self._calm_until = self._idle_until = 0.0
        super().close()

    # -- one record at a time

    def poll(self, timeout: float | None = None) -> ck.Message | None:
        """One record, event or error; None when none came in time. Listener calls are made from here.

        The short cuts are written for speed.
        """
        now = time.monotonic() * 1_000.0
        if timeout == 0 and not self._ready:
            plane = self._link.plane
            if now < self._idle_until and (plane is None or not plane.stirred) and self._librdkafka.idle_poll():
                return None
        elif self._calm_at(now):
            self._polled_at = now
            self._notes.catch_up_one()
            if (self._ready or self._came(timeout)) and (message := self._handed_out()) is not None:
                return message
            if timeout is not None and timeout > 0:
                timeout = max(0.0, timeout - (time.monotonic() - now / 1_000.0))
        return self._polled(timeout)

    def _calm_at(self, now: float) -> bool:
        """Whether the group was served just now and nothing has changed since."""
        if now >= self._calm_until or self._revoking_thread is not None:
            return False
        plane = self._link.plane
        return plane is None or not plane.stirred

    def _came(self, timeout: float | None) -> bool:
        """Wait for one slice. True if a record came that may be handed out; with an error, or after the process was
        frozen, poll takes the long way."""
        wait_s = self._slice_s if timeout is None or timeout < 0 else min(self._slice_s, timeout)
        self._librdkafka.gather(wait_s)
        self._librdkafka.raised.raise_first()
        if self._revoking_thread is not None or time.monotonic() * 1_000.0 - self._polled_at > FROZEN_MS:
            return False
        try:
            return self._ready[0].error() is None
        except IndexError:  # nothing came, or another thread was faster
            return False

    def _polled(self, timeout: float | None) -> ck.Message | None:
        """The long way: serve the group, then wait for a record; again and again until one comes or the time is up."""
        self.check_open()
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        while True:
            if self._serve() and self._life is Life.CLOSED:
                return None  # a callback closed it
            if (news := self._next_error(deadline)) is not None:
                return news
            held_back = not self._may_process() or self._revoking_elsewhere()
            if held_back:
                self._hold_back(deadline)
            elif self._gathered(deadline):
                self._active_at, self._calm_until = self._polled_at, self._calm_end()
                if (message := self._handed_out(self._once_told)) is not None:
                    return message
            if deadline is not None and time.monotonic() >= deadline:
                self._serve()
                if self._life is Life.CLOSED:
                    return None
                news = self._next_error(deadline)
                self._idle_until = 0.0 if held_back or news is not None else self._calm_end()
                return news

    def _gathered(self, deadline: float | None) -> bool:
        """Wait for a record. True when there is one that may be handed out."""
        wait_s = self._slice_s = self._slice(deadline)
        self._data.let_read(self._librdkafka)
        if wait_s < IDLE_SLICE_S:
            self._librdkafka.gather(wait_s)
        else:
            left = IDLE_SLICES if deadline is None else (deadline - time.monotonic()) / wait_s
            self._librdkafka.gather(wait_s, slices=int(min(IDLE_SLICES, left)), calm=self._calm)  # it may be infinite
        self._librdkafka.raised.raise_first()
        if not self._ready or self._revoking_elsewhere():
            return False
        if now_ms() - self._polled_at <= FROZEN_MS:
            return True
        self._polled_at = now_ms()  # the process may have been frozen while it waited: see `_keep_or_rewind`
        return self._may_process()

    def _once_told(self, message: ck.Message) -> bool:
        return bool(self._once([message]))

    def _once(self, came: list[ck.Message]) -> list[ck.Message]:
        """Drop errors that the member has reported already. Not needed once it has joined: then librdkafka no longer
        looks for a coordinator."""
        member = self._link.member
        if member is None or member.state.membership.joined:
            return came
        return self._news.of_librdkafka(came)

    def _calm_end(self) -> float:
        """Until when poll may hand out records without serving the group; at most until the session could end."""
        end = self._polled_at + CALM_MS
        member = self._link.member
        if member is None or not member.state.membership.joined:
            return end
        return min(end, member.state.requests.vouched_at + self._config.session_timeout_ms)

    def _calm(self) -> bool:
        return self._link.plane is None or not self._link.plane.stirred

    def _handed_out(self, wanted: Callable[[ck.Message], bool] | None = None) -> ck.Message | None:
        """The next record. It counts as processed when the application calls again, and not before. None if it is not
        `wanted`, or another thread was faster: it polls too, or has paused or unassigned what was ready."""
        try:
            message = self._ready.popleft()
            self._offsets.touched = True
            if wanted is not None and not wanted(message):
                return None
            self._notes.returned_one(message)
        except IndexError:
            return None
        except BaseException:  # Ctrl-C: the record was taken, and the application does not get it
            self._librdkafka.ahead.put_back()
            raise
        return message

    # -- many

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        """Up to `num_messages` records; fewer when the time is up."""
        if timeout == 0 and not self._ready and self._calm_at(now := now_ms()):
            count_of(num_messages)
            if self._librdkafka.idle_poll():
                self._polled_at = now
                self._notes.catch_up(now)
                return []
        self.check_open()
        enough = count_of(num_messages)
        messages: list[ck.Message] = []
        try:
            news = self._gather(messages, enough, None if timeout < 0 else time.monotonic() + timeout)
            if news is not None:
                return [news]
            if not messages or not self._keep_or_rewind(messages):
                return []
            self._active_at = self._polled_at
            self._returned(messages)
        except BaseException:  # Ctrl-C: what was gathered is read again, and not committed
            self._data.rewind(messages)
            raise
        return messages

    def _gather(self, messages: list[ck.Message], enough: int, deadline: float | None) -> ck.Message | None:
        """Collect up to `enough` records into `messages`. Returns an error to hand out in their place, or None."""
        while True:
            if not messages:
                if self._serve() and self._life is Life.CLOSED:
                    return None
                if enough and (news := self._next_error(deadline)) is not None:
                    return news
            else:
                self._polled_at = now_ms()
                if self._must_serve_first():
                    return None  # the application processes these first, so that the commit at a revoke includes them
            if self._may_process() and not self._revoking_elsewhere():
                self._data.let_read(self._librdkafka)
                before = len(messages)
                self._librdkafka.take_into(messages, enough - before, self._slice(deadline))
                messages[before:] = self._once(messages[before:])
            elif messages:
                return None
            else:
                self._hold_back(deadline)
            if len(messages) >= enough or (deadline is not None and time.monotonic() >= deadline):
                return None

    def _must_serve_first(self) -> bool:
        """Whether something must be served before more records are added to a batch."""
        plane = self._link.plane
        raised = self._librdkafka.raised.first is not None
        return raised or (plane is not None and bool(plane.calls or plane.told or plane.failure))

    def consume_arrow(
        self, max_records: int = MAX_RECORDS, timeout: float = -1, *, include_headers: bool = False
    ) -> pa.RecordBatch:
        """The records at hand as one Arrow batch of at most `max_records` rows; empty when none came in time."""
        self.check_open()
        if not 1 <= max_records <= MOST_RECORDS:
            raise ValueError(f"max_records must be between 1 and {MOST_RECORDS}")
        deadline = None if timeout < 0 else time.monotonic() + timeout
        while True:
            if self._serve() and self._life is Life.CLOSED:
                return _no_records(include_headers)
            self._raise_error()
            if not self._may_process() or self._revoking_elsewhere():
                self._hold_back(deadline)
            else:
                reader = self._arrow_reader()
                stood = reader.stand()
                try:
                    batch = self._arrow_batch(reader, max_records, self._slice(deadline), include_headers)
                    if batch is not None and self._keep_or_rewind(batch):
                        self._active_at = self._polled_at
                        self._offsets.touched = True
                        self._notes.returned_batch(batch.num_rows)
                        return batch
                except ck.KafkaException:
                    raise
                except BaseException:  # Ctrl-C: the application does not get the batch, so it is read again
                    self._data.read_again(partial(reader.read_again, stood))
                    raise
            if deadline is not None and time.monotonic() >= deadline:
                self._serve()
                return _no_records(include_headers)

    def _raise_error(self) -> None:
        """Raise an error that poll would return: this is for a call that can't return one in place of records."""
        if (news := self._next_error(0.0)) is not None and (error := news.error()) is not None:
            raise ck.KafkaException(error)

    def _arrow_reader(self) -> BatchReader:
        """Put the reader of batches in charge."""
        if self._batches is None:
            from holdfast.client.reading.batch_reader import open_batch_reader  # it loads what only this needs

            self._batches = open_batch_reader(self._config, self._data.book, fetched=self._data.fetched)
        self._data.let_read(self._batches)
        return self._batches

    def _arrow_batch(
        self, reader: BatchReader, max_records: int, wait_s: float, include_headers: bool
    ) -> pa.RecordBatch | None:
        self._librdkafka.make_callbacks()
        try:
            batch = reader.take_batch(max_records, include_headers=include_headers)
        except HoldfastError as error:
            raise as_kafka_exception(error) from error
        if batch is None:
            reader.wait(wait_s)
        return batch

    # -- waiting

    def _revoking_elsewhere(self) -> bool:
        """Whether another thread closes, unsubscribes or makes the listener's calls. It commits the positions, so a
        record handed out now would be processed again by the next owner. Inside a callback records are handed out."""
        return self._revoking_thread is not None and self._revoking_thread != threading.get_ident()

    def _hold_back(self, deadline: float | None) -> None:
        """Wait without handing out records: another member may own them by now, and the control plane will find out."""
        time.sleep(self._slice(deadline))

    def _slice(self, deadline: float | None) -> float:
        member = self._link.member
        still_ms = self._polled_at - self._active_at
        idle = still_ms > IDLE_AFTER_MS
        if member is None or member.state.phase in QUIET:
            calm_s = SILENT_SLICE_S if still_ms > SILENT_AFTER_MS else IDLE_SLICE_S
            slice_s = calm_s if idle else SLICE_S
        else:
            slice_s = SLICE_S if idle else BUSY_SLICE_S
        return slice_s if deadline is None else max(0.0, min(slice_s, deadline - time.monotonic()))


def _no_records(include_headers: bool) -> pa.RecordBatch:
    from holdfast.records.arrow import empty_batch

    return empty_batch(include_headers=include_headers)
