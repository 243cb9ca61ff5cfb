"""Commits: of whatever is read, whoever assigned it, and nothing that is not new."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from committed import LONG_MS, by_hand, code_of, group, offsets, reached
from polling import take, until

import holdfast
from holdfast.model import ErrorCode
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S

# -- by hand


def test_what_is_assigned_by_hand_is_committed_while_it_runs(
    make: Callable[..., Any], broker: Broker, topic: str
) -> None:
    """Symptom: a consumer with assign() and auto-commit read for days and committed nothing. Cause: auto-commit was
    part of the membership. Rule: what a consumer reads it commits, whoever assigned it."""
    name = group()
    consumer = make(group_id=name, auto_commit_interval_ms=100)
    consumer.assign(by_hand(topic, 0, 1))
    take(consumer, 10)
    until(consumer, lambda: reached(broker, name, topic) == {0: 5, 1: 5})


@pytest.mark.parametrize("way", ["close", "unassign", "incremental_unassign", "assign"])
def test_what_is_assigned_by_hand_is_committed_when_it_ends(
    make: Callable[..., Any], broker: Broker, topic: str, way: str
) -> None:
    name = group()
    consumer = make(group_id=name, auto_commit_interval_ms=LONG_MS)
    consumer.assign(by_hand(topic, 0))
    take(consumer, 5)
    if way == "close":
        consumer.close()
    elif way == "assign":
        consumer.assign(by_hand(topic, 1))
    elif way == "unassign":
        consumer.unassign()
    else:
        consumer.incremental_unassign(by_hand(topic, 0))
    deadline = time.monotonic() + PATIENCE_S
    while reached(broker, name, topic).get(0) != 5:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_assign_does_not_wait_for_a_broker_that_is_not_there(broker: Broker) -> None:
    """Symptom: assign() took 30 s while the broker was down. Cause: it asked the group where to start, and waited."""
    consumer = holdfast.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": group(), "log_level": 0})
    began = time.monotonic()
    consumer.assign(by_hand("orders", 0))
    assert time.monotonic() - began < 25, "it would have waited for 30 s"
    assert [p.partition for p in consumer.assignment()] == [0]
    consumer.close()


def test_assign_goes_on_where_the_group_stands(make: Callable[..., Any], topic: str) -> None:
    name = group()
    consumer = make(group_id=name)
    consumer.commit(offsets=[ck.TopicPartition(topic, 0, 3)], asynchronous=False)
    consumer.assign(by_hand(topic, 0))
    assert [message.offset() for message in take(consumer, 2)] == [3, 4]


def test_a_reader_by_hand_finds_its_coordinator_again(broker: Broker, topic: str) -> None:
    """Symptom: after its coordinator moved, a consumer with assign() never committed again. Cause: only the member's
    machine forgot where the coordinator was. Rule: whoever is told that it moved looks for it."""
    name = group()
    consumer = holdfast.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    )
    consumer.assign(by_hand(topic, 0))
    take(consumer, 5)
    asked = broker.faults.call(Api.FIND_COORDINATOR, lambda _exchange: None)
    consumer.commit(offsets=[ck.TopicPartition(topic, 0, 1)], asynchronous=False)
    looked = asked.hits
    for api in (Api.OFFSET_COMMIT, Api.OFFSET_FETCH):
        moved = broker.faults.error(api, ErrorCode.NOT_COORDINATOR, times=1)
        if api is Api.OFFSET_COMMIT:
            consumer.commit(offsets=[ck.TopicPartition(topic, 0, 2)], asynchronous=False)
        else:
            assert [p.offset for p in consumer.committed(by_hand(topic, 0), timeout=30)] == [2]
        assert moved.hits == 1
        assert asked.hits > looked
        looked = asked.hits
    consumer.close()


# -- of what


def test_a_partition_of_ones_own_beside_the_groups_is_committed_with_them(
    make: Callable[..., Any], broker: Broker, topic: str
) -> None:
    """Symptom: one partition that was not the group's failed the whole auto-commit. Cause: "not owned" was said to all
    of it. Rule: only what the group has taken from us is refused."""
    name = group()
    extra = f"extra-{topic}"
    broker.topics.create(extra, partitions=1)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(extra, b"mine", partition=0)
    assert producer.flush(30) == 0
    consumer = make(group_id=name, auto_commit_interval_ms=100)
    consumer.subscribe([topic])
    take(consumer, 15)
    consumer.incremental_assign([ck.TopicPartition(extra, 0, 0)])
    take(consumer, 1)
    until(
        consumer, lambda: reached(broker, name, topic) == {0: 5, 1: 5, 2: 5} and reached(broker, name, extra) == {0: 1}
    )


def test_offsets_of_what_was_never_ours_can_be_committed(make: Callable[..., Any], broker: Broker, topic: str) -> None:
    """Symptom: commit(offsets=…) of a partition that is not assigned was refused; librdkafka commits it."""
    name = group()
    other = f"other-{topic}"
    broker.topics.create(other, partitions=1)
    consumer = make(group_id=name)
    consumer.commit(offsets=[ck.TopicPartition(other, 0, 1)], asynchronous=False)  # not a member yet
    consumer.subscribe([topic])
    take(consumer, 15)
    consumer.commit(offsets=[ck.TopicPartition(other, 0, 7, "by hand")], asynchronous=False)
    assert reached(broker, name, other) == {0: 7}


def test_what_the_group_took_can_not_be_committed_any_more(broker: Broker, topic: str) -> None:
    """librdkafka 3340: a commit that comes after the revoke rewinds whoever has the partition now. A wanted
    difference: confluent-kafka commits it."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group(),
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 100,
        "enable.auto.commit": False,
    }
    first, second = holdfast.Consumer(settings), holdfast.Consumer(settings)
    revoked: list[ck.TopicPartition] = []
    first.subscribe([topic], on_revoke=lambda _consumer, partitions: revoked.extend(partitions))
    take(first, 15)
    second.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    while not second.assignment():
        assert time.monotonic() < deadline
        first.poll(0.01)
        second.poll(0.01)
    gone = ck.TopicPartition(topic, revoked[0].partition, 1)
    with pytest.raises(ck.KafkaException) as caught:
        first.commit(offsets=[gone], asynchronous=False)
    assert code_of(caught) == ck.KafkaError._STATE
    kept = ck.TopicPartition(topic, first.assignment()[0].partition, 2)
    answers = first.commit(offsets=[gone, kept], asynchronous=False)
    assert answers is not None, "what is still ours is committed all the same"
    verdicts = {p.partition: p.error and p.error.code() for p in answers}
    assert verdicts == {gone.partition: ck.KafkaError._STATE, kept.partition: None}
    assert [p.offset for p in first.committed([kept], timeout=30)] == [2]
    first.close()
    second.close()


