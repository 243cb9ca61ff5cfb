"""The way from a member to its group's coordinator.

Two connections: a JoinGroup or a SyncGroup parks at the coordinator until the round completes, and everything behind
it on the same connection waits too. So these two have the slot `control`, and heartbeats, commits, offset fetches and
leaves have `commit`.

Nothing here decides when the coordinator has moved: whoever reads the answers says `forget()`.
"""

from __future__ import annotations

import asyncio

from holdfast.group import messages as m
from holdfast.net.cluster import Cluster
from holdfast.net.connection import Connection
from holdfast.net.errors import timed_out

CONTROL = "control"
COMMIT = "commit"


def slot_of(request: m.Request) -> str:
    return CONTROL if isinstance(request, m.JoinRequest | m.SyncRequest) else COMMIT


class GroupChannel:
    """Sends a group's requests, one answer each."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.group = group
        self._cluster = cluster

    async def send(self, request: m.Request, timeout_ms: float | None = None) -> m.Answer:
        """The answer, whatever it says; or NetError, with `retriable`, when none will come."""
        timeout_s = self._cluster.config.request_timeout_s if timeout_ms is None else timeout_ms / 1000.0
        slot = slot_of(request)
        connection: Connection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                address = await self._cluster.coordinator(self.group)
                connection = await self._cluster.connection(address, f"{slot}/{self.group}")
                return await connection.ask_coordinator(request, timeout_s=timeout_s)
        except TimeoutError:
            if connection is not None:
                self._cluster.discard(connection)
            raise timed_out(f"the coordinator of group {self.group}", type(request).__name__, timeout_s) from None
        except asyncio.CancelledError:
            if connection is not None and slot == CONTROL:
                self._cluster.discard(connection)  # the join stays parked there, in front of the next one
            raise

    async def warm(self) -> None:
        """Find the coordinator and open both connections ahead of the first request."""
        address = await self._cluster.coordinator(self.group)
        for slot in (CONTROL, COMMIT):
            await self._cluster.connection(address, f"{slot}/{self.group}")

    def forget(self) -> None:
        """Look the coordinator up again before the next send."""
        self._cluster.forget_coordinator(self.group)
