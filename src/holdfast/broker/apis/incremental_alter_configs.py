"""IncrementalAlterConfigs, 0 to 1: change single settings of topics.

Version notes: 1 compact. Operations: 0 set · 1 delete · 2 append and 3 subtract, for lists.
Not implemented: changing the broker's own settings, which are given when it starts.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.apis.alter_configs import apply, each_once, refuse, result
from holdfast.broker.exchange import Exchange
from holdfast.broker.slices import Steps
from holdfast.broker.state import State
from holdfast.model import ErrorCode

SET, DELETE, APPEND, SUBTRACT = range(4)

__all__ = ["handle", "refuse"]


def handle(exchange: Exchange, state: State) -> Steps:
    return (yield from each_once(exchange, state, lambda each: _change(exchange, state, each)))


def _change(exchange: Exchange, state: State, asked: Any) -> dict[str, Any]:
    topic = state.store.topic(asked.resource_name)
    configs = {} if topic is None else dict(topic.configs)
    names = [entry.name for entry in asked.configs]
    if len(set(names)) != len(names):
        return result(asked, ErrorCode.INVALID_REQUEST, "A setting is named more than once in this request.")
    for entry in asked.configs:
        if entry.config_operation == DELETE:
            configs.pop(entry.name, None)
        elif entry.config_operation in (SET, APPEND, SUBTRACT) and entry.value is not None:
            configs[entry.name] = _changed(configs.get(entry.name, ""), entry.config_operation, entry.value)
        else:
            return result(
                asked, ErrorCode.INVALID_REQUEST, f"Setting {entry.name} has no value, or an unknown operation."
            )
    return apply(exchange, state, asked, configs)


def _changed(before: str, operation: int, value: str) -> str:
    if operation == SET:
        return value
    items = [item for item in before.split(",") if item]
    named = value.split(",")
    if operation == APPEND:
        return ",".join([*items, *(item for item in named if item not in items)])
    return ",".join(item for item in items if item not in named)
