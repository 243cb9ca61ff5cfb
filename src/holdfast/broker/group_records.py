"""The coordinator's records as entries of a journal, and back.

Keys name what is kept, so that the newest entry of each is enough: one per group, one per group and partition. Offsets
are written with every commit and have a compact layout; groups are written once a round, as JSON, where a person can
read them. The first byte of a value is its version; a newer one than we know is refused rather than guessed at.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

from holdfast.broker.storage.journal import Entry
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

_GROUP, _OFFSET = b"g", b"o"
_OFFSET_KEY = struct.Struct(">HHi")
_OFFSET_VALUE = struct.Struct(">Bqid")


def entry_of(record: Record) -> Entry:
    """What to append for a record. A tombstone has no value."""
    match record:
        case GroupRecord():
            return _GROUP + record.group.encode(), _group_value(record)
        case GroupTombstone():
            return _GROUP + record.group.encode(), None
        case OffsetRecord():
            value = _OFFSET_VALUE.pack(VERSION, record.offset, record.leader_epoch, record.committed_at_ms)
            return _offset_key(record.group, record.partition), value + record.metadata.encode()
        case OffsetTombstone():
            return _offset_key(record.group, record.partition), None


def record_of(key: bytes, value: bytes | None) -> Record:
    """The record of an entry that was read."""
    try:
        if key[:1] == _GROUP:
            group = key[1:].decode()
            return GroupTombstone(group) if value is None else _group_record(group, value)
        if key[:1] == _OFFSET:
            return _offset_record(*_split_offset_key(key), value)
        raise ValueError(f"a key that begins with {key[:1]!r}")
    except (ValueError, LookupError, TypeError, struct.error) as error:
        raise HoldfastError(
            "GROUP_RECORD_UNREADABLE",
            f"A record of the group journal can't be read: {error}.",
            "A newer holdfast wrote it, or it is damaged: use that version, or move journals/groups away and lose it.",
        ) from error


def _offset_key(group: str, partition: TopicPartition) -> bytes:
    name, topic = group.encode(), partition.topic.encode()
    return _OFFSET + _OFFSET_KEY.pack(len(name), len(topic), partition.partition) + name + topic


def _split_offset_key(key: bytes) -> tuple[str, TopicPartition]:
    name_bytes, topic_bytes, number = _OFFSET_KEY.unpack_from(key, 1)
    at = 1 + _OFFSET_KEY.size
    name, topic = key[at : at + name_bytes], key[at + name_bytes :]
    if len(topic) != topic_bytes:
        raise ValueError("an offset's key of the wrong length")
    return name.decode(), TopicPartition(topic.decode(), number)


def _offset_record(group: str, partition: TopicPartition, value: bytes | None) -> Record:
    if value is None:
        return OffsetTombstone(group, partition)
    version, offset, leader_epoch, committed_at_ms = _OFFSET_VALUE.unpack_from(value)
    _check_version(version)
    return OffsetRecord(
        group=group,
        partition=partition,
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=value[_OFFSET_VALUE.size :].decode(),
        committed_at_ms=committed_at_ms,
    )


def _group_value(record: GroupRecord) -> bytes:
    content = {
        "state": record.state.value,
        "generation": record.generation,
        "protocol_type": record.protocol_type,
        "protocol": record.protocol,
        "leader": record.leader,
        "since_ms": record.since_ms,
        "members": [_member_value(member) for member in record.members],
    }
    return bytes([VERSION]) + json.dumps(content, separators=(",", ":")).encode()


def _member_value(member: MemberRecord) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "protocols": [[name, _text(metadata)] for name, metadata in member.protocols],
        "assignment": _text(member.assignment),
    }


def _group_record(group: str, value: bytes) -> GroupRecord:
    _check_version(value[0])
    content = json.loads(value[1:])
    return GroupRecord(
        group=group,
        state=State(content["state"]),
        generation=content["generation"],
        protocol_type=content["protocol_type"],
        protocol=content["protocol"],
        leader=content["leader"],
        since_ms=content["since_ms"],
        members=tuple(_member_record(entry) for entry in content["members"]),
    )


def _member_record(entry: Any) -> MemberRecord:
    return MemberRecord(
        member_id=entry["member_id"],
        instance_id=entry["instance_id"],
        client_id=entry["client_id"],
        client_host=entry["client_host"],
        session_timeout_ms=entry["session_timeout_ms"],
        rebalance_timeout_ms=entry["rebalance_timeout_ms"],
        protocols=tuple((name, base64.b64decode(metadata)) for name, metadata in entry["protocols"]),
        assignment=base64.b64decode(entry["assignment"]),
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _check_version(version: int) -> None:
    if version != VERSION:
        raise ValueError(f"version {version} is not known")
