"""What an AsyncConsumer tells, as far as it can't be played on AIOConsumer beside it."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import confluent_kafka as ck
import pytest
from asyncio_kinds import play
from polling import COUNTER

from holdfast import AsyncConsumer
from holdfast.broker.exchange import Exchange
from holdfast.client.aio.core import MOST_NEWS
from holdfast.client.reading.epochs import Epochs
from holdfast.client.telemetry.connections import AGAIN_S, Health
from holdfast.model import TopicPartition
from holdfast.net.connection import Connection
from holdfast.net.errors import NetError
from holdfast.net.login import login_failed
from holdfast.testing import Broker
from holdfast.wire.api import Api
from inside import parts_of
from patience import PATIENCE_S


def settings(broker: Broker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"g-{next(COUNTER)}",
        "auto.offset.reset": "earliest",
        **more,
    }


async def polled(consumer: AsyncConsumer, enough: Callable[[list[ck.Message]], bool]) -> list[ck.Message]:
    found: list[ck.Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while not enough(found):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s; {len(found)} came"
        message = await consumer.poll(0.1)
        found += [] if message is None else [message]
    return found


def fill(broker: Broker, topic: str, count: int) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number).encode())
    assert producer.flush(PATIENCE_S) == 0


# -- brokers that can't be used

HERE, THERE = ("here", 1), ("there", 2)
GONE = NetError("CONNECTION_FAILED", "Nobody there.", "Start it.", retriable=True)


class Heard:
    """What the application is told, on a clock that stands still."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.now = 0.0
        self.health = Health(
            lambda error: self.codes.append(error.code()), lambda: [HERE, THERE], clock=lambda: self.now
        )


def test_all_brokers_are_down_is_told_once_until_one_is_back() -> None:
    world = Heard()
    heard, health = world.codes, world.health
    health.heard(HERE, GONE)
    assert heard == [ck.KafkaError._TRANSPORT]
    health.heard(THERE, login_failed("no"))
    assert heard[1:] == [ck.KafkaError._AUTHENTICATION, ck.KafkaError._ALL_BROKERS_DOWN]
    health.heard(HERE, GONE)
    assert len(heard) == 3, "nothing is new"
    health.heard(HERE, None)
    assert health.down == {THERE}
    health.heard(HERE, GONE)
    assert heard[3:] == [ck.KafkaError._TRANSPORT, ck.KafkaError._ALL_BROKERS_DOWN]


def test_an_error_that_stays_is_told_again_after_a_while_and_another_one_at_once() -> None:
    world = Heard()
    heard = world.codes
    for _ in range(5):
        world.health.heard(HERE, GONE)
    assert heard == [ck.KafkaError._TRANSPORT]
    world.now += AGAIN_S
    world.health.heard(HERE, GONE)
    assert heard == [ck.KafkaError._TRANSPORT] * 2
    unknown = NetError("CONNECTION_FAILED", "Who?", "Mend the name.", retriable=True)
    unknown.__cause__ = socket.gaierror(-2, "Name or service not known")
    world.health.heard(HERE, unknown)
    assert heard[-1] == ck.KafkaError._RESOLVE


def test_without_error_cb_a_broker_that_is_gone_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        nobody = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
        lines: list[str] = []

        class Logger:
            def log(self, level: int, text: str, *given: Any) -> None:
                assert level == logging.ERROR
                lines.append(text % given)

        async with AsyncConsumer(nobody) as consumer, AsyncConsumer({**nobody, "logger": Logger()}) as other:
            for one in (consumer, other):
                await one.assign([ck.TopicPartition("orders", 0, 0)])
            await polled(other, lambda _found: bool(lines))
            await polled(consumer, lambda _found: "127.0.0.1:1: No connection" in caplog.text)
        assert "127.0.0.1:1: No connection" in lines[0]

    with caplog.at_level(logging.WARNING, "holdfast"):
        play(scene)


