"""Whether a query's partitions are surely still its own, so that a new batch may be planned; and a log line if not.

The rule is the group's (`member.may_process`), the same as for consumers. If the coordinator has not answered for a
session, or this process was frozen for a session, the partitions may belong to others by now.
"""

from __future__ import annotations

import asyncio
import logging

from holdfast.client.clock import now_ms
from holdfast.client.config.settings import ConsumerConfig
from holdfast.group import member as mb

log = logging.getLogger("holdfast")

TICKS_A_SESSION = 4
"""How often the clock is checked, so that a process that was frozen for a session notices it."""


class Ownership:
    """One query's view of its own membership. Times are in ms."""

    def __init__(self, config: ConsumerConfig, now: float) -> None:
        self._config = config
        self._seen_at = now
        self._awake_since = 0.0
        self._sure = True

    async def watch_the_clock(self) -> None:
        """Call `tick` a few times per session, for ever."""
        while True:
            self.tick(now_ms())
            await asyncio.sleep(self._config.session_timeout_ms / TICKS_A_SESSION / 1_000.0)

    def tick(self, now: float) -> None:
        """If this call comes more than a session after the last one, the process was frozen in between, and older
        answers of the coordinator do not count."""
        if now - self._seen_at > self._config.session_timeout_ms:
            self._awake_since = now
        self._seen_at = now

    def check(self, state: mb.MemberState, now: float) -> bool:
        """Returns whether a batch may be planned, and logs when that changes."""
        self.tick(now)
        sure = mb.may_process(state, now, awake_since=self._awake_since)
        if sure != self._sure:
            self._sure = sure
            self._say(state, now)
        return sure

    def _say(self, state: mb.MemberState, now: float) -> None:
        name = self._config.shown
        if self._sure:
            log.warning("%s plans batches again.", name)
        elif state.lost or state.phase is mb.Phase.EVICTED:
            log.warning("%s has lost its membership: no new batch is planned until it has joined again.", name)
        else:
            log.warning(
                "%s has heard nothing from its coordinator for %.1f s, longer than its session (session.timeout.ms). "
                "Others may have its partitions by now, so no new batch is planned until the coordinator answers.",
                name,
                (now - state.requests.vouched_at) / 1_000.0,
            )
