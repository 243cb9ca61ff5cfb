"""Whether a query's group already has members, asked before the query joins."""

from __future__ import annotations

import asyncio

from holdfast.model import ErrorCode
from holdfast.net.admin_groups import GroupAdmin
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.net.errors import BrokerError
from holdfast.observe.snapshot import DescribedMember
from holdfast.spark.options import SourceOptions


def others_at_work(options: SourceOptions) -> bool:
    """Whether the group has members now, from whom a query that joins would take partitions."""
    return asyncio.run(_others(options))


async def _others(options: SourceOptions) -> bool:
    async with Cluster(client_config(options.kafka)) as cluster:
        try:
            return bool(await members_of(cluster, options.group))
        except BrokerError:
            return True  # we may not describe it, so assume that it has members


async def members_of(cluster: Cluster, group: str) -> tuple[DescribedMember, ...]:
    """The members of a group, which need not exist."""
    try:
        return (await GroupAdmin(cluster).describe_group(group)).members
    except BrokerError as error:
        if error.error is ErrorCode.GROUP_ID_NOT_FOUND:
            return ()
        raise
