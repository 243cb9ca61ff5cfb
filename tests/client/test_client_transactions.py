"""Topics with transactions: a marker is the last thing in a partition, and nobody gets it.

The embedded broker takes no transactions, so a marker is put into its log by hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from polling import COUNTER

import holdfast
from holdfast.broker.state import State
from holdfast.broker.storage import batch
from holdfast.client.reading.book import Book
from holdfast.client.reading.taken_ahead import FEW_PARTITIONS, Ahead
from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition
from holdfast.records.batch import Record
from holdfast.records.encode import encode_batch
from holdfast.testing import Broker
from patience import PATIENCE_S

RECORDS = 5


def by_poll(consumer: Any) -> list[int]:
    message = consumer.poll(0.05)
    return [message.offset()] if message is not None and message.error() is None else []


def by_consume(consumer: Any) -> list[int]:
    return [message.offset() for message in consumer.consume(500, 0.05) if message.error() is None]


def by_batch(consumer: Any) -> list[int]:
    offsets: list[int] = consumer.consume_arrow(timeout=0.05).column("offset").to_pylist()
    return offsets


@pytest.fixture
def topic(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> str:
    """One partition: five records, and the marker that ends their transaction."""
    name = f"transactions-{next(COUNTER)}"
    broker.topics.create(name, partitions=1)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(name, str(number), partition=0)
    assert producer.flush(PATIENCE_S) == 0
    monkeypatch.setattr(batch, "check_origin", lambda header: None)
    record = Record(offset=0, timestamp=1_000, key=bytes(4), value=bytes(6))
    marker = encode_batch([record], transactional=True, control=True)

    def append(state: State) -> None:
        state.store.log(name, 0).append(marker)

    broker.change(append)
    return name


@pytest.mark.parametrize("member", [True, False], ids=["member", "by-hand"])
@pytest.mark.parametrize(
    "ways",
    [[by_poll], [by_consume], [by_batch], [by_poll, by_batch, by_consume]],
    ids=["poll", "consume", "batch", "all"],
)
def test_the_position_after_a_transaction_is_after_its_marker(
    broker: Broker, topic: str, ways: list[Callable[[Any], list[int]]], member: bool
) -> None:
    """Symptom: a consumer that had read everything stood and committed one before the end, for ever. Its lag never was
    0, and a program that reads until it stands at the high watermark did not end. Cause: the position was one past the
    last record that was handed out, and markers and aborted records are handed out to nobody. confluent-kafka's
    position is past them."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = holdfast.Consumer(settings)
    where = ck.TopicPartition(topic, 0)
    if member:
        consumer.subscribe([topic])
    else:
        consumer.assign([where])
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while consumer.position([where])[0].offset != RECORDS + 1:
        assert time.monotonic() < deadline, (found, consumer.position([where]))
        found += ways[0](consumer)
        ways = [*ways[1:], ways[0]]
    assert found == list(range(RECORDS))
    consumer.close()
    with holdfast.Consumer(settings) as stranger:
        assert [p.offset for p in stranger.committed([where])] == [RECORDS + 1]


# -- librdkafka's position, if it can be believed

HERE = TopicPartition("t", 0)


def rows(*offsets: int, partition: int = 0) -> list[ck.Message]:
    return [ck.Message(topic="t", partition=partition, offset=at, value=b"x", leader_epoch=0) for at in offsets]


@pytest.fixture
def ahead() -> Ahead:
    book = Book()
    book.begin({TopicPartition("t", number): 0 for number in range(2 * FEW_PARTITIONS)})
    return Ahead(book)


def stands(ahead: Ahead, theirs: int) -> int:
    """Where the application stands when this is librdkafka's position."""
    ahead.passed({HERE: OffsetEntry(theirs, 0)})
    return ahead.positions([HERE])[HERE].offset


def test_what_librdkafka_passed_counts(ahead: Ahead) -> None:
    ahead.note(rows(0, 1, 2))
    assert stands(ahead, 4) == 4
    ahead.note(rows(4))
    assert stands(ahead, 5) == 5


@pytest.mark.parametrize("others", [0, 2 * FEW_PARTITIONS - 1], ids=["one partition", "many partitions"])
@pytest.mark.parametrize(
    "batches",
    [
        [[*range(50, 100)], [*range(50)]],
        [[*range(50, 100), *range(50)]],
        [[*range(50), *range(50, 100), *range(50)]],
        [[10, 90, 98, 0, 49]],
        [[*range(100)], [*range(25)], [*range(25, 50)]],
    ],
    ids=["between batches", "in a batch", "in the first", "with gaps", "before the last"],
)
def test_a_leftover_of_a_topic_that_was_deleted_does_not(ahead: Ahead, batches: list[list[int]], others: int) -> None:
    """The topic was made again and is read from its beginning, but librdkafka's position is the old topic's: 100. To
    believe it would skip all between 50 and 100 after a restart."""
    for offsets in batches:
        beside = [row for number in range(1, 1 + others) for row in rows(7, partition=number)]
        ahead.note([*beside[: others // 2], *rows(*offsets), *beside[others // 2 :]])
        for number in range(1, 1 + others):
            ahead.forget([TopicPartition("t", number)])
    assert stands(ahead, 100) == 50
    assert stands(ahead, 100) == 50
    ahead.note(rows(*range(50, 60)))
    assert stands(ahead, 100) == 60
    assert stands(ahead, 61) == 61, "it has moved: it is the new topic's"
    ahead.note(rows(61))
    assert stands(ahead, 63) == 63


def test_where_it_is_sought_there_is_no_leftover(ahead: Ahead) -> None:
    """librdkafka forgets its position then."""
    ahead.note(rows(*range(50, 100)))
    ahead.note(rows(*range(50)))
    ahead.forget([HERE])
    assert stands(ahead, 6) == 6
