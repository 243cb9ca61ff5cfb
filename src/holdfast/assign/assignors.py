"""The four built-in assignors behind the protocol that a user's own assignor follows too.

They keep no state (KAFKA-5277; aiokafka 1175, 1176 kept it on the class). What a sticky member had in the last round
is passed in when its user data is asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from holdfast.assign.rounds import check_strategy, plan_round
from holdfast.model import (
    NO_GENERATION,
    Assignment,
    Assignor,
    ClusterView,
    JoinedMember,
    Membership,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
)
from holdfast.model.consumer_protocol import encode_assignment, encode_subscription


class BuiltIn:
    """One built-in assignor, by its name."""

    built_in = True
    __slots__ = ("name", "protocols", "version")

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = {"sticky": 1, "cooperative-sticky": 1}.get(name, 0)
        self.protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)
        if name == "cooperative-sticky":
            self.protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def subscription_user_data(
        self, topics: frozenset[str], assigned: frozenset[TopicPartition], generation: int
    ) -> bytes | None:
        """Sticky: what we had, and when. Cooperative: the generation alone; what we own is in the subscription."""
        if self.name == "cooperative-sticky":
            return struct.pack(">i", generation)
        if self.name == "sticky" and generation != NO_GENERATION:
            return sticky_user_data(assigned, generation)
        return None

    def assign(self, cluster: ClusterView, members: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """The target. A leader uses `plan_round` instead, which also withholds and encodes."""
        joined = [
            JoinedMember(
                member_id=member_id, instance_id=subscription.instance_id, metadata=encode_subscription(subscription)
            )
            for member_id, subscription in members.items()
        ]
        plan = plan_round(self.name, cluster, joined)
        return {member: Assignment(partitions=partitions) for member, partitions in plan.target.items()}

    def on_assignment(self, assignment: Assignment, membership: Membership) -> None:
        """Nothing to remember."""


MAX_STICKY_BYTES = 64 * 1024
"""The limit for one member's user data: some 16,000 partitions. Kafka keeps all members' in one record of 1 MB."""


def sticky_user_data(partitions: frozenset[TopicPartition], generation: int | None) -> bytes:
    """Java's user data of `sticky`; generation None gives the oldest schema, which had none.

    What does not fit is not remembered: those partitions may move to others.
    """
    written = encode_assignment(Assignment(partitions=partitions))[2:-4]
    if len(written) > MAX_STICKY_BYTES - 4:
        written = encode_assignment(Assignment(partitions=_as_many_as_fit(partitions)))[2:-4]
    return written if generation is None else written + struct.pack(">i", generation)


def _as_many_as_fit(partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
    left = MAX_STICKY_BYTES - 8
    kept: list[TopicPartition] = []
    topic = None
    for partition in sorted(partitions):
        left -= 4 if partition.topic == topic else 10 + len(partition.topic.encode())
        if left < 0:
            break
        topic = partition.topic
        kept.append(partition)
    return frozenset(kept)


def by_name(name: str) -> Assignor:
    """A new instance of the built-in assignor with that name."""
    check_strategy(name)
    return BuiltIn(name)
