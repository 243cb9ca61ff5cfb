"""Records as bytes: what a broker's journal stores, and reads back after years.

    key      version int16 · kind int8 (1 group, 2 offset) · group · [topic · partition int32]
    group    version int16 · state int8 · generation int32 · protocol type? · protocol? · leader · since float64
             · members [id · instance id? · client id · client host · session int32 · rebalance int32
                        · protocols [name · metadata] · assignment]
    offset   version int16 · offset int64 · leader epoch int32 · metadata · committed at float64

Strings and bytes have an int32 length (-1 for none, where marked ?), arrays an int32 count; integers are big-endian. A
value of None is a tombstone. Equal records have equal bytes.

Rules. The version is raised with every change, and old versions stay readable. What can't be read raises
`HoldfastError` and nothing else: a log may be damaged, or written by a newer version.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from holdfast.group.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    MemberRecord,
    OffsetRecord,
    OffsetTombstone,
    Record,
)
from holdfast.group.coordinator.states import State
from holdfast.model import HoldfastError, TopicPartition

VERSION = 1
_GROUP, _OFFSET = 1, 2
_STATES = {1: State.EMPTY, 2: State.COMPLETING, 3: State.STABLE}
_STATE_NUMBERS = {state: number for number, state in _STATES.items()}

_KEY = struct.Struct(">hb")
_LENGTH = struct.Struct(">i")
_OFFSET_VALUE = struct.Struct(">hqi")
_GROUP_VALUE = struct.Struct(">hbi")
_TIMEOUTS = struct.Struct(">ii")
_TIME = struct.Struct(">d")


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value; the value of a tombstone is None."""
    match record:
        case GroupRecord():
            return _key(_GROUP, record.group), _group_value(record)
        case GroupTombstone():
            return _key(_GROUP, record.group), None
        case OffsetRecord():
            return _offset_key(record.group, record.partition), _offset_value(record)
        case OffsetTombstone():
            return _offset_key(record.group, record.partition), None


def decode_record(key: bytes, value: bytes | None) -> Record:
    """The record again."""
    reader = _Reader(key)
    version, kind = reader.take(_KEY)
    _known(version)
    group = reader.text()
    if kind == _GROUP:
        reader.done()
        return GroupTombstone(group) if value is None else _read_group(group, value)
    if kind == _OFFSET:
        partition = TopicPartition(reader.text(), reader.number())
        reader.done()
        return OffsetTombstone(group, partition) if value is None else _read_offset(group, partition, value)
    raise unreadable(f"its key has the unknown kind {kind}")


def of_group(group: str) -> Callable[[bytes], bool]:
    """Tells whether a record's key belongs to this group, without reading it."""
    name = _text(group)
    return lambda key: key.startswith(name, _KEY.size)


def unreadable(why: str) -> HoldfastError:
    return HoldfastError(
        "UNREADABLE_GROUP_RECORD",
        f"A record of the group log can't be read: {why}.",
        "If the log was written by a newer holdfast, use that one; if it is damaged, restore it from a copy.",
    )


def _known(version: int) -> None:
    if version != VERSION:
        raise unreadable(f"it has version {version}, and this holdfast knows {VERSION}")


def _key(kind: int, group: str) -> bytes:
    return _KEY.pack(VERSION, kind) + _text(group)


def _offset_key(group: str, partition: TopicPartition) -> bytes:
    return _key(_OFFSET, group) + _text(partition.topic) + _LENGTH.pack(partition.partition)


def _text(text: str | None) -> bytes:
    return _LENGTH.pack(-1) if text is None else _bytes(text.encode("utf-8", "surrogatepass"))


def _bytes(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _offset_value(record: OffsetRecord) -> bytes:
    head = _OFFSET_VALUE.pack(VERSION, record.offset, record.leader_epoch)
    return head + _text(record.metadata) + _TIME.pack(record.committed_at_ms)


def _read_offset(group: str, partition: TopicPartition, value: bytes) -> OffsetRecord:
    reader = _Reader(value)
    version, offset, leader_epoch = reader.take(_OFFSET_VALUE)
    _known(version)
    metadata = reader.text()
    (committed_at_ms,) = reader.take(_TIME)
    reader.done()
    return OffsetRecord(
        group=group,
        partition=partition,
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        committed_at_ms=committed_at_ms,
    )


def _group_value(record: GroupRecord) -> bytes:
    parts = [
        _GROUP_VALUE.pack(VERSION, _STATE_NUMBERS[record.state], record.generation),
        _text(record.protocol_type),
        _text(record.protocol),
        _text(record.leader),
        _TIME.pack(record.since_ms),
        _LENGTH.pack(len(record.members)),
    ]
    for member in record.members:
        parts += [
            _text(member.member_id),
            _text(member.instance_id),
            _text(member.client_id),
            _text(member.client_host),
        ]
        parts += [_TIMEOUTS.pack(member.session_timeout_ms, member.rebalance_timeout_ms)]
        parts += [_LENGTH.pack(len(member.protocols))]
        for name, metadata in member.protocols:
            parts += [_text(name), _bytes(metadata)]
        parts += [_bytes(member.assignment)]
    return b"".join(parts)


def _read_group(group: str, value: bytes) -> GroupRecord:
    reader = _Reader(value)
    version, number, generation = reader.take(_GROUP_VALUE)
    _known(version)
    if number not in _STATES:
        raise unreadable(f"the group has the unknown state {number}")
    protocol_type, protocol, leader = reader.optional_text(), reader.optional_text(), reader.text()
    (since_ms,) = reader.take(_TIME)
    members = tuple(_read_member(reader) for _ in range(reader.count()))
    reader.done()
    return GroupRecord(
        group=group,
        state=_STATES[number],
        generation=generation,
        protocol_type=protocol_type,
        protocol=protocol,
        leader=leader,
        since_ms=since_ms,
        members=members,
    )


def _read_member(reader: _Reader) -> MemberRecord:
    member_id, instance_id = reader.text(), reader.optional_text()
    client_id, client_host = reader.text(), reader.text()
    session_timeout_ms, rebalance_timeout_ms = reader.take(_TIMEOUTS)
    return MemberRecord(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocols=tuple((reader.text(), reader.bytes()) for _ in range(reader.count())),
        assignment=reader.bytes(),
    )


class _Reader:
    """A cursor that checks what is left before it takes anything."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, shape: struct.Struct) -> tuple[Any, ...]:
        if len(self._data) - self._at < shape.size:
            raise unreadable("it ends too early")
        fields = shape.unpack_from(self._data, self._at)
        self._at += shape.size
        return fields

    def number(self) -> int:
        return int(self.take(_LENGTH)[0])

    def count(self) -> int:
        number = self.number()
        if not 0 <= number <= len(self._data) - self._at:
            raise unreadable(f"it claims {number} items where there is no room for them")
        return number

    def bytes(self) -> bytes:
        length = self.count()
        self._at += length
        return self._data[self._at - length : self._at]

    def text(self) -> str:
        text = self.optional_text()
        if text is None:
            raise unreadable("a name is missing")
        return text

    def optional_text(self) -> str | None:
        if self._data[self._at : self._at + _LENGTH.size] == _LENGTH.pack(-1):
            self._at += _LENGTH.size
            return None
        try:
            return self.bytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise unreadable("a name is not UTF-8") from error

    def done(self) -> None:
        if self._at != len(self._data):
            raise unreadable(f"{len(self._data) - self._at} bytes are left over")
