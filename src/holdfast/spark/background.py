"""A member's background tasks, and the error that its next answer to Spark has to raise. Runs on the member's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from holdfast.client.member.control import ControlPlane
from holdfast.model import HoldfastError

REFUSED = frozenset(
    {
        "GROUP_AUTHORIZATION_FAILED",
        "GROUP_MAX_SIZE_REACHED",
        "INCONSISTENT_GROUP_PROTOCOL",
        "INVALID_GROUP_ID",
        "INVALID_SESSION_TIMEOUT",
        "UNSUPPORTED_VERSION",
    }
)
"""Errors that a person has to fix. A query fails with them; a consumer only reports them and keeps trying."""


class Background:
    """The tasks of one member. The first failure is kept, whether it is a task's or the group's."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._tasks: set[asyncio.Task[None]] = set()
        self.failure: HoldfastError | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        what = f"the member's background work failed: {type(error).__name__}: {error}."
        unexpected = HoldfastError("MEMBER_FAILED", what, "Restart the query, and report this.")
        self.fail(error if isinstance(error, HoldfastError) else unexpected)

    def fail(self, error: HoldfastError | None) -> None:
        """Raise this in the next `check`, unless there was an error before."""
        self.failure = self.failure or error

    def check(self) -> None:
        failure = self.failure or self._plane.failure
        while failure is None and self._plane.told:
            told = self._plane.told.popleft().error
            if told.code in REFUSED:
                failure = told
        if failure is not None:
            raise failure

    async def cancel(self, others: Iterable[asyncio.Future[Any]]) -> None:
        """End all tasks, and these others."""
        tasks = [*self._tasks, *others]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
