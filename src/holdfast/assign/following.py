"""What members and the leader tell each other about followers of state, as bytes. Pure.

A member says how many followers it wants for each partition, which partitions it follows, and how far. The leader says
what to follow from now on. Both are bounded, and bytes that can't be read to the end count as empty.

    "hfs" · version · followers wanted · topics
    topic: int16 length · name · int32 partitions, each int32 number · int64 offset · int16 held   (a member's)
                                                    or  int32 number                               (the leader's)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.model import TopicPartition
from holdfast.model.subscription import MAX_FOLLOWERS

MAGIC = b"hfs"
VERSION = 1
MAX_BYTES = 64 * 1024
"""The limit for one member, the same as for sticky: some 4,600 partitions. Kafka keeps all members' in one record of
1 MB. Partitions that don't fit are left out, and count as not followed."""

ALL = 1_000
"""`held` is in thousandths of the state's bytes."""

_HEAD = struct.Struct(">3sBB")
_SHORT, _COUNT = struct.Struct(">H"), struct.Struct(">i")
_FOLLOWED, _NUMBER = struct.Struct(">iqH"), struct.Struct(">i")


class Followed(NamedTuple):
    """How far a member follows one partition's state."""

    offset: int
    """The offset that the state it last saw reaches up to; -1: it has seen none yet."""
    held: int
    """How much of that state it has at hand, in thousandths of its bytes."""


@dataclass(frozen=True, slots=True)
class Says:
    """What a member says when it joins."""

    standby: int = 0
    """How many followers it wants each partition to have."""
    followed: Mapping[TopicPartition, Followed] = field(default_factory=dict)


NOTHING = Says()


def encode_says(says: Says) -> bytes:
    found = sorted(says.followed.items())
    rows = [(p, _FOLLOWED.pack(p.partition, one.offset, one.held)) for p, one in found]
    return _encoded(says.standby, rows, _FOLLOWED.size)


def decode_says(data: bytes | None) -> Says:
    """Foreign, damaged or newer bytes read as `NOTHING`."""
    read = _decoded(data, _FOLLOWED)
    if read is None:
        return NOTHING
    standby, rows = read
    found = {TopicPartition(topic, row[0]): Followed(row[1], row[2]) for topic, row in rows}
    sound = all(one.held <= ALL and one.offset >= -1 for one in found.values())
    return Says(standby, found) if sound and len(found) == len(rows) else NOTHING


def encode_told(partitions: Iterable[TopicPartition]) -> bytes:
    """What the leader tells a member to follow."""
    return _encoded(0, [(p, _NUMBER.pack(p.partition)) for p in sorted(partitions)], _NUMBER.size)


def decode_told(data: bytes | None) -> frozenset[TopicPartition]:
    read = _decoded(data, _NUMBER)
    return frozenset() if read is None else frozenset(TopicPartition(topic, row[0]) for topic, row in read[1])


def _encoded(standby: int, rows: list[tuple[TopicPartition, bytes]], size: int) -> bytes:
    topics: dict[str, list[bytes]] = {}
    left = MAX_BYTES - _HEAD.size
    for partition, row in rows:
        left -= size if partition.topic in topics else size + _SHORT.size + len(_name(partition)) + _COUNT.size
        if left < 0:
            break
        topics.setdefault(partition.topic, []).append(row)
    parts = [_HEAD.pack(MAGIC, VERSION, standby)]
    for topic, listed in topics.items():
        name = topic.encode()
        parts += [_SHORT.pack(len(name)), name, _COUNT.pack(len(listed)), *listed]
    return b"".join(parts)


def _name(partition: TopicPartition) -> bytes:
    return partition.topic.encode()


def _decoded(data: bytes | None, row: struct.Struct) -> tuple[int, list[tuple[str, tuple[int, ...]]]] | None:
    if data is None or len(data) > MAX_BYTES or len(data) < _HEAD.size:
        return None
    magic, version, standby = _HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION or standby > MAX_FOLLOWERS:
        return None
    found: list[tuple[str, tuple[int, ...]]] = []
    at = _HEAD.size
    try:
        while at < len(data):
            (length,) = _SHORT.unpack_from(data, at)
            topic = data[at + _SHORT.size : at + _SHORT.size + length].decode()
            at += _SHORT.size + length
            (count,) = _COUNT.unpack_from(data, at)
            at += _COUNT.size
            if not 0 <= count * row.size <= len(data) - at:
                return None
            found += [(topic, row.unpack_from(data, at + n * row.size)) for n in range(count)]
            at += count * row.size
    except (struct.error, UnicodeDecodeError):
        return None
    return None if any(numbers[0] < 0 for _, numbers in found) else (standby, found)
