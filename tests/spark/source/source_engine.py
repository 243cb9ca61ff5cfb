"""Spark's micro-batch engine as far as a source sees it, in this process: its calls, in its order, with its two logs.

It stands in for Spark where a test is about the group and not about Spark: a batch is planned, logged, read, handed to
a sink and logged as done; a new engine on the same `Checkpoint` does what Spark does after a restart. What Spark itself
does with a source is tested on Spark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.model import TopicPartition
from holdfast.spark.member import QueryMember
from holdfast.spark.offsets import BatchOffset
from holdfast.spark.options import parse
from holdfast.spark.planning import tasks
from holdfast.spark.reading import read_pieces
from holdfast.testing import Broker
from patience import PATIENCE_S, wait_for

Row = tuple[int, int]
"""(partition, offset)"""


@dataclass(slots=True)
class Checkpoint:
    """The offset log and the commit log, as texts."""

    planned: list[str] = field(default_factory=lambda: [json.dumps(BatchOffset().to_json())])
    done: int = 0
    """Batches up to this one are in the commit log; 0 is the initial offset."""


def source_options(bootstrap: str, **options: str) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": bootstrap, "kafka.group.id": "g", "kafka.holdfast.watchdog": "false"}
    given["kafka.heartbeat.interval.ms"] = "100"  # who is there hears of who comes by its heartbeat
    if not {"assign", "subscribePattern"} & options.keys():
        given["subscribe"] = "orders"
    return given | {"startingOffsets": "earliest"} | {k.replace("__", "."): v for k, v in options.items()}


class Engine:
    """One query, one batch at a time, when the test says so."""

    def __init__(self, bootstrap: str, checkpoint: Checkpoint | None = None, /, **options: str) -> None:
        self.options = parse(source_options(bootstrap, **options), streaming=True)
        self.checkpoint = checkpoint or Checkpoint()
        self.member = QueryMember(self.options)
        self.seen: list[Row] = []
        """What the sink has got."""
        self.batches: list[dict[TopicPartition, tuple[int, int]]] = []
        self._fresh = True

    # -- Spark's calls, one by one

    @property
    def end(self) -> BatchOffset:
        return BatchOffset.from_json(json.loads(self.checkpoint.planned[-1]))

    def plan(self, limit: int | None = None, at_least: int | None = None) -> BatchOffset | None:
        """latestOffset, and the offset log."""
        assert len(self.checkpoint.planned) == self.checkpoint.done + 1, "the batch before is not done"
        self._fresh = False
        planned = self.member.next_batch(self.end, limit, at_least=at_least)
        if planned is not None:
            self.checkpoint.planned.append(json.dumps(planned.to_json()))
        return planned

    def plan_something(self) -> BatchOffset:
        """Ask until there is a batch: the ends of partitions are looked at now and then."""
        found: list[BatchOffset] = []

        def planned() -> bool:
            if (one := self.plan()) is not None:
                found.append(one)
            return bool(found)

        wait_for(planned)
        return found[0]

    def replay(self) -> BatchOffset:
        """partitions(start, end) as the first call of a restarted query."""
        before, planned = (BatchOffset.from_json(json.loads(text)) for text in self.checkpoint.planned[-2:])
        self._fresh = False
        return self.member.replay(before, planned)

    def read(self, planned: BatchOffset) -> list[dict[str, Any]]:
        rows = []
        for pieces in tasks(planned.ranges):
            for batch in read_pieces(self.options, pieces):
                rows += batch.to_pylist()
        return rows

    def sink(self, planned: BatchOffset) -> None:
        self.seen += [(row["partition"], row["offset"]) for row in self.read(planned)]
        self.batches.append(dict(planned.ranges))

    def commit(self) -> None:
        """The commit log: the batch is done, although nobody tells the source before it is asked again."""
        self.checkpoint.done = len(self.checkpoint.planned) - 1

    # -- as Spark strings them together

    def step(self, limit: int | None = None) -> int:
        """One trigger: a batch if there is one, replayed if it was planned and not done. Returns its rows."""
        unfinished = len(self.checkpoint.planned) > self.checkpoint.done + 1
        planned = self.replay() if self._fresh and unfinished else self.plan(limit)
        if planned is None:
            return 0
        before = len(self.seen)
        self.sink(planned)
        self.commit()
        return len(self.seen) - before

    def run_until(self, holds: Callable[[], bool], *others: Engine) -> None:
        """Trigger after trigger, this query and others in turn, until it holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, [(len(e.seen), e.member.report()) for e in (self, *others)]
            moved = sum(engine.step() for engine in (self, *others))
            if not moved:
                time.sleep(0.005)

    def owned(self) -> set[int]:
        return {n for numbers in self.member.report()["owned"].values() for n in numbers}

    def stop(self) -> None:
        self.member.leave()

    def vanish(self) -> None:
        """As by kill -9: nobody leaves, nobody commits. The loop and its connections just end."""
        self.member._call(self.member._end())
        self.member._plane.stop()


NO_LOGIN: Mapping[str, str] = {}


def produce(
    broker: Broker, count: int, *, topic: str = "orders", partitions: int = 4, login: Mapping[str, str] = NO_LOGIN
) -> None:
    """`count` records to each partition."""
    import confluent_kafka as ck

    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, **login})
    for number in range(count):
        for partition in range(partitions):
            producer.produce(topic, f"value {number}", key=str(partition), partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def committed(broker: Broker, group: str = "g", topic: str = "orders", partitions: int = 4) -> dict[int, int]:
    """What the coordinator holds, by partition; without those that were never committed."""
    import confluent_kafka as ck

    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        found = consumer.committed([ck.TopicPartition(topic, n) for n in range(partitions)], timeout=PATIENCE_S)
    finally:
        consumer.close()
    return {one.partition: one.offset for one in found if one.offset >= 0}


def every(count: int, partitions: int = 4) -> list[Row]:
    """All rows of a topic with so many records in each partition."""
    return [(partition, offset) for partition in range(partitions) for offset in range(count)]
