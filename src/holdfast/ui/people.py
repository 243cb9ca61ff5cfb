"""Every member's history: is it in the group, on its way in, hung, frozen, out, or gone?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.model import TraceRecord
from holdfast.ui.names import Names

LEGEND: Mapping[str, tuple[str, str]] = {
    "absent": (" ", "not started"),
    "joining": ("→", "on its way into a round"),
    "in": ("●", "in the group"),
    "hung": ("‖", "does not poll; heartbeats go on"),
    "frozen": ("❄", "its process is stopped"),
    "out": ("○", "out of the group"),
    "gone": ("✕", "its process has ended"),
}
"""Each state's sign and meaning."""

OUT = frozenset({"poll-expired", "membership-lost", "left-group"})


@dataclass(slots=True)
class Person:
    """One process by its name, across restarts."""

    name: str
    static: str | None = None
    spans: list[tuple[float, str]] = field(default_factory=lambda: [(0.0, "absent")])
    alive: bool = False
    hung: bool = False
    frozen: bool = False
    where: str = "joining"

    def note(self, at: float) -> None:
        """Begin a new span if the state has changed."""
        state = self._state()
        if self.spans[-1][1] == state:
            return
        if self.spans[-1][0] == at:
            self.spans.pop()
        if not self.spans or self.spans[-1][1] != state:
            self.spans.append((at, state))

    def _state(self) -> str:
        if not self.alive:
            return "gone"
        if self.frozen:
            return "frozen"
        if self.where == "out":
            return "out"
        return "hung" if self.hung else self.where


def people(records: Sequence[TraceRecord], names: Names) -> list[Person]:
    """In the order in which they started."""
    found = {name: Person(name) for name in names.order}
    for record in records:
        person = found.get(names.of(record.member))
        if person is None or record.source == "coordinator":
            continue
        if _apply(record, person):
            person.note(record.at)
    return list(found.values())


def _apply(record: TraceRecord, person: Person) -> bool:
    """Change the person as the record says; False if the record says nothing about it."""
    step = record.step
    if step == "process-started":
        static = record.data.get("static")
        person.static = static if isinstance(static, str) else None
        person.alive, person.hung, person.frozen, person.where = True, False, False, "joining"
    elif step in ("process-died", "process-ended"):
        person.alive = False
    elif step in ("process-frozen", "process-woke"):
        person.frozen = step == "process-frozen"
    elif step in ("application-hung", "application-returned"):
        person.hung = step == "application-hung"
    elif step in OUT:
        person.where = "out"
    elif step in ("join-sent", "stable") and record.source == "member":
        person.where = "joining" if step == "join-sent" else "in"
    else:
        return False
    return True
