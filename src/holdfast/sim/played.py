"""A setup that was played in one way, and what can be measured in it. Everything is read out of trace records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from holdfast.model import HoldfastError, TopicPartition, TraceRecord
from holdfast.sim.config import WorldConfig
from holdfast.sim.setup import Setup
from holdfast.sim.timeline import Gap, Summary, Timeline, summarise, timeline
from holdfast.sim.world import World, WorldResult

GONE = frozenset({"member-left", "member-expired", "member-expelled"})


@dataclass(frozen=True)
class Played:
    """One history."""

    setup: Setup
    kind: str
    result: WorldResult

    @property
    def records(self) -> list[TraceRecord]:
        return self.result.records

    @cached_property
    def line(self) -> Timeline:
        return timeline(self.records, self.result.ended_at_ms)

    @cached_property
    def summary(self) -> Summary:
        return summarise(self.line, self.result.rounds)

    @cached_property
    def gaps(self) -> list[Gap]:
        return self.line.gaps()

    @cached_property
    def event(self) -> TraceRecord | None:
        """What was done to the group: the first thing, or the last one before a member was taken out for it."""
        found: TraceRecord | None = None
        for record in self.records:
            if record.step == "happened":
                found = record
            elif record.step in GONE and found is not None:
                return found
        return next((r for r in self.records if r.step == "happened"), None)

    @property
    def event_ms(self) -> float:
        """When that was; the end if nothing was done."""
        return self.result.ended_at_ms if self.event is None else self.event.at

    @cached_property
    def victims(self) -> frozenset[TopicPartition]:
        """The partitions that its target worked on at that moment."""
        target = "" if self.event is None else self.event.data["target"]
        return frozenset(
            partition
            for partition, stretches in self.line.stretches.items()
            for s in stretches
            if s.member == target and s.from_ms <= self.event_ms <= s.to_ms
        )

    def measure(self, name: str) -> float:
        return MEASURES[name](self)

    def first_after(self, at: float, *steps: str, source: str = "") -> TraceRecord | None:
        return next(
            (r for r in self.records if r.at >= at and r.step in steps and (not source or r.source == source)), None
        )


def play(setup: Setup, kind: str) -> Played:
    return Played(setup, kind, run(setup.config(kind)))


def run(config: WorldConfig) -> WorldResult:
    """Play somebody's own scene. One that takes too many calls is too large to play, and no broken invariant."""
    result = World(config).run()
    if result.spun:
        raise HoldfastError(
            "TOO_MUCH_TO_PLAY",
            f"the scene has more happenings by {result.ended_at_ms / 1000:.0f} s than can be played.",
            "Use fewer members, partitions or events, longer batches and heartbeats, or a shorter time.",
        )
    return result


def rounds(played: Played) -> float:
    """Rounds after the one in which the group began."""
    return float(max(0, played.result.rounds - 1))


def moved(played: Played) -> float:
    """Partitions that changed hands at least once after the event."""
    return float(
        len(
            {
                partition
                for partition, stretches in played.line.stretches.items()
                if len({s.member for s in stretches if s.to_ms > played.event_ms}) > 1
            }
        )
    )


def unstable_share(played: Played) -> float:
    """The share of time after the group began in which its coordinator was not Stable, in percent."""
    began = since = played.result.ended_at_ms
    busy = 0.0
    stable = False
    for record in played.records:
        if record.source != "coordinator":
            continue
        if record.step == "stable" and not stable:
            if began == played.result.ended_at_ms:
                began = record.at
            else:
                busy += record.at - since
            stable = True
        elif record.step == "rebalance-started" and stable:
            since, stable = record.at, False
    if not stable and began < played.result.ended_at_ms:
        busy += played.result.ended_at_ms - since
    return 100.0 * busy / max(1.0, played.result.ended_at_ms - began)


def lost_share(played: Played) -> float:
    """The share of all partitions' time, after the group began, in which they were not processed, in percent."""
    began = min((s[0].from_ms for s in played.line.stretches.values()), default=0.0)
    whole = (played.result.ended_at_ms - began) * max(1, len(played.line.stretches))
    return 100.0 * played.summary.dark_ms / max(1.0, whole)


def evicted_after(played: Played) -> float:
    """From the event until the coordinator takes the member out."""
    record = played.first_after(played.event_ms, *GONE, source="coordinator")
    return float("nan") if record is None else record.at - played.event_ms


def evicted_at(played: Played) -> float:
    """The same, since the start of the scene."""
    return played.event_ms + evicted_after(played)


def retaken_after(played: Played) -> float:
    """From the first eviction until others work on everything that the member had."""
    gone = evicted_at(played)
    ends = [gap.to_ms for gap in played.gaps if gap.partition in played.victims and gap.from_ms <= gone < gap.to_ms]
    return max(ends, default=float("nan")) - gone


def back_after(played: Played) -> float:
    """From the event until the member asks to be let in again."""
    record = played.first_after(evicted_at(played), "application-returned")
    return float("nan") if record is None else record.at - played.event_ms


def others_paused(played: Played) -> float:
    """Partitions of others that paused until the member's own ones were taken over."""
    return float(len({gap.partition for gap in _of_others(played)}))


def others_longest(played: Played) -> float:
    """The longest of those pauses."""
    return max((gap.ms for gap in _of_others(played)), default=0.0)


def _of_others(played: Played) -> list[Gap]:
    until = evicted_at(played) + retaken_after(played)
    return [g for g in played.gaps if g.by_rebalance and g.partition not in played.victims and g.from_ms <= until]


MEASURES: Mapping[str, Callable[[Played], float]] = {
    "longest pause by a rebalance": lambda p: p.summary.rebalanced_longest_ms,
    "longest time without processing": lambda p: p.summary.dark_longest_ms,
    "partitions that a rebalance paused": lambda p: float(p.summary.paused_partitions),
    "partitions that moved": moved,
    "rounds after the start": rounds,
    "time in which the group is not Stable": unstable_share,
    "processing time that is lost": lost_share,
    "until the coordinator takes it out": evicted_after,
    "when the coordinator takes it out": evicted_at,
    "from then until others have its partitions": retaken_after,
    "until it asks to come back": back_after,
    "partitions of others that paused": others_paused,
    "longest pause of others": others_longest,
}
"""What a claim can be about. The name is what people read; `figure_text` knows its unit."""

COUNTS = frozenset(
    {
        "partitions that a rebalance paused",
        "partitions that moved",
        "rounds after the start",
        "partitions of others that paused",
    }
)
SHARES = frozenset({"time in which the group is not Stable", "processing time that is lost"})


def figure_text(name: str, value: float) -> str:
    """With its unit."""
    if value != value:  # not a number: it did not happen
        return "never"
    if name in COUNTS:
        return f"{value:.0f}"
    return f"{value:.1f} %" if name in SHARES else time_text(value)


def time_text(ms: float) -> str:
    if ms >= 7_200_000:
        return f"{ms / 3_600_000:.1f} h"
    if ms >= 120_000:
        return f"{ms / 60_000:.1f} min"
    return f"{ms / 1000:.1f} s" if ms >= 1_000 else f"{ms:.0f} ms"


def times_less(first: float, other: float) -> str:
    """How many times less the other is than the first; nothing where there is nothing to compare."""
    if first <= 0:
        return ""
    if other <= 0:
        return "none at all"
    ratio = max(first, other) / min(first, other)
    return f"{ratio:,.{0 if ratio >= 100 else 1}f} times {'less' if first >= other else 'more'}"
