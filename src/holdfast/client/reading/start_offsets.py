"""Which start offsets are accepted while our own fetcher reads. The rules, and their errors, are librdkafka's.

`assign` and `incremental_assign` take an offset, a symbolic one (beginning, end, n before the end) or none. `seek`
takes any number except OFFSET_STORED; for a negative one without a meaning auto.offset.reset decides (`flows`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import confluent_kafka as ck

from holdfast.client.errors import refused_here
from holdfast.client.partitions import name_of
from holdfast.model import TopicPartition
from holdfast.net.flow_values import TAIL

PLACES = frozenset({ck.OFFSET_BEGINNING, ck.OFFSET_END, ck.OFFSET_INVALID, ck.OFFSET_STORED})


def check_starts(partitions: Iterable[ck.TopicPartition], *, beside: Collection[TopicPartition] = ()) -> None:
    """Refuse the whole list if one of its entries is a duplicate, has no valid start, or is in `beside`."""
    seen: set[TopicPartition] = set()
    for partition in partitions:
        where, name = name_of(partition), _shown(partition)
        if where in seen:
            raise refused_here(ck.KafkaError._INVALID_ARG, f"Duplicate {name} in input list")
        if not _is_start(partition.offset):
            why = f"{name} has invalid start offset {partition.offset}"
            raise refused_here(ck.KafkaError._INVALID_ARG, why)
        if where in beside:
            raise refused_here(ck.KafkaError._CONFLICT, f"{name} is already part of the current assignment")
        seen.add(where)


def check_seek(partition: ck.TopicPartition, assigned: Collection[TopicPartition]) -> None:
    """Only assigned partitions can be sought, and not to OFFSET_STORED."""
    if name_of(partition) not in assigned:
        known = any(partition.topic == one.topic for one in assigned)
        code = ck.KafkaError._STATE if known else ck.KafkaError._UNKNOWN_PARTITION
        raise refused_here(code, f"Failed to seek: {_shown(partition)} is not assigned to this consumer")
    if partition.offset == ck.OFFSET_STORED:
        why = "Failed to seek: OFFSET_STORED is not a valid position. Seek to the offset that committed() returns."
        raise refused_here(ck.KafkaError._INVALID_ARG, why)


def _shown(partition: ck.TopicPartition) -> str:
    """As librdkafka writes it."""
    return f"{partition.topic} [{partition.partition}]"


def _is_start(offset: int) -> bool:
    return offset >= 0 or offset in PLACES or offset <= TAIL
