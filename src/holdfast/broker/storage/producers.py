"""What a partition remembers of idempotent producers: enough to answer a retry with the first answer, and to refuse
gaps.

The rules are Kafka's (ProducerAppendInfo): the last five batches of a producer are remembered, because that is how
many a client may have in flight; a retry of one of them gets its old offset back; a new epoch starts at sequence 0;
an older epoch is fenced; a producer we know nothing of may start anywhere, since its history may have been deleted
with old segments.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field

from holdfast.broker.storage.errors import StorageError
from holdfast.model import ErrorCode
from holdfast.records.header import BatchHeader

REMEMBERED_BATCHES = 5
"""max.in.flight.requests.per.connection is at most 5 for an idempotent producer."""
MAX_PRODUCERS = 10_000
"""Producers remembered by one partition, about 5 MiB; beyond, the one silent for longest is forgotten."""
PRODUCER_EXPIRY_MS = 86_400_000
"""Kafka's producer.id.expiration.ms: a day of silence."""
LAST_SEQUENCE = 0x7FFFFFFF

_PRODUCER = struct.Struct("<qhH")
_BATCH = struct.Struct("<iiqq")


@dataclass(frozen=True, slots=True)
class SeenBatch:
    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


@dataclass(slots=True)
class Producer:
    epoch: int
    batches: deque[SeenBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


class Producers:
    """One partition's producers, the most recently heard of last."""

    def __init__(self) -> None:
        self._known: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._known

    def check(self, header: BatchHeader) -> SeenBatch | None:
        """The batch this one repeats, None if it is new and in order. Raises if it must not be appended. Changes
        nothing.
        """
        known = self._known.get(header.producer_id)
        if known is None:
            return None
        if header.producer_epoch < known.epoch:
            what = f"Producer {header.producer_id} has epoch {header.producer_epoch}, but {known.epoch} has been seen."
            raise StorageError(ErrorCode.INVALID_PRODUCER_EPOCH, what, "A newer instance took over; stop this one.")
        if header.producer_epoch > known.epoch:
            if header.base_sequence != 0:
                raise _out_of_order(header, 0)
            return None
        for seen in known.batches:
            if seen.first_sequence == header.base_sequence and seen.last_sequence == header.last_sequence:
                return seen
        last = known.batches[-1].last_sequence
        expected = 0 if last == LAST_SEQUENCE else last + 1
        if header.base_sequence != expected:
            raise _out_of_order(header, expected)
        return None

    def record(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """Remember an appended batch."""
        known = self._known.pop(header.producer_id, None)
        if known is None or known.epoch != header.producer_epoch:
            known = Producer(header.producer_epoch)
        known.batches.append(SeenBatch(header.base_sequence, header.last_sequence, base_offset, timestamp))
        self._known[header.producer_id] = known
        if len(self._known) > MAX_PRODUCERS:
            del self._known[next(iter(self._known))]

    def replay(self, header: BatchHeader, position: int) -> None:
        """Remember a batch found in the log."""
        if header.producer_id >= 0:
            self.record(header, header.base_offset, header.max_timestamp)

    def expire(self, now: int) -> None:
        """Forget producers that have been silent for a day."""
        limit = now - PRODUCER_EXPIRY_MS
        gone = [key for key, known in self._known.items() if 0 <= known.batches[-1].timestamp < limit]
        for key in gone:
            del self._known[key]

    def dump(self) -> bytes:
        parts = []
        for key, known in self._known.items():
            parts.append(_PRODUCER.pack(key, known.epoch, len(known.batches)))
            parts += [
                _BATCH.pack(seen.first_sequence, seen.last_sequence, seen.base_offset, seen.timestamp)
                for seen in known.batches
            ]
        return b"".join(parts)

    def load(self, data: bytes) -> None:
        """The inverse of `dump`; the index file's checksum has vouched for the bytes."""
        self._known.clear()
        position = 0
        while position < len(data):
            key, epoch, count = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            known = self._known[key] = Producer(epoch)
            for _ in range(count):
                known.batches.append(SeenBatch(*_BATCH.unpack_from(data, position)))
                position += _BATCH.size


def _out_of_order(header: BatchHeader, expected: int) -> StorageError:
    return StorageError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Producer {header.producer_id} sent sequence {header.base_sequence} where {expected} was expected.",
        "A batch before it is missing; the client raises its epoch and starts again.",
    )
