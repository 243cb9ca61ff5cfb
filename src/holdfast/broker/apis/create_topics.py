"""CreateTopics, 2 to 7.

Version notes: 4 -1 for the broker's defaults · 5 compact, the topic's settings in the answer · 7 topic ids.
Replica assignments are kept as they are given: with `--rack` they say in which racks a partition is.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.configs import topic_entries
from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.named import by_key
from holdfast.broker.security.rules import Operation, Resource, rule_text
from holdfast.broker.slices import Steps
from holdfast.broker.state import State
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.topics import Topic
from holdfast.broker.topics import NOTHING_SO_FAR, SoFar, create
from holdfast.model import ErrorCode

_CONFIG_FIELDS = ("name", "value", "config_source")


def handle(exchange: Exchange, state: State) -> Steps:
    asked, repeated = yield from by_key(exchange.body.topics, lambda topic: topic.name)
    so_far = NOTHING_SO_FAR

    def answer(topic: Any) -> Body:
        """A request that only validates is held to the broker's limits too: otherwise the answer could list more
        topics than there may be, in hundreds of megabytes."""
        nonlocal so_far
        if topic.name in repeated:
            return _refused(topic.name, ErrorCode.INVALID_REQUEST, "The topic is named more than once in this request.")
        body = _answer(exchange, state, topic, so_far)
        if exchange.body.validate_only and body["error_code"] is ErrorCode.NONE:
            so_far = SoFar(so_far.topics + 1, so_far.partitions + body["num_partitions"])
        return body

    results = yield from state.changes.each(
        asked.values(),
        answer,
        lambda topic, error: _refused(topic.name, error.error, f"{error.what} {error.do}"),
    )
    return {"topics": results}


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    return {"topics": [_refused(topic.name, error, None) for topic in exchange.body.topics]}


def _refused(name: str, error: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"name": name, "error_code": error, "error_message": message, "configs": []}


def _answer(exchange: Exchange, state: State, asked: Any, so_far: SoFar) -> dict[str, Any]:
    allowed = state.may(exchange, Operation.CREATE, Resource.CLUSTER, "")
    if not allowed and not state.may(exchange, Operation.CREATE, Resource.TOPIC, asked.name):
        state.tell_refusal(exchange, Operation.CREATE, Resource.TOPIC, asked.name)
        text = f"No rule of this user allows {rule_text(Operation.CREATE, Resource.TOPIC, asked.name)}."
        return _refused(asked.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
    try:
        topic = _create(exchange, state, asked, so_far)
    except StorageError as error:
        return _refused(asked.name, error.error, f"{error.what} {error.do}")
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": ErrorCode.NONE,
        "num_partitions": topic.partitions,
        "replication_factor": len(state.replicas(topic, 0)),
        "configs": [{name: entry[name] for name in _CONFIG_FIELDS} for entry in topic_entries(topic.configs)],
    }


def _create(exchange: Exchange, state: State, asked: Any, so_far: SoFar) -> Topic:
    assignments: list[tuple[int, ...]] = []
    if asked.assignments:
        by_number = {each.partition_index: each.broker_ids for each in asked.assignments}
        if sorted(by_number) != list(range(len(asked.assignments))):
            what = "The assigned partitions are not numbered from 0 without gaps."
            raise StorageError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what, "Assign every partition once.")
        if (asked.num_partitions, asked.replication_factor) != (-1, -1):
            what = "Both an assignment and a number of partitions or replicas were given."
            raise StorageError(ErrorCode.INVALID_REQUEST, what, "Give one or the other.")
        assignments = [by_number[number] for number in sorted(by_number)]
    return create(
        state,
        asked.name,
        partitions=asked.num_partitions,
        replication=asked.replication_factor,
        assignments=assignments,
        configs={entry.name: entry.value or "" for entry in asked.configs},
        validate_only=exchange.body.validate_only,
        so_far=so_far,
    )
