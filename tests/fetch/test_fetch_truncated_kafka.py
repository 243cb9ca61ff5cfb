"""A real unclean leader election: what confluent-kafka's consumer reads of the new leader's log, ours read too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest

import holdfast
from holdfast.testing.kafka import RealKafka
from patience import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.nightly]

KEPT, LOST, NEW = 5, 10, 20
ORDERS = "orders"


def produce(kafka: RealKafka, count: int, name: str, acks: str = "1") -> None:
    producer = ck.Producer({"bootstrap.servers": kafka.bootstrap, "acks": acks})
    for number in range(count):
        producer.produce(ORDERS, f"{name} {number}".encode(), partition=0)
    assert producer.flush(PATIENCE_S) == 0


def polled(consumer: Any) -> list[tuple[int, bytes]]:
    message = consumer.poll(0.2)
    return [] if message is None or message.error() else [(message.offset(), message.value())]


def arrow(consumer: Any) -> list[tuple[int, bytes]]:
    batch = consumer.consume_arrow(timeout=0.2)
    return list(zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True))


def read(consumer: Any, how: Callable[[Any], list[tuple[int, bytes]]], count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found}"
        found += how(consumer)
    return found


def test_all_go_back_to_where_the_new_leader_has_other_records() -> None:
    """The follower is down while ten records are written. Then the leader dies, and the follower comes back to lead
    without them. Before anybody looks its log is longer than what was read, so no offset is out of range."""
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    with RealKafka(brokers=3) as kafka:
        kafka.create_topic(ORDERS, replicas=[[2, 3]], config=unclean)
        produce(kafka, KEPT, "kept", acks="all")
        kafka.stop(3)
        produce(kafka, LOST, "lost")
        ways = {
            "confluent": (ck.Consumer, polled),
            "poll": (holdfast.Consumer, polled),
            "arrow": (holdfast.Consumer, arrow),
        }
        readers = {}
        for name, (kind, how) in ways.items():
            consumer: Any = kind({"bootstrap.servers": kafka.bootstrap, "group.id": name, "log_level": 0})
            consumer.assign([ck.TopicPartition(ORDERS, 0, 0)])
            assert len(read(consumer, how, KEPT + LOST)) == KEPT + LOST
            consumer.pause([ck.TopicPartition(ORDERS, 0)])
            readers[name] = consumer
        kafka.kill(2)
        kafka.start(3)
        produce(kafka, NEW, "new")
        expected = [(KEPT + number, f"new {number}".encode()) for number in range(NEW)]
        for name, consumer in readers.items():
            consumer.resume([ck.TopicPartition(ORDERS, 0)])
            assert read(consumer, ways[name][1], NEW) == expected, name
            consumer.close()
