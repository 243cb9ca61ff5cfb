"""KIP-429's metrics, each with its meaning, from records made by hand and from a living consumer."""

from __future__ import annotations

from typing import Any

import pytest
from polling import take, until

import holdfast
from holdfast.client.metrics import GroupMetrics, prometheus_text
from holdfast.model import TraceRecord
from holdfast.testing import Broker


def told(*steps: tuple[float, str] | tuple[float, str, float]) -> GroupMetrics:
    metrics = GroupMetrics(0.0)
    for at, step, *took in steps:
        data: dict[str, Any] = {"took_ms": took[0]} if took else {}
        metrics.observe(TraceRecord(at=at, source="member", step=step, data=data))
    return metrics


def seen(metrics: GroupMetrics, now: float = 3_600_000.0) -> dict[str, float]:
    return metrics.snapshot(now, assigned=3, heard_at=now - 2_000, lag_max=7)


ROUND = ((1_000, "rejoin"), (1_001, "join-sent"), (1_021, "joined"), (1_021, "sync-sent"), (1_031, "synced"))
TWO_ROUNDS = (*ROUND, (1_040, "stable"), (5_000, "rejoin"), (5_002, "join-sent"), (5_062, "joined"), (5_100, "stable"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rebalance-total", 2),
        ("rebalance-rate-per-hour", 2),
        ("rebalance-latency-avg", 70),
        ("rebalance-latency-max", 100),
        ("rebalance-latency-total", 140),
        ("join-time-avg", 40),
        ("join-time-max", 60),
        ("join-total", 2),
        ("sync-time-avg", 10),
        ("sync-time-max", 10),
        ("sync-total", 1),
        ("last-rebalance-seconds-ago", 3_594.9),
        ("last-heartbeat-seconds-ago", 2),
        ("assigned-partitions", 3),
        ("records-lag-max", 7),
        ("failed-rebalance-total", 0),
        ("failed-rebalance-rate-per-hour", 0),
    ],
)
def test_a_metric_means_what_java_means_by_it(name: str, value: float) -> None:
    assert seen(told(*TWO_ROUNDS))[name] == pytest.approx(value)


@pytest.mark.parametrize("what", ["assigned", "revoked", "lost"])
def test_callback_latencies_are_counted_by_kind(what: str) -> None:
    found = seen(told((1, f"callback-{what}", 10.0), (2, f"callback-{what}", 30.0)))
    assert found[f"partitions-{what}-latency-avg"] == 20
    assert found[f"partitions-{what}-latency-max"] == 30


def test_a_rebalance_that_loses_the_membership_counts_as_failed_and_not_as_one() -> None:
    found = seen(told((1_000, "rejoin"), (1_001, "join-sent"), (2_000, "membership-lost"), (2_001, "rejoin")))
    assert found["failed-rebalance-total"] == 1
    assert found["rebalance-total"] == 0


def test_before_the_first_rebalance_there_is_none_to_look_back_at() -> None:
    assert seen(told())["last-rebalance-seconds-ago"] == -1


def test_prometheus_gets_names_types_and_labels() -> None:
    text = prometheus_text({"rebalance-total": 2.0, "join-time-avg": 1.5}, group='say "hi"', client_id="c")
    assert "# TYPE kafka_consumer_coordinator_rebalance_total counter\n" in text
    assert 'kafka_consumer_coordinator_join_time_avg{client_id="c",group="say \\"hi\\""} 1.5\n' in text


def test_a_living_consumer_counts(broker: Broker, topic: str) -> None:
    consumer: holdfast.Consumer = holdfast.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": f"metrics-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    take(consumer, 15)
    until(consumer, lambda: consumer.metrics()["rebalance-total"] == 1)  # counted beside the first records
    found = consumer.metrics()
    assert found["assigned-partitions"] == 3
    assert found["records-lag-max"] == 0
    assert found["join-total"] >= 1
    assert "kafka_consumer_coordinator_assigned_partitions" in consumer.metrics_text()
    consumer.close()
