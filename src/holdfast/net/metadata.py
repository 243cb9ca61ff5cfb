"""What a cluster looks like: brokers, topics, leaders, replicas, racks. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from holdfast.model import ClusterView, ErrorCode, TopicPartition, TopicView
from holdfast.wire.codec import error_code


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    partition: int
    leader: int = -1
    """-1 while there is none."""
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    name: str
    topic_id: UUID | None = None
    internal: bool = False
    error: ErrorCode = ErrorCode.NONE
    partitions: Mapping[int, PartitionInfo] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """The cluster at one moment."""

    cluster_id: str | None = None
    controller: int = -1
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)

    def leader_of(self, partition: TopicPartition) -> Broker | None:
        topic = self.topics.get(partition.topic)
        info = None if topic is None else topic.partitions.get(partition.partition)
        return None if info is None else self.brokers.get(info.leader)

    def racks(self) -> dict[int, str | None]:
        """The brokers' racks, as far as they have one."""
        return {node: broker.rack for node, broker in self.brokers.items()}

    def view(self, topics: Iterable[str]) -> ClusterView:
        """What planning needs of these topics. Topics that don't exist are left out."""
        found = {name: self.topics[name] for name in sorted(set(topics)) if name in self.topics}
        return ClusterView(
            {name: self._topic_view(topic) for name, topic in found.items() if topic.error is ErrorCode.NONE}
        )

    def _topic_view(self, topic: TopicInfo) -> TopicView:
        count = max(topic.partitions, default=-1) + 1
        if not any(broker.rack is not None for broker in self.brokers.values()):
            return TopicView(count)
        return TopicView(count, tuple(self._racks(topic.partitions.get(number)) for number in range(count)))

    def _racks(self, info: PartitionInfo | None) -> frozenset[str]:
        replicas = () if info is None else info.replicas
        racks = (self.brokers[node].rack for node in replicas if node in self.brokers)
        return frozenset(rack for rack in racks if rack is not None)

    def with_topics(self, newer: ClusterInfo) -> ClusterInfo:
        """Brokers of the newer, topics of both; a topic that the newer says is gone is gone."""
        gone = {name for name, topic in newer.topics.items() if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        topics = {name: topic for name, topic in {**self.topics, **newer.topics}.items() if name not in gone}
        return ClusterInfo(
            cluster_id=newer.cluster_id, controller=newer.controller, brokers=newer.brokers, topics=topics
        )


def cluster_info(body: Any) -> ClusterInfo:
    """A Metadata answer of any version."""
    brokers = (Broker(one.node_id, one.host, one.port, getattr(one, "rack", None)) for one in body.brokers)
    return ClusterInfo(
        cluster_id=getattr(body, "cluster_id", None),
        controller=getattr(body, "controller_id", -1),
        brokers={broker.node_id: broker for broker in sorted(brokers, key=lambda broker: broker.node_id)},
        topics={
            topic.name: _topic_info(topic)
            for topic in sorted(body.topics, key=lambda topic: topic.name or "")
            if topic.name is not None
        },
    )


def _topic_info(topic: Any) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        topic_id=getattr(topic, "topic_id", None),
        internal=getattr(topic, "is_internal", False),
        error=error_code(topic.error_code),
        partitions={
            info.partition_index: PartitionInfo(
                partition=info.partition_index,
                leader=info.leader_id,
                leader_epoch=getattr(info, "leader_epoch", -1),
                replicas=info.replica_nodes,
                in_sync=info.isr_nodes,
                offline=getattr(info, "offline_replicas", ()),
                error=error_code(info.error_code),
            )
            for info in sorted(topic.partitions, key=lambda info: info.partition_index)
        },
    )
