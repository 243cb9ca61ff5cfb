"""consume_arrow() and AsyncConsumer on a real Apache Kafka: transactions, followers, leaders that go, TLS and SASL."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

import holdfast
from holdfast.testing.kafka import RealKafka
from holdfast.testing.kafka_security import Secure
from inside import reading_of
from patience import PATIENCE_S

pytestmark = pytest.mark.kafka

CERTIFICATES = Path(__file__).parents[1] / "net" / "certificates"


def config(bootstrap: str, **settings: Any) -> dict[str, Any]:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest", **given}


def values(consumer: holdfast.Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} rows came"
        came: list[Any] = consumer.consume_arrow(1_000, 0.5).column("value").to_pylist()
        found += came
    return found


def produce(bootstrap: str, topic: str, numbers: range, **settings: Any) -> None:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4", **settings})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(PATIENCE_S) == 0


@pytest.fixture(scope="module")
def pair() -> Iterator[RealKafka]:
    """Two brokers in two racks."""
    with RealKafka(brokers=2, racks=("a", "b")) as running:
        yield running


def test_aborted_records_are_left_out_unless_everything_is_wanted(kafka: RealKafka) -> None:
    topic = f"transactions-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic)
    producer = ck.Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for number, outcome in enumerate((producer.commit_transaction, producer.abort_transaction) * 3):
        producer.begin_transaction()
        for part in range(10):
            producer.produce(topic, f"{number}:{part}".encode(), partition=0)
        producer.flush(PATIENCE_S)
        outcome(60)
    committed = [f"{number}:{part}".encode() for number in (0, 2, 4) for part in range(10)]
    consumer = holdfast.Consumer(config(kafka.bootstrap))
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    assert values(consumer, 30) == committed
    assert consumer.consume_arrow(10, 0.5).num_rows == 0
    (position,) = consumer.position([ck.TopicPartition(topic, 0)])
    marks = consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), 10)
    assert marks is not None and position.offset == marks[1], "markers are passed"
    consumer.close()
    everything = holdfast.Consumer(config(kafka.bootstrap, isolation_level="read_uncommitted"))
    everything.assign([ck.TopicPartition(topic, 0, 0)])
    assert len(values(everything, 60)) == 60
    everything.close()


def test_a_partition_is_read_from_the_replica_in_our_rack(pair: RealKafka) -> None:
    topic = f"racks-{uuid.uuid4().hex[:8]}"
    pair.create_topic(topic, replicas=[[1, 2]])
    produce(pair.bootstrap, topic, range(500), acks="all")
    consumer = holdfast.Consumer(config(pair.bootstrap, client_rack="b"))
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    assert values(consumer, 500) == [str(number).encode() for number in range(500)]
    assert [flow.follower for flow in reading_of(consumer).flows()] == [2]
    consumer.close()


def test_a_leader_that_goes_is_followed_by_the_next(pair: RealKafka) -> None:
    topic = f"leaders-{uuid.uuid4().hex[:8]}"
    pair.create_topic(topic, replicas=[[2, 1]])
    produce(pair.bootstrap, topic, range(2_000), acks="all")
    consumer = holdfast.Consumer(config(pair.bootstrap, **{"max.partition.fetch.bytes": 1_024}))
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    found = consumer.consume_arrow(10, PATIENCE_S).column("value").to_pylist()
    pair.stop(2)
    try:
        produce(pair.bootstrap, topic, range(2_000, 2_100), acks="1")
        found += values(consumer, 2_100 - len(found))
        assert found == [str(number).encode() for number in range(2_100)]
    finally:
        pair.start(2)
    consumer.close()


def test_tls_and_a_login_hold_for_both_consumers() -> None:
    secure = Secure(
        certificate=CERTIFICATES / "broker.pem",
        key=CERTIFICATES / "broker.key",
        ca=CERTIFICATES / "ca.pem",
        users={"alice": "hush-hush"},
    )
    with RealKafka(secure=secure) as kafka:
        kafka.create_topic("secret")
        produce(kafka.bootstrap, "secret", range(100))
        login = dict(secure.client_settings("alice", mechanism="SCRAM-SHA-512"))
        consumer = holdfast.Consumer(config(kafka.secure_bootstrap, **login))
        consumer.subscribe(["secret"])
        assert len(values(consumer, 100)) == 100
        consumer.close()

        async def read() -> int:
            async with holdfast.AsyncConsumer(config(kafka.secure_bootstrap, **login)) as reader:
                reader.subscribe(["secret"])
                return len(await reader.consume(100, PATIENCE_S))

        assert asyncio.run(read()) == 100
