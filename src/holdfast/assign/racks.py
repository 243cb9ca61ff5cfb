"""Racks: when they matter (KIP-881), and how far each partition is from each member.

A member without a rack is near everything. A partition is far from a member with a rack when none of its replicas is
there. An empty rack name is no rack, as in Java.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.model import ClusterView

NOWHERE: frozenset[str] = frozenset()


def racks_matter(
    members: Collection[str], everywhere: Collection[str], partitions: Iterable[frozenset[str]], *, prefer: bool = False
) -> bool:
    """Java's test: some rack in common, and some partition not in every rack. `prefer` skips the second half."""
    if not members or set(members).isdisjoint(everywhere):
        return False
    return prefer or any(racks != everywhere for racks in partitions)


@dataclass(slots=True)
class RackColumns:
    """Where partitions are, as classes of equal rack sets."""

    kind: NDArray[np.int64]
    """Per pid the class of its rack set."""
    far: NDArray[np.int64]
    """[class, member]: 1 where no replica is in the member's rack."""
    near: NDArray[np.int64]
    """[class, member]: 1 where the member has a rack and a replica is in it."""


def partition_racks(cluster: ClusterView, topic: str) -> Sequence[frozenset[str]]:
    """Per partition of a topic its racks, padded with "nowhere" and without nameless racks."""
    view = cluster.topics[topic]
    racks = [racks - {""} if "" in racks else racks for racks in view.racks[: view.partitions]]
    return racks + [NOWHERE] * (view.partitions - len(racks))


def rack_columns(
    cluster: ClusterView, topics: Sequence[str], members: Sequence[str | None], *, prefer: bool = False
) -> RackColumns | None:
    """The rack classes of a plan, or None when racks don't matter to it."""
    named = {rack for rack in members if rack}
    if not named or not any(cluster.topics[topic].racks for topic in topics):
        return None
    kinds: dict[frozenset[str], int] = {}
    kind = [kinds.setdefault(racks, len(kinds)) for topic in topics for racks in partition_racks(cluster, topic)]
    everywhere = NOWHERE.union(*kinds)
    if not racks_matter(named, everywhere, kinds, prefer=prefer):
        return None
    near = np.array([[rack is not None and rack in racks for rack in members] for racks in kinds], np.int64)
    has_rack = np.array([bool(rack) for rack in members], np.int64)
    return RackColumns(np.array(kind, np.int64), has_rack[None, :] - near, near)
