"""Sticky and cooperative-sticky: the target, for equal and for differing subscriptions.

Where all members want the same topics, Java's own algorithm runs (`equal`). Its plan is kept wherever it is optimal,
which it always is without racks. Everywhere else the plan is the optimum of `flow`: most balanced, then most
rack-local, then fewest moves.

A draining member is planned only what nobody else subscribes to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.assign.columns import Columns
from holdfast.assign.equal import plan_equal
from holdfast.assign.flow import Network, solve
from holdfast.assign.kernels import Kernel
from holdfast.assign.racks import RackColumns, rack_columns
from holdfast.assign.spread import beyond
from holdfast.model import ClusterView

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Owners = NDArray[np.int32]


def plan_sticky(
    columns: Columns, cluster: ClusterView, draining: frozenset[str] = frozenset(), *, prefer_racks: bool = False
) -> Owners:
    """Per pid the member that it settles with."""
    if columns.size == 0:
        return np.empty(0, np.int32)
    row, wants = may_have(columns, draining)
    topic = columns.topic_of()
    partition = np.arange(columns.size, dtype=np.int64) - columns.first[topic]
    owner = np.where(columns.tied == 0, columns.owner, np.int32(-1))
    if not wants.all():
        held = np.flatnonzero(owner >= 0)
        owner[held[~wants[row[owner[held]], topic[held]]]] = -1
    racks = rack_columns(cluster, columns.topics, columns.racks, prefer=prefer_racks)
    active = np.flatnonzero(np.any(wants, axis=1)[row])
    used = _distinct(row[active])
    if len(used) > 1 and not (wants[used] == wants[used[0]]).all():
        return _plan_differing(len(row), row, wants, owner, topic, partition, racks)
    return _plan_equal(columns.members, active, owner, topic, partition, racks)


def may_have(columns: Columns, draining: frozenset[str]) -> tuple[Ints, Bools]:
    """Per member a row, per row the topics that its members may get: what they want; when draining, only what no other
    member wants."""
    drains = np.array([member in draining for member in columns.members], np.bool_)
    if not drains.any():
        return columns.block, columns.wants
    staying = columns.wants[_distinct(columns.block[~drains])].any(axis=0)
    return columns.block + len(columns.wants) * drains, np.concatenate([columns.wants, columns.wants & ~staying])


def _distinct(rows: Ints) -> Ints:
    """Each number once, in order. np.unique does this too, but loads numpy.ma: 20 ms before the first plan, and nine
    thousand more objects for every garbage collection."""
    return np.flatnonzero(np.bincount(rows))


def _plan_equal(
    members: list[str],
    active: Ints,
    owner: Owners,
    topic: NDArray[np.int32],
    partition: Ints,
    racks: RackColumns | None,
) -> Owners:
    """Java's plan for the members that want anything; with racks, the optimum where it is better."""
    if len(active) < len(members):
        position = np.full(len(members) + 1, -1, np.int32)  # the last entry keeps "nobody" nobody
        position[active] = np.arange(len(active), dtype=np.int32)
        owner = position[owner]
    if racks is not None:
        racks = RackColumns(racks.kind, racks.far[:, active], racks.near[:, active])
    target = plan_equal([members[m] for m in active], owner, topic, partition, racks)
    if racks is not None and not _at_best(target, owner, racks):
        row, wants = np.zeros(len(active), np.int64), np.ones((1, int(topic[-1]) + 1), np.bool_)
        best = _plan_differing(len(active), row, wants, owner, topic, partition, racks)
        if _cost(best, owner, racks) < _cost(target, owner, racks):
            target = best
    return target if len(active) == len(members) else active.astype(np.int32)[target]


def _at_best(target: Owners, owner: Owners, racks: RackColumns) -> bool:
    """Whether an even plan is clearly optimal: nothing moves, and nothing is farther than it must be."""
    _, far, moves = _cost(target, owner, racks)
    return moves == 0 and far == int(racks.far.min(axis=1)[racks.kind].sum())


