"""I2: no stale commit is accepted: not of an old generation, not from a process that is no member, not in a round whose
plan is not there yet."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model import TraceRecord
from holdfast.sim.checkers.base import Checker, Watch
from holdfast.sim.checkers.standing import Standing


class NoStaleCommit(Checker):
    """Compares every accepted commit with its own record of who is a member."""

    invariant = "I2"

    def __init__(self) -> None:
        super().__init__()
        self._standing = Standing()

    def watches(self) -> Mapping[str, Watch]:
        return {**self._standing.watches(), "commit-taken": self._on_taken}

    def _on_taken(self, record: TraceRecord) -> None:
        if record.member == "" and (record.generation or -1) < 0:
            return  # from outside the group, by an administrator
        if not self._standing.has(record.member, record.generation):
            self.violated(
                record.at,
                f"a commit of {record.member} in generation {record.generation} was taken, "
                f"while the group is in {self._standing.generation}",
            )
        elif self._standing.completing:
            self.violated(record.at, f"a commit of {record.member} was taken between the join and the sync of a round")
