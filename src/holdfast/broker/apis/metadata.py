"""Metadata, 0 to 13: the brokers, and topics with their partitions.

Version notes: 0 asks for everything with an empty list, later ones with null · 1 racks, controller · 2 cluster id ·
4 whether missing topics may be created · 5 offline replicas · 7 leader epochs · 8 allowed operations · 9 compact ·
10 topic ids · 12 by topic id · 13 a top-level error.
Not implemented: cluster operations (8 to 10), which DescribeCluster took over: nobody asks here.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from holdfast.broker.exchange import Body, Exchange
from holdfast.broker.named import by_key
from holdfast.broker.security.rules import Operation, Resource
from holdfast.broker.slices import PAUSE, Steps
from holdfast.broker.state import LEADER_EPOCH, NO_OPERATIONS, State
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.topics import Topic, check_name
from holdfast.broker.topics import create
from holdfast.model import ErrorCode

NONE = ErrorCode.NONE
PARTITIONS_AT_A_TIME = 100
"""Between two pauses: some tenths of a millisecond."""

Key = tuple[str | None, UUID | None]
"""A topic's name or id."""


def handle(exchange: Exchange, state: State) -> Steps:
    asked = exchange.body.topics
    everything = asked is None or (exchange.version == 0 and not asked)
    topics = yield from (_all(exchange, state) if everything else _asked(exchange, state, asked))
    return {**_cluster(state), "topics": topics}


def refuse(exchange: Exchange | None, error: ErrorCode) -> Body:
    assert exchange is not None
    asked = exchange.body.topics or ()
    topics = [_missing(exchange, topic.name, getattr(topic, "topic_id", None), error) for topic in asked]
    return {"brokers": [], "topics": topics, "error_code": error}


def _cluster(state: State) -> dict[str, Any]:
    brokers = [
        {"node_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack} for node in state.nodes
    ]
    return {"brokers": brokers, "cluster_id": state.cluster_id, "controller_id": state.nodes[0].node_id}


def _all(exchange: Exchange, state: State) -> Steps:
    answers = []
    for topic in state.store.topics():
        if state.may(exchange, Operation.DESCRIBE, Resource.TOPIC, topic.name):
            answers.append((yield from _found(exchange, state, topic)))
            yield PAUSE
    return answers


def _asked(exchange: Exchange, state: State, asked: Any) -> Steps:
    keys, _ = yield from by_key(asked, lambda wanted: (wanted.name, getattr(wanted, "topic_id", None)))
    found: dict[Key, Topic | ErrorCode] = {}
    created: list[Key] = []
    for key in keys:
        if _creates(exchange, state, *key):
            created.append(key)
        else:
            found[key] = _look_up(exchange, state, *key)
        yield PAUSE
    made = yield from state.changes.each(
        created,
        lambda key: (key, _look_up(exchange, state, *key)),
        lambda key, error: (key, error.error),
    )
    found.update(made)
    answers = []
    for name, topic_id in keys:
        topic = found[name, topic_id]
        if isinstance(topic, Topic):
            answers.append((yield from _found(exchange, state, topic)))
        else:
            answers.append(_missing(exchange, None if topic_id is not None else name or "", topic_id, topic))
        yield PAUSE
    return answers


def _creates(exchange: Exchange, state: State, name: str | None, topic_id: UUID | None) -> bool:
    """Whether asking for this topic creates it."""
    if topic_id is not None or name is None or state.store.topic(name) is not None:
        return False
    return _wants_creation(exchange, state) and _may_create(exchange, state, name)


def _wants_creation(exchange: Exchange, state: State) -> bool:
    return getattr(exchange.body, "allow_auto_topic_creation", True) and state.settings.auto_create_topics


def _look_up(exchange: Exchange, state: State, name: str | None, topic_id: UUID | None) -> Topic | ErrorCode:
    """The topic, created if that is wanted, or why there is none to show."""
    if topic_id is not None:
        topic = state.store.topic_by_id(topic_id)
        if topic is None or not state.may(exchange, Operation.DESCRIBE, Resource.TOPIC, topic.name):
            return ErrorCode.UNKNOWN_TOPIC_ID
        return topic
    if name is None:
        return ErrorCode.INVALID_REQUEST
    refusal = state.topic_refusal(exchange, Operation.DESCRIBE, name)
    if refusal is not NONE:
        return refusal
    return state.store.topic(name) or _created(exchange, state, name)


def _created(exchange: Exchange, state: State, name: str) -> Topic | ErrorCode:
    """Create a missing topic where that is wanted. Kafka makes clients ask again; here it exists at once."""
    try:
        check_name(name)
        if _wants_creation(exchange, state) and _may_create(exchange, state, name):
            return create(state, name)
    except StorageError as error:
        return error.error
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _may_create(exchange: Exchange, state: State, name: str) -> bool:
    allowed = state.may(exchange, Operation.CREATE, Resource.CLUSTER, "")
    return allowed or state.may(exchange, Operation.CREATE, Resource.TOPIC, name)


def _found(exchange: Exchange, state: State, topic: Topic) -> Steps:
    """A topic may have ten thousand partitions."""
    operations = NO_OPERATIONS
    if getattr(exchange.body, "include_topic_authorized_operations", False):
        operations = state.operations(exchange, Resource.TOPIC, topic.name)
    partitions = []
    for number in range(topic.partitions):
        replicas = state.replicas(topic, number)
        partitions.append(
            {
                "error_code": NONE,
                "partition_index": number,
                "leader_id": replicas[0],
                "leader_epoch": LEADER_EPOCH,
                "replica_nodes": replicas,
                "isr_nodes": replicas,
            }
        )
        if number % PARTITIONS_AT_A_TIME == PARTITIONS_AT_A_TIME - 1:
            yield PAUSE
    return {
        "error_code": NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": partitions,
        "topic_authorized_operations": operations,
    }


def _missing(exchange: Exchange, name: str | None, topic_id: UUID | None, error: ErrorCode) -> dict[str, Any]:
    shown = "" if name is None and exchange.version < 12 else name
    return {"error_code": error, "name": shown, "topic_id": topic_id, "partitions": []}
