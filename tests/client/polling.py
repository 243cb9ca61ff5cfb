"""What every test of a consumer does: take a number that nobody has, poll until something holds."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck

from patience import PATIENCE_S

COUNTER = itertools.count()


def take(consumer: Any, count: int, limit_s: float = PATIENCE_S) -> list[ck.Message]:
    """So many records, however many polls it takes."""
    found: list[ck.Message] = []
    deadline = time.monotonic() + limit_s
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came in {limit_s} s"
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    return found


def until(consumer: Any, holds: Callable[[], bool], limit_s: float = PATIENCE_S) -> None:
    """Poll until it holds."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, f"it did not come to pass within {limit_s} s"
        consumer.poll(0.05)
