"""AsyncConsumer beside confluent-kafka's AIOConsumer: the same program on both, and the same outcome.

Each program uses nothing but AIOConsumer's surface. What is told beside records is what an application written for that
one waits for: an AsyncConsumer used to be silent about a wrong password, a denied group, a topic that is not there and
the end of a partition, because every failure became another try.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import confluent_kafka as ck
import pytest
from asyncio_kinds import BOTH, Make, settings
from polling import COUNTER

from holdfast.broker import apis
from holdfast.broker.apis import fetch
from holdfast.broker.exchange import Exchange
from holdfast.model import ErrorCode
from holdfast.testing import Broker
from holdfast.wire.api import Api
from holdfast.wire.fetch import FetchedPartition, FetchedTopic, FetchResponse
from patience import PATIENCE_S


@pytest.fixture(params=BOTH)
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a consumer of either class."""
    return request.param  # type: ignore[no-any-return]  # a fixture's parameter is Any


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(90):
            await scene()

    asyncio.run(limited())


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
    assert producer.flush(30) == 0


# -- the constructor


def test_it_takes_an_executor_or_a_number_of_workers(make: Make, broker: Broker) -> None:
    async def scene() -> None:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            given, own = make(settings(broker), max_workers=9, executor=pool), make(settings(broker), max_workers=3)
            assert given.executor is pool
            assert own.executor._max_workers == 3
            assert (await given.list_topics(timeout=10)).brokers.keys() == (
                await own.list_topics(timeout=10)
            ).brokers.keys()
            await asyncio.gather(given.close(), own.close())
        with pytest.raises(ValueError, match="max_workers must be at least 1"):
            make(settings(broker), max_workers=0)

    play(scene)


# -- awaiting everything


def test_every_call_can_be_awaited_gathered_and_made_a_task(make: Make, broker: Broker, topic: str) -> None:
    """asyncio.gather(consumer.assignment(), …) raised: a list can't be hashed, and a task wants a coroutine."""
    where = [ck.TopicPartition(topic, number, 0) for number in range(3)]

    async def scene() -> None:
        consumer = make(settings(broker, **{"enable.auto.offset.store": False, "enable.auto.commit": False}))
        await asyncio.create_task(consumer.subscribe([topic]))
        await asyncio.gather(consumer.unsubscribe())
        await asyncio.create_task(consumer.assign(where))
        (first,) = await seen(consumer, bool)
        await asyncio.create_task(consumer.store_offsets(message=first))
        await asyncio.gather(consumer.pause(where), consumer.resume(where))
        await asyncio.create_task(consumer.seek(where[0]))
        assigned, positions, metadata = await asyncio.gather(
            consumer.assignment(), consumer.position(where), consumer.consumer_group_metadata()
        )
        assert [(p.topic, p.partition) for p in sorted(assigned)] == [(topic, number) for number in range(3)]
        assert [p.partition for p in positions] == [0, 1, 2]
        assert isinstance(metadata, bytes)
        await asyncio.create_task(consumer.incremental_unassign(where[:1]))
        await asyncio.create_task(consumer.incremental_assign(where[:1]))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(call)
                for call in (
                    consumer.commit(offsets=[ck.TopicPartition(topic, 0, 2)], asynchronous=False),
                    consumer.committed(where, timeout=10),
                    consumer.get_watermark_offsets(where[0], timeout=10),
                    consumer.offsets_for_times(where, timeout=10),
                    consumer.cluster_id(timeout=10),
                )
            ]
        assert tasks[2].result() == (0, 5)
        await asyncio.create_task(consumer.unassign())
        assert await asyncio.wait_for(consumer.assignment(), 10) == []
        await consumer.close()
        with pytest.raises(RuntimeError, match="Consumer closed"):
            await consumer.poll(0.1)
        with pytest.raises(RuntimeError, match="Consumer closed"):
            await consumer.assignment()

    play(scene)


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
        return fetch._encoded(exchange, FetchResponse(topics=topics))

    monkeypatch.setitem(apis._loaded, Api.FETCH, replace(apis.module(Api.FETCH), refuse=refuse))

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


# -- callbacks


def test_coroutine_callbacks_get_the_consumer_and_may_use_it(make: Make, broker: Broker, topic: str) -> None:
    async def scene() -> None:
        calls: list[Any] = []

        async def on_assign(given: Any, partitions: list[ck.TopicPartition]) -> None:
            await asyncio.sleep(0)
            committed = await given.committed(partitions, timeout=10)
            calls.append(("assigned", given is consumer, [p.offset for p in committed]))

        async def on_revoke(given: Any, partitions: list[ck.TopicPartition]) -> None:
            done = await given.commit(asynchronous=False)
            calls.append(("revoked", given is consumer, len(partitions), {p.offset for p in done}))

        async def on_commit(error: Any, partitions: list[ck.TopicPartition]) -> None:
            await asyncio.sleep(0)
            calls.append(("committed", error, {p.offset for p in partitions}))

        keys = {"enable.auto.commit": False, "on_commit": on_commit}
        consumer = make(settings(broker, **keys))
        await consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
        await seen(consumer, lambda found: len(found) == 12)
        await consumer.commit(offsets=[ck.TopicPartition(topic, 0, 1)], asynchronous=True)
        await seen(consumer, lambda found: len(found) == 3 and len(calls) > 1)
        assert calls[:2] == [("assigned", True, [ck.OFFSET_INVALID] * 3), ("committed", None, {1})]
        await consumer.close()
        assert [call for call in calls[2:] if call[0] == "revoked"] == [("revoked", True, 3, {5})]

    play(scene)


