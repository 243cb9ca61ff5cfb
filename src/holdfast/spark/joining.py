"""When a query counts as joined: a round has ended for it, or nothing more will come. Runs on the member's loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from holdfast.client.config.settings import ConsumerConfig
from holdfast.client.member.control import ControlPlane
from holdfast.group import member as mb
from holdfast.model import HoldfastError
from holdfast.spark.work import Work

JOIN_LIMIT_S = 330.0
"""A round ends within max.poll.interval.ms (5 minutes by default), or when a dead member's session runs out."""
QUIET_S = 1.0
"""AvailableNow ends when nothing is left to read, so it waits a heartbeat and this long for its first partitions."""
LOOK_S = 0.002


class Joining:
    """Waits for one member. `sure`: whether its partitions are surely its own; `check` raises what went wrong."""

    def __init__(
        self,
        config: ConsumerConfig,
        plane: ControlPlane,
        work: Work,
        *,
        sure: Callable[[], bool],
        check: Callable[[], None],
    ) -> None:
        self._config, self._plane, self._work = config, plane, work
        self._sure, self._check = sure, check

    async def wait(self, *, quiet: bool) -> None:
        """Wait until a round has ended for us; with `quiet`, until we also own something or nothing more will come.

        The first round may assign nothing while others finish their batches; what they release comes in a later round.
        """
        deadline, stable_since = time.monotonic() + JOIN_LIMIT_S, None
        patience_s = self._config.heartbeat_interval_ms / 1_000.0 + QUIET_S
        while True:
            self._check()
            state, now = self._plane.state, time.monotonic()
            # While the round's result is being applied, the start offsets of its partitions are not known yet.
            given = state.held.generation >= 0 and state.phase is not mb.Phase.APPLYING and self._sure()
            if state.phase is mb.Phase.CLOSED or (given and (self._work.held or not quiet)):
                return
            stable_since = (stable_since or now) if state.phase is mb.Phase.STABLE and self._sure() else None
            if stable_since is not None and now - stable_since > patience_s:
                return
            if now > deadline:
                raise HoldfastError(
                    "JOIN_TIMED_OUT",
                    f"the query did not become a member of {self._config.group} within {JOIN_LIMIT_S:.0f} s.",
                    "Look at it with `kafka-consumer-groups.sh --describe --state`: a member that hangs holds it up.",
                )
            await asyncio.sleep(LOOK_S)
