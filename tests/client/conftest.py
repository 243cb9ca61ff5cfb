"""One embedded broker for all consumer tests, and both classes behind one name, so that a difference shows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from polling import COUNTER

import holdfast
from holdfast.testing import Broker
from kept import KEPT
from patience import PATIENCE_S


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(autouse=True)
def no_fault_outlives_its_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """The broker is everybody's: what one test makes go wrong must not meet the next."""
    shared = request.getfixturevalue("broker") if "broker" in request.fixturenames else None
    yield
    if shared is not None:
        shared.faults.clear()


LIBRDKAFKA = logging.getLogger("librdkafka")
"""What confluent's consumer says of its group. Pytest shows it when a test fails, and nobody sees it otherwise."""
LIBRDKAFKA.setLevel(logging.DEBUG)


@pytest.fixture
def topic(broker: Broker) -> str:
    """A fresh topic of three partitions with five records in each, keyed by partition."""
    name = f"orders-{next(COUNTER)}"
    broker.topics.create(name, partitions=3, configs=KEPT)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(3):
        for number in range(5):
            producer.produce(
                name, f"{partition}:{number}".encode(), key=b"k", partition=partition, timestamp=1_000 + number
            )
    assert producer.flush(PATIENCE_S) == 0
    return name


@pytest.fixture(params=[pytest.param("confluent", marks=pytest.mark.slow), "holdfast"])
def make(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Callable[..., Any]]:
    """A consumer of either class; closed at the end."""
    kind = ck.Consumer if request.param == "confluent" else holdfast.Consumer
    made: list[Any] = []

    def consumer(**settings: Any) -> Any:
        config = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"g-{next(COUNTER)}",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
        }
        config.update(
            {
                key if key in ("on_commit", "stats_cb") else key.replace("_", "."): value
                for key, value in settings.items()
            }
        )
        if kind is ck.Consumer:
            config.setdefault("debug", "cgrp,protocol")
            made.append(kind(config, logger=LIBRDKAFKA))
        else:
            made.append(kind(config))
        return made[-1]

    yield consumer
    for one in made:
        one.close()
