"""Keeps an idempotent producer's batches in order when the first one to a partition is refused.

A producer that the partition does not know may begin at any sequence number, as in Kafka: its history may have been
deleted. So if its first batch is refused for now, and the next one, already on its way, is taken, then the first one's
retry looks like an old batch, and is lost: the producer counts it as acknowledged. Here batches behind a refused one
get OUT_OF_ORDER_SEQUENCE_NUMBER until it has come again; producers then send them again, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple
from uuid import UUID

from holdfast.broker.batch_check import is_batch
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.files import Buffer
from holdfast.model import ErrorCode
from holdfast.records.header import parse_header

MOST_REFUSED = 10_000
"""Refused batches that are remembered, about 3 MB; beyond, the oldest is forgotten."""
REMEMBERED_MS = 120_000.0
"""Kafka's delivery.timeout.ms: who has not come again by then has given up."""
FOR_NOW = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors after which producers send the same batch again."""

Place = tuple[str | UUID, int]
"""A partition as a request names it."""


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    at_ms: float


class Overtaking:
    """One per broker."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._refused: dict[tuple[Place, int], _Refused] = {}
        """By partition and producer; the latest refusal last."""

    def __len__(self) -> int:
        return len(self._refused)

    def refused(self, place: Place, records: Buffer, error: ErrorCode) -> None:
        """A batch was not taken."""
        if error not in FOR_NOW or not is_batch(records):
            return
        header = parse_header(memoryview(records))
        if header.producer_id < 0:
            return
        before = self._refused.pop((place, header.producer_id), None)
        sequence = header.base_sequence
        if before is not None and before.epoch == header.producer_epoch:
            sequence = min(sequence, before.sequence)
        self._refused[place, header.producer_id] = _Refused(header.producer_epoch, sequence, self._now_ms())
        if len(self._refused) > MOST_REFUSED:
            del self._refused[next(iter(self._refused))]

    def check(self, place: Place, records: Buffer, known: Container[int]) -> None:
        """Raises if this batch would overtake a refused one. Of the producers that are `known` to it a partition sees
        itself what is out of order."""
        if not self._refused:
            return
        header = parse_header(memoryview(records))
        before = self._refused.get((place, header.producer_id))
        if before is None or header.producer_id in known:
            return
        in_time = self._now_ms() - before.at_ms <= REMEMBERED_MS
        if in_time and header.producer_epoch == before.epoch and header.base_sequence > before.sequence:
            what = f"Producer {header.producer_id} sent sequence {header.base_sequence}; {before.sequence} was refused."
            do = "The client sends both again, in order."
            raise StorageError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, what, do)

    def taken(self, place: Place, records: Buffer) -> None:
        if self._refused:
            self._refused.pop((place, parse_header(memoryview(records)).producer_id), None)
