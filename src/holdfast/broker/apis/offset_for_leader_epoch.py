"""OffsetForLeaderEpoch, 2 to 4: where an epoch ended. Consumers ask this to detect that a log was truncated.

Version notes: 3 the replica's id · 4 compact. There is one epoch, and it has not ended: the answer is the log end.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.apis.fetch import epoch_error
from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.security.rules import Operation
from holdfast.broker.slices import PAUSE, Steps
from holdfast.broker.state import LEADER_EPOCH, State
from holdfast.broker.storage.errors import StorageError
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
            {"topic": topic.topic, "partitions": [_entry(each.partition, error) for each in topic.partitions]}
            for topic in exchange.body.topics
        ]
    }


def _entry(partition: int, error: ErrorCode, epoch: int = -1, end_offset: int = -1) -> dict[str, Any]:
    return {"partition": partition, "error_code": error, "leader_epoch": epoch, "end_offset": end_offset}


def _topic(exchange: Exchange, state: State, asked: Any) -> Steps:
    refusal = state.topic_refusal(exchange, Operation.DESCRIBE, asked.topic)
    partitions = []
    for each in asked.partitions:
        partitions.append(_partition(state, asked.topic, each, refusal))
        yield PAUSE
    return {"topic": asked.topic, "partitions": partitions}


def _partition(state: State, topic: str, asked: Any, refusal: ErrorCode) -> dict[str, Any]:
    error = refusal if refusal is not ErrorCode.NONE else epoch_error(asked.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return _entry(asked.partition, error)
    try:
        log = state.store.log(topic, asked.partition)
    except StorageError as refused:
        return _entry(asked.partition, refused.error)
    if asked.leader_epoch != LEADER_EPOCH:
        return _entry(asked.partition, ErrorCode.NONE)
    return _entry(asked.partition, ErrorCode.NONE, LEADER_EPOCH, log.high_watermark)
