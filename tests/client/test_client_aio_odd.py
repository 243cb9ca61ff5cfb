"""Programs that use an AsyncConsumer in ways that are odd and legal, beside confluent-kafka's AIOConsumer.

Tasks that outlive the callback that made them, loops that end, calls that are refused, many calls at once: the same
program runs on both classes, and what the application sees is the same.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from asyncio_kinds import BOTH, Make, committed, fill, offsets_polled, play, quick

from holdfast import AsyncConsumer
from holdfast.records import native
from holdfast.testing import Broker
from inside import parts_of
from patience import PATIENCE_S


@pytest.fixture(params=BOTH)
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a consumer of either class."""
    return request.param  # type: ignore[no-any-return]  # a fixture's parameter is Any


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
            found.extend(await offsets_polled(consumer, lambda seen: len(found) + len(seen) == 15))
            while await committed(broker, group, topic) != [5, 5, 5]:
                await consumer.poll(0.1)
            everything.set()
            await offsets_polled(consumer, lambda _seen: bool(second))
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
        await offsets_polled(other, lambda _seen: workers[0].done())
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
        found.extend(await offsets_polled(consumers[0], lambda seen: len(seen) == 7))
        await consumers[0].poll(0.01)

    async def second() -> None:
        found.extend(await offsets_polled(consumers[0], lambda seen: len(found) + len(seen) >= 14))
        fill(broker, topic, 1)
        await offsets_polled(consumers[0], lambda seen: 5 in seen)

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
                await offsets_polled(consumer, lambda _seen: False)
        fill(broker, topic, 1)
        await offsets_polled(consumer, lambda seen: 5 in seen)
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
        found = await offsets_polled(consumer, lambda seen: len(seen) == 4)
        with pytest.raises((ck.KafkaException, TypeError)) as caught:
            await consumer.subscribe(refused, on_revoke=on_other_revoke)
        if isinstance(caught.value, ck.KafkaException):
            assert caught.value.args[0].code() == ck.KafkaError._INVALID_ARG
        else:
            assert isinstance(refused, str | None)
        found += await offsets_polled(consumer, lambda seen: len(seen) == 11)
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
        assert await offsets_polled(consumer, lambda seen: len(seen) == 5) == [0, 1, 2, 3, 4]
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
            assert len(await offsets_polled(consumer, lambda seen: len(seen) == 15)) == 15
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
        plane = parts_of(consumer).data
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
        assert await offsets_polled(consumer, lambda seen: len(seen) == 5) == [0, 1, 2, 3, 4]
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
        await offsets_polled(consumer, bool)
        await consumer.close()
        assert loaded_on[0] != threading.get_ident()

    play(scene)
