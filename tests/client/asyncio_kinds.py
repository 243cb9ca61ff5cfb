"""Both classes of an asyncio consumer, and what tests of them begin with and wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.aio import AIOConsumer
from polling import COUNTER

from holdfast import AsyncConsumer
from holdfast.testing import Broker
from patience import PATIENCE_S

Make = Callable[..., Any]

BOTH = [
    pytest.param(AIOConsumer, marks=pytest.mark.slow, id="AIOConsumer"),
    pytest.param(AsyncConsumer, id="AsyncConsumer"),
]
"""For a fixture's `params`: confluent-kafka's own takes longer, and runs with the slow half."""


def settings(broker: Broker, **more: Any) -> dict[str, Any]:
    """Of a group of its own; keys with dots are given as they are."""
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"g-{next(COUNTER)}",
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "cooperative-sticky",
        "log_level": 0,
        **more,
    }


def quick(broker: Broker, **more: Any) -> dict[str, Any]:
    return settings(broker, **{"heartbeat.interval.ms": 200, **more})


def play(scene: Callable[[], Awaitable[None]]) -> None:
    """Run it on a loop of its own. The limit is above that of every wait in it, and below pytest's."""

    async def limited() -> None:
        async with asyncio.timeout(2 * PATIENCE_S):
            await scene()

    asyncio.run(limited())


async def offsets_polled(consumer: Any, enough: Callable[[list[int]], bool]) -> list[int]:
    """Offsets of what poll returns, until there is enough of it."""
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while not enough(found):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s; {len(found)} records came"
        message = await consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.offset())
    return found


async def committed(broker: Broker, group: dict[str, Any], topic: str, partitions: int = 3) -> list[int]:
    """What the group has committed; asked by a stranger."""
    reader = AsyncConsumer({"bootstrap.servers": broker.bootstrap, "group.id": group["group.id"]})
    try:
        found = await reader.committed([ck.TopicPartition(topic, n) for n in range(partitions)], timeout=PATIENCE_S)
        return [p.offset for p in found]
    finally:
        await reader.close()


async def seen(consumer: Any, enough: Callable[[list[ck.Message]], bool]) -> list[ck.Message]:
    """What poll returns, records and errors, until there is enough of it."""
    found: list[ck.Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while not enough(found):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s; came: {[told(one) for one in found]}"
        message = await consumer.poll(0.2)
        if message is not None:
            found.append(message)
    return found


def told(message: ck.Message) -> tuple[str | None, int | None, int | None, int]:
    error = message.error()
    return message.topic(), message.partition(), message.offset(), 0 if error is None else error.code()


def errors(messages: list[ck.Message]) -> list[int]:
    return [code for *_, code in map(told, messages) if code]


def fill(broker: Broker, topic: str, count: int, partition: int = 0) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(PATIENCE_S) == 0
