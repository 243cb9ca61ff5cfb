"""A query's membership, as reported to operators. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.model import Membership, TopicPartition, by_topic
from holdfast.spark.work import Work


def lags(work: Work, ends: Mapping[TopicPartition, int]) -> list[int]:
    """What is left to read of each owned partition whose end and position are known."""
    return [
        max(0, ends[partition] - held.position)
        for partition, held in work.held.items()
        if partition in ends and held.position is not None
    ]


def report(membership: Membership, work: Work, ends: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """What is owned, the last known end of each partition, and how much is left to read."""
    positions = {p: held.position for p, held in sorted(work.held.items())}
    latest: dict[str, dict[str, int]] = {}
    for partition in positions:
        end = ends.get(partition)
        if end is not None:
            latest.setdefault(partition.topic, {})[str(partition.partition)] = end
    return {
        "latest": latest,
        "lag": sum(lags(work, ends)),
        "owned": by_topic(positions),
        "member": membership.member_id,
        "generation": membership.generation,
    }
