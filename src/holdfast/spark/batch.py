"""A batch read: its start and end offsets, asked for once. It joins no group."""

from __future__ import annotations

import asyncio
import warnings

from holdfast.model import TopicPartition
from holdfast.net import admin as net
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.spark import loss
from holdfast.spark.checking import within_start
from holdfast.spark.offsets import Ranges
from holdfast.spark.options import SourceOptions
from holdfast.spark.places import resolve
from holdfast.spark.starting import topics_seen


def ranges(options: SourceOptions) -> Ranges:
    """partition -> [from, to), sorted."""
    return asyncio.run(_ranges(options))


async def _ranges(options: SourceOptions) -> Ranges:
    async with Cluster(client_config(within_start(options.kafka))) as cluster:
        admin = net.Admin(cluster)
        partitions = options.assigned or await _subscribed(cluster, options)
        read_committed, group = options.read_committed, options.group
        starts = await resolve(admin, options.starting, partitions, read_committed=read_committed, group=group)
        ends = await resolve(admin, options.ending, partitions, read_committed=read_committed, group=group)
        there = await admin.list_offsets(dict.fromkeys(partitions, net.LATEST), read_committed=read_committed)
    return {p: (starts[p], _within(options, p, starts[p], ends[p], there[p].offset)) for p in sorted(partitions)}


async def _subscribed(cluster: Cluster, options: SourceOptions) -> tuple[TopicPartition, ...]:
    there = await topics_seen(cluster, options.topics)
    missing = sorted(t for t in options.topics if not t.startswith("^") and t not in there)
    if missing:
        raise loss.no_such_topics(missing, streaming=False)
    return tuple(TopicPartition(topic, n) for topic, seen in there.items() for n in range(seen.partitions))


def _within(options: SourceOptions, partition: TopicPartition, start: int, end: int, there: int) -> int:
    """The end of a range: not before its start, and not beyond the log, which raises if data loss is to fail."""
    if end > there:
        lost = loss.end_unreachable(partition, there, end)
        if options.fail_on_data_loss:
            raise lost
        warnings.warn(f"{lost.code}: {lost.what} failOnDataLoss is false, so less is read.", stacklevel=2)
    return max(start, min(end, there))
