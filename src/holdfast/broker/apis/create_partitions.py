"""CreatePartitions, 0 to 3: more partitions for existing topics.

Version notes: 2 compact · 3 nothing that we use.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.named import by_key
from holdfast.broker.security.rules import Operation
from holdfast.broker.slices import Steps
from holdfast.broker.state import State
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.topics import check_assignments, check_room, spread
from holdfast.model import ErrorCode


def handle(exchange: Exchange, state: State) -> Steps:
    asked, repeated = yield from by_key(exchange.body.topics, lambda topic: topic.name)
    results = yield from state.changes.each(
        asked.values(),
        lambda topic: _answer(exchange, state, topic, repeated=topic.name in repeated),
        lambda topic, error: _result(topic.name, error.error, f"{error.what} {error.do}"),
    )
    return {"results": results}


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    return {"results": [_result(topic.name, error) for topic in exchange.body.topics]}


def _result(name: str, error: ErrorCode, message: str | None = None) -> dict[str, Any]:
    return {"name": name, "error_code": error, "error_message": message}


def _answer(exchange: Exchange, state: State, asked: Any, *, repeated: bool) -> Body:
    if repeated:
        return _result(asked.name, ErrorCode.INVALID_REQUEST, "The topic is named more than once in this request.")
    error = state.topic_refusal(exchange, Operation.ALTER, asked.name)
    if error is not ErrorCode.NONE:
        return _result(asked.name, error)
    try:
        _grow(state, asked, validate_only=exchange.body.validate_only)
    except StorageError as refused:
        return _result(asked.name, refused.error, f"{refused.what} {refused.do}")
    return _result(asked.name, ErrorCode.NONE)


def _grow(state: State, asked: Any, *, validate_only: bool) -> None:
    topic = state.store.topic(asked.name)
    present = 0 if topic is None else topic.partitions
    added = asked.count - present
    check_room(state, topics=0, partitions=max(added, 0))
    if asked.assignments is not None:
        replicas = check_assignments(state, [each.broker_ids for each in asked.assignments])
    else:
        replicas = spread(state, present, added, -1 if topic is None else len(state.replicas(topic, 0)))
    state.store.grow_topic(asked.name, asked.count, replicas=replicas, validate_only=validate_only)
