"""One request of the fetcher: the partitions that it asks for together, and Kafka's message for them."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.fetch.planner import may_name_follower
from holdfast.fetch.values import Asked
from holdfast.net.flow_values import FetchSettings
from holdfast.net.flows import Flow
from holdfast.net.metadata import ClusterInfo
from holdfast.wire.fetch import FetchPartition, FetchRequest, FetchTopic


@dataclass(slots=True, eq=False)
class Request:
    """Its partitions, each with the version of its flow, and the room reserved for the answer."""

    partitions: list[tuple[Flow, int, Asked]]
    size: int
    wait_ms: int

    def message(self, info: ClusterInfo, settings: FetchSettings, now: float) -> FetchRequest:
        """What is sent. The rack is named, so that a leader may name a follower, only if that suits all partitions."""
        by_topic: dict[str, list[FetchPartition]] = {}
        for flow, _, one in self.partitions:
            by_topic.setdefault(flow.partition.topic, []).append(
                FetchPartition(
                    partition=flow.partition.partition,
                    offset=one.offset,
                    last_fetched_epoch=one.epoch,
                    max_bytes=flow.track.partition_bytes or settings.partition_bytes,
                )
            )
        tell_rack = all(may_name_follower(flow.track, now) for flow, _, _ in self.partitions)
        return FetchRequest(
            max_wait_ms=self.wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=min(self.size, settings.max_bytes),
            read_committed=settings.read_committed,
            rack=settings.rack if tell_rack else "",
            topics=tuple(
                FetchTopic(
                    topic=topic,
                    topic_id=info.topics[topic].topic_id if topic in info.topics else None,
                    partitions=tuple(partitions),
                )
                for topic, partitions in by_topic.items()
            ),
        )
