"""KIP-429's metrics, each with its meaning, from records made by hand and from a living consumer."""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import pytest
from polling import take, until

import holdfast
from holdfast.client.telemetry.metrics import GroupMetrics, prometheus_text
from holdfast.client.telemetry.windows import Window
from holdfast.model import TraceRecord
from holdfast.testing import Broker


def told(*steps: tuple[float, str] | tuple[float, str, float]) -> GroupMetrics:
    metrics = GroupMetrics()
    for at, step, *took in steps:
        data: dict[str, Any] = {"took_ms": took[0]} if took else {}
        metrics.observe(TraceRecord(at=at, source="member", step=step, data=data))
    return metrics


def seen(metrics: GroupMetrics, now: float = 20_000.0) -> dict[str, float]:
    return metrics.snapshot(now, assigned=3, heartbeat_at=now - 2_000, lag_max=7)


ROUND = ((1_000, "rejoin"), (1_001, "join-sent"), (1_021, "joined"), (1_021, "sync-sent"), (1_031, "synced"))
TWO_ROUNDS = (
    *ROUND,
    (5_000, "rejoin"),
    (5_002, "join-sent"),
    (5_062, "joined"),
    (5_062, "sync-sent"),
    (5_072, "synced"),
)


@pytest.mark.parametrize("step", ["assigned", "revoked", "lost"])
def test_the_time_in_a_callback_is_the_listeners_alone(step: str) -> None:
    """Symptom: partition-revoked-latency was up to ten seconds with a listener that does nothing. Cause: the commits
    before and behind on_revoke were in it. Rule: a metric means what Java's of that name means."""
    metrics = GroupMetrics()
    data = {"took_ms": 5_000.0, "listener_ms": 3.0}
    metrics.observe(TraceRecord(at=1_000.0, source="consumer", step=f"callback-{step}", data=data))
    assert seen(metrics)[f"partition-{step}-latency-max"] == 3.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rebalance-total", 2),
        ("rebalance-rate-per-hour", 2 * 3_600 / (19.0 - 0.031 + 30)),
        ("rebalance-latency-avg", 50),
        ("rebalance-latency-max", 70),
        ("rebalance-latency-total", 100),
        ("join-time-avg", 40),
        ("join-time-max", 60),
        ("join-total", 2),
        ("sync-time-avg", 10),
        ("sync-time-max", 10),
        ("sync-total", 2),
        ("last-rebalance-seconds-ago", 14.928),
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
    assert found[f"partition-{what}-latency-avg"] == 20
    assert found[f"partition-{what}-latency-max"] == 30


def test_a_join_that_comes_to_nothing_is_a_failed_rebalance_and_its_time_counts() -> None:
    """As in Java: also the first join of a newcomer, which is answered with an id."""
    again = ((2_000, "join-sent"), (2_010, "joined"), (2_010, "sync-sent"), (2_020, "synced"))
    found = seen(told((1_000, "rejoin"), (1_000, "join-sent"), (1_500, "membership-lost"), *again))
    assert found["failed-rebalance-total"] == 1
    assert found["rebalance-total"] == 1
    assert found["rebalance-latency-max"] == 1_020


def test_rates_averages_and_maxima_are_of_the_last_minute() -> None:
    """The rate used to be over the consumer's life: a storm on its third day hardly showed."""
    metrics = told(*TWO_ROUNDS)
    an_hour = seen(metrics, 3_600_000.0)
    assert an_hour["rebalance-total"] == 2
    assert an_hour["rebalance-rate-per-hour"] == 0
    assert math.isnan(an_hour["rebalance-latency-avg"]) and math.isnan(an_hour["rebalance-latency-max"])
    for number in range(10):
        for at, step in ROUND:
            metrics.observe(TraceRecord(at=3_600_000.0 + number * 1_000 + at, source="member", step=step))
    assert seen(metrics, 3_620_000.0)["rebalance-rate-per-hour"] == pytest.approx(10 * 3_600 / 49, rel=0.01)


def test_before_the_first_rebalance_there_is_no_latency_to_speak_of() -> None:
    assert math.isnan(seen(told())["rebalance-latency-avg"])


def test_before_the_first_rebalance_there_is_none_to_look_back_at() -> None:
    assert seen(told())["last-rebalance-seconds-ago"] == -1


def test_who_scrapes_does_not_disturb_who_counts() -> None:
    """Symptom: IndexError in the control thread, which ended the membership. Cause: a scrape, on a thread of its own,
    drops samples that are over, and put back a list without the sample that was being added. Rule: one at a time."""
    metrics, rounds, every_ms = GroupMetrics(), 8_000, 31_000.0
    at, done = [0.0], threading.Event()

    def scrape() -> None:
        while not done.is_set():
            seen(metrics, at[0])

    scrapers = [threading.Thread(target=scrape) for _ in range(2)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # as if the machine were very busy
    try:
        for scraper in scrapers:
            scraper.start()
        for _ in range(rounds):
            at[0] += every_ms  # each sample is over when the next one begins
            for _, step in ROUND:
                metrics.observe(TraceRecord(at=at[0], source="member", step=step))
    finally:
        done.set()
        sys.setswitchinterval(before)
        for scraper in scrapers:
            scraper.join()
    assert seen(metrics, at[0])["rebalance-total"] == rounds


def test_prometheus_gets_names_types_and_labels() -> None:
    text = prometheus_text({"rebalance-total": 2.0, "join-time-avg": 1.5}, group='say "hi"', client_id="c")
    assert "# TYPE kafka_consumer_coordinator_rebalance_total counter\n" in text
    assert 'kafka_consumer_coordinator_join_time_avg{client_id="c",group="say \\"hi\\""} 1.5\n' in text


def test_the_lag_is_the_fetch_managers_and_has_no_group() -> None:
    text = prometheus_text({"records-lag-max": 3.0, "join-time-avg": math.nan}, group="g", client_id="c")
    assert 'kafka_consumer_fetch_manager_records_lag_max{client_id="c"} 3\n' in text
    assert 'kafka_consumer_coordinator_join_time_avg{client_id="c",group="g"} NaN\n' in text


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


def test_to_look_at_a_window_changes_nothing_in_it() -> None:
    """Every look dropped the samples that were over, on the thread of whoever looked: a scrape between two steps of the
    member's own thread took away the sample that it was adding to, and that thread failed with IndexError."""
    window = Window()
    window.add(5.0, 0.0)
    for later in (window.average(100_000.0), window.highest(100_000.0)):
        assert math.isnan(later)
    assert window.per_hour(100_000.0) == 0.0
    assert (window.average(10_000.0), window.highest(10_000.0)) == (5.0, 5.0)
