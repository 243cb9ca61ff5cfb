"""poll() takes records from librdkafka in batches and hands them out one by one.

The rule that everything here is about: what was taken and not handed out is unread. Positions, commits, pausing,
seeking, unassigning and the other ways to read see it as if it still lay in librdkafka. Most of these programs run on
confluent-kafka's class as well, where a poll takes one record.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from polling import COUNTER

import holdfast
from holdfast.client.reading.taken_ahead import FIRST_ROWS, MOST_BYTES, MOST_ROWS, Ahead
from holdfast.testing import Broker
from inside import core_of, parts_of, reading_of
from patience import PATIENCE_S

EACH = 5
"""Records in each of the topic's three partitions."""

Place = tuple[int, int]


def place(message: ck.Message) -> Place:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    return partition, offset


def polled(consumer: Any, count: int) -> list[Place]:
    """So many records, one by one."""
    found: list[Place] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, found
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(place(message))
    return found


def rest(consumer: Any, seconds: float = 0.5) -> list[Place]:
    """All that comes within this time."""
    found: list[Place] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            found.append(place(message))
    return found


def read_by_hand(consumer: Any, topic: str) -> None:
    consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(3)])


def everything() -> list[Place]:
    return [(partition, offset) for partition in range(3) for offset in range(EACH)]


def stands(consumer: Any, topic: str) -> dict[int, int]:
    listed = consumer.position([ck.TopicPartition(topic, number) for number in range(3)])
    return {p.partition: p.offset for p in listed if p.offset >= 0}


def behind(places: list[Place]) -> dict[int, int]:
    return {partition: offset + 1 for partition, offset in sorted(places)}


def test_the_position_is_behind_what_was_handed_out_and_in_front_of_the_rest(
    make: Callable[..., Any], topic: str
) -> None:
    consumer = make()
    read_by_hand(consumer, topic)
    found: list[Place] = []
    for _ in range(3 * EACH):
        found += polled(consumer, 1)
        assert stands(consumer, topic) == behind(found)
    assert sorted(found) == everything()


def test_a_second_thread_commits_nothing_that_poll_has_not_returned(broker: Broker, topic: str) -> None:
    """Symptom: a worker that committed while another thread polled committed up to 500 records that poll had not yet
    returned; a kill then skipped them. Cause: it was told librdkafka's positions, which are past what was taken from
    there. Rule: the position is one past the last record that was handed out, and librdkafka is not asked."""
    consumer = holdfast.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": f"g-{next(COUNTER)}", "auto.offset.reset": "earliest"}
    )
    read_by_hand(consumer, topic)
    found = polled(consumer, 1)
    reader = reading_of(consumer)
    while reader.ahead.ready:
        found += polled(consumer, 1)
    assert len(found) < 3 * EACH, "the first look takes one"
    deadline = time.monotonic() + PATIENCE_S
    while not reader.ahead.ready:  # as another thread that polls: it has taken records, and nobody has them yet
        assert time.monotonic() < deadline
        reader.gather(0.1)
    assert stands(consumer, topic) == behind(found)
    assert sorted([*found, *polled(consumer, 3 * EACH - len(found))]) == everything()
    consumer.close()


def test_a_close_commits_what_was_handed_out_and_nothing_beyond(make: Callable[..., Any], topic: str) -> None:
    consumer = make()
    consumer.subscribe([topic])
    found = polled(consumer, 7)
    consumer.poll(0)  # perhaps an eighth: then it is handed out too
    reached = stands(consumer, topic)
    group = consumer.consumer_group_metadata().split(b"CGMDv2:")[1][4:].split(b"\0")[0].decode()
    consumer.close()
    looker = make(group_id=group)
    listed = looker.committed([ck.TopicPartition(topic, number) for number in range(3)], timeout=PATIENCE_S)
    assert {p.partition: p.offset for p in listed if p.offset >= 0} == reached
    assert sum(reached.values()) in (7, 8)
    assert len(set(found)) == 7


