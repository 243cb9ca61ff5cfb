"""The combinations: how offsets are kept × what callbacks do × what happens, each with a stable id.

    auto-long/on_revoke=commit-sync/join          cooperative-sticky
    auto-long/on_revoke=commit-sync/join@range    the same under range

Everything crossed with everything would be a hundred thousand runs, most of which meet nothing new: a callback and an
error code of a commit that comes minutes later do not meet. So what can meet is crossed: offsets with everything that
happens, callbacks with everything that calls them, commits and their errors with every way to commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dropin_callbacks import CALLBACKS, Callbacks
from dropin_faults import CUTS, ERRORS, LOGINS
from dropin_happenings import CLUSTER, OTHERS, Happening
from dropin_offsets import KEEPINGS, Keeping

HAPPENINGS = {each.name: each for each in (*OTHERS, *CLUSTER, *ERRORS, *CUTS, *LOGINS)}


@dataclass(frozen=True, slots=True)
class Combination:
    keeping: Keeping
    callbacks: Callbacks
    happening: Happening
    strategy: str = ""

    @property
    def id(self) -> str:
        name = f"{self.keeping.name}/{self.callbacks.name}/{self.happening.name}"
        return f"{name}@{self.strategy}" if self.strategy else name


EXCLUDED = (
    ("hand-*/on_*", "callbacks belong to a subscription"),
    ("hand-*/no-on_lost/*", "callbacks belong to a subscription"),
    ("hand-*@*", "no strategy without a subscription"),
    ("*/on_assign=unsubscribe/join*", "who has left gets no share"),
    ("*/on_assign=unsubscribe/leave*", "who has left gets no share"),
    ("*/on_*=close/*", "confluent's own class crashes or hangs there; ours has a test of its own"),
)
"""What makes no sense, and why."""


def excluded(combination: Combination) -> str | None:
    """Why it is left out, or None."""
    if combination.keeping.by_hand and combination.happening.group:
        return "who assigns by hand is no member"
    if combination.callbacks.misused == combination.strategy and combination.happening.name != "close":
        return "confluent refuses what the callback does and stands still; with close it shows"
    for pattern, reason in EXCLUDED:
        if fnmatchcase(combination.id, pattern):
            return reason
    return None


def _cross(
    keepings: Iterable[str], callbacks: Iterable[str], happenings: Iterable[str], strategies: Iterable[str] = ("",)
) -> Iterator[Combination]:
    happenings, strategies, callbacks = list(happenings), list(strategies), list(callbacks)
    for keeping in keepings:
        for callback in callbacks:
            for happening in happenings:
                for strategy in strategies:
                    yield Combination(KEEPINGS[keeping], CALLBACKS[callback], HAPPENINGS[happening], strategy)


def _of(*apis: str) -> list[str]:
    """Every error and every cut of these APIs."""
    return [name for name in HAPPENINGS if name.split("-")[0] in apis]


BOTH = ("", "range")
WORLD = [each.name for each in (*OTHERS, *CLUSTER, *LOGINS)]
COMMITTERS = ("auto-short", "auto-long", "sync", "async", "metadata", "stored", "hand-auto", "hand-long", "hand-sync")
STILL = ("on_revoke=pause", "on_assign=pause")
"""What makes confluent stand still under range, and a run take long: for the nightly list."""
OUSTED = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS")
MOVES = ("close", "join", "leave", "resubscribe")


def _everything() -> Iterator[Combination]:
    yield from _cross(KEEPINGS, ["nothing"], WORLD)
    yield from _cross(KEEPINGS, ["nothing"], ["join", "leave", "close"], ["range"])
    yield from _cross(["auto-long", "none", "stored"], CALLBACKS, MOVES, BOTH)
    yield from _cross(COMMITTERS, ["nothing"], _of("offset_commit"))
    yield from _cross(["auto-long", "hand-long"], ["nothing"], _of("offset_fetch", "metadata", "list_offsets"))
    yield from _cross(["auto-long"], ["nothing"], _of("find_coordinator", "join_group", "sync_group", "leave_group"))
    yield from _cross(["auto-long", "sync"], ["nothing"], _of("heartbeat"))
    yield from _cross(["auto-long", "stored"], CALLBACKS, [f"heartbeat-{code}-x1" for code in OUSTED], BOTH)


def _daily() -> Iterator[Combination]:
    """The share of every day: each value of each list once at least, and the pairs in which faults were found."""
    yield from _cross(KEEPINGS, ["nothing"], ["close", "join"])
    yield from _cross(["auto-long"], ["nothing"], WORLD)
    yield from _cross(["auto-long"], CALLBACKS, ["close"])
    yield from _cross(["auto-long"], CALLBACKS, ["join"])
    yield from _cross(["auto-long"], [name for name in CALLBACKS if name not in STILL], ["join"], ["range"])
    handing = [f"on_revoke={what}" for what in ("commit-sync", "commit-async", "store_offsets", "incremental_unassign")]
    yield from _cross(["none", "stored"], handing, ["close", "join"], BOTH)
    yield from _cross(["auto-long", "sync"], ["nothing"], _once("offset_commit"))
    yield from _cross(["hand-long"], ["nothing"], ["offset_commit-NOT_COORDINATOR-x1", "moved", "restart", "read-on"])
    apis = ("find_coordinator", "join_group", "sync_group", "heartbeat", "offset_fetch", "leave_group", "metadata")
    yield from _cross(["auto-long"], ["nothing"], _once(*apis))
    # What the first whole night found.
    yield from _cross(["none"], ["on_assign=pause", "on_assign=raise"], ["resubscribe"])
    yield from _cross(["stored"], ["nothing", "on_revoke=position"], ["heartbeat-REBALANCE_IN_PROGRESS-x1"])
    yield from _cross(["async", "stored"], ["nothing"], ["offset_commit-ILLEGAL_GENERATION-x1"])


def _once(*apis: str) -> list[str]:
    return [name for name in _of(*apis) if name.endswith("-x1")]


def daily() -> dict[str, Combination]:
    """What `make test` plays."""
    return {each.id: each for each in _daily() if excluded(each) is None}


def combinations() -> dict[str, Combination]:
    """All that make sense, by id, in a stable order."""
    return {each.id: each for each in _everything() if excluded(each) is None}
