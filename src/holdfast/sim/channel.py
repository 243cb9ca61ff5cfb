"""A simulated member's two connections to the broker, and what goes over which.

A parked join would block commits and heartbeats, so these have a connection of their own, as in `net.channel`. Only a
commit that must not be overtaken by a join goes ahead of it on the same one. What the machine sends is answered with
events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.group.member import (
    Event,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    RequestFailed,
    Send,
    SyncAnswered,
)
from holdfast.group.messages import (
    Answer,
    CommitRequest,
    HeartbeatAnswer,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    SyncAnswer,
    SyncRequest,
)
from holdfast.sim.network import Connection, OnAnswer, OnFailure

if TYPE_CHECKING:
    from holdfast.sim.member import SimMember

ANSWERED: Mapping[type[Answer], Callable[[int, Any], Event]] = {
    HeartbeatAnswer: HeartbeatAnswered,
    JoinAnswer: JoinAnswered,
    SyncAnswer: SyncAnswered,
    LeaveAnswer: LeaveAnswered,
}
"""What the machine is told of an answer."""

JOIN_GRACE_MS = 5_000.0
"""A join may be parked for the whole rebalance timeout; its client waits this much longer for the answer."""


class Channel:
    """The connections of one process."""

    def __init__(self, member: SimMember) -> None:
        world = member.world
        self._member = member
        self._group = Connection(world.network, member, world.broker, f"group-{member.incarnation}")
        self.data = Connection(world.network, member, world.broker, f"data-{member.incarnation}")
        """The one that no join blocks: for offsets and heartbeats."""
        self._ahead = 0
        """Commits under way on the group's connection."""

    @property
    def pending(self) -> int:
        """Questions under way."""
        return self._group.pending + self.data.pending

    def ask_ahead_of_join(self, request: CommitRequest, on_answer: OnAnswer, on_failure: OnFailure) -> None:
        """Commit on the connection that the next join takes: the broker has it first."""

        def ended(then: Callable[..., None], *args: Any) -> None:
            self._ahead -= 1
            then(*args)

        self._ahead += 1
        timeout = self._member.world.config.request_timeout_ms
        self._group.ask(request, timeout, partial(ended, on_answer), partial(ended, on_failure))

    def send(self, effect: Send) -> None:
        """Send what the machine wants sent, and feed it the answer."""
        member = self._member
        request = effect.request
        timeout = member.world.config.request_timeout_ms
        serial = effect.serial

        def failed(reason: str) -> None:
            member.feed(RequestFailed(serial, reason))
            member.certainty.look()  # silence during a parked join is normal; after a failure it counts

        def answered(answer: Answer) -> None:
            member.feed(ANSWERED[type(answer)](serial, answer))

        connection = self._group
        if isinstance(request, JoinRequest):
            timeout = request.rebalance_timeout_ms + JOIN_GRACE_MS
        if serial == member.state.drain.dismissal:  # the herald's join is parked on the other one
            connection = self.data
        elif isinstance(request, JoinRequest | LeaveRequest):
            if connection.pending > self._ahead:  # a parked join or sync that was given up would block it
                connection.close("given up")
        elif serial == member.state.requests.heartbeat:
            connection = self.data
        if isinstance(request, SyncRequest) and member.plan.sync_ms:
            member.later(member.plan.sync_ms, connection.ask, request, timeout, answered, failed)
        else:
            connection.ask(request, timeout, answered, failed)

    def reconnect(self) -> None:
        """The network works again: stop waiting for answers that it has lost."""
        for connection in (self.data, self._group):
            if not self._member.dead:
                connection.close("reset")

    def drop(self) -> None:
        """The process has ended."""
        self._group.drop()
        self.data.drop()
        self._ahead = 0
