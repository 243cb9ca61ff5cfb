"""What tests make go wrong: by API, for the next requests or for all, with a condition if wanted.

    broker.faults.delay(Api.FETCH, ms=200)                   answer later
    broker.faults.error(Api.HEARTBEAT, ErrorCode.NOT_COORDINATOR, times=1)
    broker.faults.drop(Api.OFFSET_COMMIT)                    never answer, and do nothing
    broker.faults.lose_answer(Api.JOIN_GROUP)                do it, and never answer
    broker.faults.disconnect(Api.SYNC_GROUP, times=2)        close the connection instead
    broker.faults.cut_answer(Api.OFFSET_COMMIT)              do it, and close the connection instead of answering
    broker.faults.change(Api.METADATA, without_orders)       do it, and send what a function makes of the answer
    broker.faults.call(Api.PRODUCE, seen.append)             run a function with the request, then go on

Each returns a `Fault`: `fault.hits` says how often it struck, `fault.clear()` ends it. The first fault that matches
strikes. Without faults a request passes through none of this. An error may be a bare number: a newer broker sends codes
that a client has no name for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from holdfast.broker.connection import Connection
from holdfast.broker.exchange import Body, Exchange
from holdfast.model import ErrorCode
from holdfast.wire.api import Api

Condition = Callable[[Exchange], bool]
Run = Callable[[Exchange], None]
Refuse = Callable[[Exchange, ErrorCode], Body]
Change = Callable[[Any], Body]
"""Takes an answer's body as its handler made it and returns the one to send."""


class Kind(Enum):
    DELAY = "delay"
    ERROR = "error"
    DROP = "drop"
    LOSE_ANSWER = "lose answer"
    DISCONNECT = "disconnect"
    CUT_ANSWER = "cut answer"
    CHANGE = "change"
    CALL = "call"


@dataclass(slots=True, eq=False)
class Fault:
    """One thing that goes wrong. Safe to look at and to clear from any thread."""

    api: Api | None
    """None: every API."""
    kind: Kind
    left: int | None
    """How often it still strikes; None for ever."""
    when: Condition | None
    ms: float = 0.0
    code: ErrorCode | int = ErrorCode.NONE
    what: Callable[[Exchange], object] | None = None
    changed: Change | None = None
    hits: int = 0
    held: list[Exchange] = field(default_factory=list)
    """Requests that were dropped: they stay unanswered for good."""

    def clear(self) -> None:
        self.left = 0

    @property
    def over(self) -> bool:
        """`left` may be below 0: a fault that strikes counts down, also if another thread clears it just then."""
        left = self.left
        return left is not None and left <= 0

    def matches(self, exchange: Exchange) -> bool:
        if self.over or (self.api is not None and self.api is not exchange.api):
            return False
        return self.when is None or self.when(exchange)


class Faults:
    """The faults of one broker. Added from any thread, met on the broker's."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.RLock()

    def __bool__(self) -> bool:
        return bool(self._faults)

    def clear(self) -> None:
        with self._lock:
            for fault in self._faults:
                fault.clear()
            self._faults = []

    def delay(self, api: Api | None, *, ms: float, times: int | None = None, when: Condition | None = None) -> Fault:
        return self._add(Fault(api, Kind.DELAY, times, when, ms=ms))

    def error(
        self, api: Api | None, code: ErrorCode | int, *, times: int | None = None, when: Condition | None = None
    ) -> Fault:
        return self._add(Fault(api, Kind.ERROR, times, when, code=code))

    def drop(self, api: Api | None, *, times: int | None = None, when: Condition | None = None) -> Fault:
        return self._add(Fault(api, Kind.DROP, times, when))

    def lose_answer(self, api: Api | None, *, times: int | None = None, when: Condition | None = None) -> Fault:
        return self._add(Fault(api, Kind.LOSE_ANSWER, times, when))

    def disconnect(self, api: Api | None, *, times: int | None = None, when: Condition | None = None) -> Fault:
        return self._add(Fault(api, Kind.DISCONNECT, times, when))

    def cut_answer(self, api: Api | None, *, times: int | None = None, when: Condition | None = None) -> Fault:
        return self._add(Fault(api, Kind.CUT_ANSWER, times, when))

    def change(self, api: Api, changed: Change, *, times: int | None = None, when: Condition | None = None) -> Fault:
        """Not for Fetch and Produce, whose answers are bytes already."""
        if api in (Api.FETCH, Api.PRODUCE):
            raise ValueError(
                f"The answer to {api.name} is bytes already and can't be changed; error() and drop() can be used."
            )
        return self._add(Fault(api, Kind.CHANGE, times, when, changed=changed))

    def call(
        self,
        api: Api | None,
        what: Callable[[Exchange], object],
        *,
        times: int | None = None,
        when: Condition | None = None,
    ) -> Fault:
        """`what` runs on the broker's thread, so it should be quick."""
        return self._add(Fault(api, Kind.CALL, times, when, what=what))

    def _add(self, fault: Fault) -> Fault:
        if fault.api is not None and not isinstance(fault.api, Api):
            raise TypeError(f"{fault.api!r} is not an Api, and such a fault would never strike.")
        with self._lock:
            self._faults = [*self._faults, fault]
        return fault

    def meet(self, exchange: Exchange, connection: Connection, run: Run, refuse: Refuse) -> bool:
        """Let a fault strike, if one does. True when the request is taken care of, False to go on with it."""
        fault = self._strike(exchange)
        if fault is None:
            return False
        match fault.kind:
            case Kind.DELAY:
                asyncio.get_running_loop().call_later(fault.ms / 1000.0, _run_if_there, exchange, run)
            case Kind.ERROR:
                exchange.answer(refuse(exchange, _known(fault.code)))
            case Kind.DROP:
                fault.held.append(exchange)
            case Kind.LOSE_ANSWER:
                connection.in_work = None
                run(exchange)
                connection.next()
            case Kind.DISCONNECT:
                connection.close()
            case Kind.CUT_ANSWER:
                connection.in_work = None
                run(exchange)
                connection.close()
            case Kind.CHANGE:
                assert fault.changed is not None
                exchange.changed = fault.changed
                run(exchange)
            case Kind.CALL:
                assert fault.what is not None
                fault.what(exchange)
                return False
        return True

    def _strike(self, exchange: Exchange) -> Fault | None:
        with self._lock:
            fault = next((fault for fault in self._faults if fault.matches(exchange)), None)
            if fault is None:
                return None
            fault.hits += 1
            if fault.left is not None:
                fault.left -= 1
            self._faults = [each for each in self._faults if not each.over]
        return fault


def _known(code: ErrorCode | int) -> ErrorCode:
    """The code by its name, or a number that has none here: handlers only pass it on."""
    try:
        return ErrorCode(code)
    except ValueError:
        return code  # type: ignore[return-value]  # an answer carries the bare number as it is


def _run_if_there(exchange: Exchange, run: Run) -> None:
    if not exchange.done:
        run(exchange)