def test_a_commit_with_nothing_new_says_so(make: Callable[..., Any], topic: str) -> None:
    """Symptom: commit() a second time committed the same again, and commit() after seeking back rewound the group.
    Rule, as librdkafka's: an offset-less commit commits what is beyond the last one."""
    told: list[Any] = []
    consumer = make(
        enable_auto_commit=False, on_commit=lambda error, partitions: told.append((error.code(), len(partitions)))
    )
    consumer.assign(by_hand(topic, 0, 1))
    take(consumer, 10)
    assert [p.offset for p in consumer.commit(asynchronous=False)] == [5, 5]
    for _ in range(2):
        with pytest.raises(ck.KafkaException) as caught:
            consumer.commit(asynchronous=False)
        assert code_of(caught) == ck.KafkaError._NO_OFFSET
        consumer.seek(ck.TopicPartition(topic, 0, 1))
        take(consumer, 1)
    assert [p.offset for p in consumer.committed(by_hand(topic, 0), timeout=30)] == [5]
    consumer.commit()
    until(consumer, lambda: told == [(ck.KafkaError._NO_OFFSET, 2)])


def test_what_was_done_before_a_seek_counts_until_something_new_came(
    make: Callable[..., Any], broker: Broker, topic: str
) -> None:
    name = group()
    consumer = make(group_id=name, auto_commit_interval_ms=LONG_MS)
    consumer.assign(by_hand(topic, 0))
    take(consumer, 5)
    consumer.seek(ck.TopicPartition(topic, 0, 1))
    consumer.close()
    assert reached(broker, name, topic) == {0: 5}


