"""Creating topics, for the two APIs that do: bounds of the whole broker, and where replicas are said to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.broker.state import State
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.topics import Topic
from holdfast.model import ErrorCode

DEFAULT_REPLICAS = 1
"""Kafka's default.replication.factor."""


class SoFar(NamedTuple):
    """What the topics before this one in the same request would take, if it only asks whether they could be created."""

    topics: int = 0
    partitions: int = 0


NOTHING_SO_FAR = SoFar()


def create(
    state: State,
    name: str,
    *,
    partitions: int = -1,
    replication: int = -1,
    assignments: Sequence[Sequence[int]] = (),
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
    so_far: SoFar = NOTHING_SO_FAR,
) -> Topic:
    """Create a topic, or raise a StorageError. -1 stands for the broker's default."""
    if assignments:
        partitions = len(assignments)
    elif partitions == -1:
        partitions = state.settings.default_partitions
    check_room(state, topics=so_far.topics + 1, partitions=so_far.partitions + max(partitions, 0))
    check_collision(state, name)
    replicas = check_assignments(state, assignments) if assignments else spread(state, 0, partitions, replication)
    return state.store.create_topic(name, partitions, configs=configs, replicas=replicas, validate_only=validate_only)


def check_collision(state: State, name: str) -> None:
    """Kafka's rule: names of metrics can't tell "." from "_", so topics that differ in these alone collide."""
    other = state.store.colliding_topic(name)
    if other is not None:
        what = f"{name!r} collides with {other!r}: a '.' and a '_' can't be told apart in the names of metrics."
        raise StorageError(ErrorCode.INVALID_TOPIC_EXCEPTION, what, "Choose another name.")


def check_room(state: State, *, topics: int, partitions: int) -> None:
    limits = state.limits
    if state.store.topic_count() + topics > limits.max_topics:
        what = f"There are {limits.max_topics} topics already."
        if topics > 1:
            what = f"{topics} topics more would be over {limits.max_topics} in all."
        raise StorageError(ErrorCode.POLICY_VIOLATION, what, "Delete some first.")
    if state.store.partition_count() + partitions > limits.max_partitions:
        what = f"{partitions} partitions more would be over {limits.max_partitions} in all."
        raise StorageError(ErrorCode.POLICY_VIOLATION, what, "Use fewer, or delete topics first.")


def spread(state: State, first: int, count: int, replication: int) -> list[list[int]]:
    """Replica lists for new partitions; leaders are spread over the brokers in turn. Empty if there is one broker."""
    factor = DEFAULT_REPLICAS if replication == -1 else replication
    nodes = [node.node_id for node in state.nodes]
    if not 0 < factor <= len(nodes):
        what = f"A replication factor of {factor} needs as many brokers, and there are {len(nodes)}."
        raise StorageError(ErrorCode.INVALID_REPLICATION_FACTOR, what, f"Use 1 to {len(nodes)}, or --rack for more.")
    if len(nodes) == 1:
        return []
    numbers = range(first, first + max(count, 0))
    return [[nodes[(number + step) % len(nodes)] for step in range(factor)] for number in numbers]


def check_assignments(state: State, assignments: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    known = {node.node_id for node in state.nodes}
    for brokers in assignments:
        if not brokers or len(set(brokers)) != len(brokers) or not known.issuperset(brokers):
            what = f"{list(brokers)} is not a list of different brokers of {sorted(known)}."
            raise StorageError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what, "Name each broker once.")
    return assignments
