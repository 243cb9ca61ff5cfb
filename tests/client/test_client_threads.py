"""One thread polls, another one asks and changes.

confluent-kafka's class lets a second thread wait for as long as the first one polls in a loop; ours gives it its turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from polling import COUNTER

import holdfast
from holdfast.client import polling as polling_core
from holdfast.testing import Broker
from inside import parts_of, reading_of
from patience import PATIENCE_S

EACH = 5
"""Records in each of the topic's three partitions."""


class Asked:
    """librdkafka, and something that happens when it has given records and before they have arrived."""

    def __init__(self, handle: Any, meanwhile: Callable[[list[ck.Message]], None]) -> None:
        self.handle = handle
        self.meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handle, name)

    def consume(self, count: int, timeout: float) -> list[ck.Message]:
        rows: list[ck.Message] = self.handle.consume(count, timeout)
        self.meanwhile(rows)
        return rows

    def poll(self, timeout: float) -> ck.Message | None:
        message: ck.Message | None = self.handle.poll(timeout)
        self.meanwhile([] if message is None else [message])
        return message


@pytest.fixture
def consumer(broker: Broker) -> Iterator[holdfast.Consumer]:
    made = holdfast.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": f"g-{next(COUNTER)}", "auto.offset.reset": "earliest"}
    )
    yield made
    made.close()


def read_by_hand(consumer: holdfast.Consumer, topic: str) -> None:
    consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(3)])


def polled(
    consumer: holdfast.Consumer, seconds: float = 0.5, *, enough: int = 3 * EACH
) -> list[tuple[int | None, int | None]]:
    """All that comes, until nothing has for this time or it is enough."""
    found: list[tuple[int | None, int | None]] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and len(found) < enough:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            found.append((message.partition(), message.offset()))
            deadline = time.monotonic() + seconds
    return found


@pytest.fixture
def polling(consumer: holdfast.Consumer, topic: str) -> Iterator[holdfast.Consumer]:
    """A consumer that another thread polls in a loop, with nothing left to read."""
    read_by_hand(consumer, topic)
    ends = threading.Event()

    def loop() -> None:
        while not ends.is_set():
            consumer.poll(1.0)

    thread = threading.Thread(target=loop)
    thread.start()
    time.sleep(1.5)  # until it is idle
    yield consumer
    ends.set()
    thread.join()


def test_a_second_thread_has_its_turn_while_the_first_one_polls(polling: holdfast.Consumer, topic: str) -> None:
    """Symptom: pause() from a second thread did not return, for minutes. Cause: confluent-kafka's handle lets one call
    in at a time, and whoever polls in a loop is back before the other has woken up. Rule: who polls gives way."""
    first = ck.TopicPartition(topic, 0)
    calls: list[Callable[[], Any]] = [
        lambda: polling.pause([first]),
        lambda: polling.resume([first]),
        lambda: polling.seek(ck.TopicPartition(topic, 0, 3)),
        polling.assignment,
        lambda: polling.position([first]),
        lambda: polling.list_topics(topic, timeout=PATIENCE_S),
        lambda: polling.get_watermark_offsets(first, timeout=PATIENCE_S),
        lambda: polling.incremental_unassign([first]),
        lambda: polling.incremental_assign([ck.TopicPartition(topic, 0, 0)]),
        lambda: polling.assign([]),
    ]
    returned: list[int] = []

    def make_calls() -> None:
        for number, call in enumerate(calls):
            call()
            returned.append(number)

    second = threading.Thread(target=make_calls, daemon=True)
    second.start()
    second.join(PATIENCE_S)
    assert returned == list(range(len(calls)))