def test_a_paused_partition_gives_nothing_and_goes_on_where_it_was(make: Callable[..., Any], topic: str) -> None:
    consumer = make()
    read_by_hand(consumer, topic)
    before = polled(consumer, 2)
    paused = before[-1][0]

    consumer.pause([ck.TopicPartition(topic, paused)])
    meanwhile = rest(consumer, 1.0)
    standing = stands(consumer, topic)
    consumer.resume([ck.TopicPartition(topic, paused)])
    after = polled(consumer, 3 * EACH - len(before) - len(meanwhile))

    assert paused not in {partition for partition, _ in meanwhile}
    assert standing == behind(before + meanwhile)
    assert sorted(before + meanwhile + after) == everything()


def test_a_seek_leads_elsewhere_at_once(make: Callable[..., Any], topic: str) -> None:
    consumer = make()
    read_by_hand(consumer, topic)
    before = polled(consumer, 2)
    where = before[-1][0]

    consumer.seek(ck.TopicPartition(topic, where, 4))
    others_left = 2 * EACH - len([place for place in before if place[0] != where])
    after = polled(consumer, others_left + 1) + rest(consumer)

    assert [offset for partition, offset in after if partition == where] == [4]
    others = [place for place in before + after if place[0] != where]
    assert sorted(others) == [place for place in everything() if place[0] != where]


def test_what_is_unassigned_is_not_handed_out_any_more(make: Callable[..., Any], topic: str) -> None:
    consumer = make()
    consumer.incremental_assign([ck.TopicPartition(topic, number, 0) for number in range(3)])
    before = polled(consumer, 2)
    gone = before[-1][0]

    consumer.incremental_unassign([ck.TopicPartition(topic, gone)])
    after = polled(consumer, 2 * EACH - len([place for place in before if place[0] != gone])) + rest(consumer)
    consumer.incremental_assign([ck.TopicPartition(topic, gone, 3)])
    again = polled(consumer, 2) + rest(consumer)

    assert gone not in {partition for partition, _ in after}
    assert again == [(gone, 3), (gone, 4)]


def test_the_end_of_a_partition_comes_behind_its_records(make: Callable[..., Any], topic: str) -> None:
    consumer = make(enable_partition_eof=True)
    read_by_hand(consumer, topic)
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    ended: dict[int, list[int]] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < 3:
        assert time.monotonic() < deadline
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is None:
            seen[message.partition()].append(message.offset())
        elif message.error().code() == ck.KafkaError._PARTITION_EOF:
            ended[message.partition()] = list(seen[message.partition()])
    assert ended == {number: list(range(EACH)) for number in range(3)}


def test_poll_consume_and_consume_arrow_share_what_was_taken(broker: Broker, topic: str) -> None:
    """Each goes on where the application stands, whoever took the records from librdkafka."""
    consumer = member(broker)
    read_by_hand(consumer, topic)
    found = polled(consumer, 3)
    found += map(place, consumer.consume(2, 5.0))
    assert stands(consumer, topic) == behind(found)
    found += polled(consumer, 2)
    assert stands(consumer, topic) == behind(found)
    batch = consumer.consume_arrow(2, timeout=5.0)
    found += [(row["partition"], row["offset"]) for row in batch.to_pylist()]
    found += polled(consumer, 3 * EACH - len(found))
    assert sorted(found) == everything()
    assert rest(consumer, 0.3) == []
    consumer.close()


def test_a_callback_that_raises_costs_no_record(broker: Broker, topic: str) -> None:
    """Symptom: records were missing after stats_cb had raised. Cause: confluent-kafka throws away the records of a
    consume() in which a callback raised, and poll takes its records so. Rule: no callback raises inside librdkafka;
    what it raised comes out behind the call."""

    def raising(_text: str) -> None:
        raise RuntimeError("from stats_cb")

    consumer = member(broker, **{"stats_cb": raising, "statistics.interval.ms": 1})
    read_by_hand(consumer, topic)
    found: list[Place] = []
    raised = 0
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < 3 * EACH or not raised:
        assert time.monotonic() < deadline, (found, raised)
        try:
            if len(found) % 2:
                found += polled(consumer, 1)
            else:
                found += map(place, consumer.consume(1, 0.1))
        except RuntimeError:
            raised += 1
    assert sorted(found) == everything()
    consumer.close()