@pytest.mark.parametrize("text", ["note", "", "é", None])
def test_metadata_passes_between_our_consumer_and_confluents(broker: Broker, topic: str, text: str | None) -> None:
    """Symptom: committed() raised "embedded null character" in a group whose offsets confluent-kafka had committed with
    metadata; and confluent-kafka read ours with bytes of its own memory behind it, or raised UnicodeDecodeError. Cause:
    it commits the zero byte that ends a string in C, and counts on it. Rule: what either commits, either reads."""
    given = ck.TopicPartition(topic, 0, 2) if text is None else ck.TopicPartition(topic, 0, 2, text)
    kept = []
    for kind in (ck.Consumer, holdfast.Consumer):
        name = group()
        config = {"bootstrap.servers": broker.bootstrap, "group.id": name, "log.connection.close": False}
        with kind(config) as writer, ck.Consumer(config) as theirs, holdfast.Consumer(config) as ours:
            assert writer.commit(offsets=[given], asynchronous=False)[0].metadata == text
            kept.append(offsets(broker, name, topic))
            for reader in (theirs, ours):
                assert reader.committed([ck.TopicPartition(topic, 0)], timeout=PATIENCE_S)[0].metadata == text
    assert kept[0] == kept[1]


def test_epoch_and_metadata_are_committed_and_read_back(make: Callable[..., Any], broker: Broker, topic: str) -> None:
    """Symptom: commits wiped the leader epoch, the result of a commit had no metadata, and committed() gave '' for
    none. Rule: what the application gave, or its record came with, is what the group keeps."""
    name = group()
    consumer = make(group_id=name, enable_auto_commit=False)
    consumer.assign(by_hand(topic, 0, 1, 2))
    messages = take(consumer, 15)
    (done, *_others) = consumer.commit(asynchronous=False)
    assert (done.offset, done.metadata, done.leader_epoch) == (5, None, 0)
    one = consumer.commit(offsets=[ck.TopicPartition(topic, 1, 2, "note", leader_epoch=7)], asynchronous=False)[0]
    assert (one.offset, one.metadata, one.leader_epoch) == (2, "note", 7)
    last = next(message for message in reversed(messages) if message.partition() == 2)
    consumer.commit(message=last, asynchronous=False)
    assert {number: at[2] for number, at in offsets(broker, name, topic).items()} == {0: 0, 1: 7, 2: 0}
    found = consumer.committed(by_hand(topic, 0, 2), timeout=-1)
    assert [(p.offset, p.metadata, p.leader_epoch) for p in found] == [(5, None, 0), (5, None, 0)]


