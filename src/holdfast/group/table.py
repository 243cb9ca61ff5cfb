"""What a transition table is made of: every pair of state and event is handled, ignored for a reason, or illegal.

    TABLE: Table[State, Callable[...]] = {(State.EMPTY, Heartbeat): Handled(refuse_unknown, says="25"), ...}

Rules. A table is plain data: `tools/diagrams.py` draws it and writes it down, the tests check it for holes. It must
not know which machine it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

S = TypeVar("S", bound=Enum)
H = TypeVar("H", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Handled(Generic[S, H]):
    """The event does something here, even if it is only an answer."""

    handler: H
    to: tuple[S, ...] = ()
    """The states it may lead to, other than staying. A machine may check itself against this."""
    says: str = ""
    """In a few words: what it does or answers. Empty takes the first line of the handler's docstring."""

    @property
    def note(self) -> str:
        """What to print about it."""
        if self.says:
            return self.says
        return (self.handler.__doc__ or "").strip().split("\n", 1)[0]


@dataclass(frozen=True, slots=True)
class Ignored:
    """The event can happen here and means nothing."""

    reason: str


@dataclass(frozen=True, slots=True)
class Illegal:
    """The event can't happen here: if it does, the caller is broken, and the machine says so."""

    reason: str


Entry = Handled[S, H] | Ignored | Illegal
Table = Mapping[tuple[S, type], Entry[S, H]]


def holes(table: Mapping[tuple[S, type], object], states: Iterable[S], events: Iterable[type]) -> list[str]:
    """The pairs that a table forgot, as words."""
    every = list(events)
    return [f"{state.name} × {event.__name__}" for state in states for event in every if (state, event) not in table]
