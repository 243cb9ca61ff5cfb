"""`stats_cb`: what a dashboard made for librdkafka's statistics reads of the group, seen on both classes.

Ours handed on the statistics of a librdkafka that had joined no group: join_state init, no rebalance, nothing assigned,
nothing committed, no lag. Every dashboard went dark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
from polling import take, until

import holdfast
from holdfast.testing import Broker
from patience import PATIENCE_S

Make = Callable[..., Any]

OFFSETS: tuple[str, ...] = ("app_offset", "stored_offset", "committed_offset", "lo_offset", "hi_offset", "consumer_lag")
OFFSETS += ("consumer_lag_stored",)


class Seen:
    """The newest statistics."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}

    def __call__(self, text: str) -> None:
        self.last = json.loads(text)

    def of(self, topic: str, partition: int) -> list[int]:
        partitions = self.last.get("topics", {}).get(topic, {}).get("partitions", {})
        return [partitions.get(str(partition), {}).get(name, -1) for name in OFFSETS]

    @property
    def group(self) -> dict[str, Any]:
        found: dict[str, Any] = self.last.get("cgrp", {})
        return found


def settings(seen: Seen) -> dict[str, Any]:
    return {"statistics_interval_ms": 50, "stats_cb": seen}


def test_the_statistics_and_the_metrics_name_the_consumer_alike(broker: Broker) -> None:
    """Without a client.id the metrics' label was "holdfast" and the statistics' name was "rdkafka": no dashboard could
    lay them side by side."""
    seen = Seen()
    for given, name in (({}, "holdfast"), ({"client.id": "pod-7"}, "pod-7")):
        config = {"bootstrap.servers": broker.bootstrap, "group.id": "named", "statistics.interval.ms": 50}
        consumer = holdfast.Consumer({**config, "stats_cb": seen, **given})
        until(consumer, lambda name=name: seen.last.get("client_id") == name)  # type: ignore[misc]  # a default is no type
        assert f'client_id="{name}"' in consumer.metrics_text()
        consumer.close()


def test_the_statistics_tell_of_the_group_and_of_each_partition(make: Make, topic: str) -> None:
    """All five records of each partition are taken, and of partition 0 two are committed."""
    seen = Seen()
    consumer = make(**settings(seen), enable_auto_commit=False)
    consumer.subscribe([topic])
    until(consumer, lambda: [seen.of(topic, partition)[0] for partition in range(3)] == [5, 5, 5])
    assert (seen.group["join_state"], seen.group["assignment_size"]) == ("steady", 3)
    assert seen.group["rebalance_cnt"] >= 1
    assert seen.group["rebalance_age"] >= 0
    consumer.seek(ck.TopicPartition(topic, 0, 2))
    consumer.pause([ck.TopicPartition(topic, 0)])
    consumer.commit(offsets=[ck.TopicPartition(topic, 0, 2)], asynchronous=False)
    until(consumer, lambda: seen.of(topic, 0)[2] == 2 and seen.of(topic, 1)[1] == 5)
    assert seen.of(topic, 0)[2:6] == [2, 0, 5, 3]
    assert seen.of(topic, 1) == [5, 5, -1001, 0, 5, -1, 0]
    consumer.unsubscribe()
    until(consumer, lambda: seen.group["join_state"] == "init" and seen.group["assignment_size"] == 0)


def test_stored_offsets_are_those_that_were_stored(make: Make, topic: str) -> None:
    seen = Seen()
    consumer = make(**settings(seen), enable_auto_commit=False, enable_auto_offset_store=False)
    consumer.subscribe([topic])
    take(consumer, 15)
    consumer.store_offsets(offsets=[ck.TopicPartition(topic, 1, 4)])
    until(consumer, lambda: seen.of(topic, 1)[1] == 4)
    assert seen.of(topic, 1) == [5, 4, -1001, 0, 5, -1, 1]


def test_what_consume_arrow_reads_is_in_the_statistics_too(broker: Broker, topic: str) -> None:
    """librdkafka has nothing assigned then; what is known comes from our own fetcher."""
    seen = Seen()
    consumer = holdfast.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"arrow-{topic}",
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 50,
            "stats_cb": seen,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    rows, deadline = 0, time.monotonic() + PATIENCE_S
    while rows < 15 or seen.of(topic, 2)[0] != 5:
        assert time.monotonic() < deadline
        rows += consumer.consume_arrow(100, 0.1).num_rows
    assert seen.of(topic, 2) == [5, 5, -1001, 0, 5, -1, 0]
    assert seen.group["assignment_size"] == 3
    consumer.close()
