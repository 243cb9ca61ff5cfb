"""ListOffsets, 1 to 10: where a partition begins and ends, and the first offset of a time.

Version notes: 2 isolation level · 4 leader epochs · 6 compact · 7 the record with the latest time (-3) · 8 the earliest
local offset (-4), here the earliest · 9 the latest tiered offset (-5), of which there is none · 10 a time-out, which we
never need. Not implemented: 11, which is about tiered storage.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.apis.fetch import epoch_error
from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.named import by_key
from holdfast.broker.security.rules import Operation
from holdfast.broker.slices import PAUSE, SEARCH, Steps, in_lane
from holdfast.broker.state import LEADER_EPOCH, State
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.log import Log
from holdfast.model import ErrorCode

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
FIRST_VERSION = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""Negative times stand for positions, each from some version on; others are refused as in Kafka."""
NOTHING = (-1, -1, -1)
"""Timestamp, offset and epoch when there is no such record."""


def handle(exchange: Exchange, state: State) -> Steps:
    """A partition that is named twice is refused, as in Kafka: which of the two times is meant can't be known."""
    named = ((topic.name, each.partition_index) for topic in exchange.body.topics for each in topic.partitions)
    unanswered, repeated = yield from by_key(named, lambda name: name)
    topics = []
    for topic in exchange.body.topics:
        refusal = state.topic_refusal(exchange, Operation.DESCRIBE, topic.name)
        partitions = []
        for each in topic.partitions:
            key = (topic.name, each.partition_index)
            if unanswered.pop(key, None) is not None:
                error = ErrorCode.INVALID_REQUEST if key in repeated else refusal
                partitions.append((yield from _partition(exchange.version, state, topic.name, each, error)))
            yield PAUSE
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    return {
        "topics": [
            {"name": topic.name, "partitions": [_entry(each.partition_index, error) for each in topic.partitions]}
            for topic in exchange.body.topics
        ]
    }


def _entry(partition: int, error: ErrorCode, found: tuple[int, int, int] = NOTHING) -> dict[str, Any]:
    timestamp, offset, epoch = found
    return {
        "partition_index": partition,
        "error_code": error,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": epoch,
    }


def _partition(version: int, state: State, topic: str, asked: Any, refusal: ErrorCode) -> Steps:
    number = asked.partition_index
    if asked.timestamp < 0 and version < FIRST_VERSION.get(asked.timestamp, 1 << 15):
        return _entry(number, ErrorCode.UNSUPPORTED_VERSION)
    error = refusal if refusal is not ErrorCode.NONE else epoch_error(getattr(asked, "current_leader_epoch", -1))
    if error is not ErrorCode.NONE:
        return _entry(number, error)
    try:
        found = yield from _find(state.store.log(topic, number), asked.timestamp)
        return _entry(number, ErrorCode.NONE, found)
    except StorageError as refused:
        return _entry(number, refused.error)


def _find(log: Log, timestamp: int) -> Steps:
    if timestamp == LATEST:
        return (-1, log.high_watermark, LEADER_EPOCH)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return (-1, log.log_start_offset, LEADER_EPOCH)
    if timestamp == LATEST_TIERED:
        return NOTHING
    if timestamp == MAX_TIMESTAMP:
        timestamp = yield from in_lane(log.search_greatest_time(), SEARCH)
        if timestamp < 0:
            return NOTHING
    found = yield from in_lane(log.search_time(timestamp), SEARCH)
    return NOTHING if found is None else (found.timestamp, found.offset, LEADER_EPOCH)
