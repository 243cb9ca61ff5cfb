"""What pytest loads when holdfast is installed: fixtures for tests that need a broker.

    def test_orders_are_counted(holdfast_broker):
        holdfast_broker.topics.create("orders", partitions=6)

Rule: importing this module stays light, because every pytest run on the machine imports it. A fixture imports what it
needs when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.testing.broker import Broker


@pytest.fixture
def holdfast_broker() -> Iterator[Broker]:
    """An embedded broker in memory, fresh for this test, with fault controls."""
    from holdfast.testing.broker import Broker

    with Broker() as broker:
        yield broker
