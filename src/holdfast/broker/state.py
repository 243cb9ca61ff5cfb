"""What the APIs share: the store, the groups, the advertised brokers, who may do what, and fetches that wait.

One object per broker, built by `broker.Broker`. Handlers take it as an argument; none keeps state of its own.
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from holdfast.broker.changes import Changes
from holdfast.broker.cleaner import Cleaner
from holdfast.broker.clock import Clock
from holdfast.broker.collector import Collector
from holdfast.broker.compiled_check import CompiledCheck
from holdfast.broker.exchange import Exchange
from holdfast.broker.flusher import Flusher
from holdfast.broker.groups import Groups
from holdfast.broker.limited_log import LimitedLog
from holdfast.broker.limits import Limits
from holdfast.broker.overtaking import Overtaking
from holdfast.broker.security.rules import Operation, Resource, Rules, rule_text
from holdfast.broker.security.users import Users
from holdfast.broker.settings import BrokerSettings
from holdfast.broker.slices import Slices, Steps
from holdfast.broker.storage.log import Log
from holdfast.broker.storage.store import Store
from holdfast.broker.storage.topics import Topic
from holdfast.broker.storage_log import StorageLog
from holdfast.broker.waiting import Waiting
from holdfast.model import ErrorCode, TopicPartition

log = logging.getLogger("holdfast.broker")

LEADER_EPOCH = 0
"""The only one there is: leaders never change."""
NO_OPERATIONS = -(1 << 31)
"""Kafka's "not asked for" in fields that list allowed operations."""


@dataclass(frozen=True, slots=True)
class Node:
    """One advertised broker. All of them are this process."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class State:
    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: Store,
        clock: Clock,
        flusher: Flusher,
        groups: Groups,
        users: Users,
        unsent_bytes: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.limits: Limits = settings.limits
        self.store = store
        self.clock = clock
        self.groups = groups
        self.users = users
        self.rules: Rules = users.rules
        self.unsent_bytes = unsent_bytes
        self.waiting = Waiting()
        self.flusher = flusher
        self.overtaking = Overtaking(clock.now_ms)
        self.storage_log = StorageLog(clock.now_ms)
        self.limited_log = LimitedLog(log, time.monotonic)
        self.slices = Slices()
        self.collector = Collector()
        self.changes = Changes(store, self.slices, self._after_changes)
        self._deleted: list[TopicPartition] = []
        """Partitions whose committed offsets are still to be forgotten."""
        self.cleaner = Cleaner(store.space, self.slices)
        self.compiled = CompiledCheck()
        self.nodes: tuple[Node, ...] = ()
        """Set once the listeners know their ports."""
        self.cluster_id = base64.urlsafe_b64encode(store.cluster_id.bytes).decode().rstrip("=")

    # Topics

    def replicas(self, topic: Topic, partition: int) -> tuple[int, ...]:
        """The brokers that hold a partition, its leader first. Those that a topic names and that are not there, because
        the broker was started with other racks, are left out: any of them is this process."""
        named = topic.replicas[partition] if partition < len(topic.replicas) else ()
        here = tuple(node_id for node_id in named if node_id < len(self.nodes))
        return here or (self.nodes[partition % len(self.nodes)].node_id,)

    def topic(self, name: str, topic_id: UUID | None) -> Topic | None:
        """By name, or by id where the message has one."""
        return self.store.topic(name) if topic_id is None else self.store.topic_by_id(topic_id)

    def log(self, topic: Topic, partition: int) -> Log | None:
        """A partition's log, None if there is no such partition."""
        return self.store.log_of(topic, partition) if 0 <= partition < topic.partitions else None

    def topic_deleted(self, topic: Topic) -> None:
        """What follows from a deletion, once it is on disk."""
        numbers = range(topic.partitions)
        self._deleted += [TopicPartition(topic.name, number) for number in numbers]
        self.waiting.changed((topic.topic_id, number) for number in numbers)

    def _after_changes(self) -> Steps | None:
        deleted, self._deleted = self._deleted, []
        return self.groups.partitions_deleted(deleted) if deleted else None

    def partition_exists(self, partition: TopicPartition) -> bool:
        topic = self.store.topic(partition.topic)
        return topic is not None and 0 <= partition.partition < topic.partitions

    # Who may do what

    def may(self, exchange: Exchange, operation: Operation, resource: Resource, name: str) -> bool:
        return self.rules.allow(exchange.client.principal, operation, resource, name)

    def topic_refusal(self, exchange: Exchange, operation: Operation, name: str) -> ErrorCode:
        """NONE if the operation is allowed. Ask before looking whether there is such a topic: then the error does not
        tell."""
        if self.may(exchange, operation, Resource.TOPIC, name):
            return ErrorCode.NONE
        self.tell_refusal(exchange, operation, Resource.TOPIC, name)
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def find_topic(
        self, exchange: Exchange, operation: Operation, name: str, topic_id: UUID | None
    ) -> tuple[Topic | None, ErrorCode]:
        """A topic by name, or by id where the message has one, if it may be used so; else None and why. The id of a
        topic that the user may not see is not known."""
        topic = self.topic(name, topic_id)
        if topic_id is not None and topic is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
        error = self.topic_refusal(exchange, operation, name if topic is None else topic.name)
        if topic is None and error is ErrorCode.NONE:
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic_id is not None and topic is not None and error is not ErrorCode.NONE:
            seen = self.may(exchange, Operation.DESCRIBE, Resource.TOPIC, topic.name)
            return None, error if seen else ErrorCode.UNKNOWN_TOPIC_ID
        return (topic if error is ErrorCode.NONE else None), error

    def group_refusal(self, exchange: Exchange, operation: Operation, name: str) -> ErrorCode:
        if self.may(exchange, operation, Resource.GROUP, name):
            return ErrorCode.NONE
        self.tell_refusal(exchange, operation, Resource.GROUP, name)
        return ErrorCode.GROUP_AUTHORIZATION_FAILED

    def cluster_refusal(self, exchange: Exchange, operation: Operation) -> ErrorCode:
        if self.may(exchange, operation, Resource.CLUSTER, ""):
            return ErrorCode.NONE
        self.tell_refusal(exchange, operation, Resource.CLUSTER, "")
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    def tell_refusal(self, exchange: Exchange, operation: Operation, resource: Resource, name: str) -> None:
        """Log which rule is missing: the client is only told that it may not, or that there is no such topic."""
        who = f"{exchange.client.principal}@{exchange.client.host}"
        rule = rule_text(operation, resource, name)
        self.limited_log.warning("%s: %s refused: no rule allows %s", who, exchange.api.name, rule)

    def operations(self, exchange: Exchange, resource: Resource, name: str) -> int:
        """The allowed operations as Kafka's bit field."""
        return self.rules.bits(exchange.client.principal, resource, name)
