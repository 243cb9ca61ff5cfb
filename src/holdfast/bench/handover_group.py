"""The groups of `holdfast bench handover`: who is in them, who comes and goes and how, and what is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.bench.handover_stages import Witness, dated, stages
from holdfast.model import TraceRecord
from holdfast.testing import groupcheck
from holdfast.testing.kafka import RealKafka
from holdfast.testing.members import MemberOptions, MemberProcess
from holdfast.testing.producer import SteadyProducer
from holdfast.trace import read_trace_file

PARTITIONS = 12
PER_PARTITION_S = 100
"""Records a second in each partition: the steady state's longest silence is then about 10 ms."""

SETTLED_S = 1.5
"""How long the group must be unchanged before a repetition counts as over."""

WARM_UPS = 2
"""Joins and leaves of every group, ours and the peers', before anything is measured: the broker's JVM is new, and
compiles its code for groups the first times."""

OWNERSHIP = frozenset({"assigned", "revoked", "lost"})
STEADY_WINDOW_MS = 1_000.0
EVENT_LIMIT_S = {"join": 30.0, "drain": 30.0, "leave": 30.0, "kill": 90.0}


@dataclass(frozen=True, slots=True)
class Variant:
    """One group: three members from the start, the first of them the leader, and a guest that comes and goes."""

    name: str
    starters: tuple[str, str, str]
    guest: str
    events: tuple[str, ...]
    config: tuple[tuple[str, str], ...] = ()
    python: str | None = None
    """Another interpreter, whose holdfast runs instead of ours."""

    @property
    def holdfast(self) -> bool:
        return self.guest == "holdfast"

    @property
    def ours(self) -> bool:
        """Whether its figures are those of this checkout."""
        return self.holdfast and self.python is None

    def of(self, python: str) -> Variant:
        """The same group with another checkout's members."""
        return replace(self, name=f"{self.name}{OTHER}", python=python)


OTHER = "-other"


@dataclass(slots=True)
class Sample:
    """One repetition of one event."""

    moved_ms: list[float]
    unmoved_ms: list[float]
    steady_ms: list[float]
    stages_ms: list[dict[str, float]] = field(default_factory=list)
    """For each moved partition whose new owner writes a trace."""


@dataclass(slots=True)
class Result:
    """One group's figures."""

    variant: Variant
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    lost: int = 0
    doubled: int = 0
    after_kills: int = 0
    """How many of the doubled were processed by a member that was killed before it could commit."""

    def add(self, more: Result) -> None:
        """Another turn of the same group."""
        for event, samples in more.samples.items():
            self.samples.setdefault(event, []).extend(samples)
        self.lost += more.lost
        self.doubled += more.doubled
        self.after_kills += more.after_kills


class Group:
    """The members on one topic, and their logs."""

    def __init__(self, kafka: RealKafka, variant: Variant, folder: Path, turn: int) -> None:
        self.variant = variant
        self._name = f"{variant.name}-{turn}"
        self.topic = f"handover-{self._name}"
        self._kafka = kafka
        self._folder = folder
        self._number = 0
        self.members: list[MemberProcess] = []
        self.gone: list[MemberProcess] = []
        kafka.create_topic(self.topic, partitions=PARTITIONS)

    def prepare(self, kind: str) -> MemberProcess:
        """A member that is loaded and waits for the order to join, so that start-up is not measured."""
        self._number += 1
        name = f"{self._name}-{self._number}"
        # Ours commits by itself, as most applications do; the watchdog then commits for a member that was killed.
        own = {"enable.auto.commit": "true", "holdfast.trace.file": str(self._trace_file(name))}
        options = MemberOptions(
            bootstrap=self._kafka.bootstrap,
            group=f"group-{self._name}",
            topic=self.topic,
            assignors=("cooperative-sticky",),
            join_on_command=True,
            config=dict(self.variant.config) | own if kind == "holdfast" else {},
        )
        python = self.variant.python if kind == "holdfast" else None
        member = MemberProcess(kind, options, name=name, folder=self._folder, jvm_args=(), python=python)
        member.wait_ready()
        return member

    def start(self, member: MemberProcess) -> None:
        member.join()
        self.members.append(member)

    def take_out(self, member: MemberProcess) -> None:
        self.members.remove(member)
        self.gone.append(member)

    def living(self) -> list[Any]:
        """Logs of the current members: a killed member's log does not show that it no longer owns anything."""
        return [member.log() for member in self.members]

    def logs(self) -> list[Any]:
        return [member.log() for member in [*self.gone, *self.members]]

    def witnesses(self, names: Collection[str]) -> dict[str, Witness]:
        """Logs and traces of these members and of all current members."""
        skew_ms = (time.time() - time.monotonic()) * 1_000
        asked = [member for member in self.gone if member.name in names] + self.members
        return {member.name: Witness(member.log(), dated(self._trace(member.name), skew_ms)) for member in asked}

    def _trace(self, name: str) -> Iterable[TraceRecord]:
        path = self._trace_file(name)
        return read_trace_file(path, on_bad=lambda _bad: None) if path.exists() else ()  # a kill leaves half a line

    def _trace_file(self, name: str) -> Path:
        return self._folder / f"{name}.trace"

    def foreigners(self) -> set[str]:
        """Members of another kind than the guest. Their own partitions are not counted: librdkafka stops partitions
        that it keeps for a second."""
        return {member.name for member in self.members if member.kind != self.variant.guest}

    def settle(self, members: int, limit_s: float) -> None:
        """Wait until so many members own all partitions, and nothing has changed for a while."""
        deadline = time.monotonic() + limit_s
        unchanged_since, last = time.monotonic(), None
        while True:
            owned = [member.owned() for member in self.members]
            seen = [sum(e.name in OWNERSHIP for e in member.events()) for member in self.members]
            whole = sum(map(len, owned)) == PARTITIONS and len(owned) == members and all(owned)
            if not whole or seen != last:
                unchanged_since, last = time.monotonic(), seen
            if whole and time.monotonic() - unchanged_since >= SETTLED_S:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.variant.name}: the group did not settle within {limit_s:.0f} s: {owned}")
            time.sleep(0.1)


