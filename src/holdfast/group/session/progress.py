"""What of an application's progress is due to be committed.

What counts as processed, each driver knows by itself. A consumer's application has processed a record when it calls
again, a query a range when Spark asks for the next one. A position is where the application goes on: one past that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from holdfast.group.messages import OffsetEntry
from holdfast.model import TopicPartition


def further(entry: OffsetEntry, than: OffsetEntry) -> bool:
    """Compare by leader epoch first, as librdkafka does; if one of them has none, by offset alone."""
    if entry.leader_epoch < 0 or than.leader_epoch < 0 or entry.leader_epoch == than.leader_epoch:
        return entry.offset > than.offset
    return entry.leader_epoch > than.leader_epoch


def not_committed_yet(
    positions: Mapping[TopicPartition, OffsetEntry], known: Mapping[TopicPartition, OffsetEntry]
) -> dict[TopicPartition, OffsetEntry]:
    """Which of these positions to commit; `known` is what the group has, or is about to have.

    Not the same offset again: that would erase the metadata of the commit that the group has. If the group does not
    know the record's epoch, it is added, and the metadata is kept.

    Also for positions that were handed over to us. Their previous owner commits them too, and its join may overtake
    that commit, which is refused then. The positions exist nowhere else until we commit them, so we do as soon as we
    are told, whatever our application is doing.
    """
    due: dict[TopicPartition, OffsetEntry] = {}
    for partition, entry in positions.items():
        there = known.get(partition)
        if there is None or there.offset != entry.offset:
            due[partition] = entry
        elif there.leader_epoch < entry.leader_epoch:
            due[partition] = replace(entry, metadata=there.metadata)
    return due
