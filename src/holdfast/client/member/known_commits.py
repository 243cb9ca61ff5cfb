"""What a consumer knows of its commits: those under way, and the last that was accepted for each partition.

The polling thread begins commits and gives partitions up, while the control plane's thread ends commits. So everything
here holds a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from holdfast.client.member.entries import Entries
from holdfast.group.messages import OffsetEntry
from holdfast.group.session.progress import further
from holdfast.model import TopicPartition


class KnownCommits:
    """One consumer's commits."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # not a plain one: a signal's handler may commit on the same thread
        self._under_way: Entries = {}
        """The last commit under way of each partition."""
        self._unanswered: Entries = {}
        """The same, but kept when the partition is given up: `forget` does not touch it."""
        self._accepted: Entries = {}
        """The last commit of each partition that was accepted."""
        self._unassigned: Entries = {}
        """Positions of partitions that the application unassigned itself, until the group takes them."""

    def begin(self, entries: Entries) -> None:
        """A commit of these is on its way."""
        with self._lock:
            self._under_way.update(entries)
            self._unanswered.update(entries)

    def end(self, sent: Entries, accepted: Entries, *, assigned: Collection[TopicPartition]) -> None:
        """A commit has ended. What was accepted counts for partitions that are `assigned`, or that the application has
        unassigned: there it is the application's last word."""
        with self._lock:
            for partition, entry in sent.items():
                for kept in (self._under_way, self._unanswered):
                    if kept.get(partition) is entry:
                        del kept[partition]
            for partition, entry in accepted.items():
                if partition in assigned:
                    self._accepted[partition] = entry
                elif partition in self._unassigned:
                    self._unassigned[partition] = self._accepted[partition] = entry

    def unassign(self, positions: Entries) -> None:
        """The application has unassigned these partitions, and stands here."""
        with self._lock:
            self._unassigned.update(positions)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These are no longer ours."""
        with self._lock:
            for partition in partitions:
                for kept in (self._under_way, self._accepted, self._unassigned):
                    kept.pop(partition, None)

    # -- questions

    def under_way(self, partition: TopicPartition) -> bool:
        with self._lock:
            return partition in self._under_way

    def latest(self) -> Entries:
        """For each partition the commit under way, or else the last that was accepted."""
        with self._lock:
            return self._accepted | self._under_way

    def is_new(self, partition: TopicPartition, entry: OffsetEntry) -> bool:
        """Whether it is beyond the last commit that was accepted."""
        with self._lock:
            accepted = self._accepted.get(partition)
        return accepted is None or further(entry, accepted)

    def unassigned(self) -> Entries:
        with self._lock:
            return dict(self._unassigned)

    def unanswered(self) -> Entries:
        """Commits under way, also of partitions that were given up since."""
        with self._lock:
            return dict(self._unanswered)
