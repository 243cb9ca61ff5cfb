"""DeleteRecords, 0 to 2: forget everything before an offset; -1 means all of it.

Version notes: 2 compact.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.security.rules import Operation
from holdfast.broker.slices import DELETE, PAUSE, InThread, Steps
from holdfast.broker.state import State
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.log import Log
from holdfast.model import ErrorCode


def handle(exchange: Exchange, state: State) -> Steps:
    topics = []
    for topic in exchange.body.topics:
        topics.append((yield from _topic(exchange, state, topic)))
    return {"topics": topics}


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    return {
        "topics": [
            {"name": topic.name, "partitions": [_entry(each.partition_index, error) for each in topic.partitions]}
            for topic in exchange.body.topics
        ]
    }


def _entry(partition: int, error: ErrorCode, low_watermark: int = -1) -> dict[str, Any]:
    return {"partition_index": partition, "low_watermark": low_watermark, "error_code": error}


def _topic(exchange: Exchange, state: State, asked: Any) -> Steps:
    error = state.topic_refusal(exchange, Operation.DELETE, asked.name)
    if error is not ErrorCode.NONE:
        return {"name": asked.name, "partitions": [_entry(each.partition_index, error) for each in asked.partitions]}
    partitions = []
    for each in asked.partitions:
        partitions.append((yield from _delete(state, asked.name, each)))
        yield PAUSE
    return {"name": asked.name, "partitions": partitions}


def _delete(state: State, topic: str, asked: Any) -> Steps:
    number = asked.partition_index
    try:
        log = state.store.log(topic, number)
        start = log.start_wanted(asked.offset)
        if start > log.log_start_offset:
            yield from _move_start(log, start)
        return _entry(number, ErrorCode.NONE, log.log_start_offset)
    except StorageError as refused:
        state.storage_log.tell(refused)
        return _entry(number, refused.error)


def _move_start(log: Log, start: int) -> Steps:
    """Write the new start to disk, then apply it, even if the client disconnects in between: otherwise the records
    would vanish only at the next start of the broker."""
    written = False

    def write() -> None:
        nonlocal written
        log.write_start(start)
        written = True

    try:
        yield InThread(write, DELETE)
    finally:
        if written:
            log.started_at(start)
