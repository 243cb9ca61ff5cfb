"""Names for member ids. A coordinator gives out ids; people know members by the names of their processes."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model import TraceRecord


class Names:
    """All processes of a trace in the order in which they appeared, and their member ids."""

    def __init__(self, records: Iterable[TraceRecord]) -> None:
        self.order: list[str] = []
        self._of: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        for record in records:
            if record.step == "process-started" and record.member not in self._of:
                self._add(record.member)
            elif record.step == "lane-opened" and isinstance(record.data.get("id"), str):
                self._of[str(record.data["id"])] = record.member

    def _add(self, name: str) -> None:
        self._numbers[name] = len(self.order)
        self.order.append(name)
        self._of[name] = name

    def of(self, member: str) -> str:
        """The name of the process with this name or member id; an unknown id stays as it is."""
        known = self._of.get(member)
        if known is None:
            starts = [name for name in self.order if member.startswith(f"{name}-")]
            known = self._of[member] = max(starts, key=len, default=member)
        return known

    def index(self, member: str) -> int:
        """Its number among the processes; -1 if it is not one of them."""
        return self._numbers.get(self.of(member), -1)
