"""A watched group as a row of the live table, and a rebalance as a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.model.text import one_line
from holdfast.observe.history import History, Rebalance
from holdfast.observe.rows import table
from holdfast.observe.snapshot import can_process

SHOWN = 3
"""Changes of one rebalance that are named; the others are counted."""


LEAST_SAID = 3
"""Events that are shown however many groups there are."""


def watched_lines(histories: Mapping[str, History], said: Sequence[str], height: int) -> list[str]:
    """The live table and what happened last, in at most `height` lines. Where not all groups have room, those that were
    disturbed most are shown: a terminal shows no more of what is below its edge, and that is where the events are."""
    names = sorted(histories)
    if len(names) + len(said) + 2 > height:
        said = said[-max(LEAST_SAID, height // 3) :]
        room = max(1, height - len(said) - 3)
        restless = sorted(names, key=lambda one: (not histories[one].rebalancing, -histories[one].total, one))
        names = sorted(restless[:room])
    lines = table([watch_row(histories[one]) for one in names])
    hidden = len(histories) - len(names)
    if hidden:
        lines.append(f"and {hidden} more that {'was' if hidden == 1 else 'were'} disturbed less")
    return [*lines, "", *said]


def watch_row(history: History) -> dict[str, Any]:
    look = history.last
    assert look is not None
    described = look.described
    generation = described.generation
    at_least = "" if described.kind == "consumer" else "≥"
    last = history.rebalances[-1] if history.rebalances else None
    return {
        "GROUP": described.group,
        "STATE": described.state,
        "CAN-PROCESS": can_process(described.state, cooperative=history.cooperative),
        "GENERATION": f"{at_least}{generation}" if generation >= 0 else None,
        "#MEMBERS": len(described.members),
        "LAG": look.lag,
        "REBALANCES": history.total,
        "TIME-IN-THEM": f"{history.share:.0%}",
        "LAST-CAUSE": None if last is None else f"{last.cause}:{last.culprit or 'nobody'}",
    }


def change_line(group: str, ended: Rebalance) -> str:
    """billing: rebalanced in 3.1 s, 4 partitions moved; c3@10.0.0.4 joined."""
    took = f"in {ended.took_ms / 1000:.1f} s" if ended.seen else "between two looks"
    named = [str(change) for change in ended.changes[:SHOWN]]
    more = len(ended.changes) - SHOWN
    if more > 0:
        named.append(f"{more} more")
    why = ", ".join(named) or "nobody came or went"
    moved = f"{ended.moved} partition{'' if ended.moved == 1 else 's'} moved"
    return one_line(f"{group}: rebalanced {took}, {moved}; {why}")
