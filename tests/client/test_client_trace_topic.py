"""A consumer's trace in a topic: whole, in order, and never in anybody's way."""

from __future__ import annotations

import logging
import time
from typing import Any

import confluent_kafka as ck
import pytest

import holdfast
from holdfast.client.telemetry import trace_topic
from holdfast.client.telemetry.trace_topic import QUEUED_RECORDS, TraceTopic, producer_settings
from holdfast.model import TraceRecord
from holdfast.testing import Broker
from holdfast.trace import decode
from patience import PATIENCE_S


def test_a_members_life_is_in_the_topic(holdfast_broker: Broker) -> None:
    holdfast_broker.topics.create("orders", partitions=2)
    holdfast_broker.topics.create("traces", partitions=3)
    config = {"bootstrap.servers": holdfast_broker.bootstrap, "group.id": "g", "holdfast.trace.topic": "traces"}
    consumer = holdfast.Consumer(config)
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.close()
    reader = ck.Consumer(
        {"bootstrap.servers": holdfast_broker.bootstrap, "group.id": "r", "auto.offset.reset": "earliest"}
    )
    reader.subscribe(["traces"])
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while not any(decode(one.value().decode()).step == "closed" for one in found):
        assert time.monotonic() < deadline, [decode(one.value().decode()).step for one in found]
        found += [one for one in reader.consume(100, 0.5) if one.error() is None]
    reader.close()
    assert {(one.key(), one.partition()) for one in found} == {(b"g", found[0].partition())}, "in one partition"
    records = [decode(one.value().decode()) for one in found]
    steps = [record.step for record in records]
    assert [step for step in steps if step in ("joined", "synced", "closed")] == ["joined", "synced", "closed"]
    assert all(record.wall is not None and abs(record.wall - time.time() * 1000) < 3_600_000 for record in records)


def test_brokers_that_do_not_answer_hold_nobody_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_topic, "CLOSE_S", 0.1)
    topic = TraceTopic("traces", {"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    record = TraceRecord(at=1.0, source="member", step="joined", group="g", member="m")
    with caplog.at_level(logging.WARNING, "holdfast"):
        for _ in range(QUEUED_RECORDS + 10):
            topic.write(record)
        topic.close()
    first, last = (each.getMessage() for each in caplog.records if "trace records" in each.getMessage())
    assert first.startswith("1 trace records did not reach the topic traces") and "Queue full" in first
    assert "10009 trace records" in last or "not sent within 0.1 s" in last


def test_a_producer_is_told_how_to_reach_the_brokers_and_nothing_of_the_consumer() -> None:
    consumers = {
        "bootstrap.servers": "a:1", "group.id": "g", "sasl.password": "p", "ssl.ca.location": "ca", "client.rack": "r",
        "auto.offset.reset": "earliest", "fetch.wait.max.ms": 5, "security.protocol": "SASL_SSL",
    }  # fmt: skip
    ours = {"linger.ms", "queue.buffering.max.messages", "compression.type"}
    shared = {"bootstrap.servers", "sasl.password", "ssl.ca.location", "security.protocol"}
    assert producer_settings(consumers).keys() == ours | shared