def test_a_commit_with_nothing_to_commit_raises_only_for_who_waits_for_it(make: Make, broker: Broker) -> None:
    async def scene() -> None:
        consumer = make(settings(broker))
        await consumer.subscribe(["orders"])
        with pytest.raises(ck.KafkaException) as caught:
            await consumer.commit(asynchronous=False)
        assert caught.value.args[0].code() == ck.KafkaError._NO_OFFSET
        assert await consumer.commit() is None
        await consumer.close()

    play(scene)


def test_statistics_tell_where_partitions_and_the_group_stand(make: Make, broker: Broker, topic: str) -> None:
    async def scene() -> None:
        heard: list[dict[str, Any]] = []

        async def stats_cb(text: str) -> None:
            heard.append(json.loads(text))

        keys = {"statistics.interval.ms": 200, "stats_cb": stats_cb, "enable.auto.commit": False, "client.id": "clerk"}
        consumer = make(settings(broker, **keys))
        await consumer.subscribe([topic])
        await seen(consumer, lambda found: len(found) == 15)
        await consumer.commit(offsets=[ck.TopicPartition(topic, 0, 3)], asynchronous=False)
        places = (
            "app_offset",
            "committed_offset",
            "lo_offset",
            "hi_offset",
            "ls_offset",
            "next_offset",
            "consumer_lag",
        )

        def stands(told: dict[str, Any]) -> bool:
            """They are told every 200 ms, and what was asked for arrives when it arrives."""
            partitions = told["topics"].get(topic, {}).get("partitions", {})
            return [partitions.get("0", {}).get(name) for name in places] == [5, 3, 0, 5, 5, 5, 2]

        await seen(consumer, lambda _found: bool(heard) and stands(heard[-1]))
        await consumer.close()
        last = next(told for told in reversed(heard) if stands(told))
        assert (last["client_id"], last["type"]) == ("clerk", "consumer")
        assert last["name"].startswith("clerk#consumer-")
        assert [broker["state"] for broker in last["brokers"].values() if broker["nodeid"] == 0] == ["UP"]
        part = last["topics"][topic]["partitions"]["0"]
        assert (part["consumer_lag_stored"], part["leader"]) == (0, 0)
        group = last["cgrp"]
        assert (group["state"], group["join_state"], group["assignment_size"]) == ("up", "steady", 3)
        assert group["rebalance_cnt"] >= 1
        assert last["age"] > 0 and last["ts"] > 0 and abs(last["time"] - time.time()) < 60
        assert last["rxmsgs"] == 15

    play(scene)


def test_records_know_their_leader_epoch_and_so_do_their_commits(make: Make, broker: Broker, topic: str) -> None:
    where = [ck.TopicPartition(topic, number) for number in range(3)]

    async def scene() -> None:
        group = settings(broker)
        consumer = make(dict(group))
        await consumer.subscribe([topic])
        assert {one.leader_epoch() for one in await seen(consumer, lambda found: len(found) == 15)} == {0}
        await consumer.pause(where)
        await consumer.close()
        reader = make(dict(group))
        found = await reader.committed(where, timeout=10)
        assert [(p.offset, p.leader_epoch, p.metadata) for p in found] == [(5, 0, None)] * 3
        await reader.close()

    play(scene)


def test_an_assignment_by_hand_is_committed_by_itself(make: Make, broker: Broker, topic: str) -> None:
    """It never was: neither while it was read nor at the end."""
    where = [ck.TopicPartition(topic, 0)]

    async def scene() -> None:
        group = settings(broker, **{"auto.commit.interval.ms": 100})
        consumer, reader = make(dict(group)), make(dict(group))

        async def committed() -> int:
            (found,) = await reader.committed(where, timeout=10)
            return int(found.offset)

        await consumer.assign([ck.TopicPartition(topic, 0, 0)])
        await seen(consumer, lambda found: len(found) == 3)
        deadline = time.monotonic() + PATIENCE_S
        while await committed() < 3:
            assert time.monotonic() < deadline, "not while it is read"
            await consumer.poll(0.1)
        await seen(consumer, lambda _found: True)
        while (await consumer.position(where))[0].offset < 5:
            await consumer.poll(0.1)
        await consumer.close()
        assert await committed() == 5
        await reader.close()

    play(scene)


# -- tokens


def oauth(broker: Broker, oauth_cb: Callable[[str], Any]) -> dict[str, Any]:
    keys = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "said"}
    return settings(broker, oauth_cb=oauth_cb, **keys)


def test_oauth_cb_is_called_by_the_constructor_and_again_before_the_token_ends(make: Make, broker: Broker) -> None:
    async def scene() -> None:
        asked: list[str] = []

        def oauth_cb(argument: str) -> tuple[str, float]:
            asked.append(argument)
            return "token", time.time() + 2.0

        consumer = make(oauth(broker, oauth_cb))
        assert asked == ["said"]
        deadline = time.monotonic() + PATIENCE_S
        while len(asked) < 2:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        await consumer.close()

    play(scene)


def test_without_a_first_token_there_is_no_consumer(make: Make, broker: Broker) -> None:
    def oauth_cb(_argument: str) -> tuple[str, float]:
        raise LookupError("the vault is closed")

    async def scene() -> None:
        with pytest.raises(ck.KafkaException):
            make(oauth(broker, oauth_cb))

    play(scene)
