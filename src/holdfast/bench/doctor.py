"""`holdfast bench doctor`: how fast logs are read, beside a plain single-process Python parse of the same lines.

The text is generated: a broker's log like that of a busy cluster. One line in twenty is about a group; the others are
about segments, snapshots and fetchers, as in real logs. The plain parse reads it line by line with the same patterns
and builds the same histories. The job is timed from its first task to its findings, without Spark's start.
"""

from __future__ import annotations

import random
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from holdfast.doctor.events import Event
from holdfast.doctor.naming import by_group
from holdfast.doctor.scanning import parse_line
from holdfast.doctor.tables import examined

GOAL_MB_S, GOAL_TIMES = 60.0, 4.0
FILE_BYTES = 64 * 1024 * 1024
GROUPS = 40
BLOCK_LINES = 4_000

NOISE = (
    "[ProducerStateManager partition=orders-{n}] Wrote producer snapshot at offset {big} with 0 producer ids in 3 ms. "
    "(org.apache.kafka.storage.internals.log.ProducerStateManager)",
    "[LocalLog partition=payments-{n}, dir=/var/lib/kafka] Rolled new log segment at offset {big} in 2 ms. "
    "(org.apache.kafka.storage.internals.log.LocalLog)",
    "[UnifiedLog partition=clicks-{n}, dir=/var/lib/kafka] Incremented log start offset to {big} due to leader offset "
    "increment (org.apache.kafka.storage.internals.log.UnifiedLog)",
    "[ReplicaFetcher replicaId=1, leaderId=2, fetcherId={n}] Truncating partition clicks-{n} to local high watermark "
    "{big} (kafka.server.ReplicaFetcherThread)",
)
LOGGER = "(org.apache.kafka.coordinator.group.GroupMetadataManager)"


def write_logs(folder: Path, size: int, *, seed: int = 7) -> int:
    """Write files of about so many bytes in all; returns how many bytes were written."""
    draw = random.Random(seed)
    written, number = 0, 0
    lines = _lines(draw)
    while written < size:
        with (folder / f"broker-{number:04d}.log").open("wb") as file:
            while file.tell() < min(FILE_BYTES, size - written):
                file.write("".join(next(lines) for _ in range(BLOCK_LINES)).encode())
            written += file.tell()
        number += 1
    return written


def _lines(draw: random.Random) -> Iterator[str]:
    at_ms = 1_714_557_600_000
    generation = dict.fromkeys(range(GROUPS), 0)
    waiting: list[str] = []
    while True:
        at_ms += draw.randrange(1, 4)
        seconds, ms = divmod(at_ms, 1000)
        stamp = time.strftime("[%Y-%m-%d %H:%M:%S", time.gmtime(seconds)) + f",{ms:03d}] INFO "
        if draw.random() < 0.05:
            if not waiting:
                waiting = _round(draw, generation)
            yield f"{stamp}[GroupCoordinator id=1 topic=__consumer_offsets partition=7] {waiting.pop(0)} {LOGGER}\n"
        else:
            text = draw.choice(NOISE).format(n=draw.randrange(64), big=draw.randrange(10**9))
            yield f"{stamp}{text}\n"


def _round(draw: random.Random, generation: dict[int, int]) -> list[str]:
    """A member of some group joins, and another leaves."""
    group = draw.randrange(GROUPS)
    number = generation[group]
    generation[group] += 1
    member = f"app-{draw.randrange(20)}-{draw.getrandbits(32):08x}-0000-4000-8000-{draw.getrandbits(48):012x}"
    where = f"group g-{group}"
    return [
        f"Dynamic member with unknown member id joins {where} in Stable state. Created a new member id {member} and "
        "requesting the member to rejoin with this id.",
        f"Preparing to rebalance {where} in state PreparingRebalance with old generation {number} (reason: Adding new "
        f"member {member} with group instance id null; client reason: not provided).",
        f"Stabilized {where} generation {number + 1} with 12 members.",
        f"Assignment received from leader {member} for {where} for generation {number + 1}. The group has 12 members, "
        "0 of which are static.",
        f"[Group g-{group}] Member {member} has left group through explicit `LeaveGroup` request; client reason: the "
        "consumer is being closed",
    ]


