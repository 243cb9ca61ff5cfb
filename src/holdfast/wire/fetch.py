"""Fetch, versions 4 to 18, with the records left where they are.

Version notes: 5 log start offset · 7 sessions (KIP-227) and a top-level error · 9 leader epoch · 11 rack and preferred
replica (KIP-392) · 12 compact, and where a log departs from what was read (KIP-595) · 13 topics by id (KIP-516) · 15
replica state as a tag · 16 node endpoints (skipped) · 17 directory ids and 18 high watermark, only between
brokers.

The generic codec would copy every record twice. Here an answer to be sent is a list of parts around the records, and
the records of a received one are views of its frame.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from uuid import UUID

from holdfast.wire import frames
from holdfast.wire.api import Api
from holdfast.wire.cursor import Cursor, Part, Sink, join
from holdfast.wire.topics_and_leaders import Leader, leader_reader, leader_tag, read_topic, write_topic

CONSUMER = -1
"""The replica id of a client that is not a broker."""

_REPLICA_STATE = struct.Struct(">iqx")
_DIVERGED = struct.Struct(">iqx")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    """What is asked of one partition."""

    partition: int
    offset: int
    max_bytes: int = 1_048_576
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    """The leader epoch of the record before `offset`, so that the leader can say whether it has it; -1: don't check."""
    log_start_offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTopic:
    """Named up to version 12, known by its id from 13 on; the other is empty when read."""

    topic: str = ""
    topic_id: UUID | None = None
    partitions: tuple[FetchPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenTopic:
    """Partitions to drop from a session."""

    topic: str = ""
    topic_id: UUID | None = None
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    read_committed: bool = False
    session_id: int = 0
    session_epoch: int = -1
    """-1: no session, so every answer lists all partitions."""
    topics: tuple[FetchTopic, ...] = ()
    forgotten: tuple[ForgottenTopic, ...] = ()
    rack: str = ""
    replica_id: int = CONSUMER


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """The answer for one partition."""

    partition: int
    error: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: tuple[tuple[int, int], ...] | None = None
    """(producer id, first offset) of aborted transactions."""
    preferred_read_replica: int = -1
    current_leader: Leader | None = None
    """(broker id, epoch), sent with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH from version 12 on."""
    diverged: tuple[int, int] | None = None
    """(epoch, its end offset in this log): the record before the offset asked for is not in it."""
    records: tuple[Part, ...] = ()
    """Record batches; one view when read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedTopic:
    topic: str = ""
    topic_id: UUID | None = None
    partitions: tuple[FetchedPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    error: int = 0
    session_id: int = 0
    throttle_time_ms: int = 0
    topics: tuple[FetchedTopic, ...] = ()
    size: int = field(default=0, compare=False)
    """How many bytes came, if it was received."""


# -- requests


def encode_fetch_request(version: int, correlation_id: int, client_id: str | None, request: FetchRequest) -> bytes:
    sink = Sink(
        frames.start_request(Api.FETCH, version, correlation_id, client_id), flexible=Api.FETCH.flexible(version)
    )
    if version < 15:
        sink.out += struct.pack(">i", request.replica_id)
    sink.out += struct.pack(">iiib", request.max_wait_ms, request.min_bytes, request.max_bytes, request.read_committed)
    if version >= 7:
        sink.out += struct.pack(">ii", request.session_id, request.session_epoch)
    layout = _asked_layout(version)
    sink.count(len(request.topics))
    for topic in request.topics:
        write_topic(sink, version, topic.topic, topic.topic_id)
        sink.count(len(topic.partitions))
        for asked in topic.partitions:
            sink.out += layout.pack(*_asked_values(version, asked))
            sink.tags()
        sink.tags()
    if version >= 7:
        sink.count(len(request.forgotten))
        for dropped in request.forgotten:
            write_topic(sink, version, dropped.topic, dropped.topic_id)
            sink.count(len(dropped.partitions))
            sink.out += struct.pack(f">{len(dropped.partitions)}i", *dropped.partitions)
            sink.tags()
    if version >= 11:
        sink.string(request.rack)
    state = version >= 15 and request.replica_id != CONSUMER
    sink.tags(((1, _REPLICA_STATE.pack(request.replica_id, -1)),) if state else ())
    return join(sink.finish())


def decode_fetch_request(frame: bytes | memoryview, header: frames.RequestHeader) -> FetchRequest:
    version = header.version
    cursor = Cursor(frame, header.body_at, flexible=Api.FETCH.flexible(version), what=f"Fetch request v{version}")
    replica_id = cursor.int32() if version < 15 else CONSUMER
    max_wait_ms, min_bytes, max_bytes = cursor.int32(), cursor.int32(), cursor.int32()
    isolation = cursor.int8()
    session_id, session_epoch = (cursor.int32(), cursor.int32()) if version >= 7 else (0, -1)
    topics = tuple(_read_asked_topic(cursor, version) for _ in range(cursor.count(3)))
    forgotten: tuple[ForgottenTopic, ...] = ()
    if version >= 7:
        forgotten = tuple(_read_forgotten(cursor, version) for _ in range(cursor.count(3)))
    rack = cursor.string() if version >= 11 else ""
    replica: list[int] = [replica_id]

    def read_replica_state(tagged: Cursor) -> None:
        replica[0] = tagged.int32()
        tagged.int64()
        tagged.tags()

    cursor.tags({1: read_replica_state} if version >= 15 else None)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        read_committed=isolation == 1,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten=forgotten,
        rack=rack,
        replica_id=replica[0],
    )


def _asked_layout(version: int) -> struct.Struct:
    return struct.Struct(
        ">i"
        + ("i" if version >= 9 else "")
        + "q"
        + ("i" if version >= 12 else "")
        + ("q" if version >= 5 else "")
        + "i"
    )


def _asked_values(version: int, asked: FetchPartition) -> list[int]:
    values = [asked.partition]
    if version >= 9:
        values.append(asked.leader_epoch)
    values.append(asked.offset)
    if version >= 12:
        values.append(asked.last_fetched_epoch)
    if version >= 5:
        values.append(asked.log_start_offset)
    values.append(asked.max_bytes)
    return values


def _read_asked_topic(cursor: Cursor, version: int) -> FetchTopic:
    topic, topic_id = read_topic(cursor, version)
    layout = _asked_layout(version)
    partitions = []
    for _ in range(cursor.count(layout.size)):
        values = list(cursor.unpack(layout))
        cursor.tags()
        values.reverse()
        partitions.append(
            FetchPartition(
                partition=values.pop(),
                leader_epoch=values.pop() if version >= 9 else -1,
                offset=values.pop(),
                last_fetched_epoch=values.pop() if version >= 12 else -1,
                log_start_offset=values.pop() if version >= 5 else -1,
                max_bytes=values.pop(),
            )
        )
    cursor.tags()
    return FetchTopic(topic=topic, topic_id=topic_id, partitions=tuple(partitions))


def _read_forgotten(cursor: Cursor, version: int) -> ForgottenTopic:
    topic, topic_id = read_topic(cursor, version)
    partitions = cursor.int32s()
    cursor.tags()
    return ForgottenTopic(topic=topic, topic_id=topic_id, partitions=partitions)


# -- responses


def encode_fetch_response(version: int, correlation_id: int, response: FetchResponse) -> list[Part]:
    """The answer as parts to be sent one after the other, its size first."""
    sink = Sink(frames.start_response(Api.FETCH, version, correlation_id), flexible=Api.FETCH.flexible(version))
    sink.out += struct.pack(">i", response.throttle_time_ms)
    if version >= 7:
        sink.out += struct.pack(">hi", response.error, response.session_id)
    sink.count(len(response.topics))
    for topic in response.topics:
        write_topic(sink, version, topic.topic, topic.topic_id)
        sink.count(len(topic.partitions))
        for fetched in topic.partitions:
            _write_fetched(sink, version, fetched)
        sink.tags()
    sink.tags()
    return sink.finish()


def _write_fetched(sink: Sink, version: int, fetched: FetchedPartition) -> None:
    sink.out += struct.pack(
        ">ihqq", fetched.partition, fetched.error, fetched.high_watermark, fetched.last_stable_offset
    )
    if version >= 5:
        sink.out += struct.pack(">q", fetched.log_start_offset)
    sink.count(-1 if fetched.aborted is None else len(fetched.aborted))
    for producer_id, first_offset in fetched.aborted or ():
        sink.out += struct.pack(">qq", producer_id, first_offset)
        sink.tags()
    if version >= 11:
        sink.out += struct.pack(">i", fetched.preferred_read_replica)
    sink.parts(fetched.records)
    diverged = () if fetched.diverged is None else ((0, _DIVERGED.pack(*fetched.diverged)),)
    sink.tags((*diverged, *leader_tag(1, fetched.current_leader)))


def decode_fetch_response(version: int, frame: bytes | memoryview) -> FetchResponse:
    """Records are views of `frame`: they live as long as it does."""
    _, at = frames.read_response_header(frame, Api.FETCH, version)
    cursor = Cursor(frame, at, flexible=Api.FETCH.flexible(version), what=f"Fetch response v{version}")
    throttle_time_ms = cursor.int32()
    error, session_id = (cursor.int16(), cursor.int32()) if version >= 7 else (0, 0)
    topics = []
    for _ in range(cursor.count(3)):
        topic, topic_id = read_topic(cursor, version)
        partitions = tuple(_read_fetched(cursor, version) for _ in range(cursor.count(24)))
        cursor.tags()
        topics.append(FetchedTopic(topic=topic, topic_id=topic_id, partitions=partitions))
    cursor.tags()
    return FetchResponse(
        error=error,
        session_id=session_id,
        throttle_time_ms=throttle_time_ms,
        topics=tuple(topics),
        size=len(frame),
    )


_FETCHED = struct.Struct(">ihqq")


def _read_fetched(cursor: Cursor, version: int) -> FetchedPartition:
    partition, error, high_watermark, last_stable_offset = cursor.unpack(_FETCHED)
    log_start_offset = cursor.int64() if version >= 5 else -1
    count = cursor.nullable_count(16)
    aborted = []
    for _ in range(count):
        aborted.append((cursor.int64(), cursor.int64()))
        cursor.tags()
    preferred_read_replica = cursor.int32() if version >= 11 else -1
    records = cursor.nullable_view()
    leader: list[Leader] = []
    diverged: list[tuple[int, int]] = []

    def read_diverged(tagged: Cursor) -> None:
        diverged.append((tagged.int32(), tagged.int64()))
        tagged.tags()

    cursor.tags({0: read_diverged, 1: leader_reader(leader)})
    return FetchedPartition(
        partition=partition,
        error=error,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted=None if count < 0 else tuple(aborted),
        preferred_read_replica=preferred_read_replica,
        current_leader=leader[-1] if leader else None,
        diverged=diverged[-1] if diverged else None,
        records=(records,) if records else (),
    )