def _cost(target: Owners, owner: Owners, racks: RackColumns) -> tuple[int, int, int]:
    """Balance, distance, moves: less is better, in this order."""
    loads = np.bincount(target, minlength=racks.far.shape[1])
    far = int(racks.far[racks.kind, target].sum())
    return int((loads * loads).sum()), far, int(np.count_nonzero((owner >= 0) & (owner != target)))


def _plan_differing(
    members: int,
    row: Ints,
    wants: Bools,
    owner: Owners,
    topic: NDArray[np.int32],
    partition: Ints,
    racks: RackColumns | None,
) -> Owners:
    """The optimum: partitions into groups, the flow over groups, and its counts back into partitions."""
    group, network = _network(members, row, wants, owner, topic, racks)
    x = solve(network)
    target = owner.copy()
    held = np.flatnonzero(owner >= 0)
    edge = _edges(network, group[held], owner[held])
    gone = held[beyond(edge, network.own, x, topic[held], partition[held])]
    target[gone] = -1
    free = np.flatnonzero(target < 0)
    free = free[np.argsort(group[free], kind="stable")]
    needs = x - np.minimum(network.own, x)
    ring = np.empty(members, np.int64)
    deal_groups(
        target, free, group, network.edges_of_group, network.member_of, needs, ring, work=4 * len(free) + len(x)
    )
    return target


def _network(
    members: int, row: Ints, wants: Bools, owner: Owners, topic: NDArray[np.int32], racks: RackColumns | None
) -> tuple[Ints, Network]:
    """Per pid its group, and the network. Topics wanted by the same members, in the same racks, are one group."""
    classes: dict[bytes, int] = {}
    class_of = np.empty(wants.shape[1], np.int64)
    wanted_by: list[Ints] = []
    rows = _distinct(row)
    for t in range(wants.shape[1]):
        key = wants[rows, t].tobytes()
        found = classes.get(key)
        if found is None:
            found = classes[key] = len(wanted_by)
            wanted_by.append(np.flatnonzero(wants[row, t]))
        class_of[t] = found
    kinds = 1 if racks is None else len(racks.far)
    mixed = class_of[topic] * kinds
    if racks is not None:
        mixed = mixed + racks.kind
    sizes = np.bincount(mixed, minlength=len(wanted_by) * kinds)
    present = np.flatnonzero(sizes)
    number = np.full(len(sizes), -1, np.int64)
    number[present] = np.arange(len(present))
    group = number[mixed]
    lists = [wanted_by[g // kinds] for g in present.tolist()]
    edges_of_group = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(listed) for listed in lists], out=edges_of_group[1:])
    member_of = np.concatenate(lists)
    far = np.zeros(len(member_of), np.int64)
    if racks is not None:
        far = racks.far[np.repeat(present % kinds, np.diff(edges_of_group)), member_of]
    network = Network(sizes[present], edges_of_group, member_of, far.copy(), far, members)
    held = np.flatnonzero(owner >= 0)
    network.own = np.bincount(_edges(network, group[held], owner[held]), minlength=len(member_of))
    return group, network


def _edges(network: Network, group: Ints, member: NDArray[np.int32]) -> Ints:
    """The edge of each (group, member)."""
    return np.searchsorted(network.group_of * network.members + network.member_of, group * network.members + member)


def _deal_groups(
    target: Any, free: Any, group: Any, edges_of_group: Any, member_of: Any, needs: Any, ring: Any
) -> None:
    """Deal each group's free pids, in order, round and round over its members that still need some."""
    before = -1
    size = 0
    turn = 0
    stay = 0
    for k in range(len(free)):
        pid = free[k]
        g = group[pid]
        if g != before:
            before = g
            size = 0
            turn = 0
            stay = 0
            for e in range(edges_of_group[g], edges_of_group[g + 1]):
                if needs[e] > 0:
                    ring[size] = e
                    size += 1
        if turn == size:
            size = stay
            turn = 0
            stay = 0
        e = ring[turn]
        turn += 1
        needs[e] -= 1
        if needs[e] > 0:
            ring[stay] = e
            stay += 1
        target[pid] = member_of[e]


deal_groups = Kernel(_deal_groups)
