"""Both classes of an asyncio consumer, and the settings that their tests begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.aio import AIOConsumer
from polling import COUNTER

from holdfast import AsyncConsumer
from holdfast.testing import Broker

Make = Callable[..., Any]

BOTH = [
    pytest.param(AIOConsumer, marks=pytest.mark.slow, id="AIOConsumer"),
    pytest.param(AsyncConsumer, id="AsyncConsumer"),
]
"""For a fixture's `params`: confluent-kafka's own takes longer, and runs with the slow half."""


def settings(broker: Broker, **more: Any) -> dict[str, Any]:
    """Of a group of its own; keys with dots are given as they are."""
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"g-{next(COUNTER)}",
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "cooperative-sticky",
        "log_level": 0,
        **more,
    }
