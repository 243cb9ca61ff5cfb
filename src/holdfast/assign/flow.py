"""The optimal plan as a convex min-cost flow, solved on classes.

Partitions that the same members may have, in the same racks, form a *group*; an *edge* joins a group to a member that
may have it. `x[e]` partitions of edge e's group go to its member. We look for the x that is, in this order,

1. the most balanced: least sum of squared loads, which for flows is also the lexicographically most even;
2. the most rack-local: fewest partitions that are `far[e]`;
3. the least moved: member m keeps up to `own[e]` of what it owns for free, so each unit up to there counts -1.

The start keeps what is owned and near, and puts everything else where it is near: with these loads nothing is nearer or
less moved. `_improve` then sends units along cheapest paths member → group → member → … from members with more to those
with less. A path that is cheapest between its ends leaves no improving cycle behind, so x stays best for its loads; and
since the problem is convex, loads that no single path improves are the best there are. Every path lowers the cost, a
whole number, so it ends (librdkafka 4783 did not).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.assign.kernels import Kernel

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Network:
    """Groups, members and the edges between them; edges are sorted by group, then member."""

    supply: Ints
    """Per group how many partitions it has."""
    edges_of_group: Ints
    """Group g's edges are `edges_of_group[g]` to `edges_of_group[g + 1]`."""
    member_of: Ints
    own: Ints
    far: Ints
    members: int

    @property
    def group_of(self) -> Ints:
        return np.repeat(np.arange(len(self.supply)), np.diff(self.edges_of_group))


def solve(network: Network) -> Ints:
    """The optimal x."""
    near = _normalised(network)
    x = np.where(near == 0, network.own, 0)
    load = np.bincount(network.member_of, weights=x, minlength=network.members).astype(np.int64)
    _pour(network, near, x, load)
    _improve(network, near, x, load)
    return x


def _normalised(network: Network) -> Ints:
    """`far` less what no placement can avoid: a group that is far from everybody is near to everybody alike."""
    if not network.far.any():
        return network.far
    least = np.minimum.reduceat(network.far, network.edges_of_group[:-1])
    distance: Ints = network.far - np.repeat(least, np.diff(network.edges_of_group))
    return distance


def _pour(network: Network, far: Ints, x: Ints, load: Ints) -> None:
    """Put what is not placed yet near, where there is least; groups with the fewest members first."""
    widths = np.diff(network.edges_of_group)
    placed = np.add.reduceat(x, network.edges_of_group[:-1])
    for g in np.argsort(widths, kind="stable"):
        left = int(network.supply[g] - placed[g])
        if left > 0:
            edges = np.arange(network.edges_of_group[g], network.edges_of_group[g + 1])
            edges = edges[far[edges] == 0]
            extra = _fill(load[network.member_of[edges]], left)
            x[edges] += extra
            load[network.member_of[edges]] += extra


def _fill(levels: Ints, amount: int) -> Ints:
    """How much to add to each so that the lowest rise to one level, the first of them by one more if it is uneven."""
    heights = np.sort(levels)
    needed = heights * np.arange(1, len(heights) + 1) - np.cumsum(heights)
    reached = int(np.searchsorted(needed, amount, side="right"))
    level = (amount + int(heights[:reached].sum())) // reached
    extra = np.maximum(level - levels, 0)
    extra[np.flatnonzero(levels <= level)[: amount - int(extra.sum())]] += 1
    return extra


def _improve(network: Network, far: Ints, x: Ints, load: Ints) -> None:
    """Send units along cheapest paths until none lowers the cost. Nodes are the members, then the groups.

    `label[m]` is the least cost of taking one unit off member m and, in the end, adding one to some member;
    `label[members + g]` that of placing one more unit of group g. `via` is the edge taken first, -1 where m takes it.
    """
    group_of = network.group_of
    edge_of = np.argsort(network.member_of, kind="stable")
    edges_of_member = np.zeros(network.members + 1, np.int64)
    np.cumsum(np.bincount(network.member_of, minlength=network.members), out=edges_of_member[1:])
    nodes = network.members + len(network.supply)
    per_far = 4 * nodes if far.any() else 0
    per_load = 4 * nodes * max(1, per_far)  # a path's costs stay below; 64 bits hold it for 300,000 nodes, 1M each
    label, via, queue, waiting = (np.zeros(nodes + 1, np.int64) for _ in range(4))
    work = 200 * len(x)
    sent = -1
    while sent:
        order = np.argsort(load, kind="stable")
        find_paths(
            network.edges_of_group, network.member_of, group_of, edges_of_member, edge_of, x, network.own, far, load,
            order, per_load, per_far, label, via, queue, waiting, work=work,
        )  # fmt: skip
        sent = send_units(
            network.member_of, group_of, x, network.own, far, load, order, per_load, per_far, label, via, work=work
        )


