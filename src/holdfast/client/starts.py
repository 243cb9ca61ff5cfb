"""What may be named as a place to read from, where our own fetcher reads: the rules that librdkafka has for itself.

`assign` and `incremental_assign` take an offset, a place (the beginning, the end, so many before the end) or none at
all. `seek` takes any number but OFFSET_STORED; one that stands for nothing goes where auto.offset.reset says (`flows`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import confluent_kafka as ck

from holdfast.client.errors import refused_here
from holdfast.model import TopicPartition
from holdfast.net.flows import TAIL

PLACES = frozenset({ck.OFFSET_BEGINNING, ck.OFFSET_END, ck.OFFSET_INVALID, ck.OFFSET_STORED})


def check_starts(partitions: Iterable[ck.TopicPartition], *, beside: Collection[TopicPartition] = ()) -> None:
    """Refuse the whole list if one of it can't be read, or is read already."""
    seen: set[TopicPartition] = set()
    for partition in partitions:
        where, name = TopicPartition(partition.topic, partition.partition), _shown(partition)
        if where in seen:
            raise refused_here(ck.KafkaError._INVALID_ARG, f"Duplicate {name} in input list")
        if not _is_start(partition.offset):
            why = f"{name} has invalid start offset {partition.offset}"
            raise refused_here(ck.KafkaError._INVALID_ARG, why)
        if where in beside:
            raise refused_here(ck.KafkaError._CONFLICT, f"{name} is already part of the current assignment")
        seen.add(where)


def check_seek(partition: ck.TopicPartition, assigned: Collection[TopicPartition]) -> None:
    """Only what is assigned can be sought, and not to where a commit stands."""
    if TopicPartition(partition.topic, partition.partition) not in assigned:
        known = any(partition.topic == one.topic for one in assigned)
        code = ck.KafkaError._STATE if known else ck.KafkaError._UNKNOWN_PARTITION
        raise refused_here(code, f"Failed to seek: {_shown(partition)} is not assigned to this consumer")
    if partition.offset == ck.OFFSET_STORED:
        why = "Failed to seek: OFFSET_STORED is no place. Seek to what committed() says."
        raise refused_here(ck.KafkaError._INVALID_ARG, why)


def _shown(partition: ck.TopicPartition) -> str:
    """As librdkafka writes it."""
    return f"{partition.topic} [{partition.partition}]"


def _is_start(offset: int) -> bool:
    return offset >= 0 or offset in PLACES or offset <= TAIL
