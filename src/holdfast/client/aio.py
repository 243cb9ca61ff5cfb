"""`holdfast.AsyncConsumer`: the consumer for asyncio.

    async with AsyncConsumer({"bootstrap.servers": …, "group.id": "billing"}) as consumer:
        consumer.subscribe(["orders"], on_revoke=flush)      # callbacks may be plain or coroutine functions
        async for record in consumer:
            ...

Rules
- Nothing is handed out across an await: a poll that is cancelled, by a timeout or by anybody, loses no record.
- The listener's calls begin in a poll and end whatever becomes of it; the next poll waits for them.
- Heartbeats, rounds and fetching run on a thread that all consumers of a process share: a loop that is busy delays its
  own callbacks and nothing else, until max.poll.interval.ms.
- What needs no answer of anybody (subscribe, seek, pause, …) is done when the call returns, and may be awaited all the
  same: programs written for confluent-kafka's AIOConsumer await everything.

How the group is served is `consumer`'s business; here is only the waiting.
"""

# ruff: noqa: ASYNC109  # confluent-kafka's surface has a timeout with every call, and this one has its surface

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import confluent_kafka as ck

from holdfast.client.aio_core import POOL, Core, on_loop
from holdfast.client.awaited import DONE, Done, Listed
from holdfast.client.consumer import MOST_RECORDS
from holdfast.client.errors import as_kafka_exception
from holdfast.client.listener import Listener, callbacks
from holdfast.model import HoldfastError

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

LOOK_S = 0.25
"""How long a poll waits at a time. Everything it waits for wakes it; looking up now and then tells the group that the
application is there, and makes commits that are due."""

STAND_S = 0.005
"""The same while nothing may be handed out."""

ARROW_RECORDS = 16_384
"""Rows of an Arrow batch unless asked otherwise: they are decoded on the loop, in some 4 ms."""

YIELD_S = 0.01
"""How long records are handed out before the loop gets a turn, although nobody had to wait."""

_inside: ContextVar[object | None] = ContextVar("holdfast_inside", default=None)
"""The consumer whose callback is running: it must not wait for its own callbacks."""


