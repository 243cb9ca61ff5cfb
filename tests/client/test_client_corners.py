"""Corners that a program reaches rarely and all at once: a commit that is interrupted, a call that is refused half-way,
a partition that is given up and taken again. In each of them a program on `confluent_kafka.Consumer` loses nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from committed import LONG_MS, by_hand, reached
from polling import COUNTER, take, until

import holdfast
from holdfast.client.member.events import fatal_message
from holdfast.model import ErrorCode, HoldfastError
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S


def group() -> str:
    return f"corners-{next(COUNTER)}"


def consumer_of(broker: Broker, name: str, **settings: Any) -> holdfast.Consumer:
    config = {"bootstrap.servers": broker.bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    return holdfast.Consumer({**config, **settings})


# -- commits


def test_auto_commit_goes_on_after_a_commit_that_was_interrupted(broker: Broker, topic: str) -> None:
    """Symptom: after a Ctrl-C in commit() nothing of that partition was auto-committed any more. Cause: whoever waited
    for a commit also settled it, and went away. Rule: a commit is settled by itself, whoever waits for it."""
    name = group()
    consumer = consumer_of(broker, name, **{"auto.commit.interval.ms": 50})
    consumer.assign(by_hand(topic, 0))
    take(consumer, 2)
    interrupted = iter([True])

    def interrupt(_exchange: Any) -> bool:
        if next(interrupted, False):
            os.kill(os.getpid(), signal.SIGINT)
        return True

    broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, when=interrupt)
    with pytest.raises(KeyboardInterrupt):
        consumer.commit(offsets=[ck.TopicPartition(topic, 0, 2)], asynchronous=False)
    broker.faults.clear()
    take(consumer, 3)
    until(consumer, lambda: reached(broker, name, topic) == {0: 5})
    consumer.close()


def test_an_offset_stored_without_an_epoch_is_committed_behind_one_that_had_one(
    make: Callable[..., Any], broker: Broker, topic: str
) -> None:
    """Symptom: store_offsets(message) and a commit, then store_offsets(offsets=…): that was not committed until the
    end. Cause: an offset without a leader epoch counted as older than any that has one. Rule: what is not known is not
    compared."""
    name = group()
    consumer = make(group_id=name, enable_auto_offset_store=False, auto_commit_interval_ms=50)
    consumer.assign(by_hand(topic, 0))
    messages = take(consumer, 5)
    consumer.store_offsets(messages[1])
    until(consumer, lambda: reached(broker, name, topic) == {0: 2})
    consumer.store_offsets(offsets=[ck.TopicPartition(topic, 0, 4)])
    until(consumer, lambda: reached(broker, name, topic) == {0: 4})
    consumer.store_offsets(messages[4])
    until(consumer, lambda: reached(broker, name, topic) == {0: 5})


@pytest.mark.parametrize("way", ["unassign", "assign", "incremental", "arrow"])
def test_what_is_given_up_and_taken_again_goes_on_where_it_stood(broker: Broker, topic: str, way: str) -> None:
    """Symptom: unassign() and assign() of the same partition read everything again. Cause: the commit was under way
    when librdkafka asked where the group stands. Rule: what is being committed goes on there. (confluent-kafka waits
    for the commit; here none is answered, so it would be in the way of the test.)"""
    consumer = consumer_of(broker, group())
    consumer.assign(by_hand(topic, 0))
    if way == "arrow":
        while not consumer.consume_arrow(3, timeout=0.1).num_rows:
            pass
    else:
        take(consumer, 3)
    stood = consumer.position(by_hand(topic, 0))[0].offset
    broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if way == "incremental":
        consumer.incremental_unassign(by_hand(topic, 0))
        consumer.incremental_assign(by_hand(topic, 0))
    else:
        if way == "unassign":
            consumer.unassign()
        consumer.assign(by_hand(topic, 0))
    assert [message.offset() for message in take(consumer, 5 - stood)] == list(range(stood, 5))
    broker.faults.clear()
    consumer.close()


@pytest.mark.parametrize("way", ["waiting", "later", "by itself"])
def test_a_commit_shows_everything_that_is_assigned(make: Callable[..., Any], topic: str, way: str) -> None:
    """commit() listed only what it sent; confluent-kafka lists all that is assigned, what has no news at -1001."""
    shown: list[list[ck.TopicPartition]] = []
    interval = 50 if way == "by itself" else LONG_MS
    consumer = make(auto_commit_interval_ms=interval, on_commit=lambda _error, partitions: shown.append(partitions))
    consumer.assign(by_hand(topic, 0, 1))
    consumer.pause(by_hand(topic, 1))
    take(consumer, 5)
    if way == "waiting":
        shown.append(consumer.commit(asynchronous=False))
    elif way == "later":
        consumer.commit()
    until(consumer, lambda: any(p.offset == 5 for listed in shown for p in listed))
    assert [(p.partition, p.offset) for p in shown[-1]] == [(0, 5), (1, ck.OFFSET_INVALID)]


# -- by hand and by the group


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_an_eager_assignment_takes_the_place_of_one_by_hand(
    make: Callable[..., Any], broker: Broker, topic: str, strategy: str
) -> None:
    """Symptom: assign() and then subscribe() under an eager strategy read on what was assigned by hand, beside the
    member that got it from the group. Cause: the group's partitions were added to it. Rule: an eager assignment is all
    there is to read, and what is parted with is committed; a cooperative one comes beside the others."""
    name = group()
    consumer = make(group_id=name, partition_assignment_strategy=strategy, auto_commit_interval_ms=LONG_MS)
    other = f"other-{next(COUNTER)}"
    broker.topics.create(other, partitions=1)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(other, b"1")
    assert producer.flush(PATIENCE_S) == 0
    consumer.assign([ck.TopicPartition(other, 0, 0)])
    take(consumer, 1)
    consumer.subscribe([topic])
    take(consumer, 15)
    read = {(p.topic, p.partition) for p in consumer.assignment()}
    kept = set() if strategy == "range" else {(other, 0)}
    assert read == {(topic, 0), (topic, 1), (topic, 2)} | kept
    if strategy == "range":
        until(consumer, lambda: reached(broker, name, other) == {0: 1})


# -- subscriptions


def test_a_subscription_that_is_refused_leaves_the_callbacks_of_the_one_before_it(
    make: Callable[..., Any], topic: str
) -> None:
    """Symptom: after a subscribe() that raised, on_revoke was never called again, and whoever commits there committed
    nothing. Cause: the new functions took the place of the old ones before the call was refused."""
    told: list[str] = []
    consumer = make()
    consumer.subscribe([topic], on_assign=lambda *_: told.append("assign"), on_revoke=lambda *_: told.append("revoke"))
    take(consumer, 15)
    for wrong in (["^(?x"], [], ["a", "a"]):
        with pytest.raises(ck.KafkaException):
            consumer.subscribe(wrong, on_revoke=lambda *_: told.append("never"))
    consumer.close()
    assert told == ["assign", "revoke"]


def test_a_drained_consumer_says_that_it_can_not_subscribe_again(broker: Broker, topic: str) -> None:
    """Symptom: subscribe() after a drain raised nothing, and poll gave nothing for ever. Cause: who has left for good
    takes no subscription, and nobody said so."""
    consumer = consumer_of(broker, group())
    consumer.subscribe([topic])
    take(consumer, 15)
    assert consumer.drain(PATIENCE_S)
    with pytest.raises(ck.KafkaException) as caught:
        consumer.subscribe([topic])
    assert caught.value.args[0].code() == ck.KafkaError._STATE
    assert "make another one" in caught.value.args[0].str()
    consumer.close()


# -- wrong arguments, and calls behind the end


def test_wrong_arguments_raise_what_they_raise_in_confluent_kafka(make: Callable[..., Any]) -> None:
    """pause("x") or commit(1) raised an AttributeError from somewhere inside, which no program catches."""
    consumer = make()
    no_message, no_partition, no_list = "Message", "expected cimpl.TopicPartition", "requires list of TopicPartition"
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: consumer.pause([1]), no_partition),
        (lambda: consumer.pause("x"), no_list),
        (lambda: consumer.pause(None), no_list),
        (lambda: consumer.resume([1]), no_partition),
        (lambda: consumer.resume(None), no_list),
        (lambda: consumer.seek(1), no_partition),
        (lambda: consumer.store_offsets(1), no_message),
        (lambda: consumer.commit(1), no_message),
        (lambda: consumer.commit(message="x"), no_message),
        (lambda: consumer.commit(offsets=1), no_list),
    ]
    for call, said in wrong:
        with pytest.raises(TypeError, match=said):
            call()
    for both in (consumer.commit, consumer.store_offsets):
        with pytest.raises(ValueError, match="mutually exclusive"):
            both(1, [1])


def test_a_closed_consumer_says_so_and_starts_nothing(make: Callable[..., Any]) -> None:
    """Symptom: enforce_rebalance() on a closed consumer returned None and left two threads behind. Rule: whatever is
    called behind the end says so first."""
    consumer = make()
    consumer.close()
    for call in (consumer.list_topics, consumer.cluster_id, lambda: consumer.set_sasl_credentials("a", "b")):
        with pytest.raises(RuntimeError, match="Handle has been closed"):
            call()
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.position([])
    if isinstance(consumer, holdfast.Consumer):
        before = threading.active_count()
        with pytest.raises(RuntimeError, match="Consumer closed"):
            consumer.enforce_rebalance()
        assert threading.active_count() <= before


def test_an_error_in_the_place_of_a_record_has_no_timestamp(make: Callable[..., Any]) -> None:
    """Told by the group, it said (0, 0): a time of 1970. The rule stood in one place and was made again in two."""
    consumer = make(allow_auto_create_topics=False)
    consumer.subscribe([f"nowhere-{next(COUNTER)}"])
    told, deadline = None, time.monotonic() + PATIENCE_S
    while told is None:
        assert time.monotonic() < deadline
        told = consumer.poll(0.1)
    error = told.error()
    assert error is not None and error.code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert told.timestamp() == (ck.TIMESTAMP_NOT_AVAILABLE, -1)
    assert (told.offset(), told.partition(), told.leader_epoch()) == (None, 0, None)
    fatal = fatal_message(HoldfastError("FENCED_INSTANCE_ID", "It was fenced.", "Close it."))
    assert fatal.timestamp() == (ck.TIMESTAMP_NOT_AVAILABLE, -1)
