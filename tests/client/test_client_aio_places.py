"""Places and partitions that are none, asked of both asyncio consumers: the same answers, and nobody waits for them.

librdkafka has rules of its own for numbers that are no offset, and for partitions that do not exist. AsyncConsumer has
no librdkafka: it ignored some of these without a word, took what can't be meant, and waited for what never comes.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import confluent_kafka as ck
import pytest
from asyncio_kinds import BOTH, Make, play, settings
from polling import COUNTER

from holdfast import AsyncConsumer, Consumer
from holdfast.model import ErrorCode
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S

LONG_AGO_MS = 1_600_000_000_000


@pytest.fixture(params=BOTH)
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a consumer of either class."""
    return request.param  # type: ignore[no-any-return]  # a fixture's parameter is Any


@pytest.fixture
def topic(broker: Broker) -> str:
    """One partition, ten records, the fifth of which has the latest time."""
    name = f"places-{next(COUNTER)}"
    broker.topics.create(name, partitions=1)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(10):
        producer.produce(name, b"x", partition=0, timestamp=LONG_AGO_MS + (1_000 if number == 4 else number))
    assert producer.flush(PATIENCE_S) == 0
    return name


async def polled(consumer: Any, enough: Callable[[list[int], list[int]], bool]) -> tuple[list[int], list[int]]:
    """The offsets that came and the codes of what was told, until there is enough of them."""
    offsets: list[int] = []
    codes: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while not enough(offsets, codes):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {offsets}, {codes}"
        message = await consumer.poll(0.1)
        if message is not None:
            error = message.error()
            if error is None:
                offsets.append(message.offset())
            else:
                codes.append(error.code())
    return offsets, codes


async def refusal(call: Callable[[], Awaitable[Any]]) -> int:
    """The code that a call is refused with, before it is awaited or then."""
    with pytest.raises(ck.KafkaException) as refused:
        await call()
    code: int = refused.value.args[0].code()
    return code


@pytest.mark.parametrize(
    ("place", "first"), [(ck.OFFSET_INVALID, 0), (-7, 0), (-1_500, 0), (-3, 4), (-2_003, 7), (ck.OFFSET_BEGINNING, 0)]
)
def test_a_seek_to_a_place_goes_there_and_one_to_no_place_where_the_reset_says(
    make: Make, broker: Broker, topic: str, place: int, first: int
) -> None:
    """AsyncConsumer ignored a seek to -1001, -5 or -3 without a word and read on; AIOConsumer goes by
    auto.offset.reset for a number that stands for nothing, and to the record with the latest time for -3."""

    async def scene() -> None:
        consumer = make(settings(broker))
        await consumer.assign([ck.TopicPartition(topic, 0, 0)])
        await polled(consumer, lambda offsets, _: len(offsets) == 10)
        await consumer.seek(ck.TopicPartition(topic, 0, place))
        offsets, _ = await polled(consumer, lambda offsets, _: bool(offsets))
        assert offsets == [first]
        await consumer.close()

    play(scene)


def test_a_seek_to_no_place_is_told_where_no_reset_is_allowed(make: Make, broker: Broker, topic: str) -> None:
    """With auto.offset.reset=error nothing may be chosen: AsyncConsumer read on as if nothing had been said."""

    async def scene() -> None:
        consumer = make(settings(broker, **{"auto.offset.reset": "error"}))
        await consumer.assign([ck.TopicPartition(topic, 0, 0)])
        await polled(consumer, lambda offsets, _: len(offsets) == 10)
        await consumer.seek(ck.TopicPartition(topic, 0, ck.OFFSET_INVALID))
        _, codes = await polled(consumer, lambda _, codes: bool(codes))
        assert codes == [ck.KafkaError._AUTO_OFFSET_RESET]
        await consumer.close()

    play(scene)


def test_a_nonsense_number_is_told_and_read_from_where_the_reset_says(broker: Broker, topic: str) -> None:
    """librdkafka asks the broker for it, and mostly tells its UNSUPPORTED_VERSION. Ours always tells it, also where
    the sync class reads by Arrow batches, as an exception."""
    consumer = Consumer(settings(broker))
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    consumer.consume_arrow(100, PATIENCE_S)
    consumer.seek(ck.TopicPartition(topic, 0, -7))
    with pytest.raises(ck.KafkaException) as told:
        consumer.consume_arrow(100, PATIENCE_S)
    assert told.value.args[0].code() == ck.KafkaError.UNSUPPORTED_VERSION
    assert "-7" in told.value.args[0].str()
    assert consumer.consume_arrow(100, PATIENCE_S)["offset"][0].as_py() == 0
    consumer.close()


