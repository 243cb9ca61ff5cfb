"""A user's own assignor in the leader's round: it gets decoded subscriptions, and its answer is checked first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from holdfast.assign.columns import Columns
from holdfast.assign.sticky import may_have
from holdfast.model import Assignment, Assignor, ClusterView, HoldfastError, Subscription, TopicPartition
from holdfast.model.attached import detach


def plan_custom(
    assignor: Assignor, columns: Columns, cluster: ClusterView, draining: frozenset[str]
) -> tuple[NDArray[np.int32], dict[str, bytes]]:
    """The assignor's target per pid, and what it wants to tell members. Refuses what would break the group."""
    row, wants = may_have(columns, draining)
    members = {member: _subscription(columns, position) for position, member in enumerate(columns.members)}
    for member in draining & members.keys():
        alone = wants[row[columns.members.index(member)]]
        left = {topic for topic, stays in zip(columns.topics, alone, strict=True) if stays}
        members[member] = replace(members[member], topics=tuple(t for t in members[member].topics if t in left))
    answer = assignor.assign(cluster, members)
    target = _checked(assignor.name, answer, columns)
    told = {member: given.user_data for member, given in sorted(answer.items()) if given.user_data is not None}
    return target, told


def _subscription(columns: Columns, member: int) -> Subscription:
    """A member as the assignor sees it, with all its claims: conflicting claims are for the assignor to resolve."""
    claims = columns.claim_pid[columns.claim_member == member]
    topic = np.searchsorted(columns.first, claims, side="right") - 1
    owned = {
        TopicPartition(columns.topics[t], int(pid - columns.first[t])) for t, pid in zip(topic, claims, strict=True)
    }
    owned |= {TopicPartition(name, partition) for m, name, partition in columns.others if m == member}
    return Subscription(
        topics=tuple(sorted(columns.names[columns.block[member]])),
        owned=frozenset(owned),
        generation=int(columns.generation[member]),
        user_data=detach(columns.user_data(member))[0],
        rack=columns.racks[member],
        instance_id=columns.instances[member],
    )


def _checked(name: str, answer: Mapping[str, Assignment], columns: Columns) -> NDArray[np.int32]:
    """The answer as a column: only members of the group, only existing partitions they subscribe to, none twice."""
    position = {member: at for at, member in enumerate(columns.members)}
    topic_at = {topic: at for at, topic in enumerate(columns.topics)}
    target = np.full(columns.size, -1, np.int32)
    for member, given in sorted(answer.items()):
        m = position.get(member)
        if m is None:
            raise _refused(name, f"planned for {member!r}, which is not a member of the group")
        for partition in sorted(given.partitions):
            t = topic_at.get(partition.topic)
            if t is None or not columns.wants[columns.block[m], t]:
                raise _refused(name, f"gave {partition} to {member!r}, which does not subscribe to that topic")
            pid = int(columns.first[t]) + partition.partition
            if not columns.first[t] <= pid < columns.first[t + 1]:
                raise _refused(name, f"gave {partition} to {member!r}, and that partition does not exist")
            if target[pid] >= 0:
                raise _refused(name, f"gave {partition} to both {columns.members[target[pid]]!r} and {member!r}")
            target[pid] = m
    return target


def _refused(name: str, what: str) -> HoldfastError:
    return HoldfastError(
        "INVALID_PLAN",
        f"The assignor {name!r} {what}.",
        "Correct the assignor; until then the group keeps its present plan.",
    )
