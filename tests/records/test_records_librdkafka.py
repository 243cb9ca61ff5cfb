"""Segments of a real Kafka, written by librdkafka: every codec, headers, nulls, and transactions with their markers."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from records_world import CODECS, decode

from holdfast.records.batch import Header, iter_headers, iter_records
from holdfast.records.compression import Codec
from holdfast.testing.kafka import RealKafka
from patience import PATIENCE_S

pytestmark = pytest.mark.kafka


def segment(kafka: RealKafka, topic: str) -> bytes:
    """The log of partition 0 as it lies on the broker's disk: the very bytes that a Fetch answers with."""
    (found,) = Path(kafka.nodes[0].spec.folder).rglob(f"{topic}-0/00000000000000000000.log")
    return found.read_bytes()


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_librdkafka_produces(kafka: RealKafka, codec: Codec) -> None:
    topic = f"records-{codec.name.lower()}"
    kafka.create_topic(topic, partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": codec.name.lower(), "linger.ms": 50})
    for index in range(3000):
        producer.produce(
            topic,
            key=None if index % 3 == 0 else b"k%d" % index,
            value=None if index % 7 == 0 else b"order %d " % index * 8,
            headers=[("trace", b"%d" % index), ("empty", None)] if index % 2 else None,
            partition=0,
        )
    assert producer.flush(PATIENCE_S) == 0
    log = segment(kafka, topic)
    assert {header.codec for header in iter_headers(log)} == {codec}
    found = decode(log)
    assert found == list(iter_records(log))
    assert [record.offset for record in found] == list(range(3000))
    for index, record in enumerate(found):
        assert record.key == (None if index % 3 == 0 else b"k%d" % index)
        assert record.value == (None if index % 7 == 0 else b"order %d " % index * 8)
        assert record.headers == ((Header("trace", b"%d" % index), Header("empty", None)) if index % 2 else ())


def test_an_aborted_transaction_of_librdkafka_is_left_out(kafka: RealKafka) -> None:
    topic = "records-transactions"
    kafka.create_topic(topic, partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "records-test"})
    producer.init_transactions(60)
    for name, commit in ((b"kept", True), (b"dropped", False), (b"last", True)):
        producer.begin_transaction()
        for index in range(5):
            producer.produce(topic, value=name + b"%d" % index, partition=0)
        if commit:
            producer.commit_transaction(60)
        else:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(60)
    # Markers are written after the answer to a commit; a next transaction can't begin before they are.
    producer.begin_transaction()
    producer.produce(topic, value=b"open", partition=0)
    producer.flush(PATIENCE_S)
    log = segment(kafka, topic)
    producer.abort_transaction(60)
    headers = list(iter_headers(log))
    assert [header.control for header in headers].count(True) == 3
    dropped = next(header for header in headers if header.base_offset == 6)
    found = decode(log, hi=18, aborted=[(dropped.producer_id, 6)])  # 18: the last stable offset
    assert [record.value for record in found] == [b"kept%d" % i for i in range(5)] + [b"last%d" % i for i in range(5)]
    assert [record.offset for record in found] == [0, 1, 2, 3, 4, 12, 13, 14, 15, 16]
