"""The consumer under an `AsyncConsumer`: `core.ConsumerCore` without threads or processes of its own.

Its control plane and its fetcher run on the shared engine. There is no librdkafka, and no watchdog unless configured.
The listener's calls are made on a thread of a small pool, which waits while the application's loop runs the callback.
So a callback may be a coroutine, and the code around a callback is written once, in `core`.

The callbacks of the configuration (error_cb, stats_cb, …) are queued in `to_call`; the next poll makes them, on the
loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from holdfast.client.aio.cluster_answers import ClusterAnswers
from holdfast.client.aio.key_check import check_keys
from holdfast.client.aio.oauth import KeptToken, wants_token
from holdfast.client.aio.statistics import Statistics
from holdfast.client.clock import now_ms
from holdfast.client.cluster_calls import Cluster
from holdfast.client.config.keys import boolean
from holdfast.client.core import ConsumerCore, Life
from holdfast.client.member import engine as engines
from holdfast.client.member.control import ControlPlane
from holdfast.client.member.listener import Listener
from holdfast.client.member.pending_calls import PendingCall, quiet_calls
from holdfast.client.reading.batch_reader import open_batch_reader
from holdfast.client.reading.book import Book
from holdfast.client.reading.data_plane import DataPlane
from holdfast.client.telemetry.connections import Health, OncePerMinute
from holdfast.group import member as mb
from holdfast.net.fetched_bytes import FetchedBytes

if TYPE_CHECKING:
    import pyarrow as pa

Owed = tuple[Callable[..., Any], tuple[Any, ...]]
"""A callback and its arguments."""

MOST_NEWS = 1_000
"""How much news (errors, statistics, throttling) is kept for an application that does not poll. The oldest is dropped:
the newest matters most."""


class Queued:
    """Callbacks of the configuration for the next poll to make, with their arguments. From any thread.

    Each commit has its outcome, and the application counts on hearing it: only news is bounded.
    """

    def __init__(self) -> None:
        self._outcomes: deque[Owed] = deque()
        self._news: deque[Owed] = deque(maxlen=MOST_NEWS)

    def __len__(self) -> int:
        return len(self._outcomes) + len(self._news)

    def outcome(self, callback: Callable[..., Any], *given: Any) -> None:
        self._outcomes.append((callback, given))

    def news(self, callback: Callable[..., Any], *given: Any) -> None:
        self._news.append((callback, given))

    def next(self) -> Owed:
        """To be called where there is one."""
        return (self._outcomes or self._news).popleft()


class Core(ConsumerCore):
    """A consumer without librdkafka, on the engine. `wake` is called from other threads when there is work."""

    def __init__(self, config: Mapping[str, Any], *, wake: Callable[[], None]) -> None:
        self._on_wake = wake
        self._loop_thread: threading.Thread | None = None
        """The thread of the application's loop, which must not block for callbacks that run on it. The object, not
        its number: a new thread may get the number of one that has ended."""
        self.warm = False
        """Whether records can be decoded without loading anything first."""
        self.to_call = Queued()
        given = {"holdfast.watchdog": False, **config}
        self._logger = given.pop("logger", None)
        self._log = OncePerMinute()
        self._error_cb: Callable[..., Any] | None = given.get("error_cb")
        self._throttle_cb: Callable[..., Any] | None = given.get("throttle_cb")
        on_commit = given.get("on_commit")
        if callable(on_commit):
            given["on_commit"] = lambda error, partitions: self.to_call.outcome(on_commit, error, partitions)
        stats_cb = given.pop("stats_cb") if callable(given.get("stats_cb")) else None
        self._kept_token = kept = KeptToken(given["oauth_cb"], given) if wants_token(given) else None
        if kept is not None:
            given["oauth_cb"] = kept
        super().__init__(given)
        self._health = Health(self.tell, self.reader.addresses)
        self.reader.watch(self._health.heard)
        self.statistics = Statistics(self, self._config, self._health, stats_cb)
        if kept is not None and self._engine is not None:
            kept.keep(self._engine)

    def _open_data(self, logger: Any) -> DataPlane:
        check_keys(self._config.librdkafka())
        fetched = FetchedBytes(self._config.rack)
        self.reader = open_batch_reader(
            self._config,
            Book(),
            tell_ends=boolean(self._config.raw, "enable.partition.eof", default=False),
            wake=self._wake,
            throttled=self._throttled,
            tell=self.tell,
            in_statistics=True,
            fetched=fetched,
        )
        self._engine = engines.acquire()
        self._answers = ClusterAnswers(self._engine, self._config.raw)
        return DataPlane(self.reader, reset=self._config.auto_offset_reset, fetched=fetched)

    def _wake(self) -> None:
        self._on_wake()

    def _asking(self) -> AbstractContextManager[Cluster]:
        return nullcontext(self._answers)  # not librdkafka: many threads may ask at once

    # -- what the application is told beside records

    def tell(self, error: ck.KafkaError) -> bool:
        """Report an error of the whole client to error_cb, or else to the log. From any thread. False if there is no
        error_cb."""
        if self._logger is not None:
            self.to_call.news(self._logger.log, logging.ERROR, "%s", error.str())
        if self._error_cb is not None:
            self.to_call.news(self._error_cb, error)
        elif self._logger is None:
            self._log.warn(f"{self._config.client_id}: {error.str()}")
        self._wake()
        return self._error_cb is not None

    def _throttled(self, node: int, milliseconds: int) -> None:
        if self._throttle_cb is not None:
            event = ck.ThrottleEvent(self.reader.broker_name(node), node, milliseconds / 1_000.0)
            self.to_call.news(self._throttle_cb, event)
            self._wake()

    # -- what AsyncConsumer asks

    @property
    def closed(self) -> bool:
        return self._life is Life.CLOSED

    @property
    def serving(self) -> bool:
        """Whether the listener is being called."""
        return self._serving

    @property
    def calls_wait(self) -> bool:
        plane = self._link.plane
        return plane is not None and bool(plane.calls) and plane.calls[0].ready and not self._serving

    @property
    def on_loop_thread(self) -> bool:
        """Whether this is the thread of the application's loop."""
        return threading.current_thread() is self._loop_thread

    def move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """The application's loop is this one from now on, on this thread."""
        self._loop_thread = threading.current_thread()
        if self._kept_token is not None:
            self._kept_token.move_to(loop)

    def start(self, topics: list[str], listener: Listener) -> None:
        """Subscribe, and load what decoding the first record needs. On a thread of the pool."""
        self.subscribe(topics, listener)
        self.warm_up()

    def warm_up(self) -> None:
        """Load the decoder. On a thread of the pool: once per machine it is compiled, which takes some seconds."""
        from holdfast.records.arrow import warm_up

        warm_up()
        self.warm = True

    def take_quiet_calls(self) -> PendingCall | None:
        """If the next calls belong to a round that changed nothing for us, make them. Returns the last one, for
        `end_quiet_calls`; None if there are none.

        Called on the application's loop. Nothing in these calls blocks except the listener, which `Waiting` awaits. In
        a large group most members' calls are of this kind, and a thread for each would take most of a round.
        """
        plane = self._link.plane
        if plane is None or self._serving or not (round_calls := quiet_calls(plane.calls)):
            return None
        self._serving = True
        for _ in range(round_calls):
            pending = plane.calls.popleft()
            self._round.make(plane, pending)
        self._round.adding = {}  # the listener is called after this, and counts as inside on_assign until it returns
        return pending

    def end_quiet_calls(self, last: PendingCall, raised: BaseException | None) -> None:
        """The listener has returned."""
        self._round.adding, self._round.replaced = None, False
        try:
            if raised is not None:
                self._round.raised.remember(raised)
            if self._link.plane is not None:
                self._round.end(self._link.plane, last)
        finally:
            self._serving = False

    def make_calls(self) -> None:
        """Make the listener's calls that are due. On a thread of the pool."""
        if self._link.plane is not None:
            self._called(now_ms())
            self._make_calls(self._link.plane)

    def serve(self) -> None:
        """Everything else that a poll does. Does not wait."""
        self._serve()
        self.statistics.tell_if_due(self.to_call.news)

    def _make_calls(self, plane: ControlPlane) -> bool:
        if self.on_loop_thread:
            return False
        changed = super()._make_calls(plane)
        if self._loop_thread is not None:
            self._polling_stack.thread = self._loop_thread.ident  # the application's loop is what may hang
        return changed

    def news(self) -> ck.Message | None:
        """The next error that was not reported yet; a fatal one is returned once a second.

        A failed login was reported to error_cb already, so it is returned only if there is none.
        """
        found = self._next_error(None)
        while found is not None and self._error_cb is not None and _code(found) == ck.KafkaError._AUTHENTICATION:
            found = self._next_error(None)
        return found

    def may_process(self) -> bool:
        return self._may_process()

    def hand_out(self, taken: list[ck.Message] | pa.RecordBatch) -> bool:
        """Hand these records out if that is still allowed, else have them read again. True if they are handed out."""
        if not self._keep_or_rewind(taken):
            return False
        if isinstance(taken, list):
            self._returned(taken)
        else:
            self._offsets.touched = True
            self._notes.returned_batch(taken.num_rows)
        return True

    def joined(self) -> bool:
        phase = mb.Phase.UNSUBSCRIBED if self._link.plane is None else self._link.plane.state.phase
        return phase not in (mb.Phase.UNSUBSCRIBED, mb.Phase.CLOSED)

    def start_draining(self, reason: str) -> None:
        self.drain(0.0, reason)

    def out(self) -> bool:
        return self._link.plane is not None and self._link.plane.closed()

    def _close(self) -> None:
        try:
            super()._close()
        finally:
            self._release_engine()

    def _close_data(self) -> None:
        super()._close_data()
        self._release_engine()

    def _release_engine(self) -> None:
        if self._engine is not None:
            if self._kept_token is not None:
                self._kept_token.end()
            self._answers.shut()
            engines.release(self._engine)
            self._engine = None


def _code(message: ck.Message) -> int:
    error = message.error()
    return 0 if error is None else error.code()
