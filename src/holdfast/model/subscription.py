"""What members tell the leader, and what the leader tells them: the content of the consumer protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from holdfast.model.membership import NO_GENERATION
from holdfast.model.partition import AnyPartition, TopicPartition

MAX_FOLLOWERS = 3
"""The most members that may follow a partition's state (`assign.standby`). Each reads all of it once; two of them
survive two deaths at once."""


class RebalanceProtocol(IntEnum):
    """How partitions change hands. The number tells how advanced it is (KIP-429): the highest in common wins."""

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One member's subscription as the leader sees it."""

    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    """Claimed: said to be held when joining; may be stale."""
    generation: int = NO_GENERATION
    """The generation in which `owned` was held (subscription v2 and later; -1 before)."""
    user_data: bytes | None = None
    rack: str | None = None
    instance_id: str | None = None
    version: int = 3
    """Version of the consumer protocol it came in; v0 has no `owned`, v1 no `generation`, v2 no `rack`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """One member as the coordinator lists it to the leader."""

    member_id: str
    instance_id: str | None = None
    metadata: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a round gives one member."""

    partitions: frozenset[TopicPartition] = frozenset()
    user_data: bytes | None = None

    if TYPE_CHECKING:
        # A program's own assignor gives partitions of confluent-kafka's class: of a plan only their names are read.
        def __init__(
            self, *, partitions: frozenset[AnyPartition] = frozenset(), user_data: bytes | None = None
        ) -> None: ...


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic as the leader's metadata shows it."""

    partitions: int
    racks: tuple[frozenset[str], ...] = ()
    """Per partition the racks that hold a replica; empty when no broker has a rack."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The part of the cluster's metadata that planning needs."""

    topics: Mapping[str, TopicView] = field(default_factory=dict)

    def exists(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and 0 <= partition.partition < topic.partitions
