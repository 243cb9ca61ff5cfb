"""A query's drain: its partitions are handed over while it works, and then it leaves. Runs on the member's loop."""

from __future__ import annotations

import asyncio

from holdfast.client.member.control import ControlPlane
from holdfast.group import member as mb
from holdfast.spark.work import Work

LOOK_S = 0.005


class Draining:
    """The drain of one member. `manual`: its partitions come from `assign`, so there is nobody to hand them over to."""

    def __init__(self, plane: ControlPlane, work: Work, *, manual: bool) -> None:
        self._plane, self._work, self._manual = plane, work, manual
        self.begun = False

    async def begin(self, reason: str) -> None:
        self.begun = True
        if not self._manual:
            self._plane.driver.feed(mb.Drain(reason))

    def done(self) -> bool:
        """Whether everything is handed over; without a membership, whether the running batch is done."""
        if self._manual:
            return self.begun and self._work.running is None and not self._work.owed()
        return self.begun and self._plane.driver.closed.is_set()

    async def wait(self) -> None:
        while not self.done():  # noqa: ASYNC110  # several conditions, and a drain is rare
            await asyncio.sleep(LOOK_S)
