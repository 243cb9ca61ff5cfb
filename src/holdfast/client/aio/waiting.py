"""The asyncio side of an `AsyncConsumer`: how its calls wait on the application's loop for `core.Core`.

Rules
- No record is handed out across an await. So a cancelled poll, whatever cancelled it, loses no record.
- A poll starts callbacks. They run to their end even if the poll is cancelled, and the next poll waits for them. For a
  listener's callback a thread of the pool waits while the loop runs it; callbacks of the configuration (error_cb, …)
  are made by the loop alone.
- If a callback of the configuration raises, the poll that made it raises.

How the group is served is up to `core`.
"""

# ruff: noqa: ASYNC109  # a drop-in for confluent-kafka's AIOConsumer, whose methods take a timeout

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar

import confluent_kafka as ck

from holdfast.client.aio import pools
from holdfast.client.aio.callbacks import LoopCallbacks
from holdfast.client.aio.core import Core
from holdfast.client.aio.ready_results import Begun
from holdfast.client.aio.waking import Waker, waker_of
from holdfast.client.errors import CLOSED, as_kafka_exception
from holdfast.client.member.listener import Listener
from holdfast.client.partition_calls import Starts
from holdfast.model import HoldfastError

T = TypeVar("T")

LOOK_S = 0.25
"""How long a poll waits at a time. Whatever it waits for wakes it. It wakes by itself as well, to show that the
application is alive and to make commits that are due."""

HELD_BACK_S = 0.005
"""The same while nothing may be handed out."""

YIELD_S = 0.01
"""How long polls may return records without waiting before one of them lets the loop run other tasks."""


