"""I13: as long as nothing breaks, what a member processed before it gave a partition up is not processed again.

Judged until the first fault of a world whose network and broker are sound: joins, leaves, drains, changed
subscriptions and failing assignors are no faults. A restart may be one: the new process can come before the old one is
gone. A member that commits nothing at a revoke, and hands nothing over, is not judged; nor is a world with an
application that is too slow for its max.poll.interval.ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.model import TraceRecord
from holdfast.sim.checkers.base import Checker, Watch

if TYPE_CHECKING:
    from holdfast.sim.world import World

ORDERLY = frozenset({"join", "leave", "drain", "subscribe", "unsubscribe", "enforce", "misplan"})
GIVEN_UP = frozenset({"revoked", "left"})

JITTERS = 50
"""A request on a network whose jitter is more than this part of its timeout may time out, a commit among them."""


class DoneOnce(Checker):
    """Compares where a lane was given up with where the next one begins."""

    invariant = "I13"

    def __init__(self) -> None:
        super().__init__()
        self._given_up: dict[str, tuple[str, int]] = {}
        """Where each partition was given up, and by whom."""
        self._faulty = False
        self._healed_at: float | None = None
        self._again: list[tuple[float, str, str]] = []

    def watches(self) -> Mapping[str, Watch]:
        return {
            "happened": self._on_happened,
            "healed": self._on_healed,
            "lane-stopped": self._on_stopped,
            "lane-opened": self._on_opened,
        }

    def _on_healed(self, record: TraceRecord) -> None:
        """Every connection is closed then, and a commit that is under way is lost with it: what was given up before, or
        in that instant, is not judged."""
        self._given_up.clear()
        self._healed_at = record.at

    def _on_happened(self, record: TraceRecord) -> None:
        self._faulty |= record.data["kind"] not in ORDERLY

    def _on_stopped(self, record: TraceRecord) -> None:
        position = record.data["position"]
        assert isinstance(position, int)
        name = f"{record.data['topic']}-{record.data['partition']}"
        if record.cause in GIVEN_UP and not self._faulty and record.at != self._healed_at:
            self._given_up[name] = (record.member, position)
        else:
            self._given_up.pop(name, None)

    def _on_opened(self, record: TraceRecord) -> None:
        position = record.data["position"]
        assert isinstance(position, int)
        name = f"{record.data['topic']}-{record.data['partition']}"
        by, reached = self._given_up.pop(name, ("", 0))
        if position < reached and not self._faulty:
            what = f"{record.member} begins {name} at {position}, and {by} had processed it up to {reached}"
            self._again.append((record.at, by, what))

    def finish(self, world: World) -> None:
        config = world.config
        slow = any(plan.batch_ms + plan.listener_ms >= plan.max_poll_interval_ms for plan in config.members)
        network = config.network
        times_out = network.jitter_ms * JITTERS > config.request_timeout_ms
        if slow or times_out or network.loss or config.refuses or config.crash_on_append:
            return
        plans = {plan.name: plan for plan in config.members}
        for at, by, what in self._again:
            if plans.get(by, config.members[0]).commits_what_it_gives_up:  # one that joined later is like the first
                self.violated(at, what)
                return
