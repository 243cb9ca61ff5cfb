"""What every checker is: it watches trace records by their step, may look at the world now and then, and reports.

A checker knows one invariant and keeps its own records for it. It never relies on what the machines say of themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.model import TraceRecord

if TYPE_CHECKING:
    from holdfast.sim.world import World

Watch = Callable[[TraceRecord], None]


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold."""

    invariant: str
    at_ms: float
    what: str

    def __str__(self) -> str:
        return f"{self.invariant} violated at {self.at_ms / 1000:.3f} s: {self.what}"


def _unheard(violation: Violation) -> None:
    raise AssertionError(f"nobody listens: {violation}")


class Checker:
    """The common part: one invariant, its watches, and how it reports."""

    invariant = "I0"

    def __init__(self) -> None:
        self.report: Callable[[Violation], None] = _unheard

    def watches(self) -> Mapping[str, Watch]:
        """Step of a trace record -> what to do with it."""
        return {}

    def look(self, world: World) -> None:
        """Called now and then during a run."""

    def satisfied(self, world: World) -> bool:
        """Whether the world may end, as far as this invariant is concerned."""
        return True

    def finish(self, world: World) -> None:
        """Called at the end of a run without violations."""

    def violated(self, at_ms: float, what: str) -> None:
        self.report(Violation(self.invariant, at_ms, what))
