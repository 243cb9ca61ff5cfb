"""What a coordinator writes down: the durable half of a group, as values.

A group is written when a round's join completes (so that a generation is never given out twice), when the leader's
plan arrives, when a static member's place is taken by its successor, and when the group becomes empty. Each record
holds the whole group, so the newest one per key is enough: the log may be compacted.

What is not written: who is joining right now, ids given out and not used, timers, waiting clients. A coordinator that
starts from its log continues with the last completed generation, and members join again as they would anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.group.coordinator.states import State
from holdfast.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """One member of a written generation."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """One generation of a group."""

    group: str
    state: State
    """EMPTY, COMPLETING (the plan is still awaited) or STABLE."""
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    since_ms: float = 0.0
    """When the group came into this state: offsets of an empty group expire from here on."""
    members: tuple[MemberRecord, ...] = ()
    """In order of joining: the first is the next to lead."""


@dataclass(frozen=True, slots=True)
class GroupTombstone:
    """The group is gone. Its offsets have tombstones of their own."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRecord:
    """One committed offset."""

    group: str
    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_at_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class OffsetTombstone:
    """The committed offset is gone."""

    group: str
    partition: TopicPartition


Record = GroupRecord | GroupTombstone | OffsetRecord | OffsetTombstone
