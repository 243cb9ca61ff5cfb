"""Rounds that change nothing for a member: its listener hears of them on the application's loop, without a thread.

Symptom: in a group of 400 a join paused what it moved for a second and a half. Cause: everybody else's empty call took
a thread of the pool, which waited for the loop, and the one member that waited for a partition stood in that queue.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

import confluent_kafka as ck
import pytest
from polling import COUNTER

from holdfast import AsyncConsumer, Consumer
from holdfast.client.aio.waking import Waker
from holdfast.client.member.pending_calls import PendingCall, quiet_calls
from holdfast.group import member as mb
from holdfast.model import NOBODY, Assignment, TopicPartition
from holdfast.testing import Broker
from inside import parts_of, plane_of
from patience import PATIENCE_S

ONE = frozenset({TopicPartition("t", 0)})


def calls(*given: mb.Call) -> list[PendingCall]:
    return [PendingCall(serial=1, call=call, last=number == len(given)) for number, call in enumerate(given, start=1)]


def test_calls_that_take_or_give_something_are_not_quiet() -> None:
    told, nothing = mb.OnAssignment("cooperative-sticky", Assignment(), NOBODY), mb.Assigned(frozenset())
    assert quiet_calls(calls(told, nothing)) == 2
    assert quiet_calls([*calls(told, nothing), *calls(mb.Revoked(ONE))]) == 2, "what comes next is not looked at"
    assert quiet_calls([]) == 0
    assert quiet_calls(calls(mb.Revoked(ONE), told, nothing)) == 0
    assert quiet_calls(calls(told, mb.Assigned(ONE))) == 0
    assert quiet_calls(calls(mb.OnAssignment("mine", Assignment(), NOBODY), nothing)) == 0, "a user's own may be slow"
    assert quiet_calls(calls(told, nothing)[:1]) == 0, "the round's last call is not there yet"


@pytest.mark.parametrize("coroutine", [False, True])
def test_a_round_that_changed_nothing_is_told_on_the_loop_and_what_is_raised_comes_out_of_poll(coroutine: bool) -> None:
    heard: list[tuple[list[int], bool]] = []

    async def play(bootstrap: str, topic: str) -> None:
        config = {"bootstrap.servers": bootstrap, "group.id": "quiet"}
        first, second = AsyncConsumer(config), AsyncConsumer(config)
        loop_thread = threading.get_ident()
        told = asyncio.Event()

        def note(partitions: list[ck.TopicPartition]) -> None:
            heard.append(([p.partition for p in partitions], threading.get_ident() == loop_thread))
            if not partitions:
                told.set()
                raise LookupError("nothing new")

        async def later(_consumer: AsyncConsumer, partitions: list[ck.TopicPartition]) -> None:
            await asyncio.sleep(0)
            note(partitions)

        def at_once(_consumer: AsyncConsumer, partitions: list[ck.TopicPartition]) -> None:
            note(partitions)

        first.subscribe([topic], on_assign=later if coroutine else at_once)
        while not heard:
            await first.poll(0.1)
        second.subscribe([topic])
        polling = asyncio.ensure_future(poll_on(second))
        with pytest.raises(LookupError, match="nothing new"):
            await poll_on(first)
        assert told.is_set()
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        assert [p.partition for p in first.assignment()] == [0], "it keeps what it has"
        await asyncio.gather(first.close(), second.close())

    with Broker() as broker:
        topic = f"quiet-{next(COUNTER)}"
        broker.topics.create(topic, partitions=1)
        asyncio.run(asyncio.wait_for(play(broker.bootstrap, topic), PATIENCE_S))
    assert heard[0] == ([0], True)
    assert ([], True) in heard


def test_an_on_assign_that_assigns_what_it_is_told_may_be_told_nothing() -> None:
    """Symptom: of two tests of confluent-kafka's own, poll raised _STATE. Cause: their on_assign assigns what it gets,
    and in a round that changed nothing it was called when on_assign counted as over: assign([]) would have left what
    the member keeps to nobody. Rule: until it has returned, assign() in it says where the added ones start."""
    heard: list[int] = []

    async def play(bootstrap: str, topic: str) -> None:
        config = {"bootstrap.servers": bootstrap, "group.id": "assigning"}
        first, second = AsyncConsumer(config), AsyncConsumer(config)

        async def on_assign(consumer: AsyncConsumer, partitions: list[ck.TopicPartition]) -> None:
            await consumer.assign(partitions)
            heard.append(len(partitions))

        first.subscribe([topic], on_assign=on_assign)
        while not heard:
            await first.poll(0.1)
        second.subscribe([topic])
        polling = asyncio.ensure_future(poll_on(second))
        while 0 not in heard:
            await first.poll(0.1)
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        assert [p.partition for p in first.assignment()] == [0], "it keeps what it has"
        with pytest.raises(ck.KafkaException, match="read by nobody"):
            await first.assign([])  # outside the callback it still is refused
        await asyncio.gather(first.close(), second.close())

    with Broker() as broker:
        topic = f"assigning-{next(COUNTER)}"
        broker.topics.create(topic, partitions=1)
        asyncio.run(asyncio.wait_for(play(broker.bootstrap, topic), PATIENCE_S))
    assert heard[:2] == [1, 0]


async def poll_on(consumer: AsyncConsumer) -> None:
    while True:
        await consumer.poll(0.1)


def test_many_that_are_woken_at_once_wake_their_loop_once() -> None:
    class Loop:
        def __init__(self) -> None:
            self.knocks: deque[object] = deque()

        def call_soon_threadsafe(self, call: object) -> None:
            self.knocks.append(call)

    loop, waker = Loop(), Waker()
    looked: list[int] = []
    for number in range(100):
        waker.wake(loop, partial(looked.append, number))  # type: ignore[arg-type]
    assert len(loop.knocks) == 1
    loop.knocks.popleft()()  # type: ignore[operator]
    assert looked == list(range(100))
    waker.wake(loop, lambda: looked.append(100))  # type: ignore[arg-type]
    assert len(loop.knocks) == 1, "and the next one knocks again"


def test_a_closed_loop_is_told_to_whoever_wakes_it_and_keeps_nobody_waiting() -> None:
    class Closed:
        def call_soon_threadsafe(self, _call: object) -> None:
            raise RuntimeError("closed")

    waker = Waker()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            waker.wake(Closed(), lambda: None)  # type: ignore[arg-type]


def test_nobody_waits_for_a_listener_that_has_nothing_to_hear(broker: Broker, topic: str) -> None:
    """Symptom: a partition on its way stood still until everybody else's polling thread had told its listener that
    nothing changed. Cause: the join that follows a round waited for the calls of that round, on_assign([]) included.
    Rule: who gave and got nothing joins again at once, and its listener hears of it in its order when it polls."""
    heard: list[list[int]] = []
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"quiet-{next(COUNTER)}",
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": 200,
    }
    with Consumer(config) as giver, Consumer(config) as bystander, Consumer(config) as taker:
        giver.subscribe([topic])
        _poll_until(lambda: len(giver.assignment()) == 3, giver)
        bystander.subscribe(
            [topic], on_assign=lambda _consumer, partitions: heard.append([p.partition for p in partitions])
        )
        _poll_until(lambda: len(bystander.assignment()) == 1 and _stable(giver, bystander), giver, bystander)
        told, before = len(heard), _generation(bystander)
        taker.subscribe([topic])
        _poll_until(lambda: not _stable(bystander) or _generation(bystander) != before, giver, taker, bystander)
        polled_to = _generation(bystander)

        _poll_until(lambda: len(taker.assignment()) == 1, giver, taker)

        assert len(heard) - told <= max(1, polled_to - before), "it was not polled since its round began"
        everybody = giver, taker, bystander
        _poll_until(lambda: len(heard) > told and _stable(*everybody), *everybody)
        assert heard[told:] in ([[]], [[], []]), "each round is told that it had a part in: the second may come first"
        assert len(bystander.assignment()) == 1


def _generation(consumer: Consumer) -> int:
    return int(plane_of(consumer).state.membership.generation)


def _stable(*consumers: Consumer) -> bool:
    planes = [parts_of(consumer).link.plane for consumer in consumers]
    return all(plane is not None and plane.state.phase is mb.Phase.STABLE for plane in planes)


def _poll_until(holds: Callable[[], bool], *consumers: Consumer) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"it took longer than {PATIENCE_S:.0f} s"
        for consumer in consumers:
            consumer.poll(0.001)
