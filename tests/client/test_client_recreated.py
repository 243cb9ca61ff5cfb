"""A topic that is deleted and made again under its name while it is read: its offsets begin at 0 once more."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from polling import COUNTER

import holdfast
from holdfast.testing import Broker
from patience import PATIENCE_S

FIRST, SECOND = 100, 50
"""Records in the topic's first and second life."""


def produce(broker: Broker, topic: str, count: int) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=0)
    producer.flush()


def by_poll(consumer: Any) -> list[int]:
    message = consumer.poll(0.1)
    return [message.offset()] if message is not None and message.error() is None else []


def by_consume(consumer: Any) -> list[int]:
    return [message.offset() for message in consumer.consume(500, 0.1) if message.error() is None]


def by_batch(consumer: Any) -> list[int]:
    offsets: list[int] = consumer.consume_arrow(timeout=0.1).column("offset").to_pylist()
    return offsets


def read(consumer: Any, ways: list[Callable[[Any], list[int]]], count: int) -> list[int]:
    """So many records, by these ways in turn."""
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += ways[0](consumer)
        ways = [*ways[1:], ways[0]]
    return found


@pytest.mark.parametrize("member", [True, False], ids=["member", "by-hand"])
@pytest.mark.parametrize(
    "ways", [[by_poll], [by_consume], [by_batch], [by_poll, by_consume]], ids=["poll", "consume", "batch", "both"]
)
def test_what_is_committed_of_a_recreated_topic_is_where_its_reader_is(
    broker: Broker, ways: list[Callable[[Any], list[int]]], member: bool
) -> None:
    """Symptom: 100 records were read, the topic was made again with 50, all 50 were read, and 100 was committed: of
    what came later the next start skipped 50. Cause: the position was librdkafka's, which does not go back."""
    topic = f"again-{next(COUNTER)}"
    broker.topics.create(topic, partitions=1)
    produce(broker, topic, FIRST)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = holdfast.Consumer({**settings, "topic.metadata.refresh.interval.ms": 100, "log_level": 0})
    if member:
        consumer.subscribe([topic])
    else:
        consumer.assign([ck.TopicPartition(topic, 0, 0)])
    assert read(consumer, ways, FIRST) == list(range(FIRST))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    broker.topics.create(topic, partitions=1)
    produce(broker, topic, SECOND)
    assert read(consumer, ways, SECOND) == list(range(SECOND))
    assert consumer.position([ck.TopicPartition(topic, 0)])[0].offset == SECOND
    consumer.close()
    asking = ck.Consumer(settings)
    assert asking.committed([ck.TopicPartition(topic, 0)], timeout=PATIENCE_S)[0].offset == SECOND
    asking.close()
