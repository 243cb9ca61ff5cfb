"""Bytes fetched by where the brokers stand: what a consumer in a rack tells of what it has to pay for.

The broker has two racks. `near` is led from the north and has a replica in the south; `far` has only its leader. All
consumers stand in the south.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from polling import COUNTER, take, until
from prometheus_client.parser import text_string_to_metric_families

import holdfast
from holdfast import AsyncConsumer
from holdfast.client.telemetry.broker_bytes import BrokerBytes
from holdfast.client.telemetry.metrics import prometheus_text
from holdfast.net.fetched_bytes import FetchedBytes
from holdfast.testing import Broker
from holdfast.testing.kafka_node import free_port
from patience import PATIENCE_S

COUNT, SIZE = 200, 1_000
RECORDS = COUNT * SIZE
"""Bytes of a topic's records."""

BESIDE = RECORDS // 2
"""More than the answers take that hold no records of ours: metadata, look-ups, empty fetches."""


@pytest.fixture(scope="module")
def racks() -> Iterator[Broker]:
    with Broker(racks=("north", "south")) as running:
        running.topics.create("near", assignments=[[0, 1]])
        running.topics.create("far", assignments=[[0]])
        producer = ck.Producer({"bootstrap.servers": running.bootstrap})
        for topic in ("near", "far"):
            for _ in range(COUNT):
                producer.produce(topic, bytes(SIZE))
        assert producer.flush(PATIENCE_S) == 0
        yield running


def settings(racks: Broker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": racks.bootstrap,
        "group.id": f"zones-{next(COUNTER)}",
        "auto.offset.reset": "earliest",
        "client.rack": "south",
        "holdfast.watchdog": False,
        **more,
    }


def fetched(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name.startswith("fetched-bytes-")}


def of(metrics: dict[str, float], where: str) -> float:
    return metrics[f"fetched-bytes-{where}-total"]


def judged(found: dict[str, float], topic: str) -> None:
    """`near` came from the follower next door, and `far` from the leader in the other zone."""
    paid, free = ("local", "cross-zone") if topic == "near" else ("cross-zone", "local")
    assert RECORDS <= of(found, paid) <= RECORDS + BESIDE
    assert of(found, free) < BESIDE


@pytest.mark.parametrize("topic", ["near", "far"])
def test_poll_counts_what_librdkafka_has_received_from_each_zone(racks: Broker, topic: str) -> None:
    with holdfast.Consumer(settings(racks, **{"statistics.interval.ms": 50})) as consumer:
        consumer.subscribe([topic])
        take(consumer, COUNT)
        until(consumer, lambda: sum(fetched(consumer.metrics()).values()) >= RECORDS)
        judged(consumer.metrics(), topic)


@pytest.mark.parametrize("topic", ["near", "far"])
def test_consume_arrow_counts_the_answers_to_its_own_fetches(racks: Broker, topic: str) -> None:
    with holdfast.Consumer(settings(racks, **{"statistics.interval.ms": 0})) as consumer:
        consumer.assign([ck.TopicPartition(topic, 0, 0)])
        rows = 0
        while rows < COUNT:
            rows += consumer.consume_arrow(COUNT, 1.0).num_rows
        judged(consumer.metrics(), topic)
        assert of(consumer.metrics(), "unknown") == 0


@pytest.mark.parametrize("topic", ["near", "far"])
def test_an_asyncio_consumer_counts_too(racks: Broker, topic: str) -> None:
    async def scene() -> dict[str, float]:
        async with AsyncConsumer(settings(racks)) as consumer:
            await consumer.subscribe([topic])
            for _ in range(COUNT):
                await consumer.__anext__()
            return consumer.metrics()

    judged(asyncio.run(asyncio.wait_for(scene(), PATIENCE_S)), topic)


def test_both_readers_of_a_consumer_add_to_the_same_counts(racks: Broker) -> None:
    """consume_arrow() takes over from poll(): a counter that started again would go back."""
    with holdfast.Consumer(settings(racks, **{"statistics.interval.ms": 50})) as consumer:
        consumer.subscribe(["far"])
        take(consumer, COUNT)
        until(consumer, lambda: of(consumer.metrics(), "cross-zone") >= RECORDS)
        before = of(consumer.metrics(), "cross-zone")
        consumer.seek(ck.TopicPartition("far", 0, 0))
        rows = 0
        while rows < COUNT:
            rows += consumer.consume_arrow(COUNT, 1.0).num_rows
        assert of(consumer.metrics(), "cross-zone") >= before + RECORDS


