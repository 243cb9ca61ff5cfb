"""AsyncConsumer beside confluent-kafka's AIOConsumer: the same program on both, and the same outcome.

Each program uses nothing but AIOConsumer's surface.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from asyncio_kinds import BOTH, Make, play, seen, settings

from holdfast.testing import Broker
from patience import PATIENCE_S


@pytest.fixture(params=BOTH)
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a consumer of either class."""
    return request.param  # type: ignore[no-any-return]  # a fixture's parameter is Any


# -- the constructor


def test_it_takes_an_executor_or_a_number_of_workers(make: Make, broker: Broker) -> None:
    async def scene() -> None:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            given, own = make(settings(broker), max_workers=9, executor=pool), make(settings(broker), max_workers=3)
            assert given.executor is pool
            assert own.executor._max_workers == 3
            assert (await given.list_topics(timeout=PATIENCE_S)).brokers.keys() == (
                await own.list_topics(timeout=PATIENCE_S)
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
                    consumer.committed(where, timeout=PATIENCE_S),
                    consumer.get_watermark_offsets(where[0], timeout=PATIENCE_S),
                    consumer.offsets_for_times(where, timeout=PATIENCE_S),
                    consumer.cluster_id(timeout=PATIENCE_S),
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


# -- callbacks


def test_coroutine_callbacks_get_the_consumer_and_may_use_it(make: Make, broker: Broker, topic: str) -> None:
    async def scene() -> None:
        calls: list[Any] = []

        async def on_assign(given: Any, partitions: list[ck.TopicPartition]) -> None:
            await asyncio.sleep(0)
            committed = await given.committed(partitions, timeout=PATIENCE_S)
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
        found = await reader.committed(where, timeout=PATIENCE_S)
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
            (found,) = await reader.committed(where, timeout=PATIENCE_S)
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
