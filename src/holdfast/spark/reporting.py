"""A query's membership, as reported to operators. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.model import Membership, TopicPartition, by_topic
from holdfast.spark.work import Work


def report(membership: Membership, work: Work, ends: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """What is owned, the last known end of each partition, and how much is left to read."""
    positions = {p: held.position for p, held in sorted(work.held.items())}
    latest: dict[str, dict[str, int]] = {}
    lag = 0
    for partition, position in positions.items():
        end = ends.get(partition)
        if end is not None:
            latest.setdefault(partition.topic, {})[str(partition.partition)] = end
            lag += max(0, end - position) if position is not None else 0
    return {
        "latest": latest,
        "lag": lag,
        "owned": by_topic(positions),
        "member": membership.member_id,
        "generation": membership.generation,
    }
