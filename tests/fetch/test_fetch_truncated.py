"""A leader that has lost records which were read (KIP-320): reading goes back to where its log departs from them.

Symptom: after an unclean leader election `consume_arrow()` and `AsyncConsumer` went on at their old offset. If the new
leader's log had grown beyond it, everything between was skipped without a word; if not, auto.offset.reset decided.
librdkafka goes back. Rule: a request names the epoch of the record before it, and the leader says if it lacks that one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from fetch_answers import Answers, each

import holdfast
from holdfast.fetch.planner import step
from holdfast.fetch.values import Asked, Diverged, Replica, Rules, Track, Truncated
from holdfast.testing import Broker
from holdfast.wire.api import Api
from holdfast.wire.fetch import FetchResponse
from inside import reading_of
from patience import PATIENCE_S

RECORDS, DEPARTS = 100, 60
RULES = Rules()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=1)
        producer = ck.Producer({"bootstrap.servers": running.bootstrap})
        for number in range(RECORDS):
            producer.produce("orders", b"order %d" % number, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        yield running


class LostTail:
    """From now on the leader lacks the records from DEPARTS on: it says so until a reader has gone back."""

    def __init__(self, answers: Answers) -> None:
        self._gone_back = False
        answers.always(self._change)

    def _change(self, response: FetchResponse) -> FetchResponse:
        self._gone_back |= any(one.records for topic in response.topics for one in topic.partitions)
        return response if self._gone_back else each(response, lambda one: replace(one, diverged=(0, DEPARTS)))


def settings(broker: Broker, reset: str = "latest") -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap, "group.id": f"truncated-{reset}", "auto.offset.reset": reset}


def read_arrow(consumer: holdfast.Consumer, count: int) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found}"
        came: list[Any] = consumer.consume_arrow(1_000, 1.0).column("offset").to_pylist()
        found += came
    return found


AGAIN = [*range(RECORDS), *range(DEPARTS, RECORDS)]


def test_arrow_reads_again_what_the_new_leader_has_instead(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "holdfast")
    answers = Answers(monkeypatch)
    with holdfast.Consumer(settings(broker)) as consumer:
        consumer.assign([ck.TopicPartition("orders", 0, 0)])
        assert read_arrow(consumer, RECORDS) == list(range(RECORDS))
        LostTail(answers)
        assert read_arrow(consumer, RECORDS - DEPARTS) == list(range(DEPARTS, RECORDS))
        assert consumer.position([ck.TopicPartition("orders", 0)])[0].offset == RECORDS
    assert f"was read up to offset {RECORDS}, and its new leader has other records from {DEPARTS} on" in caplog.text


def test_the_asyncio_consumer_does_so_too(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch)

    async def read() -> list[int]:
        found: list[int] = []
        async with holdfast.AsyncConsumer(settings(broker)) as consumer:
            await consumer.assign([ck.TopicPartition("orders", 0, 0)])
            while len(found) < len(AGAIN):
                message = await consumer.poll(PATIENCE_S)
                assert message is not None and message.error() is None
                offset = message.offset()
                assert offset is not None
                found.append(offset)
                if len(found) == RECORDS:
                    LostTail(answers)
        return found

    assert asyncio.run(read()) == AGAIN


def test_without_a_place_to_go_the_application_is_told(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch)
    with holdfast.Consumer(settings(broker, "error")) as consumer:
        consumer.assign([ck.TopicPartition("orders", 0, 0)])
        read_arrow(consumer, RECORDS)
        LostTail(answers)
        with pytest.raises(ck.KafkaException) as raised:
            read_arrow(consumer, 1)
        assert raised.value.args[0].code() == ck.KafkaError._LOG_TRUNCATION
        assert "unclean leader election" in raised.value.args[0].str()
        consumer.seek(ck.TopicPartition("orders", 0, DEPARTS))
        assert read_arrow(consumer, 1)[0] == DEPARTS


def test_a_request_names_the_epoch_of_the_record_before_it_and_only_of_that_one(broker: Broker) -> None:
    """After a seek that record is another one, and unknown."""
    named: list[tuple[int, int]] = []

    def note(exchange: Any) -> None:
        for topic in exchange.body.topics:
            named.extend((one.offset, one.last_fetched_epoch) for one in topic.partitions)

    heard = broker.faults.call(Api.FETCH, note)
    try:
        with holdfast.Consumer(settings(broker)) as consumer:
            consumer.assign([ck.TopicPartition("orders", 0, 0)])
            read_arrow(consumer, RECORDS)
            assert consumer.consume_arrow(1, 0.3).num_rows == 0
            consumer.seek(ck.TopicPartition("orders", 0, 70))
            read_arrow(consumer, RECORDS - 70)
    finally:
        heard.clear()
    assert {epoch for offset, epoch in named if offset in (0, 70)} == {-1}
    assert (RECORDS, 0) in named


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Diverged(epoch=3, end_offset=60), Truncated(60, 3)),
        (Diverged(epoch=3, end_offset=0), Truncated(0, 3)),
        (Diverged(epoch=3, end_offset=500), Truncated(100, 3)),
    ],
)
def test_the_leader_says_where_to_go_back_to_and_never_ahead(answer: Diverged, expected: Truncated) -> None:
    stepped = step(Track(stalled_since=5.0), Asked(offset=100, at=9.0), answer, now=10.0, rules=RULES)
    assert stepped.effects == (expected,)
    assert stepped.track.stalled_since is None


def test_a_follower_that_lags_has_lost_nothing() -> None:
    track = Track(replica=Replica(2, until=99.0))
    asked = Asked(offset=100, at=9.0, follower=2)
    stepped = step(track, asked, Diverged(epoch=3, end_offset=60), now=10.0, rules=RULES)
    assert stepped.effects == ()
    assert stepped.track.replica is not None and stepped.track.replica.node is None, "the leader is asked next"


def test_a_recreated_topic_has_lost_nothing_either(broker: Broker) -> None:
    """It is shorter, and its epoch is the same. Whoever went back to its end would skip all of it."""
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def make(count: int) -> None:
        broker.topics.create("short-lived", partitions=1)
        for number in range(count):
            producer.produce("short-lived", b"%d" % number, partition=0)
        assert producer.flush(PATIENCE_S) == 0

    make(30)
    with holdfast.Consumer(settings(broker, "earliest")) as consumer:
        consumer.assign([ck.TopicPartition("short-lived", 0, 0)])
        assert read_arrow(consumer, 30) == list(range(30))
        admin.delete_topics(["short-lived"])["short-lived"].result(PATIENCE_S)
        make(10)
        assert read_arrow(consumer, 10) == list(range(10))


def test_a_log_that_has_lost_its_end_is_read_on_from_there(broker: Broker) -> None:
    """The embedded broker says so as Kafka does. Here the reader is made to believe that it has read more."""
    broker.topics.create("cut", partitions=1)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("cut", b"first", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    with holdfast.Consumer(settings(broker)) as consumer:
        consumer.assign([ck.TopicPartition("cut", 0, 0)])
        assert read_arrow(consumer, 1) == [0]
        (flow,) = reading_of(consumer).flows()
        flow.at = 50
        deadline = time.monotonic() + PATIENCE_S
        while flow.at != 1:
            assert time.monotonic() < deadline
            assert consumer.consume_arrow(1, 0.01).num_rows == 0
        producer.produce("cut", b"second", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        assert read_arrow(consumer, 1) == [1]
