"""Fetch, 4 to 18: whole record batches as they are stored, or a wait until there are some.

Version notes: 5 log start offset · 7 sessions · 9 leader epochs · 11 rack and preferred replica · 12 compact · 13
topics by id · 15 and later only add what brokers tell each other. Sessions (KIP-227) are declined: every answer carries
session id 0, so that clients send whole requests. An aborted transaction can't exist, so both isolation levels see the
same. With racks, a consumer that names its own is sent to the replica there (KIP-392): another port of this same
process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.broker.exchange import PARKED, Body, Exchange, Parts
from holdfast.broker.security.rules import Operation
from holdfast.broker.slices import PAUSE, Steps
from holdfast.broker.state import LEADER_EPOCH, State
from holdfast.broker.storage.errors import StorageError, disk_trouble
from holdfast.broker.storage.log import Log
from holdfast.broker.storage.segment import FileRange
from holdfast.broker.storage.topics import Topic
from holdfast.model import ErrorCode
from holdfast.wire.api import Api
from holdfast.wire.cursor import FileSlice, Part
from holdfast.wire.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    decode_fetch_request,
    encode_fetch_response,
)
from holdfast.wire.frames import RequestHeader

SENDFILE_BYTES = 128 * 1024
"""A slice of at least this size is sent with sendfile; for a smaller one, reading it costs less."""


@dataclass(slots=True)
class _Budget:
    """What may still go into one answer."""

    bytes_left: int
    nothing_yet: bool = True
    """The first batch found is sent even if it is too large, or a client could never get past it (KIP-74)."""
    found: int = 0
    final: bool = False
    """The answer has something that can't wait: an error, or another replica to ask."""
    files: list[FileRange] = field(default_factory=list)
    """Files of which slices are in the answer."""


def decode(frame: memoryview, header: RequestHeader, api: Api) -> FetchRequest:
    return decode_fetch_request(frame, header)


