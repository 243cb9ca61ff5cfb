"""A group at one moment, as its coordinator and the leaders of its partitions report it.

Groups of both protocols are described in the same words: classic ones (KIP-429 and before) and those of the new
protocol (KIP-848). What could not be read is part of the value: one partition without a leader costs one number, not
the whole snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.model import Subscription, TopicPartition

EMPTY = "Empty"
DEAD = "Dead"
STABLE = "Stable"
PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
ASSIGNING = "Assigning"
RECONCILING = "Reconciling"

NOBODY_IN_IT = (EMPTY, DEAD)
IN_A_ROUND = (PREPARING, COMPLETING, ASSIGNING, RECONCILING)
"""States of a rebalance: the first two of the classic protocol, the last two of the new one."""

STATES = (STABLE, *IN_A_ROUND, *NOBODY_IN_IT, "NotReady", "Unknown")
"""All that a broker lists groups with; NotReady is of streams groups."""

OTHER_KINDS = ("share", "streams")
"""Kinds of groups that have a description of their own, and other offsets (KIP-932, KIP-1071)."""

Address = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    group: str
    protocol_type: str
    state: str = ""
    """Empty from brokers that don't tell (ListGroups before version 4)."""
    kind: str = ""
    """"classic" or "consumer", where the broker tells (version 5); or one of `OTHER_KINDS`."""

    @property
    def of_consumers(self) -> bool:
        """Whether it can be described here: not a share group, say, where nobody owns a partition."""
        return self.kind.lower() not in OTHER_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    rack: str | None = None
    assigned: frozenset[TopicPartition] = frozenset()
    topics: tuple[str, ...] = ()
    subscription: Subscription | None = None
    """What it joined with, where it is a consumer of the classic protocol and its bytes can be read."""
    assignment_bytes: bytes = b""
    epoch: int = -1
    """Of the new protocol: the assignment it has taken. -1 elsewhere."""
    target: frozenset[TopicPartition] | None = None
    """Of the new protocol: where it is going. None elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    group: str
    state: str
    protocol_type: str
    protocol: str
    """The assignor in force."""
    coordinator: Address
    members: tuple[DescribedMember, ...] = ()
    kind: str = "classic"
    epoch: int = -1
    """Of the new protocol: the group's. -1 elsewhere: DescribeGroups tells no generation."""
    assignment_epoch: int = -1
    """Of the new protocol: that of the target assignment. -1 elsewhere."""

    @property
    def generation(self) -> int:
        """The generation, as far as it can be known; -1 if not at all.

        The new protocol tells its epoch. In the classic one members join with the generation they had before, so the
        group's is at least the one after the newest of these.
        """
        if self.kind == "consumer":
            return self.epoch
        held = [one.subscription.generation for one in self.members if one.subscription is not None]
        return max(held, default=-1) + 1 if max(held, default=-1) >= 0 else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """One partition of a group's: what is committed, and where the log begins and ends."""

    committed: int | None = None
    leader_epoch: int = -1
    metadata: str = ""
    start: int | None = None
    end: int | None = None
    problem: str = ""
    """The code of what kept a figure from being read, as LEADER_NOT_AVAILABLE."""

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """A group and its offsets."""

    described: DescribedGroup
    offsets: Mapping[TopicPartition, PartitionOffsets] = field(default_factory=dict)
    """Of every partition that the group has an offset of, or a member holds."""
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)
    """Where each partition's replicas are. Left out where no broker has a rack."""
    coordinator_id: int | None = None
    problems: tuple[str, ...] = ()
    """What could not be read of the group as a whole: code and text."""

    @property
    def owners(self) -> dict[TopicPartition, DescribedMember]:
        return {at: member for member in self.described.members for at in sorted(member.assigned)}

    @property
    def lag(self) -> int | None:
        """Of all partitions where it is known; None where it is known of none."""
        known = [one.lag for one in self.offsets.values() if one.lag is not None]
        return sum(known) if known else None


def can_process(state: str, *, cooperative: bool | None) -> str | None:
    """Whether a group in this state processes records: "yes", "no", or what of them; None where that is not known.

    While a cooperative group rebalances, its members go on with what they hold; an eager one's hold nothing.
    """
    if state == STABLE:
        return "yes"
    if state in IN_A_ROUND:
        return None if cooperative is None else "what-does-not-move" if cooperative else "no"
    return "no"


def is_cooperative_assignor(name: str) -> bool:
    """By its name, which is all that a coordinator tells of it."""
    return "cooperative" in name


def is_cooperative(described: DescribedGroup) -> bool | None:
    """Whether members keep what they hold while they join; None if that can't be known.

    In the middle of a round the coordinator names no assignor, and Kafka's shows no metadata of members either. A claim
    in a subscription shows that the group is cooperative; the lack of one shows nothing.
    """
    if described.kind == "consumer":
        return True
    if described.protocol:
        return is_cooperative_assignor(described.protocol)
    if any(member.subscription is not None and member.subscription.owned for member in described.members):
        return True
    return None
