"""Moving a job's offsets from Spark's own Kafka source to holdfast and back, without a lost or duplicated record.

Spark keeps a query's offsets in its checkpoint, holdfast in the group. `import_checkpoint` commits the end offsets of
the last finished batch of a Spark Kafka query to a group. `export_checkpoint` writes a checkpoint on which Spark's
Kafka source begins at the group's offsets. Both need the job stopped: a running job would continue from where it is.
The state of aggregations is not moved: it belongs to the query that made it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.group.messages import OffsetEntry
from holdfast.model import HoldfastError, TopicPartition
from holdfast.net.admin import Admin
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.spark import checkpoint_files as files
from holdfast.spark.group_members import members_of
from holdfast.spark.notes import ANY, write_note
from holdfast.spark.starting import counts_up_to, topics_seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What was imported."""

    batch: int | None
    """The last finished batch of the Spark query; None if it had only begun."""
    offsets: Mapping[TopicPartition, int]
    unfinished: bool
    """Whether a later batch was begun but not finished. Its records are read again, though its output may exist."""


def import_checkpoint(
    spark_checkpoint: str, *, bootstrap: str, group: str, config: Mapping[str, Any] | None = None
) -> Imported:
    """Commit to `group` the offsets at which a query on Spark's Kafka source has stopped.

    `config` has what else is needed to reach the cluster, under Kafka's keys. The group must have no members.
    """
    found = files.read(spark_checkpoint)
    offsets = dict(sorted(found.offsets.items()))
    asyncio.run(_commit(_client(bootstrap, config), group, offsets))
    return Imported(batch=found.batch, offsets=offsets, unfinished=found.unfinished)


def export_checkpoint(
    spark_checkpoint: str,
    *,
    bootstrap: str,
    group: str,
    topics: Sequence[str] | None = None,
    config: Mapping[str, Any] | None = None,
) -> dict[TopicPartition, int]:
    """Write a fresh checkpoint on which Spark's Kafka source begins at the offsets that `group` has committed.

    `topics` are those the query will subscribe to; by default all that the group has committed. Every partition of
    theirs must have an offset. The folder must be empty or absent.
    """
    offsets = asyncio.run(_committed(_client(bootstrap, config), group, topics))
    files.write(spark_checkpoint, offsets)
    return offsets


def _client(bootstrap: str, config: Mapping[str, Any] | None) -> dict[str, Any]:
    return {**(config or {}), "bootstrap.servers": bootstrap}


async def _no_members(cluster: Cluster, group: str) -> None:
    """Raise if the group has members, or if that can't be learnt: they would go on from where they are."""
    members = await members_of(cluster, group)
    if members:
        raise HoldfastError(
            "GROUP_HAS_MEMBERS",
            f"the group {group} has {len(members)} members at work.",
            "Stop them first: they would go on from where they are.",
        )


async def _commit(config: Mapping[str, Any], group: str, offsets: Mapping[TopicPartition, int]) -> None:
    async with Cluster(client_config(config)) as cluster:
        await _no_members(cluster, group)
        # Partitions that the job has not seen count as new, even if they already exist.
        notes = {topic: write_note(topic, count, {ANY: ""}) for topic, count in counts_up_to(offsets).items()}
        entries = {p: OffsetEntry(offset, metadata=notes[p.topic]) for p, offset in offsets.items()}
        verdicts = await Admin(cluster).commit(group, entries)
        for refused in verdicts.values():
            if refused is not None:
                raise refused


async def _committed(config: Mapping[str, Any], group: str, topics: Sequence[str] | None) -> dict[TopicPartition, int]:
    async with Cluster(client_config(config)) as cluster:
        await _no_members(cluster, group)
        entries = await Admin(cluster).committed(group)
        wanted = tuple(sorted(topics)) if topics else tuple(sorted({p.topic for p in entries}))
        counts = {topic: seen.partitions for topic, seen in (await topics_seen(cluster, wanted)).items()}
    partitions = [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]
    without_offset = [str(p) for p in partitions if p not in entries]
    unknown_topics = sorted(set(wanted) - counts.keys())
    if without_offset or unknown_topics or not partitions:
        names = ", ".join(without_offset[:5] or unknown_topics) or "any topic"
        raise HoldfastError(
            "NO_COMMITTED_OFFSET",
            f"the group {group} has committed nothing for {names}.",
            "Let the query run once, so that every partition has an offset; or name the topics it reads.",
        )
    return {partition: entries[partition].offset for partition in partitions}
