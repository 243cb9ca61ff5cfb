"""A subscription that is made while another one ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
from polling import COUNTER

import holdfast
from holdfast.testing import Broker
from patience import PATIENCE_S

EACH = 5
"""Records in each of the topic's three partitions."""


def test_who_subscribes_again_while_it_is_revoked_reads_on(
    make: Callable[..., Any], topic: str, broker: Broker
) -> None:
    """Symptom: on_revoke subscribed again in an unsubscribe(), which then took ten seconds; from then on the member had
    its partitions and nobody read them. Cause: at its end unsubscribe() took back what had been begun since. Rule: the
    last word counts."""
    consumer = make()
    heard: list[str] = []

    def on_revoke(consumer: Any, _partitions: list[ck.TopicPartition]) -> None:
        heard.append("revoked")
        if heard.count("revoked") == 1:
            consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)

    def on_assign(_consumer: Any, _partitions: list[ck.TopicPartition]) -> None:
        heard.append("assigned")

    def read(count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while count:
            assert time.monotonic() < deadline, heard
            message = consumer.poll(0.1)
            count -= message is not None and message.error() is None

    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    read(3 * EACH)
    consumer.unsubscribe()
    produce(broker, topic)
    read(3)
    assert heard == ["assigned", "revoked", "assigned"]


def test_who_gives_up_waiting_for_an_unsubscribe_may_subscribe_again(broker: Broker, topic: str) -> None:
    """Symptom: a member had its partitions and nobody read them, for good. Cause: its unsubscribe() had been cancelled
    and went on on its thread, beside the subscribe() that followed, and took back what that one had begun. Rule: a
    subscription begins when the unsubscribe before it has ended."""

    async def main() -> None:
        config = {"bootstrap.servers": broker.bootstrap, "group.id": f"g-{next(COUNTER)}"}
        async with holdfast.AsyncConsumer({**config, "auto.offset.reset": "earliest"}) as consumer:

            async def on_revoke(_consumer: Any, _partitions: list[ck.TopicPartition]) -> None:
                await asyncio.sleep(0.3)

            async def read(count: int) -> None:
                async with asyncio.timeout(PATIENCE_S):
                    while count:
                        message = await consumer.poll(0.1)
                        count -= message is not None and message.error() is None

            consumer.subscribe([topic], on_revoke=on_revoke)
            await read(3 * EACH)
            parting = asyncio.ensure_future(consumer.unsubscribe())
            await asyncio.sleep(0.1)
            parting.cancel()
            consumer.subscribe([topic], on_revoke=on_revoke)
            produce(broker, topic)
            await read(3)

    asyncio.run(main())


def produce(broker: Broker, topic: str) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(3):
        producer.produce(topic, b"more", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
