"""The readers of `holdfast bench consume`: one process per measurement, so that each has its own memory.

    python -m holdfast.bench.consume_client '{"kind": "arrow", "bootstrap": …}'

writes one JSON line: records a second, CPU time per record, how many came, and the peak resident memory. Every reader
is the only member of its own group and reads a topic from its beginning to the same end. The clock starts after the
first part of the records, so that starting and joining are not measured.

An idle reader polls a topic without records instead, and reports how much of a core that takes.

It knows nothing of goals.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

BATCH = 10_000
"""How many messages one call asks for, of confluent-kafka's consumer and of ours."""

WARM = 0.1
"""The share of the records that is read before the clock starts."""

LIMIT_S = 180.0
"""For one reader. The slowest takes a minute on a loaded machine."""

TUNED = {
    "queued.min.messages": 10_000_000,
    "queued.max.messages.kbytes": 2_097_151,
    "fetch.message.max.bytes": 8 * 1024 * 1024,
    "fetch.queue.backoff.ms": 5,
}
"""Queue settings with which confluent-kafka reads far ahead and never stops fetching for lack of room."""

POLLS = 100
"""Records polled between two looks at the clock."""

SETTLE_S = 3.0
IDLE_S = 10.0
"""How long an idle reader gets to join and settle, and how long it is then measured."""

GROUPS = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 2}


def confluent(given: Mapping[str, Any]) -> Callable[[], int]:
    import confluent_kafka as ck

    return _messages(ck.Consumer(_config(given)), given)


def holdfast(given: Mapping[str, Any]) -> Callable[[], int]:
    from holdfast import Consumer

    return _messages(Consumer(_config(given)), given)


def arrow(given: Mapping[str, Any]) -> Callable[[], int]:
    from holdfast import Consumer

    consumer = Consumer(_config(given))
    consumer.subscribe([given["topic"]])
    return lambda: consumer.consume_arrow(timeout=1.0).num_rows


def _messages(consumer: Any, given: Mapping[str, Any]) -> Callable[[], int]:
    consumer.subscribe([given["topic"]])
    if given.get("how") in ("poll", "idle"):
        polls, poll = POLLS if given["how"] == "poll" else 1, consumer.poll
        return lambda: sum(poll(1.0) is not None for _ in range(polls))
    return lambda: len(consumer.consume(BATCH, 1.0))


def measure_idle(read: Callable[[], int]) -> dict[str, float]:
    """The share of a core that waiting for records takes."""
    _read_for(read, SETTLE_S)
    began, cpu = time.monotonic(), _cpu_seconds()
    _read_for(read, IDLE_S)
    return {"core_percent": 100.0 * (_cpu_seconds() - cpu) / (time.monotonic() - began)}


def _read_for(read: Callable[[], int], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if read():
            raise ValueError("a record came where none should be")


def _config(given: Mapping[str, Any]) -> dict[str, Any]:
    tuned = TUNED if given.get("tuned") else {}
    return {"bootstrap.servers": given["bootstrap"], "group.id": f"bench-{os.getpid()}", **GROUPS, **tuned}


def measure(read: Callable[[], int], records: int) -> dict[str, float]:
    """Read so many records; returns how fast."""
    deadline = time.monotonic() + LIMIT_S
    count = before = 0
    began = cpu = 0.0
    while count < records:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} of {records} records came within {LIMIT_S:.0f} s")
        count += read()
        if not began and count >= records * WARM:
            began, before, cpu = time.monotonic(), count, _cpu_seconds()
    took, cpu = time.monotonic() - began, _cpu_seconds() - cpu
    peak = peak_mb()
    measured = count - before
    return {"records_s": measured / took, "cpu_us": 1e6 * cpu / measured, "records": count, "peak_mb": peak}


def peak_mb() -> float:
    """Since this program began. getrusage would also count the parent's memory at the time of the fork."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6


def _cpu_seconds() -> float:
    """CPU time of all threads of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


READERS = {"confluent": confluent, "holdfast": holdfast, "arrow": arrow}


def main() -> None:
    given = json.loads(sys.argv[1])
    read = READERS[given["kind"]](given)
    print(json.dumps(measure_idle(read) if given.get("how") == "idle" else measure(read, given["records"])), flush=True)


if __name__ == "__main__":
    main()