def test_what_can_not_be_sought_or_assigned_is_refused_by_librdkafkas_codes(
    make: Make, broker: Broker, topic: str
) -> None:
    """AsyncConsumer took OFFSET_STORED for a seek, the same partition twice in incremental_assign, and numbers that
    stand for nothing as a start: the partition was then never read, and nobody heard why."""

    def at(offset: int, *, name: str = topic, number: int = 0) -> ck.TopicPartition:
        return ck.TopicPartition(name, number, offset)

    async def scene() -> None:
        consumer = make(settings(broker))
        await consumer.assign([at(0)])
        await polled(consumer, lambda offsets, _: len(offsets) == 10)
        refused = {
            "seek stored": await refusal(lambda: consumer.seek(at(ck.OFFSET_STORED))),
            "seek another topic": await refusal(lambda: consumer.seek(at(1, name="never-heard-of"))),
            "more -8": await refusal(lambda: consumer.incremental_assign([at(-8, number=1)])),
            "more twice": await refusal(lambda: consumer.incremental_assign([at(1, name="z"), at(1, name="z")])),
            "assigned already": await refusal(lambda: consumer.incremental_assign([at(0)])),
        }
        assert [(p.topic, p.partition) for p in await consumer.assignment()] == [(topic, 0)]
        refused |= {
            "assign -8": await refusal(lambda: consumer.assign([at(-8)])),
            "assign twice": await refusal(lambda: consumer.assign([at(0), at(0)])),
        }
        await consumer.close()
        assert refused == {
            "seek stored": ck.KafkaError._INVALID_ARG,
            "seek another topic": ck.KafkaError._UNKNOWN_PARTITION,
            "assign -8": ck.KafkaError._INVALID_ARG,
            "assign twice": ck.KafkaError._INVALID_ARG,
            "more -8": ck.KafkaError._INVALID_ARG,
            "more twice": ck.KafkaError._INVALID_ARG,
            "assigned already": ck.KafkaError._CONFLICT,
        }

    play(scene)


def test_questions_about_what_is_not_there_are_answered_at_once(make: Make, broker: Broker, topic: str) -> None:
    """AsyncConsumer asked for the leader of a partition that does not exist until the time was up, a minute without a
    timeout, and said _TIMED_OUT; one such partition cost the answers about all the others."""

    async def scene() -> None:
        consumer = make(settings(broker))
        await consumer.list_topics(topic)  # librdkafka learns what there is
        nothing, beyond = ck.TopicPartition("nope", 0, 4), ck.TopicPartition(topic, 9, 5)
        for partition in nothing, beyond:
            assert await refusal(partial(consumer.get_watermark_offsets, partition)) == UNKNOWN
        assert await refusal(lambda: consumer.offsets_for_times([nothing, beyond])) == UNKNOWN
        assert await refusal(lambda: consumer.offsets_for_times([])) == ck.KafkaError._INVALID_ARG
        found = await consumer.offsets_for_times([nothing, ck.TopicPartition(topic, 0, 0), beyond])
        shown = [(p.topic, p.partition, p.offset, None if p.error is None else p.error.code()) for p in found]
        assert shown == [
            ("nope", 0, 4, ck.KafkaError.UNKNOWN_TOPIC_OR_PART),
            (topic, 0, 0, None),
            (topic, 9, 5, UNKNOWN),
        ]
        await consumer.close()

    play(scene)


UNKNOWN = ck.KafkaError._UNKNOWN_PARTITION


