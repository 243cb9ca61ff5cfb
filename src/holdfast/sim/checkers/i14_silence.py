"""I14: when the coordinator expels a silent member, its application has already stopped; and one whose process was
stopped for a session does not go on when it wakes.

So no member works beside its successor because the network was cut, or because its process was stopped. Not judged:
other clients, which have no such rule; a batch in work, which is finished; and whether a member has stopped whose join
is under way, because a parked join is not answered for as long as a round takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.model import TraceRecord
from holdfast.sim.checkers.base import Checker, Watch

if TYPE_CHECKING:
    from holdfast.sim.world import World

Process = tuple[str, object]
"""The member's name, and how many processes were started before it."""


class StandsStillInSilence(Checker):
    """Keeps who is at work under which member id, and whose join is under way."""

    invariant = "I14"

    def __init__(self) -> None:
        super().__init__()
        self._at_work: dict[Process, set[tuple[object, object]]] = {}
        self._ids: dict[str, Process] = {}
        self._joining: set[str] = set()
        self._frozen_at: dict[Process, float] = {}
        self._wrong: list[tuple[float, Process, float, str]] = []
        """Until it is known whether the process has the rule. The third says for how long it had been stopped."""

    def watches(self) -> Mapping[str, Watch]:
        return {
            "process-frozen": self._on_frozen,
            "lane-opened": self._on_opened,
            "lane-stopped": self._on_stopped,
            "join-sent": self._on_join_sent,
            "joined": self._on_join_over,
            "join-retry": self._on_join_over,
            "membership-lost": self._on_join_over,
            "member-expired": self._on_expired,
        }

    def _on_frozen(self, record: TraceRecord) -> None:
        self._frozen_at[record.member, record.data["life"]] = record.at

    def _on_opened(self, record: TraceRecord) -> None:
        data = record.data
        process = (record.member, data["life"])
        if record.cause == "woke":
            stopped_ms = record.at - self._frozen_at[process]
            what = f"{record.member} was stopped for {stopped_ms:.0f} ms, and goes on at once when it wakes"
            self._wrong.append((record.at, process, stopped_ms, what))
        self._ids[str(data["id"])] = process
        self._at_work.setdefault(process, set()).add((data["topic"], data["partition"]))

    def _on_stopped(self, record: TraceRecord) -> None:
        data = record.data
        self._at_work.get((record.member, data["life"]), set()).discard((data["topic"], data["partition"]))

    def _on_join_sent(self, record: TraceRecord) -> None:
        self._joining.add(record.member)

    def _on_join_over(self, record: TraceRecord) -> None:
        self._joining.discard(record.member)

    def _on_expired(self, record: TraceRecord) -> None:
        process = self._ids.get(record.member)
        works_on = self._at_work.get(process, set()) if process is not None else set()
        if process is not None and works_on and record.member not in self._joining:
            topic, partition = min(works_on, key=str)
            what = f"{record.member} was given up for its silence, and works on at {topic}-{partition}"
            self._wrong.append((record.at, process, math.inf, what))

    def look(self, world: World) -> None:
        slow = any(plan.slow for plan in world.config.members) or any(
            h.kind == "batch" for h in world.config.happenings
        )
        for at, (_, life), silent_ms, what in self._wrong:
            assert isinstance(life, int)
            plan = world.processes[life].plan
            if not slow and not plan.foreign and silent_ms > plan.session_timeout_ms:
                self.violated(at, what)
        self._wrong.clear()