def test_a_handover_keeps_the_metadata_of_the_last_commit(broker: Broker, topic: str) -> None:
    """Symptom: after a handover the metadata that the old owner had committed was gone. Cause: the new owner committed
    the offset it was handed, and nothing else. Rule: an offset that the group knows is not committed again."""
    name = group()
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": name,
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 100,
        "enable.auto.commit": False,
    }
    first, second = holdfast.Consumer(settings), holdfast.Consumer(settings)

    def revoke(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        consumer.commit(
            offsets=[ck.TopicPartition(p.topic, p.partition, 5, f"note {p.partition}") for p in partitions],
            asynchronous=False,
        )

    first.subscribe([topic], on_revoke=revoke)
    take(first, 15)
    fetched = broker.faults.call(Api.OFFSET_FETCH, lambda _exchange: None)
    second.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    while not (second.assignment() and fetched.hits):
        assert time.monotonic() < deadline
        first.poll(0.01)
        second.poll(0.01)
    moved = second.assignment()[0].partition
    for _ in range(20):
        first.poll(0.01)
        second.poll(0.01)
    assert offsets(broker, name, topic)[moved] == (5, f"note {moved}\0", -1)
    second.close()
    first.close()


@pytest.mark.parametrize("stored", [False, True])
def test_what_is_committed_for_a_partition_that_is_no_longer_read_stays(
    make: Callable[..., Any], broker: Broker, topic: str, stored: bool
) -> None:
    """Symptom: a program unassigned a partition, finished what it had in hand of it and committed that; close() then
    committed where the partition had stood when it was unassigned, and the next owner did the rest again. Cause: the
    position at the unassign was kept, and no commit after it counted. confluent-kafka keeps the commit."""
    name = group()
    settings = {"group.id": name, "auto.commit.interval.ms": LONG_MS, "enable.auto.offset.store": not stored}
    consumer = make(**settings, **{"partition.assignment.strategy": "cooperative-sticky"})
    consumer.subscribe([topic])
    for message in take(consumer, 15):
        offset = message.offset()
        assert offset is not None
        if stored and offset < 3:
            consumer.store_offsets(message)
    consumer.incremental_unassign(by_hand(topic, 0))
    consumer.commit(offsets=[ck.TopicPartition(topic, 0, 4 if stored else 12)], asynchronous=False)
    consumer.close()
    others = 3 if stored else 5
    assert reached(broker, name, topic) == {0: 4 if stored else 12, 1: others, 2: others}


# -- stored


def test_storing_refuses_only_what_is_not_ours(make: Callable[..., Any], topic: str) -> None:
    consumer = make(enable_auto_commit=False, enable_auto_offset_store=False)
    consumer.assign(by_hand(topic, 0, 1))
    take(consumer, 10)
    for wrong in ({}, {"message": object(), "offsets": []}):
        with pytest.raises(ValueError):
            consumer.store_offsets(**wrong)
    with pytest.raises(ck.KafkaException) as caught:
        consumer.store_offsets(offsets=[ck.TopicPartition(topic, 2, 1)])
    assert code_of(caught) == ck.KafkaError._STATE
    consumer.store_offsets(offsets=[ck.TopicPartition(topic, 0, 3), ck.TopicPartition(topic, 2, 1)])
    assert {p.partition: p.offset for p in consumer.commit(asynchronous=False) if p.offset >= 0} == {0: 3}
    consumer.store_offsets(offsets=[ck.TopicPartition(topic, 0, 4)])
    consumer.store_offsets(offsets=[ck.TopicPartition(topic, 0)])  # takes it back
    with pytest.raises(ck.KafkaException) as caught:
        consumer.commit(asynchronous=False)
    assert code_of(caught) == ck.KafkaError._NO_OFFSET


def test_what_is_assigned_already_is_not_assigned_again(make: Callable[..., Any], topic: str) -> None:
    consumer = make()
    consumer.assign(by_hand(topic, 0, 1))
    refused: list[tuple[Callable[[], None], int]] = [
        (lambda: consumer.incremental_assign(by_hand(topic, 0, 2)), ck.KafkaError._CONFLICT),
        (lambda: consumer.incremental_unassign(by_hand(topic, 2)), ck.KafkaError._INVALID_ARG),
    ]
    for call, code in refused:
        with pytest.raises(ck.KafkaException) as caught:
            call()
        assert code_of(caught) == code
        assert [p.partition for p in consumer.assignment()] == [0, 1]


def test_an_assignment_with_a_partition_twice_changes_nothing(topic: str, broker: Broker) -> None:
    consumer = holdfast.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group(), "auto.offset.reset": "earliest"}
    )
    consumer.assign(by_hand(topic, 0))
    with pytest.raises(ck.KafkaException) as caught:
        consumer.assign([ck.TopicPartition(topic, 1, 0), ck.TopicPartition(topic, 1, 2)])
    assert code_of(caught) == ck.KafkaError._INVALID_ARG
    assert len(take(consumer, 5)) == 5
    assert [(p.topic, p.partition) for p in consumer.assignment()] == [(topic, 0)]
    consumer.close()
