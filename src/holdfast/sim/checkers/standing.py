"""Which members may act for the group, according to what the broker granted. Shared by I1 and I2.

A member has *standing* in a generation when the coordinator has accepted its join for it. It loses it when it leaves,
expires, is expelled, when another process takes over its instance id, or when the group completes a round without it.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model import TraceRecord
from holdfast.sim.checkers.base import Watch


class Standing:
    """The record of who has standing."""

    def __init__(self) -> None:
        self.generation = 0
        self.completing = False
        self._granted: dict[str, int] = {}
        self._unbroken: dict[str, int] = {}
        """Since which generation each member has taken part in every round."""
        self._instances: dict[str, str] = {}
        self._gone: dict[str, int] = {}
        """Members that went since the group's last record: a broker that dies before the next one still knows them."""

    def watches(self) -> Mapping[str, Watch]:
        return {
            "join-granted": self._on_granted,
            "group-written": self._on_written,
            "rebalance-started": self._on_started,
            "broker-started": self._on_restarted,
            "member-left": self.on_gone,
            "member-expired": self.on_gone,
            "member-expelled": self.on_gone,
        }

    def has(self, member_id: str, generation: int | None = None) -> bool:
        """Whether this member may act for the group now (in this generation, where one is given)."""
        if self._granted.get(member_id) != self.generation:
            return False
        return generation is None or generation == self.generation

    def covers(self, member_id: str, generation: int) -> bool:
        """Whether what the member got in this generation may still be its own: it missed no round since."""
        return self.has(member_id) and generation >= self._unbroken.get(member_id, 0)

    def _on_granted(self, record: TraceRecord) -> None:
        generation = record.generation or 0
        if generation > self._granted.get(record.member, -1) + 1:
            self._unbroken[record.member] = generation
        self._granted[record.member] = generation
        self.generation = max(self.generation, generation)
        instance = record.data.get("instance")
        if isinstance(instance, str):
            before = self._instances.get(instance)
            if before is not None and before != record.member:
                self._granted.pop(before, None)
                self._gone.pop(before, None)
            self._instances[instance] = record.member

    def _on_written(self, record: TraceRecord) -> None:
        self.generation = max(self.generation, record.generation or 0)
        self.completing = record.data.get("state") == "CompletingRebalance"
        self._gone.clear()

    def _on_restarted(self, record: TraceRecord) -> None:
        self._granted.update(self._gone)
        self._gone.clear()

    def _on_started(self, record: TraceRecord) -> None:
        """A new round has begun: nobody waits for a plan any more, and commits of the old generation are accepted until
        the next one."""
        self.completing = False

    def on_gone(self, record: TraceRecord) -> None:
        """It left, expired or was expelled. For checkers that watch that too: one watch per step and checker."""
        granted = self._granted.pop(record.member, None)
        if granted is not None:
            self._gone[record.member] = granted
