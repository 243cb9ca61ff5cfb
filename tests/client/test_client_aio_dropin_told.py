"""What AsyncConsumer and confluent-kafka's AIOConsumer tell beside records: the same program on both.

An application written for AIOConsumer waits for it. An AsyncConsumer used to be silent about a wrong password, a denied
group, a topic that is not there and the end of a partition, because every failure became another try.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import confluent_kafka as ck
import pytest
from asyncio_kinds import BOTH, Make, errors, fill, play, seen, settings, told
from polling import COUNTER

from holdfast.broker import apis
from holdfast.broker.exchange import Exchange, Parts
from holdfast.model import ErrorCode
from holdfast.testing import Broker
from holdfast.wire.api import Api
from holdfast.wire.fetch import FetchedPartition, FetchedTopic, FetchResponse, encode_fetch_response
from patience import PATIENCE_S


@pytest.fixture(params=BOTH)
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a consumer of either class."""
    return request.param  # type: ignore[no-any-return]  # a fixture's parameter is Any


# -- what is told beside records


def test_the_end_of_a_partition_is_told_behind_its_records_and_again_at_its_next_end(
    make: Make, broker: Broker
) -> None:
    topic = f"ends-{next(COUNTER)}"
    broker.topics.create(topic, partitions=1)
    fill(broker, topic, 3)
    end = ck.KafkaError._PARTITION_EOF

    async def scene() -> None:
        consumer = make(settings(broker, **{"enable.partition.eof": True}))
        await consumer.subscribe([topic])
        first = await seen(consumer, lambda found: errors(found) == [end])
        assert [told(one) for one in first] == [(topic, 0, n, 0) for n in range(3)] + [(topic, 0, 3, end)]
        fill(broker, topic, 1)
        more = await seen(consumer, lambda found: errors(found) == [end])
        assert [told(one) for one in more] == [(topic, 0, 3, 0), (topic, 0, 4, end)]
        assert more[-1].value() == (more[-1].error() or ck.KafkaError(0)).str().encode()
        await consumer.seek(ck.TopicPartition(topic, 0, 4))
        again = await seen(consumer, bool)
        assert [told(one) for one in again] == [(topic, 0, 4, end)], "who seeks to the end hears of it"
        await consumer.close()

    play(scene)


def test_without_a_place_to_start_the_application_hears_so_and_poll_does_not_raise(make: Make, broker: Broker) -> None:
    topic = f"nowhere-{next(COUNTER)}"
    broker.topics.create(topic, partitions=1)
    fill(broker, topic, 3)

    async def scene() -> None:
        consumer = make(settings(broker, **{"auto.offset.reset": "error"}))
        await consumer.subscribe([topic])
        (none,) = await seen(consumer, bool)
        assert told(none) == (topic, 0, None, ck.KafkaError._AUTO_OFFSET_RESET)
        await consumer.close()
        consumer = make(settings(broker, **{"auto.offset.reset": "error"}))
        await consumer.assign([ck.TopicPartition(topic, 0, 77)])
        (gone,) = await seen(consumer, bool)
        assert told(gone) == (topic, 0, 77, ck.KafkaError._AUTO_OFFSET_RESET)
        await consumer.assign([ck.TopicPartition(topic, 0, 1)])
        assert [one.offset() for one in await seen(consumer, lambda found: len(found) == 2)] == [1, 2]
        await consumer.close()

    play(scene)


@pytest.mark.parametrize(
    ("code", "is_told"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
        (ErrorCode.CORRUPT_MESSAGE, True),
        (999, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.FENCED_LEADER_EPOCH, False),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False),
        (ErrorCode.OFFSET_NOT_AVAILABLE, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_what_a_fetch_is_refused_with_is_told_as_a_message_unless_it_passes_by_itself(
    make: Make, monkeypatch: pytest.MonkeyPatch, code: int, is_told: bool
) -> None:
    def refuse(exchange: Exchange | None, _error: ErrorCode) -> Any:
        """One partition refused in an answer that is otherwise well: the broker's own refuses the whole request."""
        assert exchange is not None
        topics = tuple(
            FetchedTopic(
                topic=one.topic,
                topic_id=one.topic_id,
                partitions=tuple(FetchedPartition(partition=part.partition, error=code) for part in one.partitions),
            )
            for one in exchange.body.topics
        )
        answer = FetchResponse(topics=topics)
        return Parts(encode_fetch_response(exchange.version, exchange.frame.correlation_id, answer), ())

    monkeypatch.setitem(apis.loaded_modules, Api.FETCH, replace(apis.module(Api.FETCH), refuse=refuse))

    async def scene(broker: Broker) -> None:
        consumer = make(settings(broker))
        await consumer.assign([ck.TopicPartition("orders", 0, 0)])
        wanted = 1 if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else 5 + is_told  # librdkafka waits long after that
        found = await seen(consumer, lambda found: len(found) == wanted)
        assert errors(found) == [int(code)] * is_told
        assert told(found[0]) == ("orders", 0, 0, int(code) * is_told)
        await consumer.close()

    with Broker() as broker:
        broker.topics.create("orders", partitions=1)
        fill(broker, "orders", 5)
        fault = broker.faults.error(Api.FETCH, ErrorCode.UNKNOWN_SERVER_ERROR, times=1)
        play(lambda: scene(broker))
        assert fault.hits == 1


def test_a_topic_that_does_not_exist_is_told_as_a_message(make: Make) -> None:
    async def scene(broker: Broker) -> None:
        consumer = make(settings(broker))
        await consumer.subscribe(["missing"])
        (missing,) = await seen(consumer, bool)
        assert told(missing) == ("missing", 0, None, ck.KafkaError.UNKNOWN_TOPIC_OR_PART)
        await consumer.close()

    with Broker(auto_create_topics=False) as broker:
        play(lambda: scene(broker))


# -- who is not let in


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    users = {
        "all": ("secret", ["all"]),
        "no-group": ("secret", ["read:topic:*"]),
    }
    with Broker(users=users) as broker:
        broker.topics.create("orders", partitions=1)
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, **login("all")})
        producer.produce("orders", b"one")
        assert producer.flush(30) == 0
        yield broker


