"""What the logs of a group's members prove: pure functions, no clock and no files.

Words as everywhere in holdfast: a *gap* is the time in which nobody processes a partition, an *overlap* is two members
processing one partition in overlapping intervals, *moved* partitions changed their owner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.testing.members.log import MemberLog


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest silence of a partition in a window."""

    partition: int
    start_ms: float
    end_ms: float

    @property
    def length_ms(self) -> float:
        return self.end_ms - self.start_ms


@dataclass(frozen=True, slots=True)
class Stint:
    """One time that one member held one partition."""

    partition: int
    member: str
    assigned_ms: float
    ended_ms: float
    """The start of the revoked or lost callback; for a member that was killed, or still owns it, infinity."""
    first_record_ms: float | None
    last_record_ms: float | None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two members processed one partition in overlapping intervals."""

    partition: int
    first: Stint
    second: Stint


@dataclass(frozen=True, slots=True)
class Doubled:
    """One record that was processed more than once, by whom and when, in order of time."""

    partition: int
    offset: int
    times: tuple[tuple[float, str], ...]


def lost(acknowledged: Mapping[int, Iterable[int]], logs: Sequence[MemberLog]) -> dict[int, list[int]]:
    """Offsets the producer was told are stored and that no member processed, by partition. Empty when all is well."""
    seen = processed_offsets(logs)
    missing = {
        partition: sorted(set(offsets) - seen.get(partition, set())) for partition, offsets in acknowledged.items()
    }
    return {partition: offsets for partition, offsets in sorted(missing.items()) if offsets}


def doubled(logs: Sequence[MemberLog]) -> list[Doubled]:
    """Records processed more than once, in order of partition and offset."""
    times: dict[tuple[int, int], list[tuple[float, str]]] = defaultdict(list)
    for log in logs:
        for record in log.records:
            times[record.partition, record.offset].append((record.time_ms, log.name))
    return [
        Doubled(partition, offset, tuple(sorted(found)))
        for (partition, offset), found in sorted(times.items())
        if len(found) > 1
    ]


def processed_offsets(logs: Sequence[MemberLog]) -> dict[int, set[int]]:
    """Every offset that anybody processed, by partition."""
    seen: dict[int, set[int]] = defaultdict(set)
    for log in logs:
        for record in log.records:
            seen[record.partition].add(record.offset)
    return dict(seen)


def stints(log: MemberLog) -> list[Stint]:
    """The times that a member held each partition, by its own callbacks, with the records processed in them.

    A record outside every stint is a fault of the client and makes a stint of its own, so that checks still see it.
    """
    edges: dict[int, list[tuple[float, float, bool]]] = defaultdict(list)
    began: dict[int, float] = {}
    for event in log.events:
        for partition in event.partitions:
            if event.name == "assigned":
                began.setdefault(partition, event.time_ms)
            elif event.name in {"revoked", "lost"} and partition in began:
                edges[partition].append((began.pop(partition), event.time_ms, event.name == "lost"))
    for partition, start in began.items():
        edges[partition].append((start, float("inf"), False))
    times: dict[int, list[float]] = defaultdict(list)
    for record in log.records:
        times[record.partition].append(record.time_ms)
    found = [stint for partition in times.keys() | edges for stint in _fill(log, partition, edges, times)]
    return sorted(found, key=lambda stint: (stint.partition, stint.assigned_ms))


def _fill(
    log: MemberLog,
    partition: int,
    edges: Mapping[int, Sequence[tuple[float, float, bool]]],
    times: Mapping[int, Sequence[float]],
) -> list[Stint]:
    """The stints of one partition, each with its first and last record."""
    strays = list(times.get(partition, ()))
    found = []
    for start, end, was_lost in edges.get(partition, ()):
        inside = [time_ms for time_ms in strays if start <= time_ms <= end]
        strays = [time_ms for time_ms in strays if not start <= time_ms <= end]
        first, last = min(inside, default=None), max(inside, default=None)
        found.append(Stint(partition, log.name, start, end, first, last, lost=was_lost))
    if strays:
        found.append(Stint(partition, log.name, min(strays), max(strays), min(strays), max(strays)))
    return found


def overlaps(logs: Sequence[MemberLog]) -> list[Overlap]:
    """Pairs of stints of different members in which the same partition was being processed at the same time.

    A stint counts from its first record to its last. A stint without records processed nothing and overlaps nothing.
    """
    by_partition: dict[int, list[Stint]] = defaultdict(list)
    for log in logs:
        for stint in stints(log):
            if stint.first_record_ms is not None:
                by_partition[stint.partition].append(stint)
    found = []
    for partition, held in sorted(by_partition.items()):
        held.sort(key=lambda stint: (stint.first_record_ms, stint.member))
        for at, first in enumerate(held):
            for second in held[at + 1 :]:
                assert first.last_record_ms is not None and second.first_record_ms is not None
                if second.first_record_ms > first.last_record_ms:
                    break
                if second.member != first.member:
                    found.append(Overlap(partition, first, second))
    return found


def double_owners(logs: Sequence[MemberLog]) -> list[Overlap]:
    """Pairs of stints of different members that held one partition at once by their callbacks, records or not.

    Stricter than `overlaps`. A member that was killed holds on for ever here, so leave its log out or cut it.
    """
    return overlapping_stints(stint for log in logs for stint in stints(log))


def overlapping_stints(chosen: Iterable[Stint]) -> list[Overlap]:
    """Pairs of these stints, of different members, that held one partition at once."""
    held = sorted(chosen, key=lambda stint: (stint.partition, stint.assigned_ms))
    return [
        Overlap(first.partition, first, second)
        for at, first in enumerate(held)
        for second in held[at + 1 :]
        if second.partition == first.partition and second.member != first.member and second.assigned_ms < first.ended_ms
    ]


def longest_gaps(
    logs: Sequence[MemberLog], partitions: Collection[int], start_ms: float, end_ms: float
) -> dict[int, Gap]:
    """The longest silence of each partition in the window, whoever processed it. The window's edges count as records.

    So with a steady producer the answer of an undisturbed partition is about the producer's interval, and that of a
    partition nobody processes is the whole window.
    """
    times: dict[int, list[float]] = {partition: [start_ms, end_ms] for partition in partitions}
    for log in logs:
        for record in log.records:
            if record.partition in times and start_ms <= record.time_ms <= end_ms:
                times[record.partition].append(record.time_ms)
    found = {}
    for partition, seen in sorted(times.items()):
        start, end = max(pairwise(sorted(seen)), key=lambda pair: pair[1] - pair[0])
        found[partition] = Gap(partition, start, end)
    return found


def owners_at(logs: Sequence[MemberLog], time_ms: float) -> dict[int, str]:
    """Who owned each partition at that moment, by the members' own callbacks. Two owners at once raise ValueError."""
    owners: dict[int, str] = {}
    for log in logs:
        for stint in stints(log):
            if stint.assigned_ms <= time_ms < stint.ended_ms:
                if stint.partition in owners:
                    raise ValueError(
                        f"partition {stint.partition} is owned by {owners[stint.partition]} and {log.name} at {time_ms}"
                    )
                owners[stint.partition] = log.name
    return dict(sorted(owners.items()))


def moved(before: Mapping[int, str], after: Mapping[int, str]) -> tuple[list[int], list[int]]:
    """Partitions that changed their owner between two answers of `owners_at`, and those that did not."""
    every = sorted(before.keys() | after.keys())
    changed = [partition for partition in every if before.get(partition) != after.get(partition)]
    return changed, [partition for partition in every if partition not in changed]
