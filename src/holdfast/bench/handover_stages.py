"""Where a handover's milliseconds go: each moved partition's time from its old owner's last record to its new owner's
first, divided into stages by the members' traces. Pure: no clock and no files.

The round that counts is the one that assigned the partition to its new owner. A step that is in no trace (the old owner
was killed, the leader is foreign, an older holdfast writes less) is left out, and its time counts for the next known
stage.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.model import TraceRecord
from holdfast.testing.members.log import MemberLog

STAGES: Mapping[str, str] = {
    "waits": "the old owner's last record until its polling thread begins to give the partition up",
    "listener": "on_revoke",
    "commit": "the rest of giving up: the commit, and taking the partition from the reader",
    "rejoin": "until the old owner's join is sent, or its leave; of a killed one, anybody's first join",
    "barrier": "until everybody has joined: the leader's join is answered",
    "plan": "until the leader sends its plan",
    "sync": "until the new owner has its part of the plan",
    "assign": "on_assign and what is before it: the way to the polling thread, start offsets",
    "first fetch": "until the new owner's first record",
}
"""In order."""


@dataclass(frozen=True, slots=True)
class Witness:
    """The log and the trace of one member. The trace is empty if the member writes none."""

    log: MemberLog
    trace: Sequence[TraceRecord] = ()


def dated(records: Iterable[TraceRecord], skew_ms: float) -> list[TraceRecord]:
    """The records, all with wall time, which an older holdfast does not write.

    `skew_ms` is the wall time minus the monotonic clock of `at`, which all processes of a machine share. A callback is
    recorded when it has ended, but `at` is when it began.
    """
    return [
        record if record.wall is not None else replace(record, wall=record.at + skew_ms + _took_ms(record))
        for record in records
    ]


def stages(
    partition: int, *, old: Witness | None, new: Witness, everybody: Sequence[Witness], begin_ms: float, end_ms: float
) -> dict[str, float]:
    """How long each stage of this partition's handover took; empty when the new owner's trace does not show it."""
    window = (begin_ms, end_ms)
    synced = _last(new.trace, lambda r: r.step == "synced" and _names(r, "added", partition), window)
    if synced is None:
        return {}
    given = _first(new.trace, lambda r: r.step == "callback-assigned" and _named(r, partition), (_at(synced), end_ms))
    first = None if given is None else _first_record(new.log, partition, _at(given) - _took_ms(given), end_ms)
    if given is None or first is None:
        return {}
    moments: dict[str, float | None] = dict.fromkeys(STAGES)
    quiet_since = _last_record(old, partition, first) if old is not None else None
    moments |= _giving_up(partition, old, (begin_ms, _at(synced)))
    moments |= _round(synced, new, everybody, begin_ms)
    if moments["rejoin"] is None:
        moments["rejoin"] = _first_join(everybody, begin_ms, moments["barrier"])
    moments |= {"sync": _at(synced), "assign": _at(given), "first fetch": first}
    return _between(begin_ms if quiet_since is None else quiet_since, moments)


def shares(found: Iterable[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Over many partitions: each stage's median, and its share of the whole time. Stages without data are left out."""
    ways = list(found)
    total = sum(sum(way.values()) for way in ways) or 1.0
    told = {}
    for stage in STAGES:
        times = [way[stage] for way in ways if stage in way]
        if times:
            told[stage] = {
                "median_ms": round(statistics.median(times), 1),
                "share": round(sum(times) / total, 3),
            }
    return told


def _giving_up(partition: int, old: Witness | None, window: tuple[float, float]) -> dict[str, float | None]:
    """The old owner's stages, as far as its trace shows them."""
    if old is None:
        return {}
    gone = _last(old.trace, lambda r: r.step == "callback-revoked" and _named(r, partition), window)
    if gone is None:
        return {}
    ended = _at(gone)
    began = ended - _took_ms(gone)
    heard = gone.data.get("listener_ms")
    asked = _first(old.trace, lambda r: r.step in ("join-sent", "leave-sent"), (ended, window[1]))
    return {
        "waits": began,
        "listener": began + heard if isinstance(heard, int | float) else None,
        "commit": ended,
        "rejoin": None if asked is None else _at(asked),
    }


def _round(synced: TraceRecord, new: Witness, everybody: Sequence[Witness], begin_ms: float) -> dict[str, float | None]:
    """The round's barrier and plan; under a foreign leader only what the new owner itself saw."""

    def joined(record: TraceRecord) -> bool:
        return record.step == "joined" and record.generation == synced.generation

    until = (begin_ms, _at(synced))
    for witness in everybody:
        leads = _last(witness.trace, lambda r: joined(r) and r.data.get("leads") is True, until)
        if leads is not None:
            sent = _first(witness.trace, lambda r: r.step == "sync-sent", (_at(leads), until[1]))
            return {"barrier": _at(leads), "plan": None if sent is None else _at(sent)}
    own = _last(new.trace, joined, until)
    return {"barrier": None if own is None else _at(own)}


def _first_join(everybody: Sequence[Witness], begin_ms: float, barrier: float | None) -> float | None:
    if barrier is None:
        return None
    joins = [_first(w.trace, lambda r: r.step == "join-sent", (begin_ms, barrier)) for w in everybody]
    return min((_at(join) for join in joins if join is not None), default=None)


def _between(start: float, moments: Mapping[str, float | None]) -> dict[str, float]:
    told: dict[str, float] = {}
    for stage in STAGES:
        moment = moments[stage]
        if moment is not None:
            told[stage] = max(0.0, moment - start)
            start = max(start, moment)
    return told


def _at(record: TraceRecord) -> float:
    assert record.wall is not None, "see `dated`"
    return record.wall


def _took_ms(record: TraceRecord) -> float:
    took = record.data.get("took_ms")
    return float(took) if isinstance(took, int | float) else 0.0


def _named(record: TraceRecord, partition: int) -> bool:
    return _names(record, "partitions", partition)


def _names(record: TraceRecord, key: str, partition: int) -> bool:
    grouped = record.data.get(key)
    return isinstance(grouped, dict) and any(isinstance(n, list) and partition in n for n in grouped.values())


Test = Callable[[TraceRecord], bool]


def _first(trace: Sequence[TraceRecord], holds: Test, window: tuple[float, float]) -> TraceRecord | None:
    return next((r for r in trace if window[0] <= _at(r) <= window[1] and holds(r)), None)


def _last(trace: Sequence[TraceRecord], holds: Test, window: tuple[float, float]) -> TraceRecord | None:
    return _first(trace[::-1], holds, window)


def _first_record(log: MemberLog, partition: int, since_ms: float, until_ms: float) -> float | None:
    times = (r.time_ms for r in log.records if r.partition == partition and since_ms <= r.time_ms <= until_ms)
    return min(times, default=None)


def _last_record(old: Witness, partition: int, before_ms: float) -> float | None:
    times = (r.time_ms for r in old.log.records if r.partition == partition and r.time_ms < before_ms)
    return max(times, default=None)
