"""The one door into a consumer, for what no public call tells: which reader reads, what the member's machine knows.

The public classes keep one private name, so that an application's subclass can't collide with any other. Everything
behind it has plain names of its own.
"""

from __future__ import annotations

from typing import Any

import holdfast
from holdfast.client.core import ConsumerCore
from holdfast.client.parts import Parts


def core_of(consumer: holdfast.Consumer | holdfast.AsyncConsumer) -> ConsumerCore:
    inner: Any = consumer._holdfast
    core: ConsumerCore = inner if isinstance(inner, ConsumerCore) else inner.core
    return core


def parts_of(consumer: holdfast.Consumer | holdfast.AsyncConsumer) -> Parts:
    return core_of(consumer).about.parts


def reading_of(consumer: holdfast.Consumer | holdfast.AsyncConsumer) -> Any:
    """The reader in charge: librdkafka's, or after consume_arrow() that of batches."""
    return parts_of(consumer).data.reader


def plane_of(consumer: holdfast.Consumer | holdfast.AsyncConsumer) -> Any:
    """The control plane of a consumer that has subscribed, or asked its group something."""
    plane = parts_of(consumer).link.plane
    assert plane is not None
    return plane


def watchdog_of(consumer: holdfast.Consumer | holdfast.AsyncConsumer) -> Any:
    """Its watchdog; None if it has none."""
    return parts_of(consumer).notes.watchdog
