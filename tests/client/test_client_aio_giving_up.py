"""Callers of an AsyncConsumer that give up, close it or cancel everything, in the middle of something."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import confluent_kafka as ck
import pytest
from asyncio_kinds import committed, fill, offsets_polled, play, quick
from polling import COUNTER

from holdfast import AsyncConsumer
from holdfast.model import ErrorCode
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S

# -- callers that give up


def test_who_gives_up_waiting_for_a_commit_does_not_end_it(broker: Broker) -> None:
    """Its partition counted as being committed for ever: it was never committed again while it was held, and what had
    been refused so far was not committed at the end either."""

    async def scene(own: Broker) -> None:
        group = quick(own, **{"auto.commit.interval.ms": 100})
        consumer = AsyncConsumer(dict(group))
        await consumer.subscribe(["orders"])
        await offsets_polled(consumer, lambda seen: len(seen) == 5)
        own.faults.error(Api.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.commit(asynchronous=False), 0.3)
        own.faults.clear()
        deadline = time.monotonic() + PATIENCE_S
        while await committed(own, group, "orders", 1) != [5]:
            assert time.monotonic() < deadline, "the commit went on without who waited for it"
            await asyncio.sleep(0.1)
        fill(own, "orders", 3)
        await offsets_polled(consumer, lambda seen: len(seen) == 3)
        while await committed(own, group, "orders", 1) != [8]:
            assert time.monotonic() < deadline, "auto commit goes on"
            await consumer.poll(0.05)
        await consumer.close()

    with Broker() as own:
        own.topics.create("orders", partitions=1)
        fill(own, "orders", 5)
        play(lambda: scene(own))


# -- callbacks that end it all


@pytest.mark.parametrize("where", ["on_assign", "on_assign of nothing", "on_revoke", "stats_cb", "on_commit"])
def test_close_inside_any_callback_is_done_when_it_has_returned(broker: Broker, topic: str, where: str) -> None:
    """In a callback of the configuration, close() closed at once, on the loop: which stood still for ten seconds, since
    the listener's calls wait for it; on_revoke was never called, and poll raised an error from deep inside. And
    whichever callback it was, on_commit never heard of the last commit."""
    group = quick(broker, **{"auto.commit.interval.ms": 100, "statistics.interval.ms": 100})

    async def scene() -> None:
        heard: list[str] = []
        found: list[int] = []

        async def called(name: str, partitions: list[Any] | None = None) -> None:
            heard.append(name)
            if name == where and len(found) == 15:
                await consumer.close()
                await asyncio.sleep(0.05)
                heard.append("returned")
            if name == "on_revoke" and partitions is not None:
                heard.append(f"revoked {len(partitions)}")

        async def on_assign(_consumer: Any, partitions: list[Any]) -> None:
            await called("on_assign" if partitions else "on_assign of nothing")

        async def on_commit(error: Any, _partitions: Any) -> None:
            assert error is None
            await called("on_commit")

        consumer = AsyncConsumer({**group, "stats_cb": lambda _text: called("stats_cb"), "on_commit": on_commit})
        told: dict[str, Any] = {"on_assign": on_assign, "on_revoke": lambda _, gone: called("on_revoke", gone)}
        await consumer.subscribe([topic], **told)
        with pytest.raises(RuntimeError, match="Consumer closed"):  # it comes out of the poll after the one that closed
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:
                message = await consumer.poll(0.1)
                found.extend([] if message is None else [message.offset() or 0])
                if len(found) == 15 and where == "on_assign of nothing":
                    consumer.enforce_rebalance()
                elif len(found) == 15 and where in ("on_assign", "on_revoke"):
                    await consumer.unsubscribe()
                    await consumer.subscribe([topic], **told)
        after = heard[heard.index("returned") :]
        assert "revoked 3" in after, "also if it was on_revoke itself that closed"
        assert await committed(broker, group, topic) == [5, 5, 5]
        assert "on_commit" in heard, "the commits, also the last"
        await consumer.close()

    play(scene)


def test_what_a_callback_raises_in_a_close_that_a_callback_asked_for_comes_out_of_poll(
    broker: Broker, topic: str
) -> None:
    class Broken(Exception):
        pass

    async def scene() -> None:
        async def on_assign(given: Any, _partitions: Any) -> None:
            await given.close()

        async def on_revoke(_consumer: Any, _partitions: Any) -> None:
            raise Broken

        consumer = AsyncConsumer(quick(broker))
        await consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
        with pytest.raises(Broken):
            await consumer.poll(PATIENCE_S)
        await consumer.close()

    play(scene)


@pytest.mark.parametrize("where", ["on_assign", "stats_cb"])
def test_drain_inside_a_callback_does_not_wait(broker: Broker, topic: str, where: str) -> None:
    """It can't end before the callback has: it stood still for the whole timeout, and the round with it."""

    async def scene() -> None:
        took: list[float] = []

        async def drain(*_: Any) -> None:
            if not took:
                began = time.monotonic()
                assert not await consumer.drain(PATIENCE_S)
                took.append(time.monotonic() - began)

        consumer = AsyncConsumer(quick(broker, **{"statistics.interval.ms": 100, "stats_cb": drain}))
        if where == "on_assign":
            consumer = AsyncConsumer(quick(broker))
        await consumer.subscribe([topic], on_assign=drain if where == "on_assign" else None)
        await offsets_polled(consumer, lambda _seen: bool(took))
        assert took[0] < PATIENCE_S / 2
        assert await consumer.drain(PATIENCE_S)
        await consumer.close()

    play(scene)


