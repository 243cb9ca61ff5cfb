"""Results that are available at once, and can be awaited as well.

Programs written for confluent-kafka's AIOConsumer await everything, also through `create_task` and `gather`. Those
written for aiokafka call seek or pause without await. Both work here: to asyncio these objects are coroutines, to
everybody else plain values. Awaiting one gives the plain value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, NoReturn

import confluent_kafka as ck


class _AtOnce:
    """A coroutine that returns its value without waiting."""

    __slots__ = ()

    def value(self) -> Any:
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self.value()

    def send(self, _value: None) -> NoReturn:
        raise StopIteration(self.value())

    def throw(self, kind: Any, value: BaseException | None = None, trace: TracebackType | None = None) -> NoReturn:
        error = kind if value is None else value
        raise error if trace is None else error.with_traceback(trace)

    def close(self) -> None:
        """There is nothing to end."""


class Done(_AtOnce):
    """Nothing to wait for; awaiting it is allowed."""

    __slots__ = ()

    def value(self) -> None:
        return None


class Listed(_AtOnce, list[ck.TopicPartition]):
    """A list; awaiting it gives it."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]  # gather keeps what it awaits in a dict

    def value(self) -> list[ck.TopicPartition]:
        return list(self)


class Given(_AtOnce, bytes):
    """Bytes; awaiting them gives them."""

    def value(self) -> bytes:
        return bytes(self)


class Begun(Coroutine[Any, None, None]):
    """Work that has started already. Awaiting it waits for it; cancelling the wait does not stop the work."""

    __slots__ = ("_steps", "awaited", "work")

    def __init__(self, work: asyncio.Future[None]) -> None:
        self.work = work
        self._steps: Generator[Any, None, None] | None = None
        self.awaited = False
        """Whether somebody waits, or waited, for it: its exception is raised there."""

    def __await__(self) -> Generator[Any, None, None]:
        self.awaited = True
        try:
            yield from asyncio.shield(self.work).__await__()
        except asyncio.CancelledError:
            self.awaited = False
            raise

    def send(self, value: None) -> Any:
        return self._under_way().send(value)

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> Any:
        error = kind if value is None else value
        return self._under_way().throw(error if trace is None else error.with_traceback(trace))

    def close(self) -> None:
        if self._steps is not None:
            self._steps.close()

    def done(self) -> bool:
        return self.work.done()

    def add_done_callback(self, told: Callable[[Any], Any]) -> None:
        self.work.add_done_callback(told)

    def _under_way(self) -> Generator[Any, None, None]:
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps


DONE = Done()
