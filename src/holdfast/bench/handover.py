"""`holdfast bench handover`: how long a partition stands still when members join, drain, leave or are killed.

One real Kafka at its default settings, one topic of 12 partitions with steady traffic, three members of one kind, and
one that comes and goes; every kind in the same run. What is measured is what the members themselves wrote down: the
longest time without a record of each partition, moved and unmoved, from the event until the group has settled, and
before the event for comparison. Records lost and doubled are counted over the whole run.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import typer

from holdfast.testing import groupcheck
from holdfast.testing.kafka import RealKafka
from holdfast.testing.members import MemberOptions, MemberProcess
from holdfast.testing.producer import SteadyProducer

PARTITIONS = 12
PER_PARTITION_S = 100
"""Records a second in each partition: the steady state's longest silence is then about 10 ms."""

SETTLED_S = 1.5
"""How long the group must be unchanged before a repetition counts as over."""

OWNERSHIP = frozenset({"assigned", "revoked", "lost"})
STEADY_WINDOW_MS = 1_000.0
EVENT_LIMIT_S = {"join": 30.0, "drain": 30.0, "leave": 30.0, "kill": 90.0}

GOALS_MS = {"join": (50.0, 150.0), "drain": (50.0, 150.0), "leave": (120.0, None), "kill": (100.0, None)}
"""Median and worst of moved partitions, for holdfast."""

UNMOVED_ABOVE_STEADY_MS = 30.0


@dataclass(slots=True)
class Sample:
    """One repetition of one event."""

    moved_ms: list[float]
    unmoved_ms: list[float]
    steady_ms: list[float]


@dataclass(slots=True)
class Result:
    """One kind's figures."""

    kind: str
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    lost: int = 0
    doubled: int = 0
    after_kills: int = 0
    """Of the doubled: processed by a member that was killed before it could commit."""


class Group:
    """The members of one kind on one topic, and what they wrote down."""

    def __init__(self, kafka: RealKafka, kind: str, folder: Path) -> None:
        self.kind = kind
        self.topic = f"handover-{kind}"
        self._kafka = kafka
        self._folder = folder
        self._number = 0
        self.members: list[MemberProcess] = []
        self.gone: list[MemberProcess] = []
        kafka.create_topic(self.topic, partitions=PARTITIONS)

    def prepare(self) -> MemberProcess:
        """A member that is loaded and waits for the word, so that start-up is not measured."""
        self._number += 1
        options = MemberOptions(
            bootstrap=self._kafka.bootstrap,
            group=f"group-{self.kind}",
            topic=self.topic,
            assignors=("cooperative-sticky",),
            join_on_command=True,
        )
        member = MemberProcess(self.kind, options, name=f"{self.kind}-{self._number}", folder=self._folder, jvm_args=())
        member.wait_ready()
        return member

    def start(self, member: MemberProcess) -> None:
        member.join()
        self.members.append(member)

    def take_out(self, member: MemberProcess) -> None:
        self.members.remove(member)
        self.gone.append(member)

    def living(self) -> list[Any]:
        """Logs of those in the group now: a killed member's log does not say that it owns nothing any more."""
        return [member.log() for member in self.members]

    def logs(self) -> list[Any]:
        return [member.log() for member in [*self.gone, *self.members]]

    def settle(self, members: int, limit_s: float) -> None:
        """Until so many members own everything, evenly, and nothing has changed for a while."""
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
                raise TimeoutError(f"{self.kind}: the group did not settle within {limit_s:.0f} s: {owned}")
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
    return Sample(
        moved_ms=[gaps[p].length_ms for p in moved],
        unmoved_ms=[gaps[p].length_ms for p in unmoved],
        steady_ms=[steady[p].length_ms for p in range(PARTITIONS)],
    )


def run_kind(kafka: RealKafka, kind: str, events: dict[str, int], folder: Path, say: Callable[[str], None]) -> Result:
    """Every event so many times: somebody joins, and goes again in each of the ways."""
    result = Result(kind)
    group = Group(kafka, kind, folder)
    rate = PER_PARTITION_S * PARTITIONS
    with SteadyProducer(kafka.bootstrap, group.topic, partitions=PARTITIONS, rate=rate) as producer:
        for member in [group.prepare() for _ in range(3)]:
            group.start(member)
        group.settle(3, 60)
        ways_out = [way for way, times in events.items() if way != "join" for _ in range(times)]
        joins_left = events.get("join", 0)
        for number, way in enumerate(ways_out or ["leave"] * joins_left, start=1):
            newcomer = group.prepare()
            sample = measure(group, partial(group.start, newcomer), members=4, limit_s=EVENT_LIMIT_S["join"])
            if joins_left > 0:
                result.samples.setdefault("join", []).append(sample)
                joins_left -= 1
                say(f"{kind} {number}: join, moved at most {max(sample.moved_ms, default=0):.0f} ms")
            leaver = group.members[(number * 7) % len(group.members)]
            sample = measure(group, partial(_out, group, leaver, way), members=3, limit_s=EVENT_LIMIT_S[way])
            result.samples.setdefault(way, []).append(sample)
            say(f"{kind} {number}: {way}, moved at most {max(sample.moved_ms, default=0):.0f} ms")
        producer.stop()
        deadline = time.monotonic() + 30
        while groupcheck.lost(producer.acknowledged(), group.logs()) and time.monotonic() < deadline:
            time.sleep(0.2)
        result.lost = sum(map(len, groupcheck.lost(producer.acknowledged(), group.logs()).values()))
        doubled = groupcheck.doubled(group.logs())
        killed = {member.name for member in group.gone if not _ended_cleanly(member)}
        result.after_kills = sum(1 for record in doubled if any(name in killed for _, name in record.times))
        result.doubled = len(doubled)
    for member in group.members:
        member.kill()
    return result


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