def test_an_assigned_topic_or_partition_that_does_not_exist_is_told_where_confluent_kafka_tells_it() -> None:
    """It tells error_cb. Without one it tells nobody; here a message does."""
    wanted = [ck.TopicPartition("missing", 0, 0), ck.TopicPartition("orders", 7, 0)]
    codes = {ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError._UNKNOWN_PARTITION}

    async def scene(broker: Broker) -> None:
        heard: set[int] = set()
        keys = settings(broker, error_cb=lambda error: heard.add(error.code()))
        async with AsyncConsumer(keys) as consumer, AsyncConsumer(settings(broker)) as other:
            await consumer.assign(wanted)
            await other.assign(wanted)
            found = await polled(other, lambda found: len(found) == 2)
            assert {(one.topic(), (one.error() or ck.KafkaError(0)).code()) for one in found} == {
                ("missing", ck.KafkaError.UNKNOWN_TOPIC_OR_PART),
                ("orders", ck.KafkaError._UNKNOWN_PARTITION),
            }
            assert await polled(consumer, lambda _found: heard == codes) == []

    with Broker(auto_create_topics=False) as broker:
        broker.topics.create("orders", partitions=1)
        play(lambda: scene(broker))


# -- callbacks


def test_a_broker_that_makes_us_wait_is_told_to_throttle_cb(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = Connection.fetch

    async def throttled(self: Connection, *given: Any, **more: Any) -> Any:
        return replace(await fetch(self, *given, **more), throttle_time_ms=250)

    monkeypatch.setattr(Connection, "fetch", throttled)

    async def scene() -> None:
        heard: list[ck.ThrottleEvent] = []
        async with AsyncConsumer(settings(broker, throttle_cb=heard.append)) as consumer:
            await consumer.assign([ck.TopicPartition(topic, 0, 0)])
            await polled(consumer, lambda found: len(found) == 5 and bool(heard))
        assert (heard[0].broker_name, heard[0].broker_id, heard[0].throttle_time) == (f"{broker.bootstrap}/0", 0, 0.25)

    play(scene)


def test_every_commit_has_its_outcome_told(broker: Broker, topic: str) -> None:
    """Symptom: of 3,000 commits that were made between two polls on_commit heard of the last 1,000. Cause: outcomes
    were queued with the news (errors, statistics), of which only so much is kept. Rule: only news may be dropped."""
    count = MOST_NEWS + 100

    async def scene() -> None:
        told: list[Any] = []
        keys = settings(broker, on_commit=lambda error, _: told.append(error), **{"enable.auto.commit": False})
        async with AsyncConsumer(keys) as consumer:
            await consumer.assign([ck.TopicPartition(topic, 0, 0)])
            for number in range(count):
                await consumer.commit(offsets=[ck.TopicPartition(topic, 0, number)], asynchronous=True)
            await asyncio.to_thread(parts_of(consumer).offsets.wait, PATIENCE_S)
            await polled(consumer, lambda _found: len(told) >= count)
        assert told == [None] * count

    play(scene)


def test_a_cancelled_poll_does_not_cut_a_callback_of_the_configuration_in_two(broker: Broker, topic: str) -> None:
    async def scene() -> None:
        steps: list[str] = []
        began, go_on = asyncio.Event(), asyncio.Event()

        async def on_commit(_error: Any, _partitions: Any) -> None:
            steps.append("began")
            began.set()
            await go_on.wait()
            steps.append("ended")

        keys = settings(broker, on_commit=on_commit, **{"enable.auto.commit": False})
        async with AsyncConsumer(keys) as consumer:
            await consumer.assign([ck.TopicPartition(topic, 0, 0)])
            await consumer.commit(offsets=[ck.TopicPartition(topic, 0, 1)], asynchronous=True)
            poll = asyncio.ensure_future(polled(consumer, lambda _found: bool(steps)))
            await began.wait()
            poll.cancel()
            await asyncio.wait([poll])
            assert steps == ["began"]
            go_on.set()
            await polled(consumer, lambda _found: len(steps) > 1)
        assert steps == ["began", "ended"]

    play(scene)


def test_oauth_cb_may_be_a_coroutine_function_on_one_loop_and_the_next() -> None:
    """AIOConsumer can't have one. It is first asked for a token with the first login: nobody waits for a loop in a
    constructor that runs on it.

    Symptom: on its second event loop such a consumer could not log in any more. Cause: the callback was still given to
    the first loop, which was closed. Rule: what belongs to the application's loop moves with the consumer."""
    asked: list[tuple[str, asyncio.AbstractEventLoop]] = []
    kept: list[AsyncConsumer] = []

    async def oauth_cb(argument: str) -> tuple[str, float]:
        await asyncio.sleep(0)
        asked.append((argument, asyncio.get_running_loop()))
        return f"token-{len(asked)}", 0.0  # it has expired: every login asks for another one

    async def logged_in(expected: str) -> None:
        if not kept:
            kept.append(AsyncConsumer(keys))
        assert not asked or asked[-1][1] is not asyncio.get_running_loop()
        await kept[0].assign([])
        source = parts_of(kept[0]).config.tokens
        assert source is not None
        assert (await asyncio.to_thread(source, ""))[0] == expected  # as a login does
        assert asked[-1] == ("said", asyncio.get_running_loop())

    async def last() -> None:
        await logged_in("token-2")
        await kept[0].close()

    with Broker() as broker:
        keys = settings(
            broker,
            **{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"},
            **{"sasl.oauthbearer.config": "said", "oauth_cb": oauth_cb},
        )
        play(lambda: logged_in("token-1"))
        play(last)


# -- what can't be read


def test_a_damaged_batch_is_a_message_in_its_place_until_somebody_seeks_past_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"damaged-{next(COUNTER)}"
    broker.topics.create(topic, partitions=1)
    for _ in range(3):
        fill(broker, topic, 1)  # a batch each
    fetch = Connection.fetch

    async def damaged(self: Connection, *given: Any, **more: Any) -> Any:
        answer = await fetch(self, *given, **more)
        return replace(answer, topics=tuple(_flip(one) for one in answer.topics))

    def _flip(one: Any) -> Any:
        def bad(part: Any) -> Any:
            if not part.records:
                return part
            records = bytearray(part.records[0])
            at = 0
            while at < len(records):
                size = 12 + int.from_bytes(records[at + 8 : at + 12], "big")
                if int.from_bytes(records[at : at + 8], "big") == 1:
                    records[at + size - 1] ^= 0xFF
                at += size
            return replace(part, records=(bytes(records),))

        return replace(one, partitions=tuple(bad(part) for part in one.partitions))

    monkeypatch.setattr(Connection, "fetch", damaged)

    async def scene() -> None:
        async with AsyncConsumer(settings(broker, **{"fetch.error.backoff.ms": 50})) as consumer:
            await consumer.assign([ck.TopicPartition(topic, 0, 0)])
            found = await polled(consumer, lambda found: len(found) == 3)
            codes = [0 if (error := one.error()) is None else error.code() for one in found]
            assert codes == [0, ck.KafkaError._BAD_MSG, ck.KafkaError._BAD_MSG]
            assert [one.offset() for one in found] == [0, 1, 1]
            assert (await consumer.position([ck.TopicPartition(topic, 0)]))[0].offset == 1
            await consumer.seek(ck.TopicPartition(topic, 0, 2))
            rest = [one for one in await polled(consumer, bool) if one.error() is None]
            assert [one.offset() for one in rest] == [2]

    play(scene)


def test_epochs_are_found_where_they_change_also_when_a_partition_is_read_again() -> None:
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    epochs = Epochs()
    epochs.note(a, [(0, 4)])
    assert epochs.of(["t"], [0], [7]) == [4]
    epochs.note(a, [(10, 5)])
    epochs.note(b, [(0, -1)])
    rows = (["t"] * 4, [0, 0, 0, 1], [9, 10, 99, 3])
    assert epochs.of(*rows) == [4, 5, 5, -1]
    epochs.note(a, [(8, 4), (10, 5)])
    assert epochs.of(*rows) == [4, 5, 5, -1]
    epochs.forget(a)
    epochs.forget(b)
    assert epochs.one(a, 9) == -1


# -- an idle consumer


def test_silent_partitions_are_asked_for_seldom_and_one_that_comes_along_does_not_wait(broker: Broker) -> None:
    """Symptom: an idle consumer took 2.6 % of a core. Cause: every fetch came back after 50 ms, so that a partition
    that comes along never waits long. Rule: a request over silent partitions may be held back for long while the other
    connection is free, and whoever comes along takes its partitions with it."""
    topics = [f"silent-{next(COUNTER)}" for _ in range(2)]
    for name in topics:
        broker.topics.create(name, partitions=2)
    waits: list[tuple[int, int]] = []

    def note(exchange: Exchange) -> None:
        mine = [one for one in exchange.body.topics if exchange.frame.client_id == "idler"]
        if mine:
            waits.append((exchange.body.max_wait_ms, sum(len(one.partitions) for one in mine)))

    fault = broker.faults.call(Api.FETCH, note)

    async def scene() -> None:
        async with AsyncConsumer(settings(broker, **{"client.id": "idler"})) as consumer:
            await consumer.assign([ck.TopicPartition(topics[0], number, 0) for number in range(2)])
            await polled(consumer, lambda _found: (500, 2) in waits)
            assert waits[0][0] == 50
            fill(broker, topics[1], 1)
            await consumer.incremental_assign([ck.TopicPartition(topics[1], number, 0) for number in range(2)])
            assert [one.topic() for one in await polled(consumer, bool)] == [topics[1]]
            await polled(consumer, lambda _found: (500, 4) in waits)
            fill(broker, topics[0], 1)
            assert [one.topic() for one in await polled(consumer, bool)] == [topics[0]]

    try:
        play(scene)
    finally:
        fault.clear()


# -- in other people's hands


class Framework(AsyncConsumer):
    """Names everything as we once did, and overrides public methods."""

    def __init__(self, keys: dict[str, Any]) -> None:
        for name in ("_loop", "_core", "_came", "_serving", "_starting", "_closing", "_telling", "_executor", "_owner"):
            setattr(self, name, f"the framework's own {name}")
        super().__init__(keys)
        self.executor = "the framework's own"  # type: ignore[assignment]

    async def commit(self, *_given: Any, **_more: Any) -> Any:
        raise AssertionError("nobody but the application calls this")

    async def committed(self, *_given: Any, **_more: Any) -> Any:
        raise AssertionError("nobody but the application calls this")

    def _open(self) -> Any:
        raise AssertionError("the framework's own")

    _serve = _until = _wait = _run = _started = _open


def test_a_subclass_may_use_every_name_but_one(broker: Broker, topic: str) -> None:
    async def scene() -> None:
        async with Framework(settings(broker)) as consumer:
            assigned: list[Any] = []
            await consumer.subscribe([topic], on_assign=lambda given, _partitions: assigned.append(given))
            await polled(consumer, lambda found: len(found) == 15)
            assert assigned == [consumer]
            assert (await consumer.list_topics(topic, PATIENCE_S)).topics[topic].partitions.keys() == {0, 1, 2}

    play(scene)


def test_one_that_is_dropped_without_close_leaves_its_group(broker: Broker, topic: str) -> None:
    keys = settings(broker)

    async def scene() -> None:
        consumer = AsyncConsumer(keys)
        await consumer.subscribe([topic])
        await polled(consumer, lambda found: len(found) == 15)
        assert len(broker.group(keys["group.id"]).members) == 1
        del consumer
        deadline = time.monotonic() + PATIENCE_S
        while broker.group(keys["group.id"]).members:
            gc.collect()
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    play(scene)
