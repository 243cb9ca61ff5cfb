"""Ids for idempotent producers: reserved on disk by the thousand, and never given out twice."""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint

from holdfast.broker.storage.topics import Catalog

BLOCK = 1_000
"""Reserved by one write to the catalog, as in Kafka; what is left of a block at a restart is skipped."""

_RESERVED = "producer.ids"


class ProducerIds:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._left: Iterator[int] = iter(())
        """Of the block that is reserved on disk."""

    @property
    def at_hand(self) -> bool:
        """Whether the next one needs nothing to be written."""
        return length_hint(self._left) > 0

    def next(self) -> int:
        number = next(self._left, None)
        if number is None:
            first = int(self._catalog.properties.get(_RESERVED, "0"))
            self._catalog.set_property(_RESERVED, str(first + BLOCK))
            self._catalog.when_written(lambda: self._use(range(first + 1, first + BLOCK)))
            number = first
        return number

    def _use(self, block: range) -> None:
        self._left = iter(block)