def summary(result: Result) -> list[dict[str, Any]]:
    rows = []
    for event, samples in result.samples.items():
        worst = [max(s.moved_ms) for s in samples if s.moved_ms]
        unmoved = [max(s.unmoved_ms) for s in samples if s.unmoved_ms]
        steady = [max(s.steady_ms) for s in samples if s.steady_ms]
        rows.append(
            {
                "kind": result.kind,
                "event": event,
                "repetitions": len(samples),
                "moved_median_ms": round(statistics.median(worst), 1) if worst else None,
                "moved_worst_ms": round(max(worst), 1) if worst else None,
                "unmoved_median_ms": round(statistics.median(unmoved), 1) if unmoved else None,
                "unmoved_worst_ms": round(max(unmoved), 1) if unmoved else None,
                "steady_median_ms": round(statistics.median(steady), 1) if steady else None,
                "lost": result.lost,
                "doubled": result.doubled,
                "doubled_after_kills": result.after_kills,
            }
        )
    return rows


def handover(
    repetitions: int = typer.Option(20, help="Repetitions of each event for holdfast."),
    peer_repetitions: int = typer.Option(3, help="Repetitions for the peers; a kill of theirs takes 45 s."),
    kinds: str = typer.Option("holdfast,java,confluent", help="Which clients, in order."),
    events: str = typer.Option("join,drain,leave,kill", help="Which events; only holdfast drains."),
    output: str = typer.Option("table", "--output", "-o", help="table or json."),
) -> None:
    """Handovers beside Java's and librdkafka's consumers: the longest silence of moved and unmoved partitions."""
    wanted = [event for event in events.split(",") if event]
    rows: list[dict[str, Any]] = []
    say = _say if output == "table" else (lambda _text: None)
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-handover-") as folder,
        RealKafka(benchmark=True, initial_rebalance_delay_ms=None) as kafka,
    ):
        for kind in kinds.split(","):
            ours = kind == "holdfast"
            times = {
                event: repetitions if ours else (1 if event == "kill" else peer_repetitions)
                for event in wanted
                if ours or event != "drain"
            }
            if "join" in times:
                times["join"] = max(times.values())
            rows += summary(run_kind(kafka, kind, times, Path(folder), say))
    if output == "json":
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        _print(rows)
    if any(row["kind"] == "holdfast" and not _reached(row) for row in rows):
        raise typer.Exit(1)


def _reached(row: dict[str, Any]) -> bool:
    median_goal, worst_goal = GOALS_MS[row["event"]]
    if row["moved_median_ms"] is None or row["moved_median_ms"] > median_goal:
        return False
    if worst_goal is not None and row["moved_worst_ms"] > worst_goal:
        return False
    if row["unmoved_median_ms"] - row["steady_median_ms"] > UNMOVED_ABOVE_STEADY_MS:
        return False
    return bool(row["lost"] == 0 and row["doubled"] == 0)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    best: dict[str, float] = {}
    for row in rows:
        if row["kind"] != "holdfast" and row["moved_median_ms"] is not None:
            best[row["event"]] = min(best.get(row["event"], float("inf")), row["moved_median_ms"])
    table = Table(title="Longest silence of a partition, ms (median of the repetitions' worst, and the worst of all)")
    for heading in ("client", "event", "n", "moved", "worst", "unmoved", "worst", "steady", "lost", "doubled", "ratio"):
        table.add_column(heading, justify="left" if heading in ("client", "event") else "right")
    for row in rows:
        peer = best.get(row["event"])
        ratio = f"{peer / row['moved_median_ms']:.0f}×" if row["kind"] == "holdfast" and peer else ""
        table.add_row(
            row["kind"],
            row["event"],
            str(row["repetitions"]),
            *(str(row[key]) for key in ("moved_median_ms", "moved_worst_ms", "unmoved_median_ms", "unmoved_worst_ms")),
            str(row["steady_median_ms"]),
            str(row["lost"]),
            f"{row['doubled']} ({row['doubled_after_kills']} by the killed)" if row["doubled"] else "0",
            ratio,
        )
    Console().print(table)
