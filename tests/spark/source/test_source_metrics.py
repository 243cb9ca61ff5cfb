"""A query serves its own metrics, as a consumer does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from source_engine import Engine, every, produce

from holdfast.client.config.errors import ConfigError
from holdfast.testing import Broker
from patience import wait_for


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=4)
        yield running


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def scraped(port: int) -> dict[str, float]:
    """Every sample by its name with labels."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


def test_a_query_serves_rebalances_partitions_and_lag_until_it_stops(broker: Broker) -> None:
    """Symptom: a query refused kafka.holdfast.metrics.port, so its rebalances and lag could not be scraped from it."""
    produce(broker, 10)
    port = free_port()
    query = Engine(broker.bootstrap, kafka__holdfast__metrics__port=str(port), kafka__client__id="q1")
    planned = query.plan()
    assert planned is not None
    query.sink(planned)
    query.commit()
    assert query.plan() is None
    produce(broker, 3)
    labels = 'client_id="q1",group="g"'

    def lag() -> float:
        query.plan(at_least=1_000)  # looks at the ends, and has too little for a batch
        return scraped(port)['kafka_consumer_fetch_manager_records_lag_max{client_id="q1"}']

    wait_for(lambda: lag() == 3.0)
    seen = scraped(port)
    assert seen[f"kafka_consumer_coordinator_assigned_partitions{{{labels}}}"] == 4.0
    assert seen[f"kafka_consumer_coordinator_rebalance_total{{{labels}}}"] >= 1.0
    assert sorted(query.seen) == every(10)
    query.stop()
    with pytest.raises(URLError):
        scraped(port)


def test_two_queries_that_name_one_port_in_one_process_share_it(broker: Broker) -> None:
    port = free_port()
    queries = [
        Engine(broker.bootstrap, kafka__holdfast__metrics__port=str(port), kafka__client__id=f"q{number}")
        for number in range(2)
    ]
    seen = scraped(port)
    assert {f'kafka_consumer_coordinator_join_total{{client_id="q{n}",group="g"}}' for n in range(2)} <= seen.keys()
    for query in queries:
        query.stop()


def test_a_port_that_is_taken_is_told_when_the_query_starts(broker: Broker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="METRICS_PORT"):
        Engine(broker.bootstrap, kafka__holdfast__metrics__port=str(taken.getsockname()[1]))
