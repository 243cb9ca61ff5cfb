"""The waiting of an `AsyncConsumer`: one consumer's core on an asyncio loop.

Rules
- Nothing is handed out across an await: a poll that is cancelled, by a timeout or by anybody, loses no record.
- Callbacks begin in a poll and end whatever becomes of it; the next poll waits for them. The listener's are made on a
  thread of the pool that waits for the loop, those of the configuration (error_cb, …) on the loop itself.
- What a callback of the configuration raises comes out of the poll that made it.

How the group is served is `core`'s business.
"""

# ruff: noqa: ASYNC109  # confluent-kafka's surface has a timeout with every call, and this one has its surface

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

import confluent_kafka as ck

from holdfast.client.aio_core import POOL, Core, on_loop
from holdfast.client.awaited import Begun
from holdfast.client.control import PendingCall
from holdfast.client.core import CLOSED
from holdfast.client.errors import as_kafka_exception
from holdfast.client.listener import Listener
from holdfast.client.waking import Waker, waker_of
from holdfast.model import HoldfastError

T = TypeVar("T")
Owed = list[tuple[Callable[..., Any], tuple[Any, ...]]]

LOOK_S = 0.25
"""How long a poll waits at a time. Everything it waits for wakes it; looking up now and then tells the group that the
application is there, and makes commits that are due."""

STAND_S = 0.005
"""The same while nothing may be handed out."""

YIELD_S = 0.01
"""How long records are handed out before the loop gets a turn, although nobody had to wait."""


class _Callback:
    """A callback under way, and whose it is. The tasks that it makes inherit it and live on when it has returned."""

    __slots__ = ("of", "running")

    def __init__(self, of: Waiting) -> None:
        self.of = of
        self.running = True


_callback: ContextVar[_Callback | None] = ContextVar("holdfast_callback", default=None)
"""The callback that runs, or that made the task that runs: until it has returned nobody in it may wait for it."""


