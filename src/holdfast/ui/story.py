"""Trace records in, the whole history out: plain lists and texts that the page and the picture draw without changes.

A span begins where the one before it ends, so `[from, …]` is enough. Times are milliseconds, rounded to a tenth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.model import TopicPartition, TraceRecord
from holdfast.sim.timeline import Gap, timeline
from holdfast.ui import lanes, people, pseudo, rounds
from holdfast.ui.names import Names
from holdfast.ui.steps import steps

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What is known of a live group in addition to its records."""

    begin_ms: float
    """The beginning of the known past."""
    wall_ms: float
    """When the story's clock was 0, in milliseconds since 1970."""
    strip_ms: float
    """How much of the past a lane shows at once."""
    protocol: str
    at_least: bool
    """Whether a generation may also be a later one."""
    lags: Mapping[TopicPartition, Sequence[tuple[float, float]]]
    per_s: float | None
    """Records a second that are produced; None if unknown."""
    witnesses: tuple[str, ...]


def story(
    records: Sequence[TraceRecord], end_ms: float, kind: str, *, measured: Measured | None = None
) -> dict[str, Any]:
    """Everything to draw. `kind` is the kind of group, a key of `pseudo.LISTINGS`. Without `measured` it is a simulated
    history, in which lag follows from the producer's constant rate."""
    names = Names(records)
    gaps = timeline(records, end_ms).gaps()
    found = lanes.LaneReader(names).read(records, end_ms)
    if measured is not None:
        for partition, lane in found.items():
            lane.lag = list(measured.lags.get(partition, ()))  # no points if unknown
    topics = {partition.topic for partition in found}
    told = rounds.rebalances(records, gaps, names, lanes.moves(found))
    listing = pseudo.LISTINGS[kind]
    return {
        "version": VERSION,
        "kind": kind,
        "end": _ms(end_ms),
        "protocol": rounds.protocol(records),
        "produces": sum(lane.per_ms for lane in found.values()) * 1000.0,
        "members": [
            {"name": p.name, "static": p.static, "spans": [[_ms(at), state] for at, state in p.spans]}
            for p in people.people(records, names)
        ],
        "partitions": [
            {"name": str(partition), "label": label(partition, topics), **_lane(lane, names)}
            for partition, lane in found.items()
        ],
        "coordinator": [[_ms(at), state, generation] for at, state, generation in rounds.coordinator(records)],
        "rebalances": [_rebalance(each, topics) for each in told],
        "birth": sum(each.birth for each in told[:1]),
        "steps": [[_ms(step.at), step.kind, step.text] for step in steps(records, names)],
        "code": {
            "coordinator": _listing(pseudo.COORDINATOR),
            "consumer": _listing(listing),
            "coordinatorLit": [[_ms(at), line] for at, line in pseudo.coordinator_lines(records)],
            "memberLit": [
                [[_ms(at), line] for at, line in each] for each in pseudo.member_lines(records, names, listing)
            ],
        },
        "legend": {
            "lanes": {
                state: {"sign": sign, "text": text, "height": height}
                for state, (sign, text, height) in lanes.LEGEND.items()
            },
            "members": {state: {"sign": sign, "text": text} for state, (sign, text) in people.LEGEND.items()},
            "states": rounds.can_process(kind),
        },
        "wait": wait(gaps, len(found), end_ms - (measured.begin_ms if measured else 0.0)),
        **({} if measured is None else _live(measured)),
    }


def _live(measured: Measured) -> dict[str, Any]:
    """What a live group's story adds to a simulated one, or replaces."""
    return {
        "begin": _ms(measured.begin_ms),
        "wall": _ms(measured.wall_ms),
        "strip": measured.strip_ms,
        "protocol": measured.protocol,
        "produces": None if measured.per_s is None else round(measured.per_s),
        "witnesses": list(measured.witnesses),
        "atLeast": measured.at_least,
    }


def wait(gaps: Sequence[Gap], partitions: int, end_ms: float) -> dict[str, float]:
    """The numbers of the wait-time bar: partition-time without processing, because of rebalances and in all."""
    paused = [gap for gap in gaps if gap.by_rebalance]
    return {
        "paused": _ms(sum(gap.ms for gap in paused)),
        "longest": _ms(max((gap.ms for gap in paused), default=0.0)),
        "partitions": len({gap.partition for gap in paused}),
        "needless": sum(gap.needless for gap in paused),
        "dark": _ms(sum(gap.ms for gap in gaps)),
        "darkLongest": _ms(max((gap.ms for gap in gaps), default=0.0)),
        "of": partitions,
        "during": _ms(end_ms),
    }


def label(partition: TopicPartition, topics: set[str]) -> str:
    """Short if there is only one topic."""
    return f"P{partition.partition}" if len(topics) == 1 else str(partition)


def _lane(lane: lanes.Lane, names: Names) -> dict[str, Any]:
    return {
        "spans": [
            [_ms(at), state, names.index(member) if member else -1, why] for at, state, member, why in lane.spans
        ],
        "lag": [[_ms(at), round(lag)] for at, lag in lane.lag],
    }


def _rebalance(each: rounds.Rebalance, topics: set[str]) -> dict[str, Any]:
    return {
        "from": _ms(each.from_ms),
        "to": _ms(each.to_ms),
        "cause": each.cause,
        "culprit": each.culprit,
        "rounds": each.rounds,
        "generation": each.generation,
        "moved": [label(partition, topics) for partition in each.moved],
        "paused": len(each.paused),
        "needless": len(each.needless),
        "longest": _ms(each.longest_ms),
        "pause": _ms(each.pause_ms),
    }


def _listing(listing: pseudo.Listing) -> dict[str, Any]:
    return {"title": listing.title, "lines": list(listing.lines)}


def _ms(value: float) -> float:
    return round(value, 1)


def moment_text(told: Mapping[str, Any], moment: float) -> str:
    """Seconds since the start, or for a live group the time of day."""
    if "wall" not in told:
        return f"{moment / 1000:.1f} s"
    day = datetime.fromtimestamp((told["wall"] + moment) / 1000).astimezone()
    return f"{day:%H:%M:%S}.{day.microsecond // 100_000}"


def strip_window(told: Mapping[str, Any], moment: float) -> tuple[float, float]:
    """The window that the strips show: a whole scene, or for a live group the part around the moment."""
    if "strip" not in told:
        return 0.0, told["end"]
    strip = told["strip"]
    to = max(told["begin"] + strip, min(told["end"], moment + strip / 4))
    return to - strip, to


def at(spans: Sequence[Sequence[Any]], moment: float) -> Sequence[Any]:
    """The span that contains a moment."""
    found = spans[0]
    for span in spans:
        if span[0] > moment:
            break
        found = span
    return found