def test_a_consumer_without_a_rack_says_nothing_of_zones(racks: Broker) -> None:
    """A zero would be wrong, and everything would be unknown."""
    given = settings(racks)
    del given["client.rack"]
    with holdfast.Consumer(given) as consumer:
        assert fetched(consumer.metrics()) == {}
        assert "fetched_bytes" not in consumer.metrics_text()


def test_prometheus_gets_one_metric_with_the_placement_as_its_label(racks: Broker) -> None:
    port = free_port()
    more = {"statistics.interval.ms": 50, "holdfast.metrics.port": port, "client.id": "pod-7"}
    with holdfast.Consumer(settings(racks, **more)) as consumer:
        consumer.subscribe(["far"])
        take(consumer, COUNT)
        until(consumer, lambda: of(consumer.metrics(), "cross-zone") >= RECORDS)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
    (family,) = [one for one in text_string_to_metric_families(text) if "fetched_bytes" in one.name]
    assert family.type == "counter"
    found = {one.labels["placement"]: one for one in family.samples}
    assert found.keys() == {"local", "cross-zone", "unknown"}
    assert {one.name for one in family.samples} == {"holdfast_consumer_fetched_bytes_total"}
    assert all(one.labels["client_id"] == "pod-7" and one.labels["group"] for one in family.samples)
    assert found["cross-zone"].value >= RECORDS


def test_a_large_count_is_told_to_its_last_byte() -> None:
    """Ten digits are 10 GB: beyond them a counter stood still for a while and then jumped."""
    text = prometheus_text({"fetched-bytes-local-total": 123_456_789_012_345.0}, group="g", client_id="c")
    assert text.splitlines()[-1].endswith(" 123456789012345")


# -- librdkafka's statistics


def statistics(brokers: dict[str, tuple[int, int]], *, client_id: str = "c") -> str:
    told = {name: {"nodeid": node, "rxbytes": total} for name, (node, total) in brokers.items()}
    return json.dumps({"client_id": client_id, "brokers": told, "topics": {"orders": {"partitions": {}}}})


def counting(rack: str | None = "south") -> tuple[FetchedBytes, BrokerBytes]:
    counts = FetchedBytes(rack)
    return counts, BrokerBytes(counts, lambda: {0: "north", 1: "south", 2: None})


def test_what_came_since_the_last_statistics_is_added() -> None:
    counts, read = counting()
    read.read(statistics({"a/0": (0, 100), "b/1": (1, 10), "c/2": (2, 7), "d/3": (3, 1), "boot": (-1, 900)}))
    read.read(statistics({"a/0": (0, 150), "b/1": (1, 10), "c/2": (2, 7), "d/3": (3, 1), "boot": (-1, 900)}))
    assert counts.by_placement() == {"local": 10, "cross-zone": 150, "unknown": 8}


def test_a_broker_that_librdkafka_forgot_and_found_again_does_not_take_bytes_away() -> None:
    counts, read = counting()
    for total in (100, 30, 40):
        read.read(statistics({"b/1": (1, total)}))
    assert counts.by_placement()["local"] == 140


def test_a_client_id_may_look_like_statistics() -> None:
    counts, read = counting()
    text = statistics({"b/1": (1, 5)}, client_id="MARK").replace('"MARK"', '"x","brokers":5,"y":"z"')
    read.read(text)
    assert counts.by_placement()["local"] == 5


def test_the_applications_own_statistics_go_on_as_it_set_them() -> None:
    _, read = counting()
    calls: list[str] = []
    theirs = read.with_our_stats_cb({"stats_cb": calls.append, "statistics.interval.ms": 700})
    theirs["stats_cb"](statistics({"b/1": (1, 5)}))
    assert theirs["statistics.interval.ms"] == 700 and len(calls) == 1

    unasked = read.with_our_stats_cb({"stats_cb": calls.append})  # librdkafka would never call it
    unasked["stats_cb"](statistics({"b/1": (1, 9)}))
    assert unasked["statistics.interval.ms"] > 0 and len(calls) == 1


@pytest.mark.parametrize(
    "config", [{"statistics.interval.ms": 0}, {"statistics.interval.ms": "0"}, {"statistics.interval.ms": "often"}]
)
def test_an_interval_of_zero_keeps_them_off(config: dict[str, Any]) -> None:
    assert counting()[1].with_our_stats_cb(config) == config


@pytest.mark.parametrize("config", [{"stats_cb": 5}, {"stats_cb": None}])
def test_what_librdkafka_would_refuse_is_left_to_it(config: dict[str, Any]) -> None:
    assert counting()[1].with_our_stats_cb(config) == config


def test_without_a_rack_no_statistics_are_turned_on() -> None:
    given: dict[str, Callable[[str], None]] = {}
    assert counting(rack=None)[1].with_our_stats_cb(given) == {}
