"""DescribeConfigs, 1 to 4: settings of topics, and of the broker.

Version notes: 1 synonyms and sources · 3 types and documentation · 4 compact.
Not implemented: resources other than topics and brokers. The broker's settings are those it was started with.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.configs import BROKER_RESOURCE, TOPIC_RESOURCE, broker_entries, topic_entries
from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.security.rules import Operation
from holdfast.broker.slices import PAUSE, Steps
from holdfast.broker.state import State
from holdfast.model import ErrorCode


def handle(exchange: Exchange, state: State) -> Steps:
    """A resource that is named several times is answered once, with the settings of the first time."""
    asked: dict[tuple[int, str], Any] = {}
    for each in exchange.body.resources:
        asked.setdefault((each.resource_type, each.resource_name), each)
        yield PAUSE
    results = []
    for each in asked.values():
        results.append(_resource(exchange, state, each))
        yield PAUSE
    return {"results": results}


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    return {"results": [_refused(each, error) for each in exchange.body.resources]}


def _refused(asked: Any, error: ErrorCode, message: str | None = None) -> dict[str, Any]:
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "configs": [],
    }


def _resource(exchange: Exchange, state: State, asked: Any) -> Body:
    synonyms = getattr(exchange.body, "include_synonyms", False)
    if asked.resource_type == BROKER_RESOURCE:
        if asked.resource_name not in ("", *(str(node.node_id) for node in state.nodes)):
            return _refused(asked, ErrorCode.INVALID_REQUEST, "There is no broker of that number here.")
        error = state.cluster_refusal(exchange, Operation.DESCRIBE_CONFIGS)
        entries = broker_entries(state.settings, names=asked.configuration_keys, synonyms=synonyms)
    elif asked.resource_type == TOPIC_RESOURCE:
        error = state.topic_refusal(exchange, Operation.DESCRIBE_CONFIGS, asked.resource_name)
        if error is not ErrorCode.NONE:
            return _refused(asked, error)
        topic = state.store.topic(asked.resource_name)
        if topic is None:
            return _refused(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        documentation = getattr(exchange.body, "include_documentation", False)
        entries = topic_entries(
            topic.configs, names=asked.configuration_keys, synonyms=synonyms, documentation=documentation
        )
    else:
        return _refused(asked, ErrorCode.INVALID_REQUEST, "Only topics and brokers have settings here.")
    if error is not ErrorCode.NONE:
        return _refused(asked, error)
    return {**_refused(asked, ErrorCode.NONE), "configs": entries}
