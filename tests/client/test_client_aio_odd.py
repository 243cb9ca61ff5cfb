"""Programs that use an AsyncConsumer in ways that are odd and legal, beside confluent-kafka's AIOConsumer.

Tasks that outlive the callback that made them, callers that give up, loops that end, calls that are refused: the same
program runs on both classes, and what the application sees is the same.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import random
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import confluent_kafka as ck
import pytest
from asyncio_kinds import BOTH, Make, settings
from polling import COUNTER

from holdfast import AsyncConsumer
from holdfast.model import ErrorCode
from holdfast.records import native
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S


@pytest.fixture(params=BOTH)
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a consumer of either class."""
    return request.param  # type: ignore[no-any-return]  # a fixture's parameter is Any


def quick(broker: Broker, **more: Any) -> dict[str, Any]:
    return settings(broker, **{"heartbeat.interval.ms": 200, **more})


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(2 * PATIENCE_S):
            await scene()

    asyncio.run(limited())


async def polled(consumer: Any, enough: Callable[[list[int]], bool]) -> list[int]:
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


def produced(broker: Broker, topic: str, count: int) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(PATIENCE_S) == 0


async def committed(broker: Broker, group: dict[str, Any], topic: str, partitions: int = 3) -> list[int]:
    """What the group has committed; asked by a stranger."""
    reader = AsyncConsumer({"bootstrap.servers": broker.bootstrap, "group.id": group["group.id"]})
    try:
        found = await reader.committed([ck.TopicPartition(topic, n) for n in range(partitions)], timeout=PATIENCE_S)
        return [p.offset for p in found]
    finally:
        await reader.close()


# -- tasks that a callback makes


def test_a_task_made_in_a_callback_polls_and_closes_like_any_other(make: Make, broker: Broker, topic: str) -> None:
    """Many programs start their workers in on_assign. Such a task counted as part of the callback for as long as it
    lived: its polls served nobody (no commit, no revoke, so that a second member got nothing), and its close() closed
    on the loop itself, which then stood still. A callback is over when it has returned, whatever it leaves behind."""
    group = quick(broker, **{"auto.commit.interval.ms": 100})

    async def scene() -> None:
        workers: list[asyncio.Task[None]] = []
        heard: list[str] = []
        found: list[int] = []
        second: list[int] = []
        everything = asyncio.Event()
        consumer, other = make(dict(group)), make(dict(group))

        async def work() -> None:
            found.extend(await polled(consumer, lambda seen: len(found) + len(seen) == 15))
            while await committed(broker, group, topic) != [5, 5, 5]:
                await consumer.poll(0.1)
            everything.set()
            await polled(consumer, lambda _seen: bool(second))
            await consumer.close()

        async def on_assign(_consumer: Any, _partitions: Any) -> None:
            heard.append("assigned")
            if not workers:
                workers.append(asyncio.create_task(work()))

        async def on_revoke(_consumer: Any, _partitions: Any) -> None:
            heard.append("revoked")

        async def on_other(_consumer: Any, partitions: list[ck.TopicPartition]) -> None:
            second.extend(p.partition for p in partitions)

        await consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
        while not workers:
            first = await consumer.poll(0.1)
            found.extend([] if first is None else [first.offset()])
        await everything.wait()
        await other.subscribe([topic], on_assign=on_other)
        await polled(other, lambda _seen: workers[0].done())
        await workers[0]
        assert heard.count("revoked") >= 2, "one for what the other got, one for the end"
        with pytest.raises(RuntimeError, match="Consumer closed"):
            await consumer.poll(0.1)
        await other.close()

    play(scene)


# -- loops that end


