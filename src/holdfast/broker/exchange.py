"""One request in work, from its frame to its answer.

A handler takes an `Exchange` and returns the answer's body, or PARKED and calls `answer` later, or, if its work grows
with the request, steps that end with one of the two (see `slices`). An exchange is answered once; what comes after
that, or after the client went away, is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from holdfast.broker.slices import Steps
from holdfast.wire.codec import RequestFrame
from holdfast.wire.cursor import Part


class Later(Enum):
    """What a handler returns when there is nothing to send now."""

    PARKED = "parked"
    """`answer` will be called, or was already."""
    SILENT = "silent"
    """There is no answer to this request (acks=0), and the next one may come."""


PARKED = Later.PARKED
SILENT = Later.SILENT


@dataclass(frozen=True, slots=True)
class Parts:
    """An answer that is encoded already, its size first: Produce and Fetch, whose codecs are their own."""

    parts: Sequence[Part]
    files: Sequence[object] = ()
    """What must live until file slices among the parts are sent: the open files that they are slices of."""


Body = Mapping[str, Any] | Parts
Result = Body | Later
"""The result of the work for a request."""


class Client(Protocol):
    """The sender of a request, as far as handlers know it."""

    host: str
    node_id: int
    """Which of the advertised brokers it connected to."""
    principal: str | None
    """The user's name, None without a login."""

    @property
    def takes_files(self) -> bool:
        """Whether a slice of a file can be sent with sendfile, which TLS does not allow."""
        ...

    def finish(self, exchange: Exchange, result: Body | None) -> None: ...

    def close(self, why: str | None = None) -> None:
        """Close the connection: the only way to say that a request without an answer failed."""
        ...


class Exchange:
    """One request of one client."""

    __slots__ = ("_done", "api", "body", "changed", "client", "frame", "guard", "on_gone", "on_released", "version")

    def __init__(self, frame: RequestFrame, client: Client) -> None:
        self.frame = frame
        self.api = frame.api
        self.version = frame.version
        self.body: Any = frame.body
        """What the API's codec made of the frame: a named tuple of `wire.schema`, or a value of `wire.fetch` or
        `wire.produce`."""
        self.client = client
        self.changed: Callable[[Any], Body] | None = None
        """Set by a fault: what it makes of the answer is sent in its place."""
        self.on_gone: Callable[[], None] | None = None
        """Set by the code that parks it: called if the client goes away first."""
        self.on_released: Callable[[], None] | None = None
        """Called once, when no more work is done for it now: it is answered, parked or given up."""
        self.guard: Callable[[Callable[[], Any]], None] = lambda work: self._finish_with(work())
        """Runs work for this request. The dispatcher sets one that turns a failure into an error answer."""
        self._done = False

    @property
    def done(self) -> bool:
        return self._done

    def answer(self, body: Body) -> None:
        if self.changed is not None and isinstance(body, Mapping):
            body = self.changed(body)
        self._finish(body)

    def resume(self, work: Callable[[], Result | Steps]) -> None:
        """Go on with a parked request: `work` gives its answer, and may fail as a handler may."""
        if not self._done:
            self.guard(work)

    def silence(self) -> None:
        """End it without an answer; the client's next request may come."""
        self._finish(None)

    def gone(self) -> None:
        """The client went away."""
        if not self._done:
            self._done = True
            if self.on_gone is not None:
                self.on_gone()
            self.release()
            self._forget()

    def release(self) -> None:
        on_released, self.on_released = self.on_released, None
        if on_released is not None:
            on_released()

    def _forget(self) -> None:
        """Break reference cycles, so that a request's bytes are freed as soon as it is done."""
        self.guard = _nothing
        self.on_gone = None

    def _finish_with(self, result: Result) -> None:
        if not isinstance(result, Later):
            self._finish(result)

    def _finish(self, body: Body | None) -> None:
        if not self._done:
            self._done = True
            self.client.finish(self, body)
            self._forget()


def _nothing(work: object) -> None:
    """A request that is done does no more work."""