def handle(exchange: Exchange, state: State) -> Steps:
    request: FetchRequest = exchange.body
    if request.session_id != 0:
        return _encoded(exchange, FetchResponse(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    found, budget = yield from _read(exchange, state)
    missing = request.min_bytes - budget.found
    seconds = min(request.max_wait_ms / 1000.0, state.limits.max_fetch_wait_seconds)
    if missing <= 0 or seconds <= 0 or budget.final or not request.topics:
        return _encoded(exchange, found, budget)
    if _grown(state, found):
        return (yield from _again(exchange, state))
    partitions = [
        (topic.topic_id, asked.partition)
        for each in request.topics
        if (topic := state.topic(each.topic, each.topic_id)) is not None
        for asked in each.partitions
    ]
    exchange.on_gone = state.waiting.wait(
        partitions,
        wanted=missing,
        seconds=seconds,
        run=lambda: exchange.resume(lambda: _again(exchange, state)),
    )
    return PARKED


def _grown(state: State, found: FetchResponse) -> bool:
    """Whether records were appended to a partition after it was read: a long request is read with pauses."""
    for each in found.topics:
        topic = state.topic(each.topic, each.topic_id)
        for partition in each.partitions:
            log = None if topic is None else state.log(topic, partition.partition)
            if log is not None and log.high_watermark > partition.high_watermark:
                return True
    return False


def _again(exchange: Exchange, state: State) -> Steps:
    """Read again after the wait, and answer with what there is now."""
    found, budget = yield from _read(exchange, state)
    return _encoded(exchange, found, budget)


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    request: FetchRequest = exchange.body
    topics = tuple(_refused(topic, error) for topic in request.topics)
    return _encoded(exchange, FetchResponse(error=error, topics=topics))


def _encoded(exchange: Exchange, response: FetchResponse, budget: _Budget | None = None) -> Parts:
    parts = encode_fetch_response(exchange.version, exchange.frame.correlation_id, response)
    return Parts(parts, () if budget is None else budget.files)


def _read(exchange: Exchange, state: State) -> Steps:
    request: FetchRequest = exchange.body
    limit = min(max(request.max_bytes, 0), state.limits.max_response_bytes)
    if state.unsent_bytes() > state.limits.max_bytes_unsent // 2:
        limit = 0
    budget = _Budget(limit)
    topics = []
    for topic in request.topics:
        topics.append((yield from _topic(exchange, state, topic, budget)))
    return FetchResponse(topics=tuple(topics)), budget


def _topic(exchange: Exchange, state: State, asked: FetchTopic, budget: _Budget) -> Steps:
    topic, error = state.find_topic(exchange, Operation.READ, asked.topic, asked.topic_id)
    if topic is None:
        budget.final = True
        return _refused(asked, error)
    partitions = []
    for each in asked.partitions:
        partitions.append(_partition(exchange, state, topic, each, budget))
        yield PAUSE
    return FetchedTopic(topic=asked.topic, topic_id=asked.topic_id, partitions=tuple(partitions))


def _refused(asked: FetchTopic, error: ErrorCode) -> FetchedTopic:
    partitions = tuple(FetchedPartition(partition=each.partition, error=error) for each in asked.partitions)
    return FetchedTopic(topic=asked.topic, topic_id=asked.topic_id, partitions=partitions)


def _partition(
    exchange: Exchange, state: State, topic: Topic, asked: FetchPartition, budget: _Budget
) -> FetchedPartition:
    log = state.log(topic, asked.partition)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if log is None else epoch_error(asked.leader_epoch)
    if error is ErrorCode.NONE and asked.last_fetched_epoch > LEADER_EPOCH:
        error = ErrorCode.OFFSET_OUT_OF_RANGE
    if log is None or error is not ErrorCode.NONE:
        budget.final = True
        return FetchedPartition(partition=asked.partition, error=error)
    if asked.last_fetched_epoch == LEADER_EPOCH and asked.offset > log.high_watermark:
        budget.final = True  # a log that has lost its end: the client goes back to what there is (KIP-595)
        return FetchedPartition(
            partition=asked.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.high_watermark,
            log_start_offset=log.log_start_offset,
            diverged=(LEADER_EPOCH, log.high_watermark),
        )
    nearer = _nearer_replica(exchange, state, topic, asked.partition)
    if nearer is not None:
        budget.final = True
    records: tuple[Part, ...] = ()
    try:
        if nearer is None:
            records = _records(exchange, log, asked, budget)
    except StorageError as refused:
        state.storage_log.tell(refused, reading=True)
        budget.final = True
        return FetchedPartition(partition=asked.partition, error=refused.error)
    return FetchedPartition(
        partition=asked.partition,
        error=error,
        high_watermark=log.high_watermark,
        last_stable_offset=log.high_watermark,
        log_start_offset=log.log_start_offset,
        preferred_read_replica=-1 if nearer is None else nearer,
        records=records,
    )


def _records(exchange: Exchange, log: Log, asked: FetchPartition, budget: _Budget) -> tuple[Part, ...]:
    """The batches that fit, in memory or as a slice of their file."""
    limit = min(max(asked.max_bytes, 0), budget.bytes_left)
    if limit <= 0 and not budget.nothing_yet:
        return ()
    found = log.slice(asked.offset, limit, min_one_batch=budget.nothing_yet)
    if found is None:
        return ()
    budget.bytes_left -= found.count
    budget.found += found.count
    budget.nothing_yet = False
    number = found.fileno()
    if number is None or found.count < SENDFILE_BYTES or not exchange.client.takes_files:
        return (_read_in(log, found),)
    budget.files.append(found)
    return (FileSlice(number, found.position, found.count),)


def _read_in(log: Log, found: FileRange) -> bytes:
    try:
        return found.read()
    except OSError as error:
        raise disk_trouble(f"Reading {log.topic}-{log.partition}", error) from error


def epoch_error(epoch: int) -> ErrorCode:
    """The error for a leader epoch that a client names. One after ours belongs to another cluster."""
    return ErrorCode.NONE if epoch <= LEADER_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH


def _nearer_replica(exchange: Exchange, state: State, topic: Topic, partition: int) -> int | None:
    """The replica in the consumer's rack, if the broker it asked is the leader and in another one."""
    rack = exchange.body.rack
    if not rack or len(state.nodes) == 1 or exchange.version < 11:
        return None
    replicas = state.replicas(topic, partition)
    racks = {node.node_id: node.rack for node in state.nodes}
    asked = exchange.client.node_id
    if asked != replicas[0] or racks[asked] == rack:
        return None
    return next((node for node in replicas if racks[node] == rack), None)