def login(user: str, password: str = "secret") -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
    }


def test_a_wrong_password_is_told_to_error_cb_while_it_is_tried_again(make: Make, guarded: Broker) -> None:
    async def scene() -> None:
        heard: list[int] = []

        async def error_cb(error: ck.KafkaError) -> None:
            heard.append(error.code())

        consumer = make(settings(guarded, error_cb=error_cb, **login("all", "wrong")))
        await consumer.subscribe(["orders"])
        wanted = {ck.KafkaError._AUTHENTICATION, ck.KafkaError._ALL_BROKERS_DOWN}
        deadline = time.monotonic() + PATIENCE_S
        while not (wanted <= set(heard) and heard.count(ck.KafkaError._AUTHENTICATION) > 1):
            assert time.monotonic() < deadline, f"heard only {heard}"
            assert await consumer.poll(0.2) is None
        assert set(heard) == wanted
        assert heard.count(ck.KafkaError._ALL_BROKERS_DOWN) == 1
        await consumer.close()

    play(scene)


def test_credentials_that_are_mended_let_the_next_connection_in(make: Make, guarded: Broker) -> None:
    """Two consumers with the same wrong password share nothing that one of them changes."""

    async def scene() -> None:
        heard: list[int] = []

        async def error_cb(error: ck.KafkaError) -> None:
            heard.append(error.code())

        wrong = settings(guarded, **login("all", "wrong"))
        other = make(dict(wrong))
        consumer = make({**wrong, "error_cb": error_cb})
        await other.assign([ck.TopicPartition("orders", 0, 0)])
        await consumer.assign([ck.TopicPartition("orders", 0, 0)])
        await seen(consumer, lambda _found: ck.KafkaError._AUTHENTICATION in heard)
        await consumer.set_sasl_credentials("all", "secret")
        assert [told(one) for one in await seen(consumer, bool)] == [("orders", 0, 0, 0)]
        refused = await other.poll(1.0)
        assert refused is None or refused.error() is not None
        await asyncio.gather(other.close(), consumer.close())

    play(scene)


def test_a_group_that_is_denied_is_told_as_a_message(make: Make, guarded: Broker) -> None:
    async def scene() -> None:
        consumer = make(settings(guarded, **login("no-group")))
        await consumer.subscribe(["orders"])
        (denied,) = await seen(consumer, bool)
        assert told(denied) == (None, 0, None, ck.KafkaError.GROUP_AUTHORIZATION_FAILED)
        await consumer.close()

    play(scene)


def test_a_broker_that_is_gone_is_told_to_error_cb_and_what_it_raises_comes_out_of_poll(make: Make) -> None:
    class Enough(Exception):
        pass

    async def scene() -> None:
        heard: list[int] = []
        raising = {True}

        async def error_cb(error: ck.KafkaError) -> None:
            heard.append(error.code())
            if raising:
                raise Enough

        broker = Broker()
        with broker:
            broker.topics.create("orders", partitions=1)
            fill(broker, "orders", 1)
            consumer = make(settings(broker, error_cb=error_cb))
            await consumer.assign([ck.TopicPartition("orders", 0, 0)])
            await seen(consumer, bool)
        while not {ck.KafkaError._TRANSPORT, ck.KafkaError._ALL_BROKERS_DOWN} <= set(heard):
            with pytest.raises(Enough):
                await seen(consumer, lambda _found: False)
        raising.clear()
        await consumer.close()

    play(scene)