class Waiting:
    """One consumer on one loop. `owner` returns the object that callbacks get as their consumer."""

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        owner: Callable[[], Any],
        max_workers: int | None = None,
        executor: Executor | None = None,
    ) -> None:
        if executor is None and max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        own = executor is None and max_workers is not None
        self._own_pool = ThreadPoolExecutor(max_workers, "holdfast-aio-own") if own else None
        self.executor: Executor = executor or self._own_pool or pools.ASKERS
        """Runs blocking questions to the cluster. Callbacks have threads of their own: see `pools`."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waker = Waker()
        self._came = asyncio.Event()
        """Set when there is something to look at; what waits for records waits for this."""
        self._signalled = False
        """Whether the loop has been asked to set it, and has not done so yet."""
        # Work that goes on even if its caller stops waiting. Each is None if nothing of its kind is under way.
        self._starting: Begun | None = None
        """The last subscribe."""
        self._serving: asyncio.Future[None] | None = None
        """The listener's calls that are being made, by a poll or by an unsubscribe."""
        self._unsubscribing: asyncio.Future[None] | None = None
        """The last unsubscribe."""
        self._telling: asyncio.Future[None] | None = None
        """Callbacks of the configuration that are being made."""
        self._closing: Begun | None = None
        """The close. A callback may have begun it."""
        self._yielded_at = 0.0
        """When a poll last let the loop run other tasks."""
        self.core = Core(config, wake=self._wake)
        self._callbacks = LoopCallbacks(self.core, owner)

    # -- subscription

    def subscribe(self, topics: list[str], told: Listener, *, then: Callable[[], None]) -> Begun:
        """Subscribe; `then` is called when that has succeeded. A refused subscription leaves the old one in place."""
        self.open()
        bridged = self._callbacks.bridged(told)
        before = self._starting

        async def start() -> None:
            if before is not None:
                await asyncio.wait([before.work])
            # Not inside a callback: on_revoke may subscribe, and must not wait for itself.
            if self._unsubscribing is not None and not self._callbacks.inside:
                await asyncio.wait([self._unsubscribing])
            await self._on_pool(begin)

        def begin() -> None:
            self.core.start(topics, bridged)
            then()

        self._starting = Begun(asyncio.ensure_future(start()))
        return self._starting

    async def unsubscribe(self) -> None:
        loop = self.open()
        await self._started()
        if self._callbacks.inside:
            # In a listener's callback the revoke comes after it. Otherwise it is made now, and calls the listener.
            await self._on_pool(self.core.unsubscribe, pools.ASKERS if self.core.serving else pools.CALLERS)
            return
        while self._serving is not None:  # unsubscribing makes listener's calls too, and only one may do so at a time
            await self._served()
        self._serving = self._unsubscribing = loop.run_in_executor(pools.CALLERS, self.core.unsubscribe)
        await self._served()

    # -- records

    async def until(
        self, take: Callable[[], T | None], timeout: float | None, tell: Callable[[ck.Message], T] | None = None
    ) -> T | None:
        """Serve the group and call `take`, repeatedly, until it returns something or the time is up.

        `tell` turns an error event into a result; without it the error is raised.
        """
        loop = self.open()
        deadline = None if timeout is None or timeout < 0 else loop.time() + timeout
        if loop.time() - self._yielded_at > YIELD_S:
            await asyncio.sleep(0)
            self._yielded_at = loop.time()
        while True:
            self._came.clear()
            await self._serve()
            if self._closing is not None and not self._callbacks.inside:
                # A record handed out now would be processed twice: the last revoke commits without it.
                await self._wait_for_close(self._closing)
            if self.core.closed:
                return None
            if (news := self.core.news()) is not None:
                if tell is None:
                    raise ck.KafkaException(news.error())
                return tell(news)
            held_back = not self.core.may_process()
            try:
                found = None if held_back else take()
            except HoldfastError as error:
                raise as_kafka_exception(error) from error
            if found is not None:
                return found
            left = LOOK_S if deadline is None else deadline - loop.time()
            if left <= 0:
                return None
            await self._wait(min(left, HELD_BACK_S if held_back else LOOK_S, max(0.0, self.core.statistics.due_in_s())))
            self._yielded_at = loop.time()

    # -- waiting, and being waited for

    def open(self) -> asyncio.AbstractEventLoop:
        """The running loop. Raises if the consumer is closed, or belongs to another loop that still runs."""
        if self.core.closed:
            raise RuntimeError(CLOSED)
        running = asyncio.get_running_loop()
        if self._loop is not running:
            if self._loop is not None and self._loop.is_running():
                raise RuntimeError("this consumer belongs to another event loop")
            self._move_to(running)
        return running

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use this loop: the first one, or another after the old one has ended. What waited on the old one is
        forgotten; a thread of the pool may still be at work for it, which `core` keeps track of."""
        self._loop = loop
        self._waker = waker_of(loop)
        self.core.move_to(loop)
        self._came = asyncio.Event()
        self._signalled = False
        self._starting = self._serving = self._unsubscribing = self._telling = self._closing = None
        self._callbacks.move_to(loop)

    def _wake(self) -> None:
        """From any thread: wake waiting calls. Calls before the loop gets to it count as one."""
        if self._loop is None or self._signalled:
            return
        self._signalled = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._waker.wake(self._loop, self._look)

    def _look(self) -> None:
        self._signalled = False
        self._came.set()

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._came.wait()

    async def run(self, work: Callable[..., T], *args: Any, **options: Any) -> T:
        """Run it on a thread of the executor. It is not stopped when the caller is cancelled."""
        return await asyncio.shield(self.open().run_in_executor(self.executor, lambda: work(*args, **options)))

    async def _on_pool(self, work: Callable[[], T], pool: pools.Pool | None = None) -> T:
        """The same on a pool of ours: a full executor of the application's must not hold it up."""
        return await asyncio.shield(self.open().run_in_executor(pool or pools.ASKERS, work))

    async def _started(self) -> None:
        """Wait for a subscription under way. If it is refused and nobody awaits it, this raises the reason."""
        starting = self._starting
        if starting is None:
            return
        await asyncio.wait([starting.work])
        if self._starting is starting:
            self._starting = None
            if not starting.awaited:
                _raise_from(starting.work)

    async def _serve(self) -> None:
        """Make the callbacks that are due, and do what else a poll does for the group."""
        if self._callbacks.inside:
            return
        if self._closing is not None:  # the close makes the last calls
            await self._wait_for_close(self._closing)
            return
        if self._starting is not None:
            await self._started()
        while True:
            await self._make_calls()
            if not self.core.closed:
                self.core.serve()
            if not self.core.to_call and self._telling is None:
                return
            await self._tell()
            if self._serving is None:  # otherwise another task started calls, which may revoke what we would hand out
                return

    async def _make_calls(self) -> None:
        while self._serving is not None or self.core.calls_wait:
            if self._serving is None:
                last = self.core.take_quiet_calls()
                if last is not None:
                    self._serving = self._callbacks.begin_quietly(last)
                else:
                    self._serving = self.open().run_in_executor(pools.CALLERS, self.core.make_calls)
            await self._served()

    async def _served(self) -> None:
        """Wait for the calls under way. They are not stopped when the caller is cancelled."""
        serving = self._serving
        if serving is not None:
            await asyncio.wait([serving])
            if self._serving is serving:
                self._serving = None
                _raise_from(serving)

    async def _tell(self) -> None:
        """Make the callbacks of the configuration that are due, one after the other."""
        if self._telling is None:
            self._telling = asyncio.ensure_future(self._callbacks.tell_all())
        telling = self._telling
        await asyncio.wait([telling])
        if self._telling is telling:
            self._telling = None
            _raise_from(telling)

    # -- offsets

    async def commit(
        self,
        message: ck.Message | None,
        offsets: list[ck.TopicPartition] | None,
        asynchronous: bool | None,
    ) -> list[ck.TopicPartition] | None:
        self.open()
        await self._started()
        if asynchronous:
            return self.core.offsets.commit(message, offsets, asynchronous=True)
        try:
            entries, sent = self.core.offsets.begin_commit(message, offsets)
        except ck.KafkaException as error:
            if asynchronous is None and error.args[0].code() == ck.KafkaError._NO_OFFSET:
                return None  # nothing to commit, which is an error only for an explicit asynchronous=False
            raise
        try:
            # A cancelled caller does not stop the commit: it goes on, and its outcome is recorded.
            answer = await asyncio.shield(asyncio.wrap_future(sent))
        except HoldfastError as error:
            raise as_kafka_exception(error) from None
        return self.core.offsets.settled(entries, answer)

    async def with_starts(
        self, partitions: list[ck.TopicPartition], take: Callable[[list[ck.TopicPartition], Starts], None]
    ) -> None:
        """Call `take` with these partitions and the committed offsets of those that name none. Only the question runs
        on a thread: what is read may change on the loop alone, because a poll may be handing it out."""
        self.open()
        if not self.core.warm:  # otherwise the first record would compile the decoder on the application's loop
            await self._on_pool(self.core.warm_up)
        unasked = self.core.partitions.unasked(partitions)
        take(partitions, await self._on_pool(lambda: self.core.offsets.ask(unasked)) if unasked else {})

    # -- the end

    async def drain(self, timeout: float, reason: str) -> bool:
        loop = self.open()
        await self._started()
        self.core.start_draining(reason)
        deadline = loop.time() + timeout
        while not self.core.out() and loop.time() < deadline and not self._callbacks.inside:
            self._came.clear()
            await self._serve()
            await self._wait(min(LOOK_S, max(0.0, deadline - loop.time())))
        return self.core.out()

    async def close(self) -> None:
        while not self.core.closed:
            loop = self.open()
            closing = self._closing
            if closing is None or closing.done():  # done without being closed: its task was cancelled
                closing = self._closing = Begun(asyncio.ensure_future(self._close_core(loop)))
            if self._callbacks.inside:  # it is done when the callbacks under way have returned
                return
            try:
                await closing
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not closing.work.cancelled() or (task is not None and task.cancelling()):
                    raise  # we were cancelled ourselves
            else:
                return

    async def _wait_for_close(self, closing: Begun) -> None:
        """Wait for a close. If nobody awaits it (a callback asked for it), this raises what it raised."""
        await asyncio.wait([closing.work])
        if not closing.awaited:
            closing.awaited = True
            _raise_from(closing.work)

    def _under_way(self) -> list[asyncio.Future[None]]:
        starting = None if self._starting is None else self._starting.work
        return [one for one in (starting, self._serving, self._telling) if one is not None and not one.done()]

    async def _close_core(self, loop: asyncio.AbstractEventLoop) -> None:
        while under_way := self._under_way():
            await asyncio.wait(under_way)
        try:
            await loop.run_in_executor(pools.CALLERS, self.core.close)
            while not self.core.closed:  # an earlier close, cancelled here, still runs on its thread
                self._came.clear()
                await self._wait(HELD_BACK_S)
        finally:
            self._came.set()  # wake calls that wait for records: there will be none
            if self._own_pool is not None:
                self._own_pool.shutdown(wait=False)
            await self._callbacks.tell_all()  # on_commit for the last commits, also when a callback raised


def _raise_from(ended: asyncio.Future[None]) -> None:
    """Raise what this raised. If it was cancelled (only code that cancels all tasks does that), raise nothing: the
    caller must not look cancelled itself."""
    if not ended.cancelled():
        ended.result()