def _find_paths(
    edges_of_group: Any,
    member_of: Any,
    group_of: Any,
    edges_of_member: Any,
    edge_of: Any,
    x: Any,
    own: Any,
    far: Any,
    load: Any,
    order: Any,
    per_load: Any,
    per_far: Any,
    label: Any,
    via: Any,
    queue: Any,
    waiting: Any,
) -> None:
    """Label every node with the cost of its cheapest path. `queue` is a ring; members with least load come first."""
    members = len(load)
    nodes = members + len(edges_of_group) - 1
    head = 0
    size = members
    for k in range(members):
        m = order[k]
        queue[k] = m
        waiting[m] = 1
        label[m] = per_load * (load[m] + 1)
        via[m] = -1
    for node in range(members, nodes):
        label[node] = np.iinfo(np.int64).max
        waiting[node] = 0
    while size > 0:
        node = queue[head]
        head = head + 1 if head < nodes else 0
        size -= 1
        waiting[node] = 0
        is_member = node < members
        begin = edges_of_member[node] if is_member else edges_of_group[node - members]
        end = edges_of_member[node + 1] if is_member else edges_of_group[node - members + 1]
        for k in range(begin, end):
            if is_member:
                e = edge_of[k]
                there = members + group_of[e]
                cost = label[node] + per_far * far[e] - (1 if x[e] < own[e] else 0)
            else:
                e = k
                if x[e] <= 0:
                    continue
                there = member_of[e]
                cost = label[node] - per_far * far[e] + (1 if x[e] <= own[e] else 0)
            if cost < label[there]:
                label[there] = cost
                via[there] = e
                if waiting[there] == 0:
                    waiting[there] = 1
                    spot = head + size
                    queue[spot if spot <= nodes else spot - nodes - 1] = there
                    size += 1


def _send_units(
    member_of: Any,
    group_of: Any,
    x: Any,
    own: Any,
    far: Any,
    load: Any,
    order: Any,
    per_load: Any,
    per_far: Any,
    label: Any,
    via: Any,
) -> Any:
    """Send units along the paths that lower the cost, from the largest load on. Returns how many paths were used."""
    members = len(load)
    sent = 0
    for k in range(members - 1, -1, -1):
        source = order[k]
        if label[source] >= per_load * load[source]:
            continue
        # Walk the path; it may be used while every step of it still costs what it did when it was labelled.
        m = source
        room = load[source]
        while via[m] >= 0 and room > 0:
            e = via[m]
            g = members + group_of[e]
            kept = x[e] <= own[e]
            if x[e] <= 0 or label[m] != label[g] - per_far * far[e] + (1 if kept else 0):
                room = 0
                break
            room = min(room, x[e] if kept else x[e] - own[e])
            e = via[g]
            m = member_of[e]
            short = x[e] < own[e]
            if label[g] != label[m] + per_far * far[e] - (1 if short else 0):
                room = 0
                break
            if short:
                room = min(room, own[e] - x[e])
        if room <= 0:
            continue
        rest = label[source] - label[m]
        gap = load[source] - load[m]
        room = min(room, gap // 2 if gap % 2 == 0 else (gap - 1) // 2 + (1 if rest < 0 else 0))
        if room <= 0:
            continue
        load[source] -= room
        load[m] += room
        m = source
        while via[m] >= 0:
            x[via[m]] -= room
            e = via[members + group_of[via[m]]]
            x[e] += room
            m = member_of[e]
        sent += 1
    return sent


find_paths = Kernel(_find_paths)
send_units = Kernel(_send_units)
