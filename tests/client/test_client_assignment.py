"""What assignment() lists: which partitions, and with which offsets.

Symptom: assignment() showed where reading had started: the committed offset, or the number behind "the end". Cause: it
listed what librdkafka had been told, which is never told "as committed" here. Rule, confluent-kafka's: it shows what
the application named, OFFSET_STORED where it named nothing, and neither reading nor a seek changes that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from asyncio_kinds import BOTH, Make, settings
from polling import COUNTER

import holdfast
from holdfast.testing import Broker
from patience import PATIENCE_S

STORED = ck.OFFSET_STORED


def shown(assignment: list[ck.TopicPartition]) -> list[tuple[int, int, str | None, int | None]]:
    return [(p.partition, p.offset, p.metadata, p.leader_epoch) for p in assignment]


def until_a_record(consumer: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while consumer.poll(0.1) is None:
        assert time.monotonic() < deadline


def test_a_manual_assignment_shows_what_was_named(make: Callable[..., Any], topic: str) -> None:
    consumer = make()
    named = [
        ck.TopicPartition(topic, 2, ck.OFFSET_END),
        ck.TopicPartition(topic, 0, 4, "note", leader_epoch=0),
        ck.TopicPartition(topic, 1),
    ]
    consumer.assign(named)
    expected = [(0, 4, "note", 0), (1, STORED, None, None), (2, ck.OFFSET_END, None, None)]
    assert shown(consumer.assignment()) == expected
    named[0].offset = 1  # theirs: a list that the application goes on using changes nothing
    until_a_record(consumer)
    consumer.seek(ck.TopicPartition(topic, 0, 2))
    assert shown(consumer.assignment()) == expected
    consumer.incremental_unassign([ck.TopicPartition(topic, 0)])
    consumer.incremental_assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
    assert shown(consumer.assignment()) == [(0, ck.OFFSET_BEGINNING, None, None), *expected[1:]]
    consumer.assign([ck.TopicPartition(topic, 0)])
    assert shown(consumer.assignment()) == [(0, STORED, None, None)]


@pytest.mark.parametrize("named", [None, 3])
def test_a_members_assignment_shows_what_on_assign_named(
    make: Callable[..., Any], topic: str, named: int | None
) -> None:
    consumer = make(partition_assignment_strategy="range")

    def on_assign(given: Any, partitions: list[ck.TopicPartition]) -> None:
        if named is not None:
            for partition in partitions:
                partition.offset = named
            given.assign(partitions)

    consumer.subscribe([topic], on_assign=on_assign)
    until_a_record(consumer)
    assert shown(consumer.assignment()) == [(p, STORED if named is None else named, None, None) for p in range(3)]


@pytest.mark.parametrize("kind", BOTH)
def test_an_asyncio_consumers_assignment_shows_the_same(broker: Broker, topic: str, kind: Make) -> None:
    async def scene() -> None:
        consumer = kind(settings(broker))
        await consumer.assign([ck.TopicPartition(topic, 0, 4), ck.TopicPartition(topic, 1)])
        while await consumer.poll(0.1) is None:
            pass
        assert shown(await consumer.assignment()) == [(0, 4, None, None), (1, STORED, None, None)]
        await consumer.close()

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))


def test_the_other_reader_shows_the_same(make: Callable[..., Any], topic: str) -> None:
    consumer = make()
    if not hasattr(consumer, "consume_arrow"):
        pytest.skip("confluent-kafka has one reader")
    consumer.assign([ck.TopicPartition(topic, 0, 4), ck.TopicPartition(topic, 1)])
    assert consumer.consume_arrow(1, PATIENCE_S).num_rows == 1
    assert shown(consumer.assignment()) == [(0, 4, None, None), (1, STORED, None, None)]


@pytest.mark.parametrize("kind", [ck.Consumer, holdfast.Consumer], ids=["confluent", "holdfast"])
def test_callbacks_written_for_an_eager_group_work_with_the_default_strategy(
    broker: Broker, topic: str, kind: Callable[..., Any]
) -> None:
    """Symptom: assign() in on_assign and unassign() in on_revoke, as examples for confluent-kafka have them, ended a
    service at its first rebalance after the switch: _STATE, since our default is cooperative and some partitions stay.
    Rule: unassign() in on_revoke is for what is taken."""
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"g-{next(COUNTER)}",
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 100,
    }
    with kind(config) as first, kind(config) as second:
        callbacks = {"on_assign": lambda c, given: c.assign(given), "on_revoke": lambda c, _taken: c.unassign()}
        first.subscribe([topic], **callbacks)
        read: set[int] = set()
        deadline = time.monotonic() + PATIENCE_S
        while len(read) < 3:
            assert time.monotonic() < deadline
            message = first.poll(0.05)
            read |= {message.partition()} if message is not None and message.error() is None else set()
        second.subscribe([topic], **callbacks)
        while not (len(first.assignment()) + len(second.assignment()) == 3 and second.assignment()):
            assert time.monotonic() < deadline
            first.poll(0.02)
            second.poll(0.02)
        owned = [{p.partition for p in consumer.assignment()} for consumer in (first, second)]
    assert owned[0] | owned[1] == {0, 1, 2}