def test_a_consumer_goes_on_where_it_was_on_the_next_event_loop(make: Make, broker: Broker, topic: str) -> None:
    """A program that calls asyncio.run() twice, or a test suite with a loop for each test. What a poll waits on was
    bound to the first loop, so on the second one every poll that had to wait raised RuntimeError."""
    group = quick(broker, **{"auto.commit.interval.ms": 100})
    consumers: list[Any] = []
    found: list[int] = []

    async def first() -> None:
        consumers.append(make(dict(group)))
        await consumers[0].subscribe([topic])
        found.extend(await polled(consumers[0], lambda seen: len(seen) == 7))
        await consumers[0].poll(0.01)

    async def second() -> None:
        found.extend(await polled(consumers[0], lambda seen: len(found) + len(seen) >= 14))
        produced(broker, topic, 1)
        await polled(consumers[0], lambda seen: 5 in seen)

    async def third() -> None:
        await consumers[0].close()
        assert await committed(broker, group, topic) == [6, 5, 5]

    for scene in (first, second, third):
        play(scene)


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "left"])
@pytest.mark.parametrize("changed", [True, False], ids=["a round with partitions", "a round that changes nothing"])
def test_a_loop_that_ends_during_a_callback_ends_the_callback_and_not_the_consumer(
    broker: Broker, topic: str, closed: bool, changed: bool
) -> None:
    """The callback belongs to the loop that is gone. Nobody told the group that it was over: no call was ever made
    again, and close() waited in vain. Calls of a round that changes nothing run on the loop itself, others have a
    thread that waits for it; a loop may be closed, or only left."""
    consumer = AsyncConsumer(quick(broker, **{"auto.commit.interval.ms": 100}))
    calls: list[int] = []
    revoked: list[int] = []

    async def on_assign(_consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        calls.append(len(partitions))
        if bool(partitions) == changed:
            await asyncio.Event().wait()

    async def on_revoke(_consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        revoked.extend(p.partition for p in partitions)

    async def polled_until(holds: Callable[[], bool]) -> int:
        """Each poll is given up in the end: one that waits for the callback would wait for ever."""
        records = 0
        while not holds():
            with contextlib.suppress(TimeoutError):
                records += await asyncio.wait_for(consumer.poll(), 0.2) is not None
        return records

    async def until_stuck() -> None:
        await consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
        await polled_until(lambda: bool(calls))
        if not changed:
            consumer.enforce_rebalance()
            await polled_until(lambda: len(calls) == 2)

    async def go_on() -> None:
        if changed:  # it is told once that the callback was cut short
            with pytest.raises((RuntimeError, concurrent.futures.CancelledError)):
                await polled(consumer, lambda _seen: False)
        produced(broker, topic, 1)
        await polled(consumer, lambda seen: 5 in seen)
        await asyncio.wait_for(consumer.close(), PATIENCE_S)
        assert sorted(revoked) == [0, 1, 2]

    if closed:
        play(until_stuck)
        play(go_on)
    else:
        left = asyncio.new_event_loop()
        left.run_until_complete(until_stuck())
        play(go_on)
        for task in asyncio.all_tasks(left):
            task.cancel()
            left.run_until_complete(asyncio.wait([task]))
        left.close()


# -- calls that are refused


@pytest.mark.parametrize("refused", [["^(?x"], ["^["], [], ["a", "a"], [""], "a", None], ids=str)
def test_a_subscription_that_is_refused_leaves_the_one_before_as_it_was(
    make: Make, broker: Broker, topic: str, refused: Any
) -> None:
    """It ended the consumer: every later poll, commit and unsubscribe raised the same error, although the old
    subscription lived. Lists that can't be one were taken: an empty one unsubscribed without a word. And the callbacks
    of the old subscription were let go of before the new one was looked at, so on_revoke was never called again."""

    async def scene() -> None:
        heard: list[str] = []

        async def on_revoke(_consumer: Any, partitions: list[ck.TopicPartition]) -> None:
            heard.append(f"revoked {len(partitions)}")

        async def on_other_revoke(_consumer: Any, _partitions: Any) -> None:
            heard.append("a listener that was never subscribed")

        consumer = make(quick(broker))
        await consumer.subscribe([topic], on_revoke=on_revoke)
        found = await polled(consumer, lambda seen: len(seen) == 4)
        with pytest.raises((ck.KafkaException, TypeError)) as caught:
            await consumer.subscribe(refused, on_revoke=on_other_revoke)
        if isinstance(caught.value, ck.KafkaException):
            assert caught.value.args[0].code() == ck.KafkaError._INVALID_ARG
        else:
            assert isinstance(refused, str | None)
        found += await polled(consumer, lambda seen: len(seen) == 11)
        assert sorted(found) == sorted([0, 1, 2, 3, 4] * 3)
        assert len(await consumer.commit(asynchronous=False)) == 3
        await consumer.close()
        assert heard == ["revoked 3"]

    play(scene)


@pytest.mark.parametrize("awaited", [True, False], ids=["awaited", "not awaited"])
def test_a_subscription_that_fails_later_is_told_once(broker: Broker, topic: str, awaited: bool) -> None:
    """Whoever awaits it hears it; if nobody does, the next poll. Every call after it used to hear it again."""

    async def scene() -> None:
        consumer = AsyncConsumer(quick(broker, **{"group.id": ""}))
        subscribing = consumer.subscribe([topic])
        with pytest.raises(ck.KafkaException, match=r"group\.id"):
            await (subscribing if awaited else consumer.poll(PATIENCE_S))
        await consumer.assign([ck.TopicPartition(topic, 0, 0)])
        assert await polled(consumer, lambda seen: len(seen) == 5) == [0, 1, 2, 3, 4]
        await consumer.close()

    play(scene)


WRONG: list[tuple[str, Callable[[Any], Any]]] = [
    ("assign", lambda consumer: consumer.assign("x")),
    ("assign", lambda consumer: consumer.assign([1])),
    ("incremental_assign", lambda consumer: consumer.incremental_assign("x")),
    ("incremental_unassign", lambda consumer: consumer.incremental_unassign([1])),
    ("pause", lambda consumer: consumer.pause([1])),
    ("pause", lambda consumer: consumer.pause(None)),
    ("resume", lambda consumer: consumer.resume("x")),
    ("position", lambda consumer: consumer.position([1])),
    ("committed", lambda consumer: consumer.committed([1])),
    ("seek", lambda consumer: consumer.seek("x")),
    ("commit", lambda consumer: consumer.commit(offsets=["x"])),
    ("store_offsets", lambda consumer: consumer.store_offsets(offsets=[1])),
    ("offsets_for_times", lambda consumer: consumer.offsets_for_times([1])),
    ("get_watermark_offsets", lambda consumer: consumer.get_watermark_offsets("x")),
]


@pytest.mark.parametrize("call", [call for _, call in WRONG], ids=[f"{name}{n}" for n, (name, _) in enumerate(WRONG)])
def test_an_argument_of_the_wrong_kind_is_a_type_error(make: Make, broker: Broker, call: Callable[[Any], Any]) -> None:
    """They were AttributeErrors from somewhere inside."""

    async def scene() -> None:
        consumer = make(quick(broker))
        try:
            with pytest.raises(TypeError):
                await call(consumer)
        finally:
            await consumer.close()

    play(scene)


# -- callers that give up


def test_who_gives_up_waiting_for_a_commit_does_not_end_it(broker: Broker) -> None:
    """Its partition counted as being committed for ever: it was never committed again while it was held, and what had
    been refused so far was not committed at the end either."""

    async def scene(own: Broker) -> None:
        group = quick(own, **{"auto.commit.interval.ms": 100})
        consumer = AsyncConsumer(dict(group))
        await consumer.subscribe(["orders"])
        await polled(consumer, lambda seen: len(seen) == 5)
        own.faults.error(Api.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.commit(asynchronous=False), 0.3)
        own.faults.clear()
        deadline = time.monotonic() + PATIENCE_S
        while await committed(own, group, "orders", 1) != [5]:
            assert time.monotonic() < deadline, "the commit went on without who waited for it"
            await asyncio.sleep(0.1)
        produced(own, "orders", 3)
        await polled(consumer, lambda seen: len(seen) == 3)
        while await committed(own, group, "orders", 1) != [8]:
            assert time.monotonic() < deadline, "auto commit goes on"
            await consumer.poll(0.05)
        await consumer.close()

    with Broker() as own:
        own.topics.create("orders", partitions=1)
        produced(own, "orders", 5)
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
        await polled(consumer, lambda _seen: bool(took))
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
    produced(broker, topic, 200)

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
        await polled(consumer, bool)
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


def test_what_is_assigned_by_hand_is_decoded_by_what_was_loaded_on_another_thread(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first decoding on a machine compiles the decoder. After an assign() that was on the application's loop, which
    stood still for seconds, 44 of them on a starved machine."""
    loaded_on: list[int] = []
    decode = native.decode

    def noted() -> native.Decode:
        loaded_on.append(threading.get_ident())
        return decode()

    monkeypatch.setattr(native, "decode", noted)

    async def scene() -> None:
        consumer = AsyncConsumer(quick(broker))
        await consumer.assign([ck.TopicPartition(topic, 0, 0)])
        await polled(consumer, bool)
        await consumer.close()
        assert loaded_on[0] != threading.get_ident()

    play(scene)


# -- many calls at once


def test_first_calls_that_come_all_at_once_make_one_member(make: Make, broker: Broker, topic: str) -> None:
    """What asks the group for the first time starts a control plane, and questions wait on threads. Of several at once
    each started one of its own, and the last took the place of the one that had subscribed: nobody served that, so no
    record ever came."""
    where = [ck.TopicPartition(topic, number) for number in range(3)]

    async def scene() -> None:
        for _ in range(3):  # a race: each try won it nearly always
            consumer = make(quick(broker))
            tasks = [asyncio.create_task(consumer.subscribe([topic]))]
            tasks += [asyncio.create_task(consumer.committed(where, timeout=PATIENCE_S)) for _ in range(8)]
            for answer in (await asyncio.gather(*tasks))[1:]:
                assert [p.offset for p in answer] == [ck.OFFSET_INVALID] * 3
            assert len(await polled(consumer, lambda seen: len(seen) == 15)) == 15
            await consumer.close()

    play(scene)


@pytest.mark.parametrize("name", ["assign", "incremental_assign"])
def test_what_is_read_changes_on_the_loop_alone(
    broker: Broker, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An assign() that names no offset asks the group, on a thread. There it also took what was read from under the
    polls of other tasks that were handing it out: they raised IndexError, one in some hundred times. So whoever changes
    it is caught here: by the thread it is on."""

    async def scene() -> None:
        consumer = AsyncConsumer(quick(broker, **{"enable.auto.commit": False}))
        plane = consumer._holdfast.core._data
        threads: list[int] = []

        def watched(change: Callable[..., Any]) -> Callable[..., Any]:
            def changed(*given: Any, **named: Any) -> Any:
                threads.append(threading.get_ident())
                return change(*given, **named)

            return changed

        for method in ("replace", "take"):
            monkeypatch.setattr(plane, method, watched(getattr(plane, method)))
        await getattr(consumer, name)([ck.TopicPartition(topic, 0)])
        assert set(threads) == {threading.get_ident()}
        assert await polled(consumer, lambda seen: len(seen) == 5) == [0, 1, 2, 3, 4]
        await consumer.close()

    play(scene)


def test_a_partition_without_a_committed_offset_is_assigned_by_the_reset_that_is_an_error(
    make: Make, broker: Broker, topic: str
) -> None:
    async def scene() -> None:
        consumer = make(quick(broker, **{"auto.offset.reset": "error"}))
        await consumer.assign([ck.TopicPartition(topic, 0)])
        while (message := await consumer.poll(0.1)) is None:
            pass
        assert message.error().code() == ck.KafkaError._AUTO_OFFSET_RESET
        await consumer.close()

    play(scene)
