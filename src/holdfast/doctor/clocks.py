"""How far each file's clock is off, so that logs of several machines can be put on one time line.

A generation completes at one moment for everybody: the coordinator logs it, and its members log it milliseconds later.
So a file's clock is off by the median difference between its members' times and the coordinator's. Without a
coordinator's log, the file that shares most generations with the others is the reference. This also corrects a wrong
time zone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from holdfast.doctor import events as e
from holdfast.doctor.events import Event, client_of

TOLERATED_MS = 500.0
"""On a busy machine an answer may take this long to arrive. A smaller difference does not mean that a clock is off."""


def offsets_ms(events: Iterable[Event]) -> dict[str, float]:
    """By file, how far its clock is ahead of the reference. Files whose clock is right are left out."""
    told: dict[int, list[float]] = defaultdict(list)
    heard: dict[str, dict[int, float]] = defaultdict(dict)
    telling: set[str] = set()
    for event in events:
        if event.at_ms != event.at_ms or event.generation < 0 or event.level == "consumer":
            continue
        if event.kind == e.GENERATION:
            told[event.generation].append(event.at_ms)
            telling.add(event.file)
        elif event.kind == e.JOINED and not _static(event):
            before = heard[event.file].get(event.generation)
            heard[event.file][event.generation] = event.at_ms if before is None else min(before, event.at_ms)
    measure = told or {number: [at_ms] for number, at_ms in _most_shared(heard).items()}
    found = {}
    for file, times in heard.items():
        if file in telling:
            continue
        off = [_nearest(at, measure[number]) for number, at in times.items() if number in measure]
        if off and abs(median(off)) > TOLERATED_MS:
            found[file] = median(off)
    return found


def _nearest(at_ms: float, told: Sequence[float]) -> float:
    """How long after the nearest of these times. A group that was deleted, or forgotten by its brokers, counts its
    generations from 1 again, so one number may have been told several times."""
    return min((at_ms - each for each in told), key=abs)


def _static(event: Event) -> bool:
    """A static member that returns joins a generation that completed long ago, so its time says nothing."""
    return bool(event.instance) or client_of(event.member) not in ("", event.client)


def _most_shared(heard: dict[str, dict[int, float]]) -> dict[int, float]:
    """The times of the file that shares most generations with other files."""
    counts: dict[int, int] = defaultdict(int)
    for times in heard.values():
        for number in times:
            counts[number] += 1
    best = max(sorted(heard), key=lambda file: sum(counts[number] - 1 for number in heard[file]), default=None)
    return {} if best is None else heard[best]


def put_right(events: Iterable[Event]) -> tuple[list[Event], dict[str, float]]:
    """The events in order of time on one clock, and what was corrected. Events without a time come first."""
    kept = list(events)
    off = offsets_ms(kept)
    if off:
        kept = [replace(one, at_ms=one.at_ms - off[one.file]) if one.file in off else one for one in kept]
    kept.sort(key=lambda one: (one.at_ms if one.at_ms == one.at_ms else float("-inf"), one.file, one.line))
    return kept, off
