"""A query that keeps state must be the only member of its group; otherwise it fails.

State lives in the query's checkpoint and can't move. If another member reads a partition for a while, the state has a
hole; if another member takes a partition over, it begins without the partition's past. So there is one rule without
exceptions: the query owns all partitions of its topics from its first batch to its last, and continues exactly where
its checkpoint ends.

- It joins only when the group has no other member that reads its topics. For a dead member it waits until the session
  has run out.
- Its first assignment must be every partition.
- It fails if a partition is revoked, lost or assigned to it again. New partitions, as when a topic grows, are fine.
- After a restart every partition must be at the offset that the checkpoint holds.

The errors are NOT_ALONE and GROUP_MOVED. The state in the checkpoint stays intact.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping

from holdfast.model import HoldfastError, TopicPartition
from holdfast.net.cluster import Cluster
from holdfast.observe.snapshot import DescribedMember
from holdfast.spark.group_members import members_of
from holdfast.spark.offsets import BatchOffset
from holdfast.spark.options import SourceOptions
from holdfast.spark.sharing import not_alone, overlap

LOOK_S = 0.2
SLACK_S = 5.0
"""How long after a session timeout the coordinator may take to act on it."""


class Alone:
    """The rule for one query. False, and without effect, for a query that keeps no state."""

    def __init__(self, options: SourceOptions, cluster: Cluster, session_timeout_ms: int) -> None:
        self._on = options.sharing.alone and not options.assigned
        self._group = options.group
        self._topics = options.topics
        self._instance = options.kafka.get("group.instance.id")
        self._cluster = cluster
        self._patience_s = session_timeout_ms / 1_000.0 + SLACK_S
        self._known: frozenset[TopicPartition] | None = None
        self._checked = False

    def __bool__(self) -> bool:
        return self._on

    async def wait_for_room(self) -> None:
        """Wait until the group has no other member."""
        deadline = time.monotonic() + self._patience_s
        while self._on and (others := await self._others()):
            if time.monotonic() > deadline:
                names = ", ".join(sorted(f"{one.client_id} on {one.host}" for one in others))
                raise not_alone(self._group, f"{names} is in it")
            await asyncio.sleep(LOOK_S)

    async def _others(self) -> list[DescribedMember]:
        return [one for one in await members_of(self._cluster, self._group) if self._in_the_way(one)]

    def _in_the_way(self, one: DescribedMember) -> bool:
        """Neither our own earlier membership under the same instance id nor a member that reads other topics counts."""
        if self._instance is not None and one.instance_id == self._instance:
            return False
        return not one.topics or overlap(self._topics, one.topics)

    async def joined(self, held: Collection[TopicPartition], there: Iterable[TopicPartition]) -> None:
        """Check the first assignment. A missing partition is fine if nobody else is here: it is new and comes next."""
        if not self._on or self._known is not None:
            return
        self._known = frozenset(held)
        missing = sorted(set(there) - self._known)
        if missing and await self._others():
            raise not_alone(self._group, f"others were given {_some(missing)}")

    def taken(self, partitions: Collection[TopicPartition], what: str) -> HoldfastError | None:
        """The error for partitions that are not all ours any more; None if there are none. `what` happened to them."""
        if not self._on or not partitions:
            return None
        return not_alone(self._group, f"{_some(partitions)} {what}")

    def note_given(self, partitions: Iterable[TopicPartition]) -> HoldfastError | None:
        """Note further assignments; returns an error if one of them is not a new partition."""
        if not self._on or self._known is None:
            return None
        again = self._known & set(partitions)
        self._known |= set(partitions)
        return self.taken(again, "belonged to another member meanwhile")

    def check_start(self, done: BatchOffset, positions: Mapping[TopicPartition, int]) -> None:
        """Check where the first batch after a start begins. `done` is the last batch of the previous run."""
        if not self._on or self._checked:
            return
        self._checked = True
        self._compare(done.with_ends().stands if done.topics else {}, positions)

    def check_replay(self, planned: BatchOffset, kept: BatchOffset) -> None:
        """A replayed batch has to be complete, because the state holds nothing of it yet."""
        if self._on:
            lacking = planned.ranges.keys() - kept.ranges.keys()
            if lacking:
                raise _moved(self._group, f"{_some(lacking)} is not where the checkpoint's last batch begins")

    def _compare(self, expected: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int]) -> None:
        for partition, at in sorted(found.items()):
            if partition in expected and expected[partition] != at:
                raise _moved(self._group, f"{partition} is at {at}, and the state ends at {expected[partition]}")


def _some(partitions: Iterable[TopicPartition]) -> str:
    names = [str(partition) for partition in sorted(partitions)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _moved(group: str, what: str) -> HoldfastError:
    return HoldfastError(
        "GROUP_MOVED",
        f"the group {group} is not where the query's state ends: {what}. Another member has read, or offsets were set.",
        "Set the group's offsets back to where the state ends, or begin again with a fresh checkpointLocation.",
    )
