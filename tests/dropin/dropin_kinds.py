"""The classes that are compared, each behind the same synchronous surface.

The asyncio ones run on a loop of their own, on a thread; a program calls them as if they were synchronous, also from
its callbacks.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from confluent_kafka.aio import AIOConsumer
from confluent_kafka.cimpl import Consumer as ConfluentConsumer

import holdfast
from holdfast.net.loop_thread import LoopThread

CALL_S = 120.0
"""Every wait of a program is shorter."""
CALLBACKS = ("on_assign", "on_revoke", "on_lost")
CONFIGURED = ("on_commit", "error_cb")


class Awaited:
    """An asyncio consumer for synchronous programs. Every call is awaited on the consumer's loop."""

    def __init__(self, make: Callable[[dict[str, Any]], Any], config: dict[str, Any]) -> None:
        self._host = LoopThread("asyncio-consumer")
        try:
            self._consumer = self._run(self._make(make, self._wrapped(config, CONFIGURED)))
        except BaseException:
            self._host.stop(timeout_s=CALL_S)
            raise

    async def _make(self, make: Callable[[dict[str, Any]], Any], config: dict[str, Any]) -> Any:
        return make(config)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self._run(self._call(name, args, kwargs))

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self._run(self._call("subscribe", (topics,), self._wrapped(callbacks, CALLBACKS)))

    def close(self) -> None:
        try:
            self._run(self._call("close", (), {}))
        finally:
            if not self._host.is_current:
                self._host.stop(timeout_s=CALL_S)

    async def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = getattr(self._consumer, name)(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    def _run(self, call: Any) -> Any:
        if self._host.loop.is_closed():
            call.close()
            raise RuntimeError("Consumer closed")
        return self._host.call(call, CALL_S)

    def _wrapped(self, given: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
        return {key: self._coroutine(value) if key in names else value for key, value in given.items()}

    def _coroutine(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """A program's callback as a coroutine function. It runs on a thread, so that it may call us in its turn; the
        context goes along, by which confluent's class knows that these calls belong to the callback."""

        async def called(*args: Any) -> Any:
            return await asyncio.to_thread(callback, *(self if each is self._consumer else each for each in args))

        return called


KINDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "confluent": ConfluentConsumer,
    "holdfast": holdfast.Consumer,
    "confluent-aio": lambda config: Awaited(AIOConsumer, config),
    "holdfast-aio": lambda config: Awaited(holdfast.AsyncConsumer, config),
}
"""confluent's class is taken from where it is made: `confluent_kafka.Consumer` may have been replaced by ours."""