# -- everything cancelled


@pytest.mark.parametrize("seed", range(6))
def test_who_cancels_every_task_can_still_go_on_and_close(broker: Broker, seed: int) -> None:
    """Many programs end with `for task in asyncio.all_tasks(): task.cancel()`, and then close their consumer. Tasks of
    ours were among those. A close that was cancelled so was never made again; callbacks that were cancelled before
    they began were never reported as over; and the next poll raised CancelledError although nobody had cancelled it."""
    topic = f"cancelled-{next(COUNTER)}"
    broker.topics.create(topic, partitions=1)
    fill(broker, topic, 200)

    async def scene() -> None:
        chance = random.Random(seed)
        group = quick(broker, **{"auto.commit.interval.ms": 20, "statistics.interval.ms": 20})
        found: list[int] = []
        revoked: list[int] = []

        async def callback(*_: Any) -> None:
            await asyncio.sleep(chance.choice([0, 0, 0.01]))

        async def on_revoke(_consumer: Any, partitions: list[ck.TopicPartition]) -> None:
            revoked.append(len(partitions))

        async def read() -> None:
            while True:
                found.extend(message.offset() or 0 for message in await consumer.consume(chance.randint(1, 3), 0.01))

        async def disturb() -> None:
            await asyncio.sleep(chance.choice([0, 0.001, 0.01]))
            await (consumer.commit() if chance.random() < 0.5 else callback())
            consumer.enforce_rebalance()

        consumer = AsyncConsumer({**group, "stats_cb": callback, "on_commit": callback})
        await consumer.subscribe([topic], on_assign=callback, on_revoke=on_revoke)
        ours = asyncio.current_task()
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < 200:
            assert time.monotonic() < deadline, f"{len(found)} of 200"
            tasks = [asyncio.ensure_future(read()), asyncio.ensure_future(disturb())]
            await asyncio.sleep(chance.choice([0, 0.005, 0.02]))
            for task in asyncio.all_tasks() - {ours}:
                task.cancel()
            await asyncio.wait(tasks)
        closing = asyncio.ensure_future(consumer.close())
        for _ in range(chance.randint(0, 3)):
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {ours}:
            task.cancel()
        await asyncio.wait([closing])
        await consumer.close()
        assert sorted(found) == list(range(200))
        assert await committed(broker, group, topic, 1) == [200]
        assert sum(revoked) <= 1

    play(scene)


def test_a_close_whose_inner_task_is_cancelled_goes_on_and_nobody_else_is_cancelled(broker: Broker, topic: str) -> None:
    """Who cancels all tasks but his own cancels the one that closes. Whoever awaited close() was told that he was
    cancelled, and the consumer was left open."""

    async def scene() -> None:
        consumer = AsyncConsumer(quick(broker))
        await consumer.subscribe([topic])
        await offsets_polled(consumer, bool)
        before = asyncio.all_tasks()
        ours = asyncio.ensure_future(consumer.close())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        inner = asyncio.all_tasks() - before - {ours}
        assert inner, "the close has not begun"
        for task in inner:
            task.cancel()
        await ours
        with pytest.raises(RuntimeError, match="closed"):
            await consumer.poll(0)

    play(scene)
