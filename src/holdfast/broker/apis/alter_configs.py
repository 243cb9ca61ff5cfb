"""AlterConfigs, 0 to 2: replace a topic's settings; what is not named goes back to its default.

Version notes: 2 compact. IncrementalAlterConfigs is the better one; Kafka's tools use it.
Not implemented: changing the broker's own settings, which are given when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.broker.configs import TOPIC_RESOURCE
from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.named import by_key
from holdfast.broker.security.rules import Operation
from holdfast.broker.slices import Steps
from holdfast.broker.state import State
from holdfast.broker.storage.errors import StorageError
from holdfast.model import ErrorCode


def handle(exchange: Exchange, state: State) -> Steps:
    return (yield from each_once(exchange, state, lambda each: _replace(exchange, state, each)))


def each_once(exchange: Exchange, state: State, change: Callable[[Any], Body]) -> Steps:
    """Change every resource that is named once."""
    asked, repeated = yield from by_key(exchange.body.resources, _resource)

    def once(each: Any) -> Body:
        if _resource(each) in repeated:
            return result(each, ErrorCode.INVALID_REQUEST, "The resource is named more than once in this request.")
        return change(each)

    responses = yield from state.changes.each(
        asked.values(), once, lambda each, error: result(each, error.error, f"{error.what} {error.do}")
    )
    return {"responses": responses}


def _resource(asked: Any) -> tuple[int, str]:
    return asked.resource_type, asked.resource_name


def _replace(exchange: Exchange, state: State, asked: Any) -> Body:
    return apply(exchange, state, asked, {entry.name: entry.value or "" for entry in asked.configs})


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    return {"responses": [result(each, error) for each in exchange.body.resources]}


def result(asked: Any, error: ErrorCode, message: str | None = None) -> dict[str, Any]:
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
    }


def apply(exchange: Exchange, state: State, asked: Any, configs: Mapping[str, str]) -> dict[str, Any]:
    """Give a topic these settings and no others."""
    if asked.resource_type != TOPIC_RESOURCE:
        return result(asked, ErrorCode.INVALID_REQUEST, "Only a topic's settings can be changed while the broker runs.")
    error = state.topic_refusal(exchange, Operation.ALTER_CONFIGS, asked.resource_name)
    if error is not ErrorCode.NONE:
        return result(asked, error)
    try:
        state.store.configure_topic(asked.resource_name, configs, validate_only=exchange.body.validate_only)
    except StorageError as refused:
        return result(asked, refused.error, f"{refused.what} {refused.do}")
    return result(asked, ErrorCode.NONE)
