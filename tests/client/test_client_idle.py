"""A consumer that polls without waiting, as a program does that has other things to do in its loop.

Every poll(0) of an idle consumer looked around as one that waits does, and took eleven times as long as
confluent-kafka's. Within CALM_MS of a look around it asks librdkafka alone. What the application must notice all the
same: records, callbacks, what another call changes, and that it is still the owner.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from polling import COUNTER

import holdfast
from holdfast.client import polling as core
from holdfast.client.polling import CALM_MS
from holdfast.client.reading import librdkafka_reader
from holdfast.testing import Broker
from inside import core_of, parts_of
from patience import PATIENCE_S


@pytest.fixture
def idle(broker: Broker) -> Iterator[Callable[..., Any]]:
    """Makes a member that has three empty partitions and nothing to do."""
    made: list[Any] = []

    def make(**more: Any) -> Any:
        topic = f"idle-{next(COUNTER)}"
        broker.topics.create(topic, partitions=3)
        consumer = holdfast.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "log_level": 0,
                **more,
            }
        )
        made.append(consumer)
        consumer.subscribe([topic])
        spin(consumer, lambda: len(consumer.assignment()) == 3)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def spin(consumer: Any, done: Callable[[], bool]) -> list[ck.Message]:
    """poll(0) and nothing else, until it is done; what came."""
    came = []
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        for _ in range(100):
            if (message := consumer.poll(0)) is not None:
                came.append(message)
    return came


def produce(broker: Broker, topic: str, count: int) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"x", partition=number % 3)
    assert producer.flush(PATIENCE_S) == 0


def test_an_idle_poll_that_may_not_wait_looks_around_once_in_a_while(
    idle: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = idle()
    notes, looks = parts_of(consumer).notes, list[float]()
    catch_up = notes.catch_up

    def looked(now: float) -> None:
        """A part of each look around."""
        looks.append(now)
        catch_up(now)

    monkeypatch.setattr(notes, "catch_up", looked)
    began = time.monotonic()
    for _ in range(20_000):
        consumer.poll(0)
    took_ms = (time.monotonic() - began) * 1_000.0
    # Two looks in a poll that looks at all, once in CALM_MS; and as many again for what the group has stirred.
    assert len(looks) <= 4 * (took_ms / CALM_MS + 10)
    assert len(looks) < 20_000


def test_what_comes_while_it_spins_is_returned_and_committed(idle: Callable[..., Any], broker: Broker) -> None:
    consumer = idle(**{"auto.commit.interval.ms": 100})
    (topic,) = {p.topic for p in consumer.assignment()}
    where = [ck.TopicPartition(topic, number) for number in range(3)]
    produce(broker, topic, 30)
    came: list[ck.Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(came) < 30:
        assert time.monotonic() < deadline
        if (message := consumer.poll(0)) is not None:
            assert message.error() is None
            came.append(message)
            (at,) = consumer.position([ck.TopicPartition(topic, message.partition())])
            assert at.offset == message.offset() + 1
    assert {(m.partition(), m.offset()) for m in came} == {(p, n) for p in range(3) for n in range(10)}
    looker = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "log_level": 0})
    spin(consumer, lambda: [p.offset for p in looker.committed(where, PATIENCE_S)] == [10, 10, 10])
    looker.close()


def test_a_paused_partition_stays_quiet_and_a_sought_one_is_read_again(
    idle: Callable[..., Any], broker: Broker
) -> None:
    """What another call changes is heeded by the very next poll, calm or not."""
    consumer = idle()
    (topic,) = {p.topic for p in consumer.assignment()}
    where = [ck.TopicPartition(topic, number) for number in range(3)]
    produce(broker, topic, 3)
    counted: list[ck.Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(counted) < 3:
        assert time.monotonic() < deadline
        counted += [message for message in [consumer.poll(0)] if message is not None]
    for _ in range(1_000):
        assert consumer.poll(0) is None
    consumer.pause(where)
    produce(broker, topic, 3)
    for _ in range(1_000):
        assert consumer.poll(0) is None
    consumer.resume(where)
    consumer.seek(ck.TopicPartition(topic, 0, 0))
    again: list[tuple[int | None, int | None]] = []
    while len(again) < 4:
        assert time.monotonic() < deadline
        again += [(one.partition(), one.offset()) for one in [consumer.poll(0)] if one is not None]
    assert sorted(again) == [(0, 0), (0, 1), (1, 1), (2, 1)]


def test_what_a_callback_of_librdkafka_raises_comes_out_of_a_poll_that_does_not_wait() -> None:
    def stats_cb(_text: str) -> None:
        raise ZeroDivisionError

    consumer = holdfast.Consumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "statistics.interval.ms": 50, "stats_cb": stats_cb}
        | {"log_level": 0}
    )
    with pytest.raises(ZeroDivisionError):
        spin(consumer, lambda: False)
    consumer.close()


def test_the_core_has_no_more_attributes_than_python_looks_up_quickly(idle: Callable[..., Any]) -> None:
    """Symptom: three attributes more made every poll slower by a tenth. Cause: Python keeps the names of up to 30
    attributes with the class and finds them by their number; an object with more has a dict of its own. Rule: what
    belongs together is an object of its own (`offset_calls`, `self_report`, …), and the core stays below that."""
    consumer = idle()
    consumer.consume_arrow(1, 0)
    assert len(vars(core_of(consumer))) <= 30


def test_a_record_that_comes_alone_takes_few_steps(broker: Broker, idle: Callable[..., Any]) -> None:
    """Symptom: at 400 records a second poll() took twice the CPU that it had taken, and handovers on a busy machine
    were slower for it. Cause: each record was looked for without waiting first, and then everything around it was done
    again. The calls of Python functions in one poll, 75 before and 19 now, tell it without a clock."""
    consumer = idle()
    topic = consumer.assignment()[0].topic
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    calls: list[int] = []
    for number in range(20):
        producer.produce(topic, str(number), partition=0)
        producer.flush()
        calls.append(calls_of(lambda: consumer.poll(PATIENCE_S)))
    assert sorted(calls)[len(calls) // 2] < 40


def calls_of(call: Callable[[], Any]) -> int:
    """How many Python functions it calls, itself included; it must return something."""
    counted = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        came = call()
    finally:
        sys.setprofile(None)
    assert came is not None
    return counted


@pytest.mark.parametrize(("silent_after_ms", "slice_s"), [(-1.0, core.SILENT_SLICE_S), (1e9, core.IDLE_SLICE_S)])
def test_a_consumer_that_had_nothing_to_do_for_long_wakes_up_half_as_often(
    idle: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, silent_after_ms: float, slice_s: float
) -> None:
    """Symptom: an idle consumer took 0.63 % of a core, 0.3 of that for 33 wake-ups a second."""
    consumer = idle()
    monkeypatch.setattr(core, "IDLE_AFTER_MS", -1.0)
    monkeypatch.setattr(core, "SILENT_AFTER_MS", silent_after_ms)
    waits: list[float] = []
    asked = librdkafka_reader.polled

    def polled(handle: Any, wait_s: float) -> list[ck.Message]:
        waits.append(wait_s)
        return asked(handle, wait_s)

    monkeypatch.setattr(librdkafka_reader, "polled", polled)
    while len(waits) < 10:
        assert consumer.poll(1.0) is None
    assert max(waits) == slice_s


@pytest.mark.parametrize("ever", [math.inf, math.nan, 1e300])
def test_a_poll_may_wait_for_ever(broker: Broker, monkeypatch: pytest.MonkeyPatch, ever: float) -> None:
    """Symptom: poll(math.inf) raised OverflowError, once nothing had come for a second. Cause: an idle consumer counts
    how many slices are left to wait. confluent-kafka waits."""
    monkeypatch.setattr(core, "IDLE_AFTER_MS", -1.0)  # idle from the start
    topic = f"idle-{next(COUNTER)}"
    broker.topics.create(topic, partitions=3)
    produce(broker, topic, 3)
    consumer = holdfast.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "log_level": 0})
    consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(3)])
    found = [consumer.poll(ever) for _ in range(3)]
    assert [message.error() for message in found if message is not None] == [None, None, None]
    consumer.close()
