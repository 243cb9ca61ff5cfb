"""Arguments that can't be meant, given to all four consumers: the same exceptions as confluent-kafka's."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from asyncio_kinds import BOTH, Make, settings

import holdfast
from holdfast.testing import Broker
from patience import PATIENCE_S

KINDS = [
    pytest.param(ck.Consumer, marks=pytest.mark.slow, id="confluent"),
    pytest.param(holdfast.Consumer, id="holdfast"),
]


def raised(broker: Broker, kind: Make, call: Callable[[Any], Any]) -> BaseException:
    """What this call raises, on a consumer of any kind."""

    async def scene() -> BaseException:
        consumer = kind(settings(broker, **{"enable.auto.offset.store": False}))
        with pytest.raises(Exception) as found:  # which one is what this is about
            result = call(consumer)
            if inspect.isawaitable(result):
                await result
        closing = consumer.close()
        if inspect.isawaitable(closing):
            await closing
        return found.value

    return asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))


@pytest.mark.parametrize("kind", [*KINDS, *BOTH])
@pytest.mark.parametrize("number", [-1, 1_000_001, 2**31])
def test_numbers_of_messages_that_are_out_of_range_are_refused(broker: Broker, kind: Make, number: int) -> None:
    error = raised(broker, kind, lambda consumer: consumer.consume(number, 0))
    assert type(error) is ValueError
    assert str(error) == "num_messages must be between 0 and 1000000 (1M)"


@pytest.mark.parametrize("kind", [KINDS[1], BOTH[1]])
@pytest.mark.parametrize("number", [2**32, 2**40, 2**70])
def test_a_number_that_confluents_consumer_cuts_is_refused_too(broker: Broker, kind: Make, number: int) -> None:
    """A wanted difference: confluent-kafka takes it modulo 2**32, so that consume(2**40) never returns a record."""
    error = raised(broker, kind, lambda consumer: consumer.consume(number, 0))
    assert type(error) is ValueError


@pytest.mark.parametrize("kind", [*KINDS, *BOTH])
@pytest.mark.parametrize("number", [1.5, "x", None])
def test_what_is_no_number_of_messages_is_no_such_type(broker: Broker, kind: Make, number: Any) -> None:
    """Symptom: consume(1.5) waited for records, and raised when some came, which were lost with it."""
    error = raised(broker, kind, lambda consumer: consumer.consume(number, 0))
    assert type(error) is TypeError
    assert "cannot be interpreted as an integer" in str(error)


@pytest.mark.parametrize("kind", [*KINDS, *BOTH])
@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.store_offsets(message="x"),
        lambda consumer: consumer.commit(message="x"),
        lambda consumer: consumer.commit(message="x", asynchronous=False),
        lambda consumer: consumer.store_offsets(offsets="x"),
        lambda consumer: consumer.store_offsets(offsets=["x"]),
        lambda consumer: consumer.get_watermark_offsets("x", cached=True),
    ],
    ids=["store message", "commit message", "commit and wait", "store text", "store texts", "watermarks"],
)
def test_what_is_no_message_and_no_partition_is_no_such_type(
    broker: Broker, kind: Make, call: Callable[[Any], Any]
) -> None:
    """Symptom: AsyncConsumer.store_offsets(message="x") raised AttributeError. Cause: what the other consumer checks
    first, it did not. Rule: TypeError, whichever class."""
    assert type(raised(broker, kind, call)) is TypeError


@pytest.mark.parametrize("kind", [*KINDS, *BOTH])
@pytest.mark.parametrize("name", ["commit", "store_offsets"])
def test_a_message_and_offsets_exclude_each_other(broker: Broker, kind: Make, name: str) -> None:
    message = ck.Message(topic="t", partition=0, offset=1)
    error = raised(broker, kind, lambda consumer: getattr(consumer, name)(message=message, offsets=[]))
    assert type(error) is ValueError
    assert str(error) == "message and offsets are mutually exclusive"
