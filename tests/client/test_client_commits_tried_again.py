"""Commits are tried again until they are settled, and never undo a later one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from committed import LONG_MS, by_hand, code_of, group, reached
from polling import take, until

import holdfast
from holdfast.model import ErrorCode
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S

PASSING = ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "cut"]


def fail_commits(broker: Broker, kind: str, times: int) -> Any:
    if kind == "cut":
        return broker.faults.disconnect(Api.OFFSET_COMMIT, times=times)
    return broker.faults.error(Api.OFFSET_COMMIT, ErrorCode[kind], times=times)


@pytest.mark.parametrize("kind", PASSING)
@pytest.mark.parametrize("subscribed", [True, False])
def test_a_commit_is_tried_again_until_it_is_through(broker: Broker, topic: str, kind: str, subscribed: bool) -> None:
    """Symptom: one COORDINATOR_LOAD_IN_PROGRESS and the commit was lost. Cause: no commit was ever sent twice."""
    name = group()
    consumer = holdfast.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    )
    if subscribed:
        consumer.subscribe([topic])
    else:
        consumer.assign(by_hand(topic, 0, 1, 2))
    take(consumer, 15)
    failing = fail_commits(broker, kind, 2)
    assert consumer.commit(asynchronous=False) is not None
    assert failing.hits == 2
    assert reached(broker, name, topic) == {0: 5, 1: 5, 2: 5}
    consumer.close()


@pytest.mark.parametrize("kind", PASSING)
@pytest.mark.parametrize("subscribed", [True, False])
def test_what_was_done_is_committed_at_close_although_the_coordinator_stumbles(
    make: Callable[..., Any], broker: Broker, topic: str, kind: str, subscribed: bool
) -> None:
    name = group()
    told: list[Any] = []
    consumer = make(
        group_id=name,
        auto_commit_interval_ms=LONG_MS,
        on_commit=lambda error, partitions: told.append((error, [p.offset for p in partitions])),
    )
    if subscribed:
        consumer.subscribe([topic])
    else:
        consumer.assign(by_hand(topic, 0, 1, 2))
    take(consumer, 15)
    failing = fail_commits(broker, kind, 1)
    consumer.close()
    assert failing.hits == 1
    assert reached(broker, name, topic) == {0: 5, 1: 5, 2: 5}
    assert told == [(None, [5, 5, 5])], "on_commit hears of the last commit too"
    # librdkafka does not leave if it is still looking for its coordinator: on a busy machine it was.
    if kind != "cut" or type(consumer) is not ck.Consumer:
        assert broker.group(name).members == ()


def test_an_auto_commit_that_was_refused_is_made_again_without_a_new_record(
    make: Callable[..., Any], broker: Broker, topic: str
) -> None:
    """Symptom: a refused auto-commit was forgotten until the next record. Cause: "something is new" was cleared when
    the commit was sent, not when it was accepted."""
    name = group()
    refused = broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.UNKNOWN_SERVER_ERROR, times=3)
    consumer = make(group_id=name, auto_commit_interval_ms=100)
    consumer.subscribe([topic])
    take(consumer, 15)
    until(consumer, lambda: reached(broker, name, topic) == {0: 5, 1: 5, 2: 5})
    assert refused.hits == 3


def test_an_auto_commit_on_its_way_is_not_sent_a_second_time(broker: Broker, topic: str) -> None:
    """Symptom: on_commit heard of an error that had passed. Cause: the next interval came while the commit before it
    waited for its second try, and took its place."""
    told: list[Any] = []
    loading = broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2)
    consumer = holdfast.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group(),
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 10,
            "on_commit": lambda error, _partitions: told.append(error),
        }
    )
    consumer.assign(by_hand(topic, 0))
    first = take(consumer, 1)
    until(consumer, lambda: bool(told))
    assert first and loading.hits == 2
    assert set(told) == {None}
    consumer.close()


def member_that_has_committed(broker: Broker, name: str, topic: str, told: list[Any]) -> holdfast.Consumer:
    """It commits every 10 ms, and all there was is committed."""
    consumer = holdfast.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 10,
            "heartbeat.interval.ms": 100,
            "on_commit": lambda error, _partitions: told.append(error),
        }
    )
    consumer.subscribe([topic])
    take(consumer, 15)
    until(consumer, lambda: reached(broker, name, topic) == {0: 5, 1: 5, 2: 5})
    return consumer


def test_an_auto_commit_waits_while_the_group_is_between_two_generations(broker: Broker, topic: str) -> None:
    """Symptom: on_commit heard REBALANCE_IN_PROGRESS when somebody joined, where confluent's hears of nothing. Cause:
    the interval ended between the join's answer and the sync's, when nothing can be committed. Rule: what nobody asked
    for waits for the round."""
    told: list[Any] = []
    name = group()
    consumer = member_that_has_committed(broker, name, topic, told)
    slow = broker.faults.delay(Api.SYNC_GROUP, ms=1_500, times=1)
    broker.faults.error(Api.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS, times=1)
    until(consumer, lambda: slow.hits == 1)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"0:5", partition=0)
    assert producer.flush(30) == 0
    until(consumer, lambda: reached(broker, name, topic) == {0: 6, 1: 5, 2: 5})
    assert set(told) == {None}
    consumer.close()


def test_an_auto_commit_that_a_round_overtakes_is_made_again_and_not_told(broker: Broker, topic: str) -> None:
    """Symptom: on_commit heard ILLEGAL_GENERATION, once in thousands of rounds. Cause: an automatic commit was on its
    way when the round ended, and reached the coordinator as one of the generation before. Rule: it is due again, and no
    failure that anybody needs to know of."""
    told: list[Any] = []
    name = group()
    consumer = member_that_has_committed(broker, name, topic, told)
    late = broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION, times=1)
    slow = broker.faults.delay(Api.JOIN_GROUP, ms=1_500, times=1)
    broker.faults.error(Api.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS, times=1)
    until(consumer, lambda: slow.hits == 1)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"0:5", partition=0)
    assert producer.flush(30) == 0
    until(consumer, lambda: late.hits == 1)
    until(consumer, lambda: reached(broker, name, topic) == {0: 6, 1: 5, 2: 5})
    assert set(told) == {None}
    consumer.close()


def test_a_commit_that_is_tried_again_does_not_undo_a_later_one(broker: Broker, topic: str) -> None:
    """The first one is sent back, the second one goes through, and the first one is due again: it stays out."""
    name = group()
    told: list[Any] = []
    consumer = holdfast.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": name,
            "enable.auto.commit": False,
            "on_commit": lambda error, partitions: told.append((error, [p.offset for p in partitions])),
        }
    )
    loading = broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
    consumer.commit(offsets=[ck.TopicPartition(topic, 0, 1), ck.TopicPartition(topic, 1, 1)])
    deadline = time.monotonic() + PATIENCE_S
    while not loading.hits:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    consumer.commit(offsets=[ck.TopicPartition(topic, 0, 4)], asynchronous=False)
    until(consumer, lambda: bool(told))
    assert reached(broker, name, topic) == {0: 4, 1: 1}
    consumer.close()


def test_a_partition_that_does_not_exist_is_no_reason_to_wait(
    make: Callable[..., Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.member.commit_retries.RETRY_FOR_S", 100.0)
    consumer = make(enable_auto_commit=False)
    began = time.monotonic()
    for wanted in ([ck.TopicPartition(topic, 9, 1)], [ck.TopicPartition(topic, 0, 1), ck.TopicPartition(topic, 9, 1)]):
        with pytest.raises(ck.KafkaException) as caught:
            consumer.commit(offsets=wanted, asynchronous=False)
        assert code_of(caught) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert time.monotonic() - began < 90, "it did not go on trying"