def plain_parse(folder: Path) -> tuple[int, float]:
    """Bytes and seconds of the plain parse."""
    began, size, events = time.perf_counter(), 0, list[Event]()
    for path in sorted(folder.iterdir()):
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                found = parse_line(line.rstrip("\n"))
                if isinstance(found, Event):
                    events.append(found)
        size += path.stat().st_size
    for group, each in by_group(events).items():
        for _ in examined(group, each):
            pass
    return size, time.perf_counter() - began


def run_job(spark: Any, folder: Path) -> tuple[float, int, int]:
    """Seconds, lines and groups."""
    from holdfast.spark.doctor.job import Job
    from holdfast.spark.doctor.pieces import found_under, pieces_of

    began = time.perf_counter()
    job = Job(spark, pieces_of(found_under([str(folder)])))
    summary = job.summary()
    took = time.perf_counter() - began
    job.close()
    return took, summary.read.lines, summary.groups_in_all


def judged(rates: Sequence[tuple[int, float]], plain_mb_s: float) -> list[str]:
    """The verdict, from (bytes, seconds) of each size."""
    told = []
    if len(rates) > 1:
        (small, quick), (large, long_) = rates[0], rates[-1]
        more = (large - small) / max(0.001, long_ - quick) / 1e6
        told.append(f"each further megabyte: {1000 / more:.0f} ms, which is {more:.0f} MB/s")
    best = max(size / took / 1e6 for size, took in rates)
    told.append(f"goal of {GOAL_MB_S:.0f} MB/s: {'met' if best >= GOAL_MB_S else 'not met'}, {best:.0f}")
    times = best / plain_mb_s
    told.append(
        f"goal of {GOAL_TIMES:.0f} times the plain parse: {'met' if times >= GOAL_TIMES else 'not met'}, {times:.1f}"
    )
    return told


def doctor(
    sizes: str = typer.Option("100,400", help="Megabytes of text to read, one run each."),
    cores: int = typer.Option(2, help="Cores for Spark."),
    plain: int = typer.Option(50, help="Megabytes for the plain parse."),
) -> None:
    """Raw log text a second, beside a plain single-process Python parse of the same lines."""
    from holdfast.spark.doctor.session import session

    wanted = [int(float(size) * 1_000_000) for size in sizes.split(",")]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-doctor-") as scratch:
        small = Path(scratch) / "small"
        small.mkdir()
        write_logs(small, plain * 1_000_000)
        plain_size, plain_s = plain_parse(small)
        plain_mb_s = plain_size / plain_s / 1e6
        print(f"plain parse: {plain_size / 1e6:.0f} MB in {plain_s:.1f} s, {plain_mb_s:.0f} MB/s")
        began = time.perf_counter()
        spark = session(f"local[{cores}]", Path(scratch))
        print(f"Spark started in {time.perf_counter() - began:.1f} s")
        took, _, _ = run_job(spark, small)
        print(f"first job, {plain_size / 1e6:.0f} MB, with the start of Python: {took:.1f} s")
        rates = []
        for number, size in enumerate(wanted):
            folder = Path(scratch) / f"logs-{number}"
            folder.mkdir()
            made = write_logs(folder, size)
            took, lines, groups = run_job(spark, folder)
            shutil.rmtree(folder)
            rates.append((made, took))
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"doctor on {cores} cores: {made / 1e6:,.0f} MB in {took:.1f} s, {made / took / 1e6:.0f} MB/s; "
                f"{lines:,} lines, {groups} groups; the driver's Python took up to {memory:.0f} MiB"
            )
        spark.stop()
    for line in judged(rates, plain_mb_s):
        print(line)
