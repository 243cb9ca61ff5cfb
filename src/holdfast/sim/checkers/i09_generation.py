"""I9: the generation only rises: every completed join barrier has a higher one, also after a crash."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model import TraceRecord
from holdfast.sim.checkers.base import Checker, Watch


class GenerationRises(Checker):
    """Keeps the highest generation that was written or granted."""

    invariant = "I9"

    def __init__(self) -> None:
        super().__init__()
        self._written = 0
        self._granted: dict[str, int] = {}

    def watches(self) -> Mapping[str, Watch]:
        return {"group-written": self._on_written, "join-granted": self._on_granted}

    def _on_written(self, record: TraceRecord) -> None:
        generation = record.generation or 0
        new_round = record.data["state"] in ("CompletingRebalance", "Empty")
        if generation < self._written or (new_round and generation == self._written):
            self.violated(record.at, f"generation {generation} was written after {self._written}")
        self._written = max(self._written, generation)

    def _on_granted(self, record: TraceRecord) -> None:
        generation = record.generation or 0
        if generation < self._granted.get(record.member, 0):
            self.violated(
                record.at, f"{record.member} was given generation {generation} after {self._granted[record.member]}"
            )
        self._granted[record.member] = generation
