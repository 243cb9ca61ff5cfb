"""The running code, shortened to a few lines of pseudocode, and the line that each step of a trace lights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.model import TraceRecord
from holdfast.ui.names import Names


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines of pseudocode, and the steps that light them."""

    title: str
    lines: tuple[str, ...]
    lit_by: Mapping[str, int]
    """A step -> a line, counted from 0."""


COORDINATOR = Listing(
    "the coordinator",
    (
        "def a_member_comes_or_goes():",
        "    state = PreparingRebalance",
        "    answer every heartbeat: a rebalance is on",
        "    wait until every member has joined",
        "    generation += 1; state = CompletingRebalance",
        "    ask the leader for a plan",
        "    answer every sync with its part of the plan",
        "    state = Stable",
    ),
    {"rebalance-started": 1, "heard": 2, "join-sent": 3, "generation": 4, "joined": 5, "sync-sent": 6, "stable": 7},
)

EAGER = Listing(
    "a consumer, eager",
    (
        "def the_group_rebalances():",
        "    on_revoked(everything)   # its lanes go dark",
        "    commit, flush, close state",
        "    join()                   # waits for everybody",
        "    mine = sync()",
        "    on_assigned(mine)        # state is built again",
        "    poll()                   # lit again",
    ),
    {"revoking": 1, "called": 2, "join-sent": 3, "sync-sent": 4, "synced": 5, "stable": 6},
)

COOPERATIVE = Listing(
    "a consumer, cooperative",
    (
        "def the_group_rebalances():",
        "    join(owned)              # works on meanwhile",
        "    mine = sync()",
        "    lost = owned - mine      # only what moves",
        "    if lost:",
        "        on_revoked(lost)     # these lanes go dark",
        "        commit, then join again",
        "    on_assigned(mine - owned)",
        "    poll()",
    ),
    {
        "join-sent": 1,
        "sync-sent": 2,
        "synced": 3,
        "revoking": 5,
        "called": 5,
        "rejoined": 6,
        "assigned": 7,
        "stable": 8,
    },
)

HOLDFAST = Listing(
    "a consumer, holdfast",
    (
        "def the_group_rebalances():  # a poke said so",
        "    join(owned)              # works on meanwhile",
        "    mine, mark = sync()",
        "    lost = owned - mine      # only what moves",
        "    if lost:",
        "        on_revoked(lost)     # these lanes go dark",
        "        commit, then join with the positions",
        "    elif mark: join again at once  # no heartbeat",
        "    on_assigned(mine - owned)  # from the positions",
        "    poll()",
    ),
    {
        "join-sent": 1, "sync-sent": 2, "synced": 3, "revoking": 5, "called": 5, "rejoined": 6, "marked": 7,
        "assigned": 8, "stable": 9,
    },
)  # fmt: skip

LISTINGS: Mapping[str, Listing] = {"eager": EAGER, "cooperative": COOPERATIVE, "holdfast": HOLDFAST}


ROUND_LINES: Mapping[str, int] = {
    state: COORDINATOR.lit_by[step]
    for state, step in (
        ("PreparingRebalance", "join-sent"),
        ("CompletingRebalance", "joined"),
        ("Assigning", "joined"),
        ("Reconciling", "sync-sent"),
    )
}
"""The coordinator's line for each state that is seen from outside. In other states it is not in a round."""


def coordinator_lines(records: Sequence[TraceRecord]) -> list[tuple[float, int]]:
    """(from, line) of the coordinator's listing. Members' joins and syncs show what it waits for."""
    lines: list[tuple[float, int]] = [(0.0, 0)]
    rebalancing = False
    for record in records:
        step = record.step
        if record.source == "coordinator" and step in ("rebalance-started", "generation", "stable"):
            rebalancing = step != "stable"
            _light(lines, record.at, COORDINATOR.lit_by[step])
        elif step == "state-seen":
            rebalancing = record.data.get("state") in ROUND_LINES
            _light(lines, record.at, ROUND_LINES.get(str(record.data.get("state")), COORDINATOR.lit_by["stable"]))
        elif rebalancing and record.source == "member" and step in ("join-sent", "joined", "sync-sent"):
            _light(lines, record.at, COORDINATOR.lit_by[step])
    return lines


def member_lines(records: Sequence[TraceRecord], names: Names, listing: Listing) -> list[list[tuple[float, int]]]:
    """The same for every member, by its number."""
    lines: list[list[tuple[float, int]]] = [[(0.0, 0)] for _ in names.order]
    gave: dict[int, bool] = {}
    for record in records:
        number = names.index(record.member) if record.member else -1
        if number < 0 or record.source == "coordinator":
            continue
        step = record.step
        if step == "join-sent" and record.generation is not None and lines[number][-1][1] > 2:
            step = "rejoined" if gave.pop(number, False) else "marked" if "marked" in listing.lit_by else step
            step = step if record.cause and "the group is rebalancing" not in record.cause else "join-sent"
        if step == "revoking":
            gave[number] = True
        if step == "called" and (record.data.get("call") == "assigned" or not record.data.get("partitions")):
            continue
        if step in listing.lit_by:
            _light(lines[number], record.at, listing.lit_by[step])
    return lines


def _light(lines: list[tuple[float, int]], at: float, line: int) -> None:
    if lines[-1][1] == line:
        return
    if lines[-1][0] == at:
        lines.pop()
    lines.append((at, line))
