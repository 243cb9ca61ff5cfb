"""Whether a query's group already has members, asked before the query joins."""

from __future__ import annotations

import asyncio

from holdfast.net.admin_groups import GroupAdmin
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.net.errors import BrokerError
from holdfast.spark.options import SourceOptions


def others_at_work(options: SourceOptions) -> bool:
    """Whether the group has members now, from whom a query that joins would take partitions."""
    return asyncio.run(_others(options))


async def _others(options: SourceOptions) -> bool:
    async with Cluster(client_config(options.kafka)) as cluster:
        try:
            return bool((await GroupAdmin(cluster).describe_group(options.group)).members)
        except BrokerError as error:
            # Either there is no such group, or we may not describe it; then assume that it has members.
            return error.code != "GROUP_ID_NOT_FOUND"