def measure(group: Group, event: Callable[[], None], *, members: int, limit_s: float) -> Sample:
    """One event, and the silences around it."""
    steady_from = time.time() * 1_000
    time.sleep(STEADY_WINDOW_MS / 1_000)
    begin = time.time() * 1_000
    before = groupcheck.owners_at(group.living(), begin)
    event()
    group.settle(members, limit_s)
    end = time.time() * 1_000
    time.sleep(0.2)
    logs = group.logs()
    after = groupcheck.owners_at(group.living(), end)
    moved, unmoved = groupcheck.moved(before, after)
    gaps = groupcheck.longest_gaps(logs, range(PARTITIONS), begin, end)
    steady = groupcheck.longest_gaps(logs, range(PARTITIONS), steady_from, begin)
    kept = [p for p in unmoved if after.get(p) not in group.foreigners()]
    seen = group.witnesses({*before.values(), *after.values()})
    ways = [
        stages(
            p,
            old=seen.get(before.get(p, "")),
            new=seen[after[p]],
            everybody=list(seen.values()),
            begin_ms=begin,
            end_ms=end,
        )
        for p in moved
        if p in after
    ]
    return Sample(
        moved_ms=[gaps[p].length_ms for p in moved],
        unmoved_ms=[gaps[p].length_ms for p in kept],
        steady_ms=[steady[p].length_ms for p in range(PARTITIONS)],
        stages_ms=[way for way in ways if way],
    )


def run_variant(
    kafka: RealKafka, variant: Variant, times: dict[str, int], folder: Path, say: Callable[[str], None], turn: int = 1
) -> Result:
    """Measure every event so many times: a member joins, and leaves again in each of the ways. Each turn has a new
    group."""
    result = Result(variant)
    group = Group(kafka, variant, folder, turn)
    rate = PER_PARTITION_S * PARTITIONS
    with SteadyProducer(kafka.bootstrap, group.topic, partitions=PARTITIONS, rate=rate) as producer:
        for number, kind in enumerate(variant.starters, start=1):
            group.start(group.prepare(kind))
            group.settle(number, 60)  # one after the other, so that the first is the leader
        ways_out = [way for way in variant.events if way != "join" for _ in range(times[way])]
        for _ in range(WARM_UPS):
            group.start(group.prepare(variant.guest))
            group.settle(4, EVENT_LIMIT_S["join"])
            _out(group, group.members[-1], "leave")
            group.settle(3, EVENT_LIMIT_S["leave"])
        joins_left = times["join"] if "join" in variant.events else 0
        for number, way in enumerate(ways_out, start=1):
            newcomer = group.prepare(variant.guest)
            sample = measure(group, partial(group.start, newcomer), members=4, limit_s=EVENT_LIMIT_S["join"])
            if joins_left > 0:
                result.samples.setdefault("join", []).append(sample)
                joins_left -= 1
                say(f"{variant.name} {number}: join, moved at most {max(sample.moved_ms, default=0):.0f} ms")
            leaver = _leaver(group, number)
            sample = measure(group, partial(_out, group, leaver, way), members=3, limit_s=EVENT_LIMIT_S[way])
            result.samples.setdefault(way, []).append(sample)
            say(f"{variant.name} {number}: {way}, moved at most {max(sample.moved_ms, default=0):.0f} ms")
        producer.stop()
        _count(result, group, producer.acknowledged())
    for member in group.members:
        member.kill()
    return result


def _leaver(group: Group, number: int) -> MemberProcess:
    """Another member each time; a foreign leader stays."""
    able = [member for member in group.members if member.kind == group.variant.guest]
    return able[(number * 7) % len(able)]


def _count(result: Result, group: Group, acknowledged: Mapping[int, Iterable[int]]) -> None:
    deadline = time.monotonic() + 30
    while groupcheck.lost(acknowledged, group.logs()) and time.monotonic() < deadline:
        time.sleep(0.2)
    result.lost = sum(len(offsets) for offsets in groupcheck.lost(acknowledged, group.logs()).values())
    doubled = groupcheck.doubled(group.logs())
    killed = {member.name for member in group.gone if not _ended_cleanly(member)}
    result.after_kills = sum(1 for record in doubled if any(name in killed for _, name in record.times))
    result.doubled = len(doubled)


def _ended_cleanly(member: MemberProcess) -> bool:
    return any(event.name == "closed" for event in member.events())


def _out(group: Group, member: MemberProcess, way: str) -> None:
    group.take_out(member)
    if way == "kill":
        member.kill()
    elif way == "drain":
        member.drain()
    else:
        member.close()
