"""Produce, versions 3 to 13, with the records left where they are.

Version notes: 5 log start offset · 8 errors of single records (KIP-467) · 9 compact · 10 the current leader as a tag
(KIP-951) · 11 and 12 for transactions only · 13 topics by id (KIP-516).

Records of a request are views of its frame. To keep them beyond the request, copy them or keep the frame.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

from holdfast.wire import frames
from holdfast.wire.api import Api
from holdfast.wire.cursor import Cursor, Part, Sink
from holdfast.wire.topics_and_leaders import Leader, leader_reader, leader_tag, read_topic, write_topic

_PRODUCED = struct.Struct(">ihqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePartition:
    partition: int
    records: memoryview | bytes | None
    """Record batches. None where the producer sent null, which a broker refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceTopic:
    """Named up to version 12, known by its id from 13 on; the other is empty when read."""

    topic: str = ""
    topic_id: UUID | None = None
    partitions: tuple[ProducePartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest:
    transactional_id: str | None = None
    acks: int = -1
    timeout_ms: int = 30_000
    topics: tuple[ProduceTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducedPartition:
    """What became of one partition's records."""

    partition: int
    error: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[tuple[int, str | None], ...] = ()
    """(index in the batch, message) of each record that was refused."""
    error_message: str | None = None
    current_leader: Leader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducedTopic:
    topic: str = ""
    topic_id: UUID | None = None
    partitions: tuple[ProducedPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponse:
    topics: tuple[ProducedTopic, ...] = ()
    throttle_time_ms: int = 0


def encode_produce_request(
    version: int, correlation_id: int, client_id: str | None, request: ProduceRequest
) -> list[Part]:
    """The request as parts to be sent one after the other, its size first."""
    sink = Sink(
        frames.start_request(Api.PRODUCE, version, correlation_id, client_id), flexible=Api.PRODUCE.flexible(version)
    )
    sink.string(request.transactional_id)
    sink.out += struct.pack(">hi", request.acks, request.timeout_ms)
    sink.count(len(request.topics))
    for topic in request.topics:
        write_topic(sink, version, topic.topic, topic.topic_id)
        sink.count(len(topic.partitions))
        for partition in topic.partitions:
            sink.out += struct.pack(">i", partition.partition)
            sink.parts(None if partition.records is None else (partition.records,))
            sink.tags()
        sink.tags()
    sink.tags()
    return sink.finish()


def decode_produce_request(frame: bytes | memoryview, header: frames.RequestHeader) -> ProduceRequest:
    version = header.version
    cursor = Cursor(frame, header.body_at, flexible=Api.PRODUCE.flexible(version), what=f"Produce request v{version}")
    transactional_id = cursor.nullable_string()
    acks, timeout_ms = cursor.int16(), cursor.int32()
    topics = []
    for _ in range(cursor.count(3)):
        topic, topic_id = read_topic(cursor, version)
        partitions = []
        for _ in range(cursor.count(5)):
            partitions.append(ProducePartition(partition=cursor.int32(), records=cursor.nullable_view()))
            cursor.tags()
        cursor.tags()
        topics.append(ProduceTopic(topic=topic, topic_id=topic_id, partitions=tuple(partitions)))
    cursor.tags()
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topics=tuple(topics))


def encode_produce_response(version: int, correlation_id: int, response: ProduceResponse) -> bytes:
    sink = Sink(frames.start_response(Api.PRODUCE, version, correlation_id), flexible=Api.PRODUCE.flexible(version))
    sink.count(len(response.topics))
    for topic in response.topics:
        write_topic(sink, version, topic.topic, topic.topic_id)
        sink.count(len(topic.partitions))
        for produced in topic.partitions:
            _write_produced(sink, version, produced)
        sink.tags()
    sink.out += struct.pack(">i", response.throttle_time_ms)
    sink.tags()
    sink.finish()
    return bytes(sink.out)


def _write_produced(sink: Sink, version: int, produced: ProducedPartition) -> None:
    sink.out += _PRODUCED.pack(produced.partition, produced.error, produced.base_offset, produced.log_append_time_ms)
    if version >= 5:
        sink.out += struct.pack(">q", produced.log_start_offset)
    if version >= 8:
        sink.count(len(produced.record_errors))
        for index, text in produced.record_errors:
            sink.out += struct.pack(">i", index)
            sink.string(text)
            sink.tags()
        sink.string(produced.error_message)
    sink.tags(leader_tag(0, produced.current_leader) if version >= 10 else ())


def decode_produce_response(version: int, frame: bytes | memoryview) -> ProduceResponse:
    _, at = frames.read_response_header(frame, Api.PRODUCE, version)
    cursor = Cursor(frame, at, flexible=Api.PRODUCE.flexible(version), what=f"Produce response v{version}")
    topics = []
    for _ in range(cursor.count(3)):
        topic, topic_id = read_topic(cursor, version)
        partitions = tuple(_read_produced(cursor, version) for _ in range(cursor.count(_PRODUCED.size)))
        cursor.tags()
        topics.append(ProducedTopic(topic=topic, topic_id=topic_id, partitions=partitions))
    throttle_time_ms = cursor.int32()
    cursor.tags()
    return ProduceResponse(topics=tuple(topics), throttle_time_ms=throttle_time_ms)


def _read_produced(cursor: Cursor, version: int) -> ProducedPartition:
    partition, error, base_offset, log_append_time_ms = cursor.unpack(_PRODUCED)
    log_start_offset = cursor.int64() if version >= 5 else -1
    errors: list[tuple[int, str | None]] = []
    error_message = None
    if version >= 8:
        for _ in range(cursor.count(5)):
            errors.append((cursor.int32(), cursor.nullable_string()))
            cursor.tags()
        error_message = cursor.nullable_string()
    leader: list[Leader] = []
    cursor.tags({0: leader_reader(leader)} if version >= 10 else None)
    return ProducedPartition(
        partition=partition,
        error=error,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
        record_errors=tuple(errors),
        error_message=error_message,
        current_leader=leader[-1] if leader else None,
    )
