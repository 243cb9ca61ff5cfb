"""Everything that is wrong with a group: all checks, the costliest finding first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.doctor import costly, investigation, turnover
from holdfast.doctor import finding as f
from holdfast.doctor.finding import Finding
from holdfast.doctor.history import History

LOOKS: Sequence[Callable[[History], list[Finding]]] = (
    investigation.crashes,
    investigation.static_crashes,
    investigation.watched_crashes,
    investigation.too_slow,
    investigation.collisions,
    investigation.eager,
    costly.slow_to_join,
    turnover.turnover,
    costly.commit_failures,
    costly.skew,
)
ORDER = (
    f.CRASH_LOOP,
    f.STORM,
    f.COLLISION,
    f.EAGER,
    f.HANG,
    f.CRASHES,
    f.SLOW_LISTENER,
    f.FLAPPING,
    f.RESTARTS,
    f.COMMITS,
    f.SKEW,
    f.BUSY,
)
EXPLAIN = frozenset({f.STORM, f.HANG, f.CRASH_LOOP, f.CRASHES, f.COLLISION, f.FLAPPING, f.RESTARTS})
"""Findings that explain many rebalances; with one of them, `many-rebalances` is not reported."""


def findings_of(history: History) -> list[Finding]:
    found = [one for look in LOOKS for one in look(history)]
    if not {one.kind for one in found} & EXPLAIN:
        found += costly.busy(history)
    return sorted(found, key=lambda one: (-one.cost_ms, ORDER.index(one.kind), one.culprit))
