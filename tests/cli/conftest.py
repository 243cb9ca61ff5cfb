"""One embedded broker for the commands that talk to a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cli_members import PARTITIONS, Members
from cli_world import Commands

from holdfast.testing import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def commands(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Iterator[Commands]:
    """Commands that find the embedded broker by the environment."""
    with Commands(broker.bootstrap, monkeypatch, capfdbinary) as made:
        yield made


@pytest.fixture
def members(broker: Broker) -> Iterator[Members]:
    """Members of a topic of their own; none yet."""
    made = Members(broker.bootstrap)
    broker.topics.create(made.topic, PARTITIONS)
    try:
        yield made
    finally:
        made.stop()