class AsyncConsumer:
    """A member of a consumer group, or a reader of partitions it was given by hand, on an asyncio loop."""

    def __init__(self, config: Mapping[str, Any] | None = None, **more: Any) -> None:
        given = {**(config or {}), **more}
        on_commit = given.get("on_commit")
        if on_commit is not None:
            given["on_commit"] = lambda error, partitions: self._told(on_commit, error, partitions)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._came = asyncio.Event()
        self._signalled = False
        self._serving: asyncio.Future[None] | None = None
        self._starting: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._telling: set[asyncio.Future[Any]] = set()
        self._yielded_at = 0.0
        self._core = Core(given, wake=self._wake)

    # -- subscription

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Callable[..., Any] | None = None,
        on_revoke: Callable[..., Any] | None = None,
        on_lost: Callable[..., Any] | None = None,
        *,
        listener: Listener | None = None,
    ) -> asyncio.Future[None]:
        """Become a member that wants these topics. The next poll waits for it; awaiting this does too."""
        self._open()
        if isinstance(topics, str):
            raise TypeError("expected list of topic unicode strings")
        told = listener or callbacks(on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
        bridged = Listener(
            on_assign=self._bridged(told.on_assign),
            on_revoke=self._bridged(told.on_revoke),
            on_lost=self._bridged(told.on_lost),
        )
        before = self._starting

        async def start() -> None:
            if before is not None:
                await asyncio.wait([before])
            await self._run(lambda: self._core.start(list(topics), bridged))

        self._starting = asyncio.ensure_future(start())
        return self._starting

    async def unsubscribe(self) -> None:
        self._open()
        await self._started()
        await self._run(self._core.unsubscribe)

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        self._open()
        self._core.enforce_rebalance(reason)

    # -- records

    async def poll(self, timeout: float | None = None) -> ck.Message | None:
        """One record; None when none came in time."""

        def take() -> ck.Message | None:
            if not self._core.rows.ready(1):
                return None
            (message,) = self._core.rows.rows(1)
            self._core.returned([message])
            return message

        return await self._until(take, timeout)

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        """Up to so many records; fewer when the time is up."""
        if not 0 <= num_messages <= 1_000_000:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")

        def take(enough: int) -> list[ck.Message] | None:
            if self._core.rows.ready(num_messages) < enough:
                return None
            messages = self._core.rows.rows(self._core.rows.ready(num_messages))
            self._core.returned(messages)
            return messages

        found = await self._until(lambda: take(num_messages), timeout)
        if found is None and not self._core.closed and self._core.may_process():
            found = take(1)  # the time is up: what is there by now
        return found or []

    async def consume_arrow(
        self, max_records: int = ARROW_RECORDS, timeout: float = -1, *, include_headers: bool = False
    ) -> pa.RecordBatch:
        """What is there, as one Arrow batch of at most so many rows; an empty one when nothing came in time."""
        if not 1 <= max_records <= MOST_RECORDS:
            raise ValueError(f"max_records must be between 1 and {MOST_RECORDS}")

        def take() -> pa.RecordBatch | None:
            batch = self._core.rows.take(max_records, include_headers=include_headers)
            if batch is not None:
                self._core.returned_batch(batch.num_rows)
            return batch

        found = await self._until(take, timeout)
        if found is None:
            from holdfast.records.arrow import empty_batch

            return empty_batch(include_headers=include_headers)
        return found

    def __aiter__(self) -> AsyncIterator[ck.Message]:
        return self

    async def __anext__(self) -> ck.Message:
        """The next record, however long it takes. Ends when the consumer is closed."""
        while not self._core.closed:
            message = await self.poll()
            if message is not None:
                return message
        raise StopAsyncIteration

    async def _until(self, take: Callable[[], T | None], timeout: float | None) -> T | None:
        """Serve the group and take, again and again, until something was taken or the time is up."""
        loop = self._open()
        deadline = None if timeout is None or timeout < 0 else loop.time() + timeout
        if loop.time() - self._yielded_at > YIELD_S:
            await asyncio.sleep(0)
            self._yielded_at = loop.time()
        while True:
            self._came.clear()
            await self._serve()
            if self._closing is not None and _inside.get() is not self:
                # What is read now would be behind what the last revoke commits: somebody else reads it.
                await asyncio.wait([self._closing])
            if self._core.closed:
                return None
            stands = not self._core.may_process()
            try:
                found = None if stands else take()
            except HoldfastError as error:
                raise as_kafka_exception(error) from error
            if found is not None:
                return found
            left = LOOK_S if deadline is None else deadline - loop.time()
            if left <= 0:
                return None
            await self._wait(min(left, STAND_S if stands else LOOK_S))
            self._yielded_at = loop.time()

    # -- waiting, and being waited for

    def _open(self) -> asyncio.AbstractEventLoop:
        if self._core.closed:
            raise RuntimeError("Consumer closed")
        running = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = running
            self._core.loop_thread = threading.get_ident()
        if self._loop is not running:
            raise RuntimeError("this consumer belongs to another event loop")
        return running

    def _wake(self) -> None:
        """From any thread: whoever waits looks again. Many calls in a row are one."""
        if self._loop is None or self._signalled:
            return
        self._signalled = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._signalled = False
        self._came.set()

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._came.wait()

    async def _run(self, work: Callable[[], T]) -> T:
        """On a thread of the pool. It goes on when whoever waits for it gives up."""
        return await asyncio.shield(self._open().run_in_executor(POOL, work))

    async def _started(self) -> None:
        if self._starting is not None:
            starting = self._starting
            await asyncio.shield(starting)
            if self._starting is starting:
                self._starting = None

    async def _serve(self) -> None:
        """Make the listener's calls that wait, and what else a poll does for the group."""
        if _inside.get() is self:
            return
        if self._starting is not None:
            await self._started()
        while self._serving is not None or self._core.calls_wait:
            if self._serving is None:
                self._serving = self._open().run_in_executor(POOL, self._core.make_calls)
            serving = self._serving
            try:
                await asyncio.shield(serving)
            finally:
                if serving.done() and self._serving is serving:
                    self._serving = None
        if not self._core.closed:
            self._core.serve()

    def _bridged(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """The application's callback, made on its loop while a thread of the pool waits."""

        async def call(partitions: list[ck.TopicPartition]) -> None:
            token = _inside.set(self)
            try:
                result = callback(self, partitions)
                if inspect.isawaitable(result):
                    await result
            finally:
                _inside.reset(token)

        def made(_core: Any, partitions: list[ck.TopicPartition]) -> None:
            assert self._loop is not None
            on_loop(self._loop, call(partitions))

        return made

    def _told(self, on_commit: Callable[..., Any], error: Any, partitions: list[ck.TopicPartition]) -> None:
        """on_commit is called from a poll, on the loop; a coroutine goes on by itself."""
        result = on_commit(error, partitions)
        if inspect.isawaitable(result):
            future = asyncio.ensure_future(result)
            self._telling.add(future)
            future.add_done_callback(self._telling.discard)

    # -- offsets

    async def commit(
        self,
        message: ck.Message | None = None,
        offsets: list[ck.TopicPartition] | None = None,
        asynchronous: bool = False,
    ) -> list[ck.TopicPartition] | None:
        """Commit a record's successor, a list of offsets, or where the application stands.

        Waits for the coordinator's answer, while other tasks go on; `asynchronous` leaves that to on_commit.
        """
        self._open()
        await self._started()
        if asynchronous:
            return self._core.commit(message, offsets, asynchronous=True)
        entries = self._core.to_commit(message, offsets)
        try:
            answer = await asyncio.wrap_future(self._core.submit_commit(entries))
        except HoldfastError as error:
            raise as_kafka_exception(error) from None
        return self._core.settled(entries, answer)

    def store_offsets(self, message: ck.Message | None = None, offsets: list[ck.TopicPartition] | None = None) -> Done:
        """Keep an offset for the next commit."""
        self._core.store_offsets(message, offsets)
        return DONE

    async def committed(
        self, partitions: list[ck.TopicPartition], timeout: float | None = None
    ) -> list[ck.TopicPartition]:
        return await self._run(lambda: self._core.committed(partitions, timeout))

    # -- assignment and positions

    async def assign(self, partitions: list[ck.TopicPartition]) -> None:
        """Take exactly these, from the offsets they name or else from the committed ones."""
        self._open()
        await self._named(partitions, self._core.assign)

    async def incremental_assign(self, partitions: list[ck.TopicPartition]) -> None:
        self._open()
        await self._named(partitions, self._core.incremental_assign)

    async def _named(
        self, partitions: list[ck.TopicPartition], take: Callable[[list[ck.TopicPartition]], None]
    ) -> None:
        if any(p.offset in (ck.OFFSET_INVALID, ck.OFFSET_STORED) for p in partitions):
            await self._run(lambda: take(partitions))
        else:
            take(partitions)

    def unassign(self) -> Done:
        self._open()
        self._core.unassign()
        return DONE

    def incremental_unassign(self, partitions: list[ck.TopicPartition]) -> Done:
        self._open()
        self._core.incremental_unassign(partitions)
        return DONE

    def assignment(self) -> Listed:
        return Listed(self._core.assignment())

    def position(self, partitions: list[ck.TopicPartition]) -> Listed:
        return Listed(self._core.position(partitions))

    def seek(self, partition: ck.TopicPartition) -> Done:
        self._core.seek(partition)
        return DONE

    def pause(self, partitions: Iterable[ck.TopicPartition]) -> Done:
        self._core.pause(list(partitions))
        return DONE

    def resume(self, partitions: Iterable[ck.TopicPartition]) -> Done:
        self._core.resume(list(partitions))
        return DONE

    # -- the cluster

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        return await self._run(lambda: self._core.list_topics(topic, timeout))

    async def get_watermark_offsets(
        self, partition: ck.TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        return await self._run(lambda: self._core.get_watermark_offsets(partition, timeout, cached))

    async def offsets_for_times(
        self, partitions: list[ck.TopicPartition], timeout: float | None = None
    ) -> list[ck.TopicPartition]:
        return await self._run(lambda: self._core.offsets_for_times(partitions, timeout))

    async def cluster_id(self, timeout: float = -1) -> str | None:
        return await self._run(lambda: self._core.cluster_id(timeout))

    # -- who we are

    def memberid(self) -> str | None:
        return self._core.memberid()

    def consumer_group_metadata(self) -> bytes:
        return self._core.consumer_group_metadata()

    def metrics(self) -> dict[str, float]:
        return self._core.metrics()

    def metrics_text(self) -> str:
        return self._core.metrics_text()

    # -- the end

    async def drain(self, timeout: float = 0.0, reason: str = "drain") -> bool:
        """Ask to hand over everything and leave; go on polling meanwhile. True once we are out of the group.

        With a timeout this waits and makes the listener's calls, but returns no records.
        """
        loop = self._open()
        await self._started()
        self._core.start_draining(reason)
        deadline = loop.time() + timeout
        while not self._core.out() and loop.time() < deadline:
            self._came.clear()
            await self._serve()
            await self._wait(min(LOOK_S, max(0.0, deadline - loop.time())))
        return self._core.out()

    async def close(self) -> None:
        """Revoke, commit (if so configured), leave. A second close waits for the first."""
        if self._core.closed:
            return
        loop = self._open()
        if _inside.get() is self:
            self._core.close()  # it is done as soon as the callbacks under way have returned
            return
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._shut(loop))
        await asyncio.shield(self._closing)

    async def _shut(self, loop: asyncio.AbstractEventLoop) -> None:
        for under_way in (self._starting, self._serving):
            if under_way is not None:
                await asyncio.wait([under_way])
        try:
            await loop.run_in_executor(POOL, self._core.close)
        finally:
            self._came.set()  # whoever waits for records hears that there are none

    async def __aenter__(self) -> AsyncConsumer:
        self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
