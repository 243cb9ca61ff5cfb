"""Range and round robin, as in Java: stateless; static members first, by instance id, then dynamic ones by member id.

Range is rack-aware (KIP-881) and keeps co-partitioned topics together (KAFKA-14891); round robin is not, as in Java.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.assign.columns import Columns
from holdfast.assign.kernels import Kernel
from holdfast.assign.order import static_first
from holdfast.assign.racks import NOWHERE, partition_racks, racks_matter
from holdfast.assign.sticky import may_have
from holdfast.model import ClusterView

Ints = NDArray[np.int64]
Owners = NDArray[np.int32]


def member_order(columns: Columns) -> Ints:
    """Members in the order of both assignors."""
    instance = dict(zip(columns.members, columns.instances, strict=True))
    at = {member: position for position, member in enumerate(columns.members)}
    return np.array([at[m] for m in sorted(columns.members, key=static_first(instance.__getitem__))], np.int64)


def plan_round_robin(columns: Columns, draining: frozenset[str] = frozenset()) -> Owners:
    """Topics and partitions in order, one circular cursor over the members, which skips those who don't subscribe."""
    target = np.empty(columns.size, np.int32)
    if columns.size == 0:
        return target
    row, wants = may_have(columns, draining)
    order = member_order(columns)
    turns(target, columns.first, order, row, wants, work=columns.size * (4 if len(wants) == 1 else 20))
    return target


def _turns(target: Any, first: Any, order: Any, row: Any, wants: Any) -> None:
    """Every topic has a subscriber, so the search for the next one always ends (librdkafka 2121, 3024, 3159)."""
    cursor = 0
    for t in range(len(first) - 1):
        for pid in range(first[t], first[t + 1]):
            while not wants[row[order[cursor]], t]:
                cursor = cursor + 1 if cursor + 1 < len(order) else 0
            target[pid] = order[cursor]
            cursor = cursor + 1 if cursor + 1 < len(order) else 0


turns = Kernel(_turns)


def plan_range(
    columns: Columns, cluster: ClusterView, draining: frozenset[str] = frozenset(), *, prefer_racks: bool = False
) -> Owners:
    """Each topic cut into consecutive ranges, the first members one longer; near members first where racks matter."""
    target = np.full(columns.size, -1, np.int32)
    if columns.size == 0:
        return target
    row, wants = may_have(columns, draining)
    order = member_order(columns)
    topics = [_Topic(columns, target, t, order[wants[row[order], t]]) for t in range(len(columns.topics))]
    if any(columns.racks):
        _near_first(topics, columns, cluster, prefer_racks)
    for topic in topics:
        topic.fill()
    return target


class _Topic:
    """One topic while it is planned: its members in order, what is free, and how much each member may still get."""

    __slots__ = ("counts", "larger_left", "members", "name", "smaller", "target")

    def __init__(self, columns: Columns, target: Owners, topic: int, members: Ints) -> None:
        self.name = columns.topics[topic]
        self.members = members
        self.target = target[columns.first[topic] : columns.first[topic + 1]]
        self.counts = np.zeros(len(members), np.int64)
        self.smaller, self.larger_left = divmod(len(self.target), len(members))

    def room(self, position: int) -> int:
        """How many more the member at `position` may have: a larger share while there is one left."""
        return max(0, self.smaller + (self.larger_left > 0) - int(self.counts[position]))

    def give(self, position: int, partitions: Ints) -> None:
        self.target[partitions] = self.members[position]
        self.counts[position] += len(partitions)
        if len(partitions) and self.counts[position] > self.smaller:
            self.larger_left -= 1

    def fill(self) -> None:
        """The plain ranges over what is still free."""
        free = np.flatnonzero(self.target < 0)
        at = 0
        for position in range(len(self.members)):
            if at == len(free):
                break
            room = self.room(position)
            self.give(position, free[at : at + room])
            at += room


def _near_first(topics: Sequence[_Topic], columns: Columns, cluster: ClusterView, prefer: bool) -> None:
    """The rack pass. Topics with the same members and partitions are co-partitioned and decided together."""
    racks = {topic.name: partition_racks(cluster, topic.name) for topic in topics}
    needed = set()
    for topic in topics:
        named = {columns.racks[m] for m in topic.members} - {None}
        everywhere = NOWHERE.union(*racks[topic.name])
        if racks_matter({rack for rack in named if rack}, everywhere, racks[topic.name], prefer=prefer):
            needed.add(topic.name)
    if not needed:
        return
    alike: dict[tuple[bytes, int], list[_Topic]] = {}
    for topic in topics:
        alike.setdefault((topic.members.tobytes(), len(topic.target)), []).append(topic)
    for group in alike.values():
        near = [[_near(columns.racks[m], racks[topic.name]) for m in group[0].members.tolist()] for topic in group]
        if len(group) > 1:
            _together(group, np.logical_and.reduce(np.array(near)))
        elif group[0].name in needed:
            for position in range(len(group[0].members)):
                free = np.flatnonzero((group[0].target < 0) & near[0][position])
                group[0].give(position, free[: group[0].room(position)])


def _near(rack: str | None, partitions: Sequence[frozenset[str]]) -> NDArray[np.bool_]:
    """Per partition whether the member is near it; a member without a rack is near everything."""
    return np.array([not rack or rack in racks for racks in partitions], np.bool_)


def _together(topics: Sequence[_Topic], near: NDArray[np.bool_]) -> None:
    """Partition p of all co-partitioned topics goes to the first member near all of them that has room."""
    for p in range(near.shape[1]):
        for position in np.flatnonzero(near[:, p]).tolist():
            if topics[0].room(position) > 0:
                for topic in topics:
                    topic.give(position, np.array([p]))
                break
