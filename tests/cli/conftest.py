"""One embedded broker for the commands that talk to a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
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
