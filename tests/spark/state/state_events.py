"""Events for tests of state: what is produced, and what a batch over all of it would find."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from state_oracle import DistinctOracle, Row, WindowOracle

from patience import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SECOND = 1_000_000
SIZE, DELAY = 10 * SECOND, 5 * SECOND
SELECTED = "from_json(cast(value as string), 'k string, t long, n int, id string') e"


@dataclass(frozen=True)
class Event:
    partition: int
    key: str
    at: int
    n: int
    id: str


class Events:
    """Events of a few keys, each in the partition of its key, a little out of order, some twice and some too late."""

    def __init__(self, partitions: int, seed: int) -> None:
        self._random = random.Random(seed)
        self._now = [1_700_000_000 * SECOND] * partitions
        self.partitions = partitions
        self.made: list[Event] = []

    def make(self, count: int) -> list[Event]:
        made = [self._one() for _ in range(count)]
        self.made += made
        return made

    def _one(self) -> Event:
        draw = self._random
        recent = self.made[-200:]
        if recent and draw.random() < 0.1:
            return draw.choice(recent)
        partition = draw.randrange(self.partitions)
        self._now[partition] += draw.randrange(2 * SECOND)
        late = 60 * SECOND if draw.random() < 0.02 else draw.randrange(DELAY)
        key = f"k{partition}-{draw.randrange(5)}"
        return Event(partition, key, self._now[partition] - late, draw.randrange(100), f"{draw.getrandbits(60):x}")

    # -- what a batch would find

    def _of(self, partition: int) -> list[Event]:
        return [event for event in self.made if event.partition == partition]

    def totals(self) -> dict[str, tuple[int, int]]:
        counts, sums = Counter[str](), Counter[str]()
        for event in self.made:
            counts[event.key] += 1
            sums[event.key] += event.n
        return {key: (counts[key], sums[key]) for key in counts}

    def windows(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Those that are closed by what is there."""
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for partition in range(self.partitions):
            rows: list[Row] = [(event.key, event.at, event.n) for event in self._of(partition)]
            closed = WindowOracle(SIZE, SIZE, DELAY).run(rows).closed
            found |= {name: (sums[0], sums[1]) for name, sums in closed.items()}
        return found

    def distinct(self) -> list[str]:
        found: list[str] = []
        for partition in range(self.partitions):
            events = self._of(partition)
            passed = DistinctOracle(DELAY).run([(event.id, event.at, event.n) for event in events]).passed
            found += [events[number].id for number in passed]
        return sorted(found)


def produce(bootstrap: str, topic: str, events: Iterable[Event]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})
    for event in events:
        value = json.dumps({"k": event.key, "t": event.at, "n": event.n, "id": event.id})
        producer.produce(topic, value.encode(), key=event.key.encode(), partition=event.partition)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def parsed(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("topic", "partition", "offset", SELECTED).selectExpr(
        "topic", "partition", "offset", "e.k k", "timestamp_micros(e.t) t", "e.n n", "e.id id"
    )


def as_windows(rows: Iterable[Any]) -> dict[tuple[str, int], tuple[int, int]]:
    """Rows of a windowed result; one window twice is an error."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for row in rows:
        name = (row["k"], micros(row["window"]["start"]))
        assert name not in found, f"the window {name} came out twice"
        found[name] = (row["n"], row["s"])
    return found


def as_totals(rows: Iterable[Any]) -> dict[str, tuple[int, int]]:
    """The last of each key, by offset."""
    last: dict[str, Any] = {}
    for row in rows:
        if row["k"] not in last or row["offset"] > last[row["k"]]["offset"]:
            last[row["k"]] = row
    return {key: (row["n"], row["s"]) for key, row in last.items()}


def micros(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000)