@pytest.mark.parametrize("group", ["", None])
@pytest.mark.parametrize("named", [ck.OFFSET_INVALID, ck.OFFSET_STORED])
@pytest.mark.parametrize("call", ["assign", "incremental_assign"])
def test_without_a_group_what_names_no_offset_starts_where_the_reset_says(
    broker: Broker, topic: str, group: str | None, named: int, call: str
) -> None:
    """Symptom: without a group, a partition that was assigned without an offset gave nothing: `_AUTO_OFFSET_RESET`
    although a reset was set, and for OFFSET_STORED not even that, because it was read from its end. Cause: the group
    was not asked, as there is none, and the number that means "as committed" went to the fetcher. Rule: where there is
    no group nothing is committed."""

    async def scene() -> None:
        consumer = AsyncConsumer(settings(broker, **{"group.id": group}))
        await getattr(consumer, call)([ck.TopicPartition(topic, 0, named)])
        assert await polled(consumer, lambda seen, told: len(seen) == 10 or bool(told)) == (list(range(10)), [])
        await consumer.close()

    play(scene)


def test_the_same_holds_while_batches_are_read(broker: Broker, topic: str) -> None:
    """The fetcher of consume_arrow() is the one of AsyncConsumer."""
    with Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "", "auto.offset.reset": "earliest"}) as consumer:
        consumer.consume_arrow(timeout=0)
        consumer.assign([ck.TopicPartition(topic, 0)])
        seen: list[int] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(seen) < 10:
            assert time.monotonic() < deadline, seen
            came: list[Any] = consumer.consume_arrow(timeout=0.1).column("offset").to_pylist()
            seen += came
        assert seen == list(range(10))


# -- one partition in trouble


def refusing(partition: int, code: int) -> Callable[[Any], dict[str, Any]]:
    """ListOffsets answers in which this partition has an error."""

    def changed(body: Any) -> dict[str, Any]:
        error = {"error_code": code, "offset": -1, "timestamp": -1}
        topics = [
            {**topic, "partitions": [one | error if one["partition_index"] == partition else one for one in found]}
            for topic in body["topics"]
            for found in [topic["partitions"]]
        ]
        return {**body, "topics": topics}

    return changed


@pytest.fixture(scope="module")
def two_brokers() -> Iterator[Broker]:
    with Broker(racks=("a", "b")) as running:
        yield running


TROUBLES = [ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None]
"""What a partition's leader answers when it is asked where the partition starts; None: nothing."""


@pytest.fixture(params=TROUBLES, ids=["passing", "lasting", "silent"])
def troubled(request: pytest.FixtureRequest, two_brokers: Broker) -> Iterator[str]:
    """A topic of two partitions with five records each. Where the second one starts can't be found out."""
    name = f"troubled-{next(COUNTER)}"
    two_brokers.topics.create(name, assignments=[[0], [1]])
    producer = ck.Producer({"bootstrap.servers": two_brokers.bootstrap, "log_level": 0})
    for number in range(10):
        producer.produce(name, b"x", partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    if request.param is None:
        two_brokers.faults.drop(Api.LIST_OFFSETS, when=lambda exchange: exchange.client.node_id == 1)
    else:
        two_brokers.faults.change(Api.LIST_OFFSETS, refusing(1, int(request.param)))
    yield name
    two_brokers.faults.clear()


def test_a_partition_whose_start_can_not_be_found_keeps_no_other_from_being_read(
    two_brokers: Broker, troubled: str
) -> None:
    """Symptom: one partition whose leader did not say where it starts kept its whole topic from being read, for as long
    as that lasted. librdkafka reads the others. Cause: a topic's partitions were looked up together, leader after
    leader, and the first one that was refused was the answer for all. Rule: each partition has its own answer."""

    async def scene() -> None:
        consumer = AsyncConsumer(settings(two_brokers))
        await consumer.assign([ck.TopicPartition(troubled, n, ck.OFFSET_BEGINNING) for n in range(2)])
        offsets, _ = await polled(consumer, lambda seen, _told: len(seen) == 5)
        assert offsets == [0, 1, 2, 3, 4]
        two_brokers.faults.clear()
        await consumer.close()

    play(scene)


def test_a_partition_is_read_as_soon_as_its_start_is_known(two_brokers: Broker, troubled: str) -> None:
    async def scene() -> None:
        consumer = AsyncConsumer(settings(two_brokers, **{"socket.timeout.ms": 1_000}))
        await consumer.assign([ck.TopicPartition(troubled, n, ck.OFFSET_BEGINNING) for n in range(2)])
        await polled(consumer, lambda seen, _told: len(seen) == 5)
        two_brokers.faults.clear()
        offsets, _ = await polled(consumer, lambda seen, _told: len(seen) == 5)
        assert offsets == [0, 1, 2, 3, 4]
        await consumer.close()

    play(scene)
