"""The coordinator's history, and the rebalances: cause, culprit, what moved, what it cost.

A rebalance is the rounds from the first disturbance until nobody owes a rejoin. A rejoin is owed if a round has revoked
or withheld partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.model import TopicPartition, TraceRecord
from holdfast.sim.timeline import Gap
from holdfast.ui.lanes import partitions_of
from holdfast.ui.names import Names

STATES = {
    "rebalance-started": "PreparingRebalance",
    "generation": "CompletingRebalance",
    "stable": "Stable",
    "empty": "Empty",
}


SOON_MS = 1_000.0
"""A member applies its assignment a moment after the coordinator is stable."""


def can_process(kind: str) -> dict[str, str]:
    """Whether members may process, by the coordinator's state."""
    meanwhile = "less and less: each gives up all to join" if kind == "eager" else "yes, what nobody has given up"
    return {
        "Empty": "no: nobody is in the group",
        "Dead": "no: there is no such group",
        "Assigning": meanwhile,
        "Reconciling": meanwhile,
        "PreparingRebalance": meanwhile,
        "CompletingRebalance": meanwhile,
        "Stable": "yes, what is assigned",
    }


@dataclass(slots=True, kw_only=True)
class Rebalance:
    """From the first disturbance until the last lane is lit again."""

    from_ms: float
    to_ms: float
    cause: str
    culprit: str
    rounds: int = 0
    generation: int = 0
    settled_ms: float | None = None
    """When its last round was over; None during a round."""
    birth: bool = False
    """Whether the group was empty before."""
    gaps: list[Gap] = field(default_factory=list)
    seen_moved: list[TopicPartition] = field(default_factory=list)
    """Moves without a gap: seen from outside, or taken over while the old owner still worked."""

    @property
    def pauses(self) -> list[Gap]:
        return [gap for gap in self.gaps if gap.by_rebalance]

    @property
    def paused(self) -> list[TopicPartition]:
        return sorted({gap.partition for gap in self.pauses})

    @property
    def moved(self) -> list[TopicPartition]:
        told = {gap.partition for gap in self.gaps if gap.after and gap.after != gap.before}
        return sorted(told.union(self.seen_moved))

    @property
    def needless(self) -> list[TopicPartition]:
        return sorted({gap.partition for gap in self.gaps if gap.needless})

    @property
    def longest_ms(self) -> float:
        return max((gap.ms for gap in self.pauses), default=0.0)

    @property
    def pause_ms(self) -> float:
        return sum(gap.ms for gap in self.pauses)


def coordinator(records: Sequence[TraceRecord]) -> list[tuple[float, str, int]]:
    """(from, state, generation)"""
    spans: list[tuple[float, str, int]] = [(0.0, "Empty", 0)]
    for record in records:
        if record.source == "coordinator" and (record.step in STATES or record.step == "state-seen"):
            state = STATES.get(record.step) or str(record.data.get("state"))
            generation = record.generation if record.generation is not None else spans[-1][2]
            if spans[-1][0] == record.at:
                spans.pop()
            spans.append((record.at, state, generation))
    return spans


def protocol(records: Sequence[TraceRecord]) -> str:
    """The assignor of the first generation."""
    return next((str(r.data.get("protocol", "")) for r in records if r.step == "generation"), "")


def rebalances(
    records: Sequence[TraceRecord],
    gaps: Sequence[Gap],
    names: Names,
    moves: Sequence[tuple[float, TopicPartition]] = (),
) -> list[Rebalance]:
    """`moves` may have no gap: the old owner is out of the group and still at its last batch."""
    found: list[Rebalance] = []
    owing = False
    for record in records:
        if record.step == "synced" and record.source == "member":
            owing = owing or bool(record.data.get("revoked")) or record.data.get("withheld") is True
        if record.source != "coordinator":
            continue
        if record.step == "rebalance-started" and owing and found:
            found[-1].settled_ms = None
        elif record.step == "rebalance-started":
            found.append(
                Rebalance(
                    from_ms=record.at,
                    to_ms=record.at,
                    cause=record.cause or "",
                    culprit=names.of(record.culprit) if record.culprit else "",
                    birth=record.data.get("state") == "Empty",
                )
            )
        elif record.step == "rebalance-seen":
            _take_seen(found, record)
        elif record.step == "generation":
            owing = False
            if found:
                found[-1].rounds += 1
                found[-1].generation = record.generation or 0
        if record.step == "stable" and found:
            found[-1].to_ms = found[-1].settled_ms = record.at
    # Only a rebalance changes owners, however late the new one begins: it may have a long batch in work. Any other gap
    # that begins long after a rebalance has another cause, for example a static member's restart.
    for gap in gaps:
        last = _latest(found, gap.to_ms)
        moved = gap.after not in ("", gap.before)
        if last is not None and (moved or last.settled_ms is None or gap.from_ms <= last.settled_ms + SOON_MS):
            last.gaps.append(gap)
            if gap.after:
                last.to_ms = max(last.to_ms, gap.to_ms)
    for at, partition in moves:
        last = _latest(found, at)
        if last is not None:
            last.seen_moved.append(partition)
            last.to_ms = max(last.to_ms, at)
    return found


def _latest(found: Sequence[Rebalance], at: float) -> Rebalance | None:
    return next((r for r in reversed(found) if r.from_ms <= at), None)


def _take_seen(found: list[Rebalance], record: TraceRecord) -> None:
    """Add a rebalance that was seen from outside after its end. One with two rounds is reported twice."""
    data = record.data
    began, rounds, moved = data.get("began"), data.get("rounds"), data.get("moved")
    one = Rebalance(
        from_ms=float(began) if isinstance(began, int | float) else record.at,
        to_ms=record.at,
        settled_ms=record.at,
        cause=record.cause or "",
        culprit=record.culprit or "",
        rounds=rounds if isinstance(rounds, int) else 1,
        generation=record.generation or 0,
        seen_moved=partitions_of(moved),
    )
    if one.rounds > 1 and found:
        one.seen_moved += found.pop().seen_moved
    found.append(one)
