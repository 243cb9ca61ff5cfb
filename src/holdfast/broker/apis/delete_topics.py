"""DeleteTopics, 1 to 6: topics with their records and every group's offsets of them.

Version notes: 4 compact · 5 a message with an error · 6 by topic id.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any
from uuid import UUID

from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.named import by_key
from holdfast.broker.security.rules import Operation
from holdfast.broker.slices import Steps
from holdfast.broker.state import State
from holdfast.broker.storage.errors import StorageError
from holdfast.model import ErrorCode

Asked = tuple[str | None, UUID | None]


def handle(exchange: Exchange, state: State) -> Steps:
    asked, _ = yield from by_key(_asked(exchange), lambda each: each)
    responses = yield from state.changes.each(
        asked,
        lambda each: _delete(exchange, state, *each),
        lambda each, error: _answer(each[0], each[1], error.error, error.what),
    )
    return {"responses": responses}


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    return {"responses": [_answer(name, topic_id, error) for name, topic_id in dict.fromkeys(_asked(exchange))]}


def _asked(exchange: Exchange) -> Iterable[Asked]:
    if exchange.version >= 6:
        return ((topic.name, topic.topic_id) for topic in exchange.body.topics)
    return ((name, None) for name in exchange.body.topic_names)


def _answer(name: str | None, topic_id: UUID | None, error: ErrorCode, message: str | None = None) -> dict[str, Any]:
    return {"name": name, "topic_id": topic_id, "error_code": error, "error_message": message}


def _delete(exchange: Exchange, state: State, name: str | None, topic_id: UUID | None) -> Body:
    if (name is None) == (topic_id is None):
        return _answer(name, topic_id, ErrorCode.INVALID_REQUEST, "Name the topic or give its id.")
    topic, error = state.find_topic(exchange, Operation.DELETE, name or "", topic_id)
    if topic is None:
        return _answer(name, topic_id, error)
    try:
        state.store.delete_topic(topic.name)
    except StorageError as refused:
        return _answer(name, topic_id, refused.error, refused.what)
    state.store.when_written(partial(state.topic_deleted, topic))
    return _answer(topic.name, topic.topic_id, ErrorCode.NONE)
