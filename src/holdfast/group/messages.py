"""What a member and its coordinator say to each other, as values.

The same values travel through the simulator's network, through `wire` to a real Kafka, and through the embedded
broker. Timeouts are milliseconds. Nothing here knows a version of Kafka's wire format: `wire` translates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.model import ErrorCode, JoinedMember, Membership, TopicPartition

CONSUMER_PROTOCOL_TYPE = "consumer"

MAX_REASON_LENGTH = 255
"""Reasons are read by people. Kafka's own client cuts at 255; uncut ones broke the frame (KAFKA-13998)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """Take part in the next round."""

    group: str
    membership: Membership
    """The generation is not sent: it is there to tell which membership an answer belongs to (KAFKA-9823)."""
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    protocol_type: str = CONSUMER_PROTOCOL_TYPE
    protocols: tuple[tuple[str, bytes], ...] = ()
    """(assignor name, subscription bytes) in order of preference."""
    reason: str | None = None
    client_id: str = ""
    client_host: str = ""
    requires_known_member_id: bool = True
    """Whether the member understands MEMBER_ID_REQUIRED (JoinGroup v4 and later)."""
    supports_skipping_assignment: bool = True
    """Whether a returning static leader understands `skip_assignment` (JoinGroup v9 and later)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    error: ErrorCode = ErrorCode.NONE
    membership: Membership = field(default_factory=Membership)
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    """The previous plan is still in force: sync without planning (KIP-814)."""
    members: tuple[JoinedMember, ...] = ()
    """All members in the leader's answer; empty in the others'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    group: str
    membership: Membership
    instance_id: str | None = None
    protocol_type: str | None = CONSUMER_PROTOCOL_TYPE
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    """member id -> assignment bytes; the leader's plan, empty from everybody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""
    """No bytes at all when the leader left the member out of its plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    group: str
    membership: Membership
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaver:
    """One member on its way out; a static one may be named by its instance id alone (KIP-345)."""

    member_id: str = ""
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    group: str
    members: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveAnswer:
    error: ErrorCode = ErrorCode.NONE
    members: tuple[tuple[Leaver, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """A position in a partition, as committed."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """Commit these offsets. Without a membership it comes from outside the group (an admin, manual assignment)."""

    group: str
    membership: Membership = field(default_factory=Membership)
    instance_id: str | None = None
    offsets: Mapping[TopicPartition, OffsetEntry] = field(default_factory=dict)
    ahead_of_join: bool = False
    """Whether our next join must not overtake it. It is sent on the join's connection, where the coordinator serves one
    request after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAnswer:
    errors: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
    """One verdict per partition asked for: an oversized entry is refused alone (KAFKA-16371)."""

    @property
    def first_error(self) -> ErrorCode:
        return next((code for _, code in sorted(self.errors.items()) if code is not ErrorCode.NONE), ErrorCode.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsetsRequest:
    group: str
    membership: Membership = field(default_factory=Membership)
    partitions: tuple[TopicPartition, ...] | None = None
    """None asks for every partition the group has committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsetsAnswer:
    error: ErrorCode = ErrorCode.NONE
    offsets: Mapping[TopicPartition, OffsetEntry] = field(default_factory=dict)
    """Partitions without a committed offset are absent."""


Request = JoinRequest | SyncRequest | HeartbeatRequest | LeaveRequest | CommitRequest | FetchOffsetsRequest
Answer = JoinAnswer | SyncAnswer | HeartbeatAnswer | LeaveAnswer | CommitAnswer | FetchOffsetsAnswer


def cut_reason(reason: str) -> str:
    """A reason short enough to send."""
    return reason if len(reason) <= MAX_REASON_LENGTH else reason[: MAX_REASON_LENGTH - 1] + "…"
