"""I1: no partition is processed by two members at once, except by a zombie whose commits are all fenced.

A zombie is a process that still works but has no standing in the group any more and has not learnt of it. It may
overlap with its successor; I2 checks that none of its commits is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model import TraceRecord
from holdfast.sim.checkers.base import Checker, Watch
from holdfast.sim.checkers.standing import Standing

Worker = tuple[str, object]
"""A process: the member's name, and how many processes were started before it."""


class NoOverlap(Checker):
    """Keeps who is at work on what."""

    invariant = "I1"

    def __init__(self) -> None:
        super().__init__()
        self._standing = Standing()
        self._at_work: dict[tuple[object, object], dict[Worker, tuple[str, int]]] = {}
        """Partition -> who works on it, under which member id and generation."""

    def watches(self) -> Mapping[str, Watch]:
        return {**self._standing.watches(), "lane-opened": self._on_opened, "lane-stopped": self._on_stopped}

    def _on_opened(self, record: TraceRecord) -> None:
        data = record.data
        workers = self._at_work.setdefault((data["topic"], data["partition"]), {})
        worker = (record.member, data["life"])
        member_id, generation = str(data["id"]), record.generation or 0
        for other, (other_id, other_generation) in workers.items():
            if (
                other != worker
                and self._standing.covers(member_id, generation)
                and self._standing.covers(other_id, other_generation)
            ):
                self.violated(
                    record.at,
                    f"{data['topic']}-{data['partition']} is processed by {record.member} ({member_id}) "
                    f"and by {other[0]} ({other_id}), both members in good standing",
                )
        workers[worker] = (member_id, generation)

    def _on_stopped(self, record: TraceRecord) -> None:
        data = record.data
        self._at_work.get((data["topic"], data["partition"]), {}).pop((record.member, data["life"]), None)