class Waiting:
    """One consumer on one loop. `owner` gives what callbacks get as their consumer."""

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
        self.executor: Executor = executor or self._own_pool or POOL
        """Where questions wait that block. Never where callbacks wait: a full one must not bring them to a halt."""
        self._owner = owner
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waker = Waker()
        self._owed: Owed = []
        """Callbacks of a round that changed nothing, to be made on the loop."""
        self._quiet: PendingCall | None = None
        """The last call of such a round, from when its callbacks are begun until they have ended."""
        self._came = asyncio.Event()
        self._signalled = False
        self._serving: asyncio.Future[None] | None = None
        self._starting: Begun | None = None
        self._telling: asyncio.Future[None] | None = None
        self._closing: Begun | None = None
        self._yielded_at = 0.0
        self.core = Core(config, wake=self._wake)

    # -- subscription

    def subscribe(self, topics: list[str], told: Listener, *, then: Callable[[], None]) -> Begun:
        """`then` is called when it is so. A subscription that is refused changes nothing: the one before goes on."""
        self.open()
        bridged = Listener(
            on_assign=self._bridged(told.on_assign),
            on_revoke=self._bridged(told.on_revoke),
            on_lost=self._bridged(told.on_lost),
        )
        before = self._starting

        async def start() -> None:
            if before is not None:
                await asyncio.wait([before.work])
            await self._on_pool(begin)

        def begin() -> None:
            self.core.start(topics, bridged)
            then()

        self._starting = Begun(asyncio.ensure_future(start()))
        return self._starting

    async def unsubscribe(self) -> None:
        loop = self.open()
        await self._started()
        if self._inside:
            await self._on_pool(self.core.unsubscribe)  # the revoke comes after the callback
            return
        while self._serving is not None:  # it makes calls too, and they are made by one at a time
            await self._served()
        self._serving = loop.run_in_executor(POOL, self.core.unsubscribe)
        await self._served()

    # -- records

    async def until(
        self, take: Callable[[], T | None], timeout: float | None, tell: Callable[[ck.Message], T] | None = None
    ) -> T | None:
        """Serve the group and take, again and again, until something was taken or the time is up.

        `tell` makes a result of an event that says what is wrong; without it, it is raised.
        """
        loop = self.open()
        deadline = None if timeout is None or timeout < 0 else loop.time() + timeout
        if loop.time() - self._yielded_at > YIELD_S:
            await asyncio.sleep(0)
            self._yielded_at = loop.time()
        while True:
            self._came.clear()
            await self._serve()
            if self._closing is not None and not self._inside:
                # What is read now would be behind what the last revoke commits: somebody else reads it.
                await self._shut_down(self._closing)
            if self.core.closed:
                return None
            if (news := self.core.news()) is not None:
                if tell is None:
                    raise ck.KafkaException(news.error())
                return tell(news)
            stands = not self.core.may_process()
            try:
                found = None if stands else take()
            except HoldfastError as error:
                raise as_kafka_exception(error) from error
            if found is not None:
                return found
            left = LOOK_S if deadline is None else deadline - loop.time()
            if left <= 0:
                return None
            await self._wait(min(left, STAND_S if stands else LOOK_S, max(0.0, self.core.statistics.due_in_s())))
            self._yielded_at = loop.time()

    # -- waiting, and being waited for

    def open(self) -> asyncio.AbstractEventLoop:
        """The loop, if we may be used on this one."""
        if self.core.closed:
            raise RuntimeError(CLOSED)
        running = asyncio.get_running_loop()
        if self._loop is not running:
            if self._loop is not None and self._loop.is_running():
                raise RuntimeError("this consumer belongs to another event loop")
            self._move_to(running)
        return running

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """The first loop, or another one after that has ended. What waited on the old one is over; a thread of the pool
        may still be at it, and `core` knows."""
        self._loop = loop
        self._waker = waker_of(loop)
        self.core.loop_thread = threading.get_ident()
        self._came = asyncio.Event()
        self._signalled = False
        self._starting = self._serving = self._telling = self._closing = None
        if self._quiet is not None:
            self._end_quietly(self._quiet, None)

    @property
    def _inside(self) -> bool:
        """Whether we are in one of our callbacks, or in a task that it has made and may be waiting for."""
        callback = _callback.get()
        return callback is not None and callback.of is self and callback.running

    def _wake(self) -> None:
        """From any thread: whoever waits looks again. Many calls in a row are one."""
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
        """On a thread of the executor. It goes on when whoever waits for it gives up."""
        return await asyncio.shield(self.open().run_in_executor(self.executor, lambda: work(*args, **options)))

    async def _on_pool(self, work: Callable[[], T]) -> T:
        """The same where callbacks may be waited for."""
        return await asyncio.shield(self.open().run_in_executor(POOL, work))

    async def _started(self) -> None:
        """Wait for the subscription that is on its way. If it is refused, whoever awaits it hears so, or else we do."""
        starting = self._starting
        if starting is None:
            return
        await asyncio.wait([starting.work])
        if self._starting is starting:
            self._starting = None
            if not starting.awaited:
                _raise_from(starting.work)

    async def _serve(self) -> None:
        """Make the callbacks that wait, and what else a poll does for the group."""
        if self._inside:
            return
        if self._closing is not None:  # who closes makes the last calls
            await self._shut_down(self._closing)
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
            if self._serving is None:  # or else somebody else has begun calls, and may be giving up what we would take
                return

    async def _make_calls(self) -> None:
        while self._serving is not None or self.core.calls_wait:
            if self._serving is None:
                last = self.core.take_quiet_calls()
                if last is not None:
                    self._serving = self._begin_quietly(last)
                else:
                    self._serving = self.open().run_in_executor(POOL, self.core.make_calls)
            await self._served()

    async def _served(self) -> None:
        """Wait for the calls under way. They go on when whoever waits for them gives up."""
        serving = self._serving
        if serving is not None:
            await asyncio.wait([serving])
            if self._serving is serving:
                self._serving = None
                _raise_from(serving)

    async def _tell(self) -> None:
        """Make the callbacks of the configuration that wait, one after the other."""
        if self._telling is None:
            self._telling = asyncio.ensure_future(self._tell_all())
        telling = self._telling
        await asyncio.wait([telling])
        if self._telling is telling:
            self._telling = None
            _raise_from(telling)

    async def _tell_all(self) -> None:
        while self.core.to_call:
            callback, given = self.core.to_call.popleft()
            await self._called(callback, *given)

    async def _called(self, callback: Callable[..., Any], *given: Any) -> None:
        under_way = _Callback(self)
        _callback.set(under_way)
        try:
            result = callback(*given)
            if inspect.isawaitable(result):
                await result
        finally:
            under_way.running = False  # which is all that has to be undone, wherever this ends

    def _begin_quietly(self, last: PendingCall) -> asyncio.Future[None]:
        """After a round that changed nothing: the listener hears it here, where it has to be called anyway."""
        self._quiet = last
        owed, self._owed = self._owed, []
        making = asyncio.ensure_future(self._make_owed(owed, last))
        making.add_done_callback(lambda _: self._end_quietly(last, None))  # also if it was cancelled and never began
        return making

    async def _make_owed(self, owed: Owed, last: PendingCall) -> None:
        raised: BaseException | None = None
        try:
            for callback, given in owed:
                await self._called(callback, *given)
        except Exception as error:  # noqa: BLE001  # a listener may raise anything; poll raises the first of them
            raised = error
        finally:
            self._end_quietly(last, raised)

    def _end_quietly(self, last: PendingCall, raised: BaseException | None) -> None:
        """Once for each round, whichever comes first: its callbacks return, are cancelled, or their loop ends."""
        if self._quiet is last:
            self._quiet = None
            self.core.end_quiet_calls(last, raised)

    def _bridged(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """The application's callback, made on its loop while a thread of the pool waits; or, on the loop, soon."""

        def made(_core: Any, partitions: list[ck.TopicPartition]) -> None:
            assert self._loop is not None
            if threading.get_ident() == self.core.loop_thread:
                self._owed.append((callback, (self._owner(), partitions)))
                return
            loop = self._loop
            on_loop(loop, self._called(callback, self._owner(), partitions), gone=lambda: self._loop is not loop)

        return made

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
            return self.core.commit(message, offsets, asynchronous=True)
        try:
            entries = self.core.to_commit(message, offsets)
        except ck.KafkaException as error:
            if asynchronous is None and error.args[0].code() == ck.KafkaError._NO_OFFSET:
                return None  # there is nothing to do, and nobody asked for more
            raise
        try:
            # Who gives up waiting does not end the commit: it is on its way, and settled when its answer comes.
            answer = await asyncio.shield(asyncio.wrap_future(self.core.submit_commit(entries)))
        except HoldfastError as error:
            raise as_kafka_exception(error) from None
        return self.core.settled(entries, answer)

    async def named(self, partitions: list[ck.TopicPartition], take: Callable[[list[ck.TopicPartition]], None]) -> None:
        """Take these; who names no offset waits until the committed one is known. Only that waits on a thread: what is
        read is the loop's alone, and a poll may be handing it out."""
        self.open()
        if not self.core.warm:  # a first record must not be what compiles the decoder, on the application's loop
            await self._on_pool(self.core.warm_up)
        if self.core.must_ask(partitions):
            partitions = await self._on_pool(lambda: self.core.started_at(partitions))
        take(partitions)

    # -- the end

    async def drain(self, timeout: float, reason: str) -> bool:
        loop = self.open()
        await self._started()
        self.core.start_draining(reason)
        deadline = loop.time() + timeout
        while not self.core.out() and loop.time() < deadline and not self._inside:
            self._came.clear()
            await self._serve()
            await self._wait(min(LOOK_S, max(0.0, deadline - loop.time())))
        return self.core.out()

    async def close(self) -> None:
        while not self.core.closed:
            loop = self.open()
            closing = self._closing
            if closing is None or closing.done():  # who cancels all tasks cancels that one too
                closing = self._closing = Begun(asyncio.ensure_future(self._shut(loop)))
            if self._inside:  # it is done as soon as the callbacks under way have returned
                return
            try:
                await closing
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not closing.work.cancelled() or (task is not None and task.cancelling()):
                    raise  # it is us whom somebody has cancelled
            else:
                return

    async def _shut_down(self, closing: Begun) -> None:
        """Wait for a close. What it raises is told to whoever awaits it; if a callback has asked for it, to us."""
        await asyncio.wait([closing.work])
        if not closing.awaited:
            closing.awaited = True
            _raise_from(closing.work)

    def _under_way(self) -> list[asyncio.Future[None]]:
        starting = None if self._starting is None else self._starting.work
        return [one for one in (starting, self._serving, self._telling) if one is not None and not one.done()]

    async def _shut(self, loop: asyncio.AbstractEventLoop) -> None:
        while under_way := self._under_way():
            await asyncio.wait(under_way)
        try:
            await loop.run_in_executor(POOL, self.core.close)
            while not self.core.closed:  # by a close that was cancelled here, and goes on on its thread
                self._came.clear()
                await self._wait(STAND_S)
        finally:
            self._came.set()  # whoever waits for records hears that there are none
            if self._own_pool is not None:
                self._own_pool.shutdown(wait=False)
            await self._tell_all()  # how the last commits went, also when a callback raised


def _raise_from(ended: asyncio.Future[None]) -> None:
    """What this raised. If it was cancelled, which only somebody does who cancels all tasks, it is just over: it must
    not look to whoever waited as if he were cancelled."""
    if not ended.cancelled():
        ended.result()
