"""AsyncConsumer: the consumer on an asyncio loop. Cancelling loses nothing, and callbacks may be coroutines."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from asyncio_kinds import play
from polling import COUNTER

from holdfast import AsyncConsumer
from holdfast.testing import Broker
from patience import PATIENCE_S

Row = tuple[int, int]


def config(broker: Broker, **settings: Any) -> dict[str, Any]:
    given = {key if key == "on_commit" else key.replace("_", "."): value for key, value in settings.items()}
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"g-{next(COUNTER)}",
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 200,
        **given,
    }


def row(message: ck.Message) -> Row:
    assert message.error() is None
    return message.partition() or 0, message.offset() or 0


async def taken(consumer: AsyncConsumer, count: int) -> list[Row]:
    found: list[Row] = []
    while len(found) < count:
        message = await consumer.poll(PATIENCE_S)
        assert message is not None, f"{len(found)} of {count} records came"
        found.append(row(message))
    return found


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"it did not come to pass within {PATIENCE_S} s"
        await asyncio.sleep(0.01)


def everything(each: int = 5) -> list[Row]:
    return [(p, n) for p in range(3) for n in range(each)]


def filled(broker: Broker, each: int) -> str:
    """A topic of three partitions with so many records in each."""
    topic = f"filled-{next(COUNTER)}"
    broker.topics.create(topic, partitions=3)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "lz4"})
    for partition, number in everything(each):
        producer.produce(topic, f"{partition}:{number}".encode(), partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    return topic


def test_every_record_comes_once_and_looks_as_confluent_kafka_would_give_it(broker: Broker, topic: str) -> None:
    async def scene() -> None:
        seen = {}
        async with AsyncConsumer(config(broker)) as consumer:
            consumer.subscribe([topic])
            async for message in consumer:
                seen[row(message)] = message
                if len(seen) == 15:
                    break
            assert await consumer.poll(0.05) is None
        assert sorted(seen) == everything()
        for (partition, number), message in seen.items():
            assert message.value() == f"{partition}:{number}".encode()
            assert message.key() == b"k"
            assert message.topic() == topic
            assert message.timestamp() == (ck.TIMESTAMP_CREATE_TIME, 1_000 + number)
            assert message.headers() is None

    play(scene)


def test_headers_and_nulls_come_as_they_were_sent(broker: Broker) -> None:
    topic = f"nulls-{next(COUNTER)}"
    broker.topics.create(topic, partitions=1)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, None, key=None, headers=[("a", b"1"), ("b", None)])
    producer.flush(PATIENCE_S)

    async def scene() -> None:
        async with AsyncConsumer(config(broker)) as consumer:
            await consumer.assign([ck.TopicPartition(topic, 0, 0)])
            (message,) = await consumer.consume(1, PATIENCE_S)
            assert (message.key(), message.value()) == (None, None)
            assert message.headers() == [("a", b"1"), ("b", None)]

    play(scene)


@pytest.mark.parametrize("seed", range(3))
def test_a_cancelled_poll_loses_no_record(broker: Broker, seed: int) -> None:
    topic = filled(broker, 200)

    async def scene() -> None:
        chance = random.Random(seed)
        found: list[Row] = []

        async def read(consumer: AsyncConsumer) -> None:
            if chance.random() < 0.5:
                message = await consumer.poll()
                found.extend([] if message is None else [row(message)])
            else:
                found.extend(row(message) for message in await consumer.consume(chance.randint(1, 40), 0.3))

        async with AsyncConsumer(config(broker)) as consumer:
            consumer.subscribe([topic])
            while len(found) < 600:
                task = asyncio.ensure_future(read(consumer))
                for _ in range(chance.randint(0, 4)):
                    await asyncio.sleep(0)
                if chance.random() < 0.6:
                    task.cancel()
                await asyncio.wait([task])
        assert sorted(found) == everything(200)

    play(scene)


def test_a_poll_that_times_out_from_outside_loses_no_record(broker: Broker) -> None:
    topic = filled(broker, 50)

    async def scene() -> None:
        found: list[Row] = []
        async with AsyncConsumer(config(broker)) as consumer:
            consumer.subscribe([topic])
            while len(found) < 150:
                try:
                    found.append(row(await asyncio.wait_for(consumer.poll(), 0.002)))  # type: ignore[arg-type]
                except TimeoutError:
                    continue
        assert sorted(found) == everything(50)

    play(scene)


def test_callbacks_may_be_coroutines_and_get_the_consumer(broker: Broker, topic: str) -> None:
    async def scene() -> None:
        heard: list[tuple[str, bool, list[int]]] = []

        async def assigned(consumer: AsyncConsumer, partitions: list[ck.TopicPartition]) -> None:
            await asyncio.sleep(0)
            heard.append(("assigned", consumer is ours, sorted(p.partition for p in partitions)))

        def revoked(consumer: AsyncConsumer, partitions: list[ck.TopicPartition]) -> None:
            heard.append(("revoked", consumer is ours, sorted(p.partition for p in partitions)))

        ours = AsyncConsumer(config(broker))
        await ours.subscribe([topic], on_assign=assigned, on_revoke=revoked)
        await taken(ours, 15)
        await ours.close()
        assert heard == [("assigned", True, [0, 1, 2]), ("revoked", True, [0, 1, 2])]

    play(scene)


def test_a_callback_that_was_begun_ends_although_its_poll_was_cancelled(broker: Broker, topic: str) -> None:
    """A poll that is cancelled while on_assign runs must not leave the member half assigned: the call is made once, to
    its end, and the next poll goes on from there."""

    async def scene() -> None:
        begun, go_on, ended = asyncio.Event(), asyncio.Event(), []

        async def assigned(_consumer: AsyncConsumer, partitions: list[ck.TopicPartition]) -> None:
            begun.set()
            await go_on.wait()
            ended.append(len(partitions))

        async with AsyncConsumer(config(broker)) as consumer:
            consumer.subscribe([topic], on_assign=assigned)
            poll = asyncio.ensure_future(consumer.poll())
            await begun.wait()
            poll.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poll
            assert not ended
            go_on.set()
            assert sorted(await taken(consumer, 15)) == everything()
            assert ended == [3]

    play(scene)


def test_a_callback_may_commit_poll_and_seek(broker: Broker, topic: str) -> None:
    """edge B58 aiokafka 335: a lock held across poll and the listener made a callback that asks its consumer hang."""

    async def scene() -> None:
        group = f"inside-{topic}"

        async def assigned(consumer: AsyncConsumer, partitions: list[ck.TopicPartition]) -> None:
            for partition in partitions:
                partition.offset = 3
            await consumer.incremental_assign(partitions)
            await consumer.poll(0.0)  # it must not wait for the callbacks that are under way: this one

        async def revoked(consumer: AsyncConsumer, _partitions: list[ck.TopicPartition]) -> None:
            await consumer.commit()

        async with AsyncConsumer(config(broker, group_id=group, enable_auto_commit=False)) as consumer:
            consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
            while {p.offset for p in consumer.position([ck.TopicPartition(topic, p) for p in range(3)])} != {5}:
                await consumer.poll(1.0)
        async with AsyncConsumer(config(broker, group_id=group)) as other:
            asked = [ck.TopicPartition(topic, p) for p in range(3)]
            assert {p.offset for p in await other.committed(asked, PATIENCE_S)} == {5}

    play(scene)


def test_an_exception_in_a_callback_comes_out_of_poll(broker: Broker, topic: str) -> None:
    async def scene() -> None:
        async def raising(_consumer: AsyncConsumer, _partitions: Any) -> None:
            raise LookupError("from the callback")

        async with AsyncConsumer(config(broker)) as consumer:
            consumer.subscribe([topic], on_assign=raising)
            with pytest.raises(LookupError, match="from the callback"):
                await consumer.poll(PATIENCE_S)

    play(scene)


def test_partitions_change_hands_without_a_record_lost_or_doubled(broker: Broker) -> None:
    topic = filled(broker, 300)

    async def scene() -> None:
        group = f"hands-{topic}"
        found: list[Row] = []
        members = [AsyncConsumer(config(broker, group_id=group)) for _ in range(3)]

        async def work(consumer: AsyncConsumer) -> None:
            async for message in consumer:
                found.append(row(message))
                await asyncio.sleep(0)

        tasks = []
        for member in members:
            member.subscribe([topic])
            tasks.append(asyncio.create_task(work(member)))
            await asyncio.sleep(0.05)
        await until(lambda: all(member.assignment() for member in members) and len(found) >= 900)
        await asyncio.gather(*(member.close() for member in members))
        await asyncio.gather(*tasks)
        assert sorted(found) == everything(300)

    play(scene)


def test_a_consumer_may_be_closed_before_it_was_assigned_anything(broker: Broker, topic: str) -> None:
    """edge B51 librdkafka 4908: a close before the first assignment waited for it, or for ever."""

    async def scene() -> None:
        heard: list[Any] = []
        for polls in range(3):
            consumer = AsyncConsumer(config(broker))
            consumer.subscribe([topic], on_revoke=lambda _consumer, partitions: heard.append(partitions))
            for _ in range(polls):
                await consumer.poll(0.0)
            await consumer.close()
        assert all(heard), "nothing was revoked that was not assigned"
        with pytest.raises(RuntimeError):
            consumer.subscribe([topic])

    play(scene)


def test_iteration_ends_when_the_consumer_is_closed(broker: Broker, topic: str) -> None:
    async def scene() -> None:
        consumer = AsyncConsumer(config(broker))
        consumer.subscribe([topic])

        async def count() -> int:
            return len([message async for message in consumer])

        counting = asyncio.create_task(count())
        everywhere = [ck.TopicPartition(topic, p) for p in range(3)]
        await until(lambda: sum(max(0, p.offset) for p in consumer.position(everywhere)) == 15)
        await consumer.close()
        await consumer.close()
        assert await counting == 15
        with pytest.raises(RuntimeError, match="closed"):
            await consumer.poll(0.1)

    play(scene)


def test_arrow_and_messages_may_be_mixed(broker: Broker) -> None:
    topic = filled(broker, 200)

    async def scene() -> None:
        chance = random.Random(5)
        found: list[Row] = []
        everywhere = [ck.TopicPartition(topic, p) for p in range(3)]
        async with AsyncConsumer(config(broker)) as consumer:
            consumer.subscribe([topic])
            while len(found) < 600:
                if chance.random() < 0.5:
                    batch = await consumer.consume_arrow(chance.randint(1, 30), 1.0)
                    columns: list[list[Any]] = [batch.column(name).to_pylist() for name in ("partition", "offset")]
                    found += list(zip(*columns, strict=True))
                else:
                    found += [row(m) for m in await consumer.consume(chance.randint(1, 30), 0.5)]
                for partition in consumer.position(everywhere):
                    read = [n + 1 for p, n in found if p == partition.partition]
                    assert partition.offset == max(read, default=ck.OFFSET_INVALID)
        assert sorted(found) == everything(200)

    play(scene)


def test_pause_resume_and_seek(broker: Broker, topic: str) -> None:
    async def scene() -> None:
        async with AsyncConsumer(config(broker)) as consumer:
            await consumer.assign([ck.TopicPartition(topic, p, 0) for p in range(3)])
            first = await taken(consumer, 1)
            await consumer.pause([ck.TopicPartition(topic, p) for p in range(3)])
            assert await consumer.poll(0.2) is None
            consumer.resume([ck.TopicPartition(topic, p) for p in range(3)])
            assert sorted(first + await taken(consumer, 14)) == everything()
            consumer.seek(ck.TopicPartition(topic, 1, 3))
            assert await taken(consumer, 2) == [(1, 3), (1, 4)]
            assert sorted(p.partition for p in await consumer.assignment()) == [0, 1, 2]
            consumer.unassign()
            assert consumer.assignment() == []

    play(scene)


def test_commits_wait_for_the_answer_or_report_it_to_on_commit(broker: Broker, topic: str) -> None:
    async def scene() -> None:
        reports: list[Any] = []

        async def on_commit(error: Any, partitions: list[ck.TopicPartition]) -> None:
            reports.append((error, sorted(p.offset for p in partitions)))

        async with AsyncConsumer(config(broker, enable_auto_commit=False, on_commit=on_commit)) as consumer:
            consumer.subscribe([topic])
            with pytest.raises(ck.KafkaException) as caught:
                await consumer.commit(asynchronous=False)
            assert caught.value.args[0].code() == ck.KafkaError._NO_OFFSET
            assert await consumer.commit() is None, "AIOConsumer's would not raise here"
            await taken(consumer, 15)
            done = await consumer.commit()
            assert done is not None
            assert {p.offset for p in done} == {5}
            assert await consumer.commit(offsets=done, asynchronous=True) is None
            while not reports:
                await consumer.poll(0.05)
            assert reports == [(None, [5, 5, 5])]

    play(scene)


def test_the_cluster_is_described_as_confluent_kafka_does(broker: Broker, topic: str) -> None:
    async def scene() -> None:
        theirs = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "x"})
        async with AsyncConsumer(config(broker)) as consumer:
            ours, other = (await consumer.list_topics(topic, PATIENCE_S)), theirs.list_topics(topic, PATIENCE_S)
            assert {n: (b.host, b.port) for n, b in ours.brokers.items()} == {
                n: (b.host, b.port) for n, b in other.brokers.items()
            }
            assert [(p.id, p.leader, p.replicas, p.isrs) for p in ours.topics[topic].partitions.values()] == [
                (p.id, p.leader, p.replicas, p.isrs) for p in other.topics[topic].partitions.values()
            ]
            assert await consumer.cluster_id(10) == theirs.cluster_id(10)
            assert await consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), 10) == (0, 5)
            for at in (1_003, 9_999):
                asked = [ck.TopicPartition(topic, 0, at)]
                (found,) = await consumer.offsets_for_times(asked, 10)
                assert found.offset == theirs.offsets_for_times(asked, 10)[0].offset
        theirs.close()

    play(scene)


@pytest.mark.slow
def test_a_loop_that_is_busy_keeps_its_membership(broker: Broker, topic: str) -> None:
    """aiokafka's members heartbeat on the application's loop: one that computes for a session timeout is expelled."""

    async def scene() -> None:
        settings = {"session.timeout.ms": 1_000, "max.poll.interval.ms": 60_000}
        lost: list[Any] = []
        async with AsyncConsumer(config(broker, **settings)) as consumer:
            consumer.subscribe([topic], on_lost=lambda _consumer, partitions: lost.append(partitions))
            await taken(consumer, 15)
            before = consumer.consumer_group_metadata()
            time.sleep(2.5)  # noqa: ASYNC251  # a loop that is busy is what this is about
            await consumer.poll(0.5)
            assert consumer.consumer_group_metadata() == before
            assert lost == []

    play(scene)


def test_a_key_that_nobody_knows_is_refused(broker: Broker) -> None:
    with pytest.raises(ck.KafkaException):
        AsyncConsumer(config(broker, **{"auto.offset.rest": "earliest"}))


def test_a_consumer_belongs_to_one_loop_and_may_be_closed_from_another_once_that_is_gone(
    broker: Broker, topic: str
) -> None:
    consumer = AsyncConsumer(config(broker))

    async def begin() -> None:
        consumer.subscribe([topic])
        await taken(consumer, 15)

        async def elsewhere() -> None:
            with pytest.raises(RuntimeError, match="another event loop"):
                await consumer.poll(0.1)

        await asyncio.to_thread(asyncio.run, elsewhere())

    play(begin)
    play(consumer.close)


def test_many_consumers_share_one_thread_and_leave_none_behind(broker: Broker, topic: str) -> None:
    async def scene() -> None:
        before = threading.active_count()
        consumers = [AsyncConsumer(config(broker)) for _ in range(10)]
        assert threading.active_count() <= before + 1
        await asyncio.gather(*(consumer.close() for consumer in consumers))
        assert "holdfast-engine" not in {thread.name for thread in threading.enumerate()}

    play(scene)


def test_drain_hands_everything_over(broker: Broker, topic: str) -> None:
    async def scene() -> None:
        group = f"drain-{topic}"
        async with AsyncConsumer(config(broker, group_id=group)) as stays:
            leaves = AsyncConsumer(config(broker, group_id=group))
            stays.subscribe([topic])
            leaves.subscribe([topic])

            async def keep_polling() -> None:
                while True:
                    await stays.poll(0.1)

            polling = asyncio.create_task(keep_polling())
            while not leaves.assignment():
                await leaves.poll(0.05)
            assert await leaves.drain(PATIENCE_S)
            await until(lambda: len(stays.assignment()) == 3)
            polling.cancel()
            await asyncio.wait([polling])
            await leaves.close()

    play(scene)
