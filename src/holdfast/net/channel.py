"""A member's connections to its group's coordinator.

Two connections. The coordinator holds back the answer to a JoinGroup or SyncGroup until the round is ready (the request
is parked), and everything sent after it on the same connection waits too. So these two requests use the slot `control`,
and heartbeats, commits, offset fetches and leaves use the slot `commit`. A commit that the next join must not overtake
uses `control` as well, where it is sent and served before the join.

Whether the coordinator has moved is not decided here: the code that reads the answers calls `forget()`.
"""

from __future__ import annotations

import asyncio
from itertools import count

from holdfast.group import messages as m
from holdfast.model import ErrorCode, TopicPartition
from holdfast.net.cluster import Cluster
from holdfast.net.connection import Connection
from holdfast.net.errors import BrokerError, timed_out
from holdfast.observe.snapshot import NOBODY_IN_IT
from holdfast.wire.api import Api
from holdfast.wire.coordinators import GroupHead

_NUMBERS = count()
"""Numbers the channels of a process. Each has its own connections: a parked join must not delay another member's."""

CONTROL = "control"
COMMIT = "commit"

LEAVE_WITH_REASON = 5
"""The first version of LeaveGroup that says why."""


def slot_of(request: m.Request) -> str:
    if isinstance(request, m.CommitRequest):
        return CONTROL if request.ahead_of_join else COMMIT
    return CONTROL if isinstance(request, m.JoinRequest | m.SyncRequest) else COMMIT


class GroupChannel:
    """Sends a group's requests, one answer each."""

    def __init__(self, cluster: Cluster, group: str, *, shared_slot: str | None = None) -> None:
        """`shared_slot` is for code that only asks about a group: one connection, shared with other such code."""
        self.group = group
        self._cluster = cluster
        self._shared_slot = shared_slot
        self._number = next(_NUMBERS)
        self.committed: dict[TopicPartition, int] = {}
        """Committed offsets as the coordinator last told us: by accepting a commit, or in an answer."""
        self.takes_reason = False
        """Whether the coordinator can be told why a member leaves (KIP-800), as far as we know."""

    async def send(self, request: m.Request, timeout_ms: float | None = None) -> m.Answer:
        """The answer, also if it is an error. Raises NetError, with `retriable`, when no answer will come."""
        timeout_s = self._cluster.config.request_timeout_s if timeout_ms is None else timeout_ms / 1000.0
        slot = slot_of(request)
        connection: Connection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                address = await self._cluster.coordinator(self.group)
                connection = await self._cluster.connection(address, self._slot(slot))
                self.takes_reason = connection.offers(Api.LEAVE_GROUP, LEAVE_WITH_REASON)
                answer = await connection.ask_coordinator(request, timeout_s=timeout_s)
                self._note_committed(request, answer)
                return answer
        except TimeoutError:
            if connection is not None:
                self._cluster.discard(connection)
            where, what = f"the coordinator of group {self.group}", type(request).__name__
            raise timed_out(where, what, timeout_s, settable=timeout_ms is None) from None
        except asyncio.CancelledError:
            if connection is not None and slot == CONTROL:
                self._cluster.discard(connection)  # the next join would wait behind this one
            raise

    def _note_committed(self, request: m.Request, answer: m.Answer) -> None:
        if isinstance(request, m.CommitRequest) and isinstance(answer, m.CommitAnswer):
            taken = (p for p, error in answer.errors.items() if error is ErrorCode.NONE and p in request.offsets)
            self.committed.update({p: request.offsets[p].offset for p in taken})
        elif isinstance(answer, m.FetchOffsetsAnswer):
            self.committed.update({p: entry.offset for p, entry in answer.offsets.items()})

    async def members(self) -> int:
        """How many members the group has. Raises NetError when nobody answers."""
        return (await self._head()).members

    async def running(self) -> str | None:
        """The assignor that the group runs; empty if it has no members, None in the middle of a round.

        Raises NetError when nobody answers.
        """
        head = await self._head()
        if head.state in NOBODY_IN_IT:
            return ""
        return head.protocol or None

    async def _head(self) -> GroupHead:
        address = await self._cluster.coordinator(self.group)
        connection = await self._cluster.connection(address, self._slot(COMMIT))
        head = await connection.group_head(self.group, timeout_s=self._cluster.config.request_timeout_s)
        if head.error is ErrorCode.GROUP_ID_NOT_FOUND:  # Kafka 4's answer for a group that does not exist yet
            return GroupHead(error=ErrorCode.NONE, state="Dead", protocol="", members=0)
        if head.error is not ErrorCode.NONE:
            raise BrokerError(head.error, f"The group {self.group} can't be described.")
        return head

    async def warm(self) -> None:
        """Find the coordinator and open both connections before the first request needs them."""
        address = await self._cluster.coordinator(self.group)
        await asyncio.gather(*(self._cluster.connection(address, self._slot(slot)) for slot in (CONTROL, COMMIT)))

    def forget(self) -> None:
        """Look the coordinator up again before the next send."""
        self._cluster.forget_coordinator(self.group)

    async def close(self) -> None:
        """Close this member's own connections; the cluster stays open."""
        if self._shared_slot is None:
            await self._cluster.close_slots({self._slot(CONTROL), self._slot(COMMIT)})

    def _slot(self, slot: str) -> str:
        return self._shared_slot or f"{slot}/{self.group}/{self._number}"
