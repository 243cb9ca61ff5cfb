"""A leader that has lost records which were read (KIP-320): reading goes back to where its log departs from them.

Symptom: after an unclean leader election `consume_arrow()` and `AsyncConsumer` went on at their old offset. If the new
leader's log had grown beyond it, everything between was skipped without a word; if not, auto.offset.reset decided.
librdkafka goes back. Rule: a request names the epoch of the record before it, and the leader says if it lacks that one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import confluent_kafka as ck
import pytest
from fetch_answers import Answers, each

import holdfast
from holdfast.fetch.planner import step
from holdfast.fetch.values import Asked, Diverged, Replica, Rules, Track, Truncated
from holdfast.testing import Broker
from holdfast.wire.api import Api
from holdfast.wire.fetch import FetchResponse
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


def diverged(response: FetchResponse) -> FetchResponse:
    return each(response, lambda one: replace(one, diverged=(0, DEPARTS), records=()))


def settings(broker: Broker, reset: str = "latest") -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap, "group.id": f"truncated-{reset}", "auto.offset.reset": reset}


def read_arrow(consumer: holdfast.Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += consumer.consume_arrow(1_000, PATIENCE_S).column("offset").to_pylist()
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
        answers.next(diverged)
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
                found.append(message.offset())
                if len(found) == RECORDS:
                    answers.next(diverged)
        return found

    assert asyncio.run(read()) == AGAIN


def test_without_a_place_to_go_the_application_is_told(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch)
    with holdfast.Consumer(settings(broker, "error")) as consumer:
        consumer.assign([ck.TopicPartition("orders", 0, 0)])
        read_arrow(consumer, RECORDS)
        answers.next(diverged)
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
