"""What an administrator asks a coordinator, and what it shows: the values that members never send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.model import ErrorCode, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupRequest:
    """Forget the group and its offsets (one group of Kafka's DeleteGroups)."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupAnswer:
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsRequest:
    """Forget these committed offsets (Kafka's OffsetDelete)."""

    group: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsAnswer:
    error: ErrorCode = ErrorCode.NONE
    """The whole request's verdict. When it is an error, `errors` is empty."""
    errors: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)


AdminRequest = DeleteGroupRequest | DeleteOffsetsRequest
AdminAnswer = DeleteGroupAnswer | DeleteOffsetsAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """One member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    """What it joined with, for the chosen protocol. Empty unless the group is stable, as in Kafka."""
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One group as DescribeGroups shows it. A group that does not exist is "Dead"."""

    group: str
    state: str
    """Kafka's name of it: Empty, PreparingRebalance, CompletingRebalance, Stable, Dead."""
    protocol_type: str = ""
    """Empty for a simple group: one that only keeps offsets."""
    protocol: str = ""
    generation: int = 0
    leader: str = ""
    members: tuple[MemberView, ...] = ()
    """Sorted by member id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """One group as ListGroups shows it."""

    group: str
    state: str
    protocol_type: str = ""
