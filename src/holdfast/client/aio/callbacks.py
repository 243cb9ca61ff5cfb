"""The application's callbacks, run on its loop: those of the listener and those of the configuration.

They may be plain or coroutine functions. For the listener's, a thread of the pool waits while the loop runs them. After
a round that changed nothing no thread is used ("quietly"), so that hundreds of consumers don't need one each. Callbacks
of the configuration (error_cb, …) never use a thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import confluent_kafka as ck

from holdfast.client.aio.core import Core, Owed
from holdfast.client.aio.on_loop import on_loop
from holdfast.client.member.listener import Listener
from holdfast.client.member.pending_calls import PendingCall


class _Callback:
    """A callback under way, and its consumer. Tasks that it creates inherit this object, and may outlive the callback.

    `running` says whether the callback has not returned yet.
    """

    __slots__ = ("of", "running")

    def __init__(self, of: LoopCallbacks) -> None:
        self.of = of
        self.running = True


_callback: ContextVar[_Callback | None] = ContextVar("holdfast_callback", default=None)
"""The callback that is running, or that created the running task. Code inside it must not wait for it to return."""


class LoopCallbacks:
    """One consumer's callbacks. `owner` returns the object that they get as their consumer."""

    def __init__(self, core: Core, owner: Callable[[], Any]) -> None:
        self._core = core
        self._owner = owner
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owed: list[Owed] = []
        """Callbacks for the listener after a round that changed nothing, to be called on the loop (`begin_quietly`)."""
        self._quiet: PendingCall | None = None
        """The last call of such a round, while its callbacks are under way."""

    def move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use this loop from now on. What was under way on another one has ended with it."""
        self._loop = loop
        if self._quiet is not None:
            self._end_quietly(self._quiet, None)

    @property
    def inside(self) -> bool:
        """Whether we run inside one of our callbacks, or in a task that it created and may be waiting for."""
        callback = _callback.get()
        return callback is not None and callback.of is self and callback.running

    async def _called(self, callback: Callable[..., Any], *given: Any) -> None:
        under_way = _Callback(self)
        _callback.set(under_way)
        try:
            result = callback(*given)
            if inspect.isawaitable(result):
                await result
        finally:
            under_way.running = False  # `inside` checks this, so the context variable need not be reset

    # -- of the configuration

    async def tell_all(self) -> None:
        """Call those that are due, one after the other."""
        while self._core.to_call:
            callback, given = self._core.to_call.next()
            await self._called(callback, *given)

    # -- of the listener

    def bridged(self, told: Listener) -> Listener:
        """The same listener for `core`, which calls it on a thread of the pool, or on the loop itself."""
        return Listener(
            on_assign=self._bridged(told.on_assign),
            on_revoke=self._bridged(told.on_revoke),
            on_lost=self._bridged(told.on_lost),
        )

    def _bridged(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Called on a thread of the pool, it runs the callback on the loop and waits for it. Called on the loop itself,
        it queues the callback in `_owed`."""

        def made(_consumer: Any, partitions: list[ck.TopicPartition]) -> None:
            assert self._loop is not None
            if self._core.on_loop_thread:
                self._owed.append((callback, (self._owner(), partitions)))
                return
            loop = self._loop
            on_loop(loop, self._called(callback, self._owner(), partitions), gone=lambda: self._loop is not loop)

        return made

    def begin_quietly(self, last: PendingCall) -> asyncio.Future[None]:
        """After a round that changed nothing: call the listener from the loop, without a thread of the pool."""
        self._quiet = last
        owed, self._owed = self._owed, []
        making = asyncio.ensure_future(self._make_owed(owed, last))
        making.add_done_callback(lambda _: self._end_quietly(last, None))  # also if it was cancelled and never began
        return making

    async def _make_owed(self, owed: list[Owed], last: PendingCall) -> None:
        raised: BaseException | None = None
        try:
            for callback, given in owed:
                await self._called(callback, *given)
        except Exception as error:  # noqa: BLE001  # a listener may raise anything; poll raises the first of them
            raised = error
        finally:
            self._end_quietly(last, raised)

    def _end_quietly(self, last: PendingCall, raised: BaseException | None) -> None:
        """Takes effect once per round: when its callbacks return, are cancelled, or their loop ends."""
        if self._quiet is last:
            self._quiet = None
            self._core.end_quiet_calls(last, raised)
