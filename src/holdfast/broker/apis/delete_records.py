"""DeleteRecords, 0 to 2: forget everything before an offset; -1 means all of it.

Version notes: 2 compact.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.security.rules import Operation
from holdfast.broker.state import State
from holdfast.broker.storage.errors import StorageError
from holdfast.model import ErrorCode


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


def _entry(partition: int, error: ErrorCode, low_watermark: int = -1) -> dict[str, Any]:
    return {"partition_index": partition, "low_watermark": low_watermark, "error_code": error}


def _topic(exchange: Exchange, state: State, asked: Any) -> Body:
    error = state.topic_refusal(exchange, Operation.DELETE, asked.name)
    if error is not ErrorCode.NONE:
        return {"name": asked.name, "partitions": [_entry(each.partition_index, error) for each in asked.partitions]}
    return {"name": asked.name, "partitions": [_delete(state, asked.name, each) for each in asked.partitions]}


def _delete(state: State, topic: str, asked: Any) -> dict[str, Any]:
    number = asked.partition_index
    try:
        return _entry(number, ErrorCode.NONE, state.store.log(topic, number).delete_records(asked.offset))
    except StorageError as refused:
        return _entry(number, refused.error)