def test_what_a_second_thread_pauses_does_not_come_any_more(
    consumer: holdfast.Consumer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: hundreds of records of a partition came out of polls that began after pause() had returned. Cause:
    librdkafka had given them to the thread that polls, and were not in `ahead` yet, where pause() looked."""
    read_by_hand(consumer, topic)
    reader = reading_of(consumer)
    seconds: list[threading.Thread] = []

    def meanwhile(rows: list[ck.Message]) -> None:
        if len(rows) > 1 and not seconds:
            paused = [ck.TopicPartition(topic, number) for number in range(3)]
            seconds.append(threading.Thread(target=consumer.pause, args=(paused,)))
            seconds[0].start()
            seconds[0].join(0.2)  # time enough for one that does not wait for its turn

    monkeypatch.setattr(reader, "handle", Asked(reader.handle, meanwhile))
    before = []
    deadline = time.monotonic() + PATIENCE_S
    while not seconds:
        assert time.monotonic() < deadline
        message = consumer.poll(0.1)
        before += [] if message is None else [(message.partition(), message.offset())]
    seconds[0].join()
    assert polled(consumer) == []
    consumer.resume([ck.TopicPartition(topic, number) for number in range(3)])
    before += polled(consumer, PATIENCE_S, enough=3 * EACH - len(before))
    assert sorted(before) == [(p, offset) for p in range(3) for offset in range(EACH)]


@pytest.mark.parametrize("change", ["pause", "seek", "unassign"])
def test_what_a_callback_of_librdkafka_changes_counts_at_once(
    consumer: holdfast.Consumer, topic: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Symptom: a stats_cb that sought elsewhere was followed by hundreds of records from before. Cause: librdkafka
    makes its callbacks while it gives, and what it has given by then reached `ahead` behind the seek. confluent-kafka's
    poll() takes one record at a time, behind its callbacks."""
    read_by_hand(consumer, topic)
    reader = reading_of(consumer)
    changed: list[int] = []

    def meanwhile(rows: list[ck.Message]) -> None:
        if len(rows) > 1 and not changed:
            changed.append(rows[0].partition() or 0)
            where = ck.TopicPartition(topic, changed[0], 4)
            if change == "pause":
                consumer.pause([where])
            elif change == "seek":
                consumer.seek(where)
            else:
                consumer.incremental_unassign([where])

    monkeypatch.setattr(reader, "handle", Asked(reader.handle, meanwhile))
    before = []
    deadline = time.monotonic() + PATIENCE_S
    while not changed:
        assert time.monotonic() < deadline
        message = consumer.poll(0.1)
        before += [] if message is None else [(message.partition(), message.offset())]
    found = before[-1:] + polled(consumer)  # the poll that made the callback may have returned one already
    of_changed = [offset for partition, offset in found if partition == changed[0] and offset is not None]
    if change == "seek":
        assert of_changed[-1] == 4 and len(of_changed) <= 2
    else:
        assert len(of_changed) <= 1
    if change == "pause":
        consumer.resume([ck.TopicPartition(topic, changed[0])])
        found = before[:-1] + found
        found += polled(consumer, PATIENCE_S, enough=3 * EACH - len(found))
        assert sorted(found) == [(p, offset) for p in range(3) for offset in range(EACH)]


def test_a_poll_from_which_another_thread_takes_the_last_record_does_not_fail(
    consumer: holdfast.Consumer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: an IndexError out of poll(). Cause: between its look at what is ready and the taking of it another
    thread had paused, sought or unassigned that."""
    read_by_hand(consumer, topic)
    parts, ready = parts_of(consumer), reading_of(consumer).ahead.ready
    monkeypatch.setattr(polling_core, "CALM_MS", 1_000.0 * PATIENCE_S)  # so that the group is not served before
    found = []
    deadline = time.monotonic() + PATIENCE_S
    while not ready:
        assert time.monotonic() < deadline
        message = consumer.poll(0.1)
        found += [] if message is None else [(message.partition(), message.offset())]
    everything = [ck.TopicPartition(topic, number) for number in range(3)]
    with monkeypatch.context() as between:
        between.setattr(parts.notes, "catch_up_one", lambda: parts.data.pause(everything))
        assert consumer.poll(0.1) is None
    consumer.resume(everything)
    found += polled(consumer, PATIENCE_S, enough=3 * EACH - len(found))
    assert sorted(found) == [(p, offset) for p in range(3) for offset in range(EACH)]


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_while_one_thread_gives_up_what_is_read_another_one_gets_nothing_of_it(
    broker: Broker, topic: str, end: str
) -> None:
    """Symptom: one thread polled, another one closed, and thousands of records were handed out behind the last commit:
    the next owner did them again. Cause: the one that polls knew nothing of the revoke that the other one made."""
    consumer = holdfast.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": f"g-{next(COUNTER)}", "auto.offset.reset": "earliest"}
    )
    behind: list[tuple[int | None, int | None]] = []

    def on_revoke(_consumer: Any, _partitions: list[ck.TopicPartition]) -> None:
        other = threading.Thread(target=lambda: behind.extend(polled(consumer, enough=1)))
        other.start()
        other.join(PATIENCE_S)

    consumer.subscribe([topic], on_revoke=on_revoke)
    assert len(polled(consumer, PATIENCE_S, enough=2)) == 2
    getattr(consumer, end)()
    assert behind == []
    consumer.close()
