"""I6: for each partition and member: assigned, then exactly one of revoked or lost."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model import TraceRecord
from holdfast.sim.checkers.base import Checker, Watch
from holdfast.sim.checkers.i05_kept import parts_of


class CallbacksInPairs(Checker):
    """Keeps what each listener believes to have."""

    invariant = "I6"

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[tuple[str, object], set[tuple[str, object]]] = {}

    def watches(self) -> Mapping[str, Watch]:
        return {"called": self._on_called, "process-ended": self._on_ended}

    def _on_called(self, record: TraceRecord) -> None:
        held = self._held.setdefault((record.member, record.data["life"]), set())
        parts = parts_of(record.data["partitions"])
        call = record.data["call"]
        if call == "assigned":
            twice = parts & held
            if twice:
                self.violated(record.at, f"{record.member} was told of {named(twice)} as assigned though it has it")
            held |= parts
        else:
            unknown = parts - held
            if unknown:
                self.violated(record.at, f"{record.member} was told of {named(unknown)} as {call} though it lacks it")
            if not parts:
                self.violated(record.at, f"{record.member} was told that nothing was {call}")
            held -= parts

    def _on_ended(self, record: TraceRecord) -> None:
        held = self._held.pop((record.member, record.data["life"]), set())
        if held:
            self.violated(record.at, f"{record.member} ended and was never told that {named(held)} was taken away")


def named(parts: frozenset[tuple[str, object]] | set[tuple[str, object]]) -> str:
    return min(f"{topic}-{number}" for topic, number in parts)
