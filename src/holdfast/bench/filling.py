"""Fills topics before a benchmark reads them: in large lz4 batches, with every record acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.model import HoldfastError

SETTINGS = {
    "compression.type": "lz4",
    "linger.ms": 50,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
}

FLUSH_S = 300.0


def fill(bootstrap: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Produce these records, each given as the arguments of `Producer.produce`."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, **SETTINGS})
    for record in records:
        while True:
            try:
                producer.produce(**record)
            except BufferError:
                producer.poll(0.05)
            else:
                break
    if producer.flush(FLUSH_S):
        raise HoldfastError("PRODUCE_FAILED", "the records did not all arrive.", "See whether the broker is up.")
