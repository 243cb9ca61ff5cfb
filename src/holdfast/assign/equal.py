"""Sticky plans where everybody wants the same topics: Java's constrained algorithm, over columns.

N partitions, M members: everybody gets ⌊N/M⌋ and N mod M of them one more. Members keep what they own up to their
share, chosen by (partition, topic) so that shrinking takes a little of every topic (KAFKA-16277). What is free is dealt
in (topic, partition) order, first round and round to those below the smaller share, then one each to those who may have
one more. Without racks this is optimal: no plan is more even, and no member gives up what its share has room for.

With racks, members keep what is near them, free partitions go to near members first, and the rest as above. That is
Java's greedy algorithm, which is not always optimal; `holdfast.assign.sticky` improves on it where it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.assign.kernels import Kernel
from holdfast.assign.order import hash_map_order
from holdfast.assign.racks import RackColumns
from holdfast.assign.spread import beyond

Ints = NDArray[np.int64]
Owners = NDArray[np.int32]


def plan_equal(
    members: Sequence[str],
    owner: Owners,
    topic: NDArray[np.int32],
    partition: Ints,
    racks: RackColumns | None,
) -> Owners:
    """The target of a plan in which every member may have every partition. `owner` is -1 where there is none."""
    smaller, larger_count = divmod(len(owner), len(members))
    target = owner.copy()
    if racks is not None:
        held = np.flatnonzero(target >= 0)
        target[held[racks.far[racks.kind[held], target[held]] > 0]] = -1
    counts = np.bincount(target + 1, minlength=len(members) + 1)[1:]
    share, under, exact = _shares(members, counts, smaller, larger_count)
    target[beyond(target, counts, share, topic, partition)] = -1
    counts = np.minimum(counts, share)
    larger_left = larger_count - int(np.count_nonzero(counts > smaller))
    if racks is not None:
        _deal_near(target, counts, under, exact, racks, smaller, larger_left)
        return target
    queue = np.empty(len(members), np.int64)
    queue[: len(exact)] = exact
    ring = np.array(under, np.int64)
    deal(
        target, counts, np.flatnonzero(target < 0), ring, len(ring), queue, len(exact), smaller, work=4 * len(owner)
    )  # fmt: skip
    return target


def _shares(members: Sequence[str], counts: Ints, smaller: int, larger_count: int) -> tuple[Ints, list[int], list[int]]:
    """How many each member may keep; who is below the smaller share; who has exactly it and may get one more."""
    may_keep_larger = np.flatnonzero(counts > smaller)
    share = np.full(len(counts), smaller, np.int64)
    if larger_count and len(may_keep_larger) > larger_count:
        walked = [m for m in hash_map_order(members) if counts[m] > smaller]
        may_keep_larger = np.array(walked[:larger_count], np.int64)
    if larger_count:
        share[may_keep_larger] = smaller + 1
    under = np.flatnonzero(counts < smaller).tolist()
    exact = np.flatnonzero((counts >= smaller) & (share == smaller)).tolist()
    if len(may_keep_larger) >= larger_count:
        exact = []
    return share, under, exact


def _deal(target: Any, counts: Any, free: Any, ring: Any, size: Any, queue: Any, queued: Any, smaller: Any) -> None:
    """Free pids in their order, round and round over `ring` until its members have `smaller`, then along `queue`."""
    turn = 0
    stay = 0
    served = 0
    for k in range(len(free)):
        pid = free[k]
        if target[pid] >= 0:
            continue
        if turn == size:
            size = stay
            turn = 0
            stay = 0
        if size > 0:
            m = ring[turn]
            turn += 1
            counts[m] += 1
            if counts[m] >= smaller:
                queue[queued] = m
                queued += 1
            else:
                ring[stay] = m
                stay += 1
        else:
            m = queue[served]
            served += 1
            counts[m] += 1
        target[pid] = m


def _deal_near(
    target: Owners,
    counts: Ints,
    under: list[int],
    exact: list[int],
    racks: RackColumns,
    smaller: int,
    larger_left: int,
) -> None:
    """Deal with racks: partitions with few near members first, each to the next near member, the rest round robin."""
    near_members = racks.near.sum(axis=1)
    free = np.flatnonzero(target < 0)
    free = free[np.argsort(near_members[racks.kind[free]], kind="stable")]
    size = len(counts)
    ring, queue = np.empty(size, np.int64), np.empty(2 * size, np.int64)
    ring[: len(under)] = under
    queue[: len(exact)] = exact
    below, queued = deal_near(
        target, counts, free, racks.kind, racks.near, ring, len(under), queue, len(exact), smaller, larger_left,
        work=len(free) * (size + 4),
    )  # fmt: skip
    deal(target, counts, free, ring, below, queue, queued, smaller, work=4 * len(free))


def _deal_to_near(
    target: Any,
    counts: Any,
    free: Any,
    kind: Any,
    near: Any,
    ring: Any,
    size: Any,
    queue: Any,
    queued: Any,
    smaller: Any,
    larger_left: Any,
) -> tuple[Any, Any]:
    """Java's rack-aware round robin: how many are left in `ring` and in `queue`, for the plain one that follows.

    `ring` has room for all members, `queue` for all twice.
    """
    cursor = 0
    for k in range(len(free)):
        pid = free[k]
        row = kind[pid]
        chosen = -1
        for step in range(size):
            spot = (cursor + step) % size
            if near[row, ring[spot]] > 0:
                chosen = spot
                break
        if chosen >= 0:
            m = ring[chosen]
            counts[m] += 1
            target[pid] = m
            if counts[m] >= smaller:
                for spot in range(chosen, size - 1):
                    ring[spot] = ring[spot + 1]
                size -= 1
                if larger_left > 0:
                    queue[queued] = m
                    queued += 1
            else:
                chosen += 1
            cursor = chosen % size if size > 0 else 0
            continue
        for spot in range(queued):
            if near[row, queue[spot]] > 0:
                m = queue[spot]
                counts[m] += 1
                target[pid] = m
                for later in range(spot, queued - 1):
                    queue[later] = queue[later + 1]
                queued -= 1
                larger_left -= 1
                if larger_left == 0:
                    queued = 0
                break
    return size, queued


deal = Kernel(_deal)
deal_near = Kernel(_deal_to_near)