class Interrupted:
    """librdkafka, and Ctrl-C when it has given records and before they have arrived."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handle, name)

    def consume(self, count: int, timeout: float) -> list[ck.Message]:
        rows: list[ck.Message] = self.handle.consume(count, timeout)
        if rows and not self.lost:
            self.lost = len(rows)
            raise KeyboardInterrupt
        return rows

    def poll(self, timeout: float) -> ck.Message | None:
        message: ck.Message | None = self.handle.poll(timeout)
        return message


def test_ctrl_c_on_the_way_from_librdkafka_costs_no_record(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python raises it as soon as librdkafka has returned: what it gave is gone, and its position is behind that. A
    close would commit what nobody saw. Rule: then it is read again, and the position stays where the application is."""
    consumer = member(broker)
    read_by_hand(consumer, topic)
    reader = reading_of(consumer)
    cut = Interrupted(reader.handle)
    monkeypatch.setattr(reader, "handle", cut)
    found: list[Place] = []
    deadline = time.monotonic() + PATIENCE_S
    while not cut.lost:
        assert time.monotonic() < deadline
        try:
            found += polled(consumer, 1)
        except KeyboardInterrupt:
            assert stands(consumer, topic) == behind(found)
    found += polled(consumer, 3 * EACH - len(found))
    assert sorted(found) == everything()
    consumer.close()


def test_ctrl_c_in_a_consume_costs_nothing_of_what_it_had_gathered(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What consume(n) had gathered was gone with the call, behind the position: a close committed what nobody saw.
    confluent-kafka's does so too. Rule: it is read again, and nothing of it is committed."""
    consumer = member(broker)
    read_by_hand(consumer, topic)
    parts, reader = parts_of(consumer), reading_of(consumer)
    take_into = reader.take_into

    def interrupt(rows: list[ck.Message], count: int, wait_s: float) -> None:
        take_into(rows, count, wait_s)
        if rows:
            raise KeyboardInterrupt

    with monkeypatch.context() as cut, pytest.raises(KeyboardInterrupt):
        cut.setattr(reader, "take_into", interrupt)
        consumer.consume(100, PATIENCE_S)
    committable = {p.partition: e.offset for p, e in parts.offsets.committable(parts.data.assigned).items()}
    assert set(committable.values()) <= {0}, "a commit now would be in front of all of it"
    assert sorted(polled(consumer, 3 * EACH)) == everything()
    consumer.close()


class Asked:
    """librdkafka, and a callback that it makes when it has records to give and before it returns."""

    def __init__(self, handle: Any, callback: Callable[[], None]) -> None:
        self.handle = handle
        self.callback = callback

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handle, name)

    def consume(self, count: int, timeout: float) -> list[ck.Message]:
        rows: list[ck.Message] = self.handle.consume(count, timeout)
        self.callback()
        return rows

    def poll(self, timeout: float) -> ck.Message | None:
        message: ck.Message | None = self.handle.poll(timeout)
        self.callback()
        return message


def test_the_statistics_tell_what_was_handed_out(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """stats_cb is called while librdkafka gives records, and its positions are ahead then. Rule: the app_offset is
    where the application stands; what is given in that very call is not handed out yet."""
    consumer = member(broker)
    read_by_hand(consumer, topic)
    handed: list[Place] = []
    about, reader = core_of(consumer).about, reading_of(consumer)

    def look() -> None:
        told = {p.partition: at.app for p, at in about.group_part().partitions.items() if at.app is not None}
        assert told == behind(handed)

    monkeypatch.setattr(reader, "handle", Asked(reader.handle, look))
    while len(handed) < 3 * EACH:
        handed += polled(consumer, 1)
    consumer.close()


def test_how_many_are_taken_at_a_time_depends_on_their_size() -> None:
    """Large records must not pile up beyond librdkafka's own queue."""
    ahead = Ahead()
    assert ahead.wanted == FIRST_ROWS
    ahead.put([ck.Message(topic="t", partition=0, offset=0, value=b"x")])
    assert ahead.wanted == MOST_ROWS
    ahead.put([ck.Message(topic="t", partition=0, offset=1, value=b"x" * (MOST_BYTES // 4))])
    assert ahead.wanted == 4
    ahead.put([ck.Message(topic="t", partition=0, offset=2, value=b"x" * (2 * MOST_BYTES))])
    assert ahead.wanted == 1
    ahead.put([ck.Message(topic="t", partition=0, offset=3, value=None)])
    assert ahead.wanted == MOST_ROWS


def member(broker: Broker, **settings: Any) -> holdfast.Consumer:
    return holdfast.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"g-{next(COUNTER)}",
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
