"""ListOffsets, 1 to 10: where a partition begins and ends, and where a time is.

Version notes: 2 isolation level · 4 leader epochs · 6 compact · 7 the record with the latest time (-3) · 8 the earliest
local offset (-4), here the earliest · 9 the latest tiered offset (-5), of which there is none · 10 a time-out, which we
never need. Not implemented: 11, which is about tiered storage.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.apis.fetch import epoch_error
from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.security.rules import Operation
from holdfast.broker.state import LEADER_EPOCH, State
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.log import Log
from holdfast.model import ErrorCode

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
NOTHING = (-1, -1, -1)
"""Timestamp, offset and epoch when there is no such record."""


def handle(exchange: Exchange, state: State) -> Body:
    return {"topics": [_topic(exchange, state, topic) for topic in exchange.body.topics]}


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


def _topic(exchange: Exchange, state: State, asked: Any) -> Body:
    refusal = state.topic_refusal(exchange, Operation.DESCRIBE, asked.name)
    return {
        "name": asked.name,
        "partitions": [_partition(state, asked.name, each, refusal) for each in asked.partitions],
    }


def _partition(state: State, topic: str, asked: Any, refusal: ErrorCode) -> Body:
    number = asked.partition_index
    error = refusal if refusal is not ErrorCode.NONE else epoch_error(getattr(asked, "current_leader_epoch", -1))
    if error is not ErrorCode.NONE:
        return _entry(number, error)
    try:
        return _entry(number, ErrorCode.NONE, _find(state.store.log(topic, number), asked.timestamp))
    except StorageError as refused:
        return _entry(number, refused.error)


def _find(log: Log, timestamp: int) -> tuple[int, int, int]:
    if timestamp == LATEST:
        return (-1, log.high_watermark, LEADER_EPOCH)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return (-1, log.log_start_offset, LEADER_EPOCH)
    if timestamp < 0 and timestamp != MAX_TIMESTAMP:
        return NOTHING
    found = log.offset_of_max_time() if timestamp == MAX_TIMESTAMP else log.offset_for_time(timestamp)
    return NOTHING if found is None else (found.timestamp, found.offset, LEADER_EPOCH)
