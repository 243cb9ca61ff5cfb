"""Answers that are no records, to every reader of ours: nothing is skipped, and nothing is taken for a deletion."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import confluent_kafka as ck
import pytest
from fetch_answers import Answers, Change, damaged, emptied, left_out, refused, throttled

import holdfast
from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.spark import reading
from holdfast.spark.options import parse
from holdfast.testing import Broker
from patience import PATIENCE_S

ORDERS = TopicPartition("orders", 0)
RECORDS = 100
ONCE_AND_FOR_ALL = [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=1)
        fill(running, "orders", [b"order %d" % number for number in range(RECORDS)])
        yield running


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(monkeypatch)


def fill(broker: Broker, topic: str, values: list[bytes], **settings: Any) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, **settings})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def task_offsets(broker: Broker, topic: str = "orders", end: int = RECORDS, **options: str) -> list[int]:
    """What an executor reads of a range."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    parsed = parse(given | {key.replace("__", "."): value for key, value in options.items()}, streaming=False)
    batches = list(reading.read_pieces(parsed, [(TopicPartition(topic, 0), 0, end)]))
    found: list[Any] = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    return found


def arrow_offsets(broker: Broker) -> list[int]:
    """What `consume_arrow` reads."""
    found: list[int] = []
    with holdfast.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "arrow"}) as consumer:
        consumer.assign([ck.TopicPartition("orders", 0, 0)])
        while len(found) < RECORDS:
            came: list[Any] = consumer.consume_arrow(1_000, PATIENCE_S).column("offset").to_pylist()
            found += came
    return found


def aio_offsets(broker: Broker) -> list[int]:
    """What `AsyncConsumer` reads."""

    async def read() -> list[int]:
        found: list[int] = []
        async with holdfast.AsyncConsumer({"bootstrap.servers": broker.bootstrap, "group.id": "aio"}) as consumer:
            await consumer.assign([ck.TopicPartition("orders", 0, 0)])
            while len(found) < RECORDS:
                message = await consumer.poll(PATIENCE_S)
                assert message is not None
                assert message.error() is None
                offset = message.offset()
                assert offset is not None
                found.append(offset)
        return found

    return asyncio.run(read())


READERS = [task_offsets, arrow_offsets, aio_offsets]
ODD: dict[str, Change] = {
    "throttled": throttled(30),
    "left out": left_out,
    "empty": emptied,
    "no session": refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    "leader moved": refused(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "unknown for a moment": refused(ErrorCode.UNKNOWN_TOPIC_ID),
}


@pytest.mark.parametrize("reader", READERS, ids=["task", "consume_arrow", "AsyncConsumer"])
@pytest.mark.parametrize("odd", ODD)
def test_an_answer_without_records_costs_no_record(
    broker: Broker, answers: Answers, reader: Callable[[Broker], list[int]], odd: str
) -> None:
    """Symptom: a query under a quota died of TOPIC_DELETED, or skipped the range with failOnDataLoss=false. Cause: an
    executor looked at neither the error nor the throttle of an answer, and took one that names no topic for a deleted
    topic. Rule: one planner reads every answer, for every reader.
    """
    answers.next(*[ODD[odd]] * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert reader(broker) == list(range(RECORDS))
    assert answers.seen > 3


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_throttle_is_waited_for_and_is_no_loss(
    broker: Broker, answers: Answers, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    """A broker may throttle for longer than anybody is patient: what it told us to wait counts for nothing."""
    monkeypatch.setattr(reading, "RANGE_RULES", replace(reading.RANGE_RULES, patience_s=0.05, unknown_s=0.05))
    answers.next(*[throttled(100)] * 3)
    assert task_offsets(broker, failOnDataLoss=loss) == list(range(RECORDS))


@pytest.mark.parametrize("loss", ["true", "false"])
@pytest.mark.parametrize("silence", [emptied, left_out], ids=["empty", "left out"])
def test_records_that_are_not_served_are_an_error_and_never_skipped(
    broker: Broker, answers: Answers, monkeypatch: pytest.MonkeyPatch, silence: Change, loss: str
) -> None:
    """Symptom: 100 records, 0 rows, no error, with failOnDataLoss=true. Cause: answers that stayed empty for ten
    seconds were taken for a range that compaction had emptied. But a broker answers such a fetch with the next batch
    behind it. Rule: an empty answer proves nothing; what is not served in time is an error, whatever failOnDataLoss
    says, because nothing is lost.
    """
    monkeypatch.setattr(reading, "RANGE_RULES", replace(reading.RANGE_RULES, patience_s=0.2, cut_off_s=0.1))
    answers.always(silence)
    with pytest.raises(HoldfastError, match=r"RECORDS_NOT_SERVED: orders-0 gave no records from offset 0 on"):
        task_offsets(broker, failOnDataLoss=loss)


@pytest.mark.parametrize("code", ONCE_AND_FOR_ALL, ids=lambda code: code.name)
def test_a_refused_fetch_is_no_deleted_topic(broker: Broker, answers: Answers, code: ErrorCode) -> None:
    """Symptom: a query that lost its right to read died of TOPIC_DELETED, or skipped ranges with failOnDataLoss=false.
    Cause: from version 13 on a refused request names no partition, only an error of its own, which nobody read.
    """
    answers.always(refused(code))
    with pytest.raises(HoldfastError, match=f"{code.name}: orders-0 can't be read"):
        task_offsets(broker, failOnDataLoss="false")


def test_a_consumer_hears_of_a_refused_request(broker: Broker, answers: Answers) -> None:
    answers.always(refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(ck.KafkaException) as caught:
        arrow_offsets(broker)
    assert caught.value.args[0].code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_damaged_batch_is_told_before_it_is_fetched_a_third_time(broker: Broker, answers: Answers) -> None:
    """Symptom: a damaged batch took 75 to 431 MB of an executor's memory before the task failed. Cause: it was fetched
    again and again for ten seconds, and each answer was kept for a decoder that was never asked. Rule: an answer that
    leads nowhere is decoded at once, so that its error is heard, and nothing is kept behind a bad batch.
    """
    broker.topics.create("large", partitions=1)
    fill(broker, "large", [bytes(900_000)] * 8)
    answers.always(damaged)
    with pytest.raises(HoldfastError, match="CORRUPT_BATCH: large-0 at offset"):
        task_offsets(broker, "large", 8)
    assert answers.seen <= 4


def test_a_task_reads_batches_that_pack_a_thousand_to_one(broker: Broker) -> None:
    """Symptom: Spark could not read a batch of equal records: what unpacked to more than 200 times its size was taken
    for a bomb. Rule: only what a batch unpacks to is bounded."""
    broker.topics.create("equal", partitions=1)
    fill(broker, "equal", [b'{"state": "idle"}' * 200] * 2_000, **{"compression.type": "zstd", "linger.ms": 500})
    assert task_offsets(broker, "equal", 2_000) == list(range(2_000))
    tight = {"kafka__holdfast__max__batch__bytes": "10000"}
    with pytest.raises(HoldfastError, match=r"DECOMPRESSION_TOO_LARGE: equal-0 .* Raise holdfast\.max\.batch\.bytes"):
        task_offsets(broker, "equal", 2_000, **tight)
