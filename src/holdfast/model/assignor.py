"""The protocol that every assignor follows: the built-in ones and a user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from holdfast.model.membership import GroupMetadata
from holdfast.model.partition import TopicPartition
from holdfast.model.subscription import Assignment, ClusterView, RebalanceProtocol, Subscription


@runtime_checkable
class Assignor(Protocol):
    """Plans who gets which partition. It keeps no state between calls (KAFKA-5277).

    A user's own may leave out everything but `name` and `assign`: see `assign.filled`.
    """

    @property
    def name(self) -> str:
        """Its name in the group protocol, for instance "range"."""
        ...

    @property
    def version(self) -> int:
        """Version of its user data and rules. In a group of several versions the leader plans by the oldest."""
        ...

    @property
    def protocols(self) -> tuple[RebalanceProtocol, ...]:
        """The rebalance protocols it can work under."""
        ...

    def subscription_user_data(
        self, topics: frozenset[str], assigned: frozenset[TopicPartition], generation: int
    ) -> bytes | None:
        """Bytes to send with the subscription when joining.

        `assigned` is what the last completed round gave this member and `generation` that round's number (-1 before the
        first), so that the assignor need not remember them.
        """
        ...

    def assign(self, cluster: ClusterView, members: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """The target: member id -> its partitions. Every member is a key, even with nothing assigned.

        Withholding a partition until its owner has revoked it is the round's work (`group.leader`), not the assignor's.
        """
        ...

    def on_assignment(self, assignment: Assignment, membership: GroupMetadata) -> None:
        """Called on every member with what the leader planned for it, and with its own membership."""
        ...


def is_built_in(assignor: Assignor) -> bool:
    """Whether it is one of holdfast's own: other clients read the user data of these too."""
    return bool(getattr(assignor, "built_in", False))


def at_version(assignor: Assignor, version: int) -> Assignor:
    """The assignor with the rules of an older version. An assignor that still has those offers a method
    `at_version`."""
    older = getattr(assignor, "at_version", None)
    if older is None or version >= assignor.version:
        return assignor
    found: Assignor = older(version)
    return found
