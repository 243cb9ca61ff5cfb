"""I3: a committed offset goes back only by an explicit reset, which comes from outside the group."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model import TraceRecord
from holdfast.sim.checkers.base import Checker, Watch


class OffsetsForward(Checker):
    """Keeps the committed offsets as they were taken."""

    invariant = "I3"

    def __init__(self) -> None:
        super().__init__()
        self._committed: dict[str, int] = {}

    def watches(self) -> Mapping[str, Watch]:
        return {"commit-taken": self._on_taken, "topic-changed": self._on_topic}

    def _on_taken(self, record: TraceRecord) -> None:
        offsets = record.data["offsets"]
        assert isinstance(offsets, dict)
        for partition, offset in offsets.items():
            assert isinstance(offset, int)
            before = self._committed.get(partition, 0)
            if offset < before and record.member:
                self.violated(
                    record.at,
                    f"{record.member} moved the committed offset of {partition} back from {before} to {offset}",
                )
            self._committed[partition] = offset

    def _on_topic(self, record: TraceRecord) -> None:
        if record.data["partitions"] == 0:
            prefix = f"{record.data['topic']}-"
            self._committed = {p: o for p, o in self._committed.items() if not p.startswith(prefix)}
