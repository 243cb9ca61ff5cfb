"""Writes the pictures of the machines into docs/ from their tables: `python tools/diagrams.py`.

Rules. The tables are the truth; nothing about a transition is written here. A test fails when a page differs from what
this would write. To draw another machine, add it to `machines()`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from inspect import cleandoc, getsource
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine that can be drawn."""

    page: str
    """Its file in docs/."""
    title: str
    opening: str
    source: str
    """Where its table is, for people."""
    states: type[Enum]
    events: tuple[type, ...]
    entry: Callable[[Any, type], Any]
    """(state, event type) -> the table's entry: it has a `handler` and `to`, or a `reason`."""


def machines() -> tuple[Machine, ...]:
    """Every machine whose page is kept."""
    from holdfast.group.coordinator.events import EVENTS
    from holdfast.group.coordinator.states import State
    from holdfast.group.coordinator.table import TABLE
    from holdfast.group.member.state import Phase
    from holdfast.group.member.table import TABLE as MEMBER_TABLE

    return (
        Machine(
            page="coordinator-states.md",
            title="The coordinator's machine",
            opening=(
                "One group as its coordinator sees it. A request that its state allows may still be refused for what "
                "it says: a wrong generation, an unknown member, a fenced instance id."
            ),
            source="src/holdfast/group/coordinator/table.py",
            states=State,
            events=EVENTS,
            entry=lambda state, event: TABLE[state, event],
        ),
        Machine(
            page="member-states.md",
            title="The member's machine",
            opening="One member of a group as it sees itself: KIP-429's consumer side.",
            source="src/holdfast/group/member/table.py",
            states=Phase,
            events=tuple(MEMBER_TABLE),
            entry=lambda state, event: MEMBER_TABLE[event][state],
        ),
    )


def render(machine: Machine) -> str:
    """The whole page."""
    parts = [
        f"# {machine.title}",
        machine.opening,
        f"Drawn from `{machine.source}` by `python tools/diagrams.py`; a test fails when the two differ.",
        diagram(machine),
        "## The states",
        *(f"**{state.value}** {about}" for state, about in abouts(machine.states).items()),
        "## What each event does in each state",
        "Every pair has an entry. *Ignored* means that it can happen and changes nothing; *illegal* that it can't "
        "happen unless the driver is broken.",
        *(event_table(machine, event) for event in machine.events),
    ]
    return "\n\n".join(parts) + "\n"


def diagram(machine: Machine) -> str:
    """The transitions as a mermaid picture, the events of one arrow together."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for state in machine.states:
        for event in machine.events:
            for target in targets(machine.entry(state, event)):
                if target is not state:
                    arrows.setdefault((state.name, target.name), []).append(event.__name__)
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    {state.name}: {state.value}" for state in machine.states]
    lines += [f"    [*] --> {next(iter(machine.states)).name}"]
    lines += [f"    {start} --> {end}: {', '.join(names)}" for (start, end), names in arrows.items()]
    return "\n".join([*lines, "```"])


def event_table(machine: Machine, event: type) -> str:
    """What one event does, state by state."""
    lines = [f"### {event.__name__}", "", first_paragraph(event.__doc__), "", "| in state | what happens | leads to |"]
    lines += ["|---|---|---|"]
    for state in machine.states:
        entry = machine.entry(state, event)
        leads = ", ".join(target.value for target in targets(entry) if target is not state)
        lines.append(f"| {state.value} | {in_cell(what(entry))} | {leads} |")
    return "\n".join(lines)


def targets(entry: Any) -> tuple[Enum, ...]:
    found = getattr(entry, "to", ())
    return tuple(found)


def what(entry: Any) -> str:
    """An entry in words."""
    if hasattr(entry, "handler"):
        return getattr(entry, "note", "") or first_paragraph(entry.handler.__doc__) or entry.handler.__name__
    return f"*{type(entry).__name__.lower()}*: {entry.reason}"


def abouts(states: type[Enum]) -> dict[Enum, str]:
    """The docstring under each state, which Python keeps only in the source."""
    (definition,) = ast.parse(cleandoc("\n" + getsource(states))).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[Enum, str] = {}
    for statement, after in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            (name,) = statement.targets
            assert isinstance(name, ast.Name)
            found[states[name.id]] = cleandoc(str(after.value.value)).replace("\nTransitions:", "\n\nTransitions:")
    return found


def first_paragraph(docstring: str | None) -> str:
    """Joined to one line. A dataclass without a docstring gets a signature from Python, which says nothing."""
    text = cleandoc(docstring or "").split("\n\n", 1)[0].replace("\n", " ")
    return "" if text.endswith(")") and "(" in text.split(" ", 1)[0] else text


def in_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def write(folder: Path = DOCS) -> list[Path]:
    """Write every page; returns those that changed."""
    changed = []
    for machine in machines():
        page, text = folder / machine.page, render(machine)
        if not page.exists() or page.read_text() != text:
            page.write_text(text)
            changed.append(page)
    return changed


if __name__ == "__main__":
    for written in write():
        sys.stdout.write(f"wrote {written.relative_to(DOCS.parent)}\n")
