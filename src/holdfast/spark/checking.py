"""What is checked before a query runs: every option at `.load()`; at the start, that the brokers can be reached.

At `.load()` it is not known whether the query will be a stream or a batch, so only options that are wrong for both are
refused. What is wrong for one of them (a stream without a group) is reported when the query starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from holdfast.client.config import settings as member_config
from holdfast.client.config.known import did_you_mean
from holdfast.model import HoldfastError
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.spark.kafka_keys import OURS, PREFIX
from holdfast.spark.loss import no_such_topics
from holdfast.spark.options import SourceOptions, parse
from holdfast.spark.sharing import QUERY_KEYS

REACH_MS = 10_000
"""How long a start waits for a first answer. Later, while a query runs, brokers may be away for longer
(default.api.timeout.ms, a minute)."""


def check_at_load(given: Mapping[str, str]) -> None:
    """Raise for options that no query could run with."""
    refusals: list[HoldfastError] = []
    for streaming in (True, False):
        try:
            read = parse(given, streaming=streaming)
        except HoldfastError as error:
            refusals.append(error)
        else:
            return check_member(read)
    as_stream, as_batch = refusals
    if any(key.lower() == "kafka.group.id" for key in given):
        raise as_stream  # whoever names a group means a stream
    if not _is_stream_but_for_its_group(given):
        raise as_batch
    return None  # the start will tell that the group is missing


def _is_stream_but_for_its_group(given: Mapping[str, str]) -> bool:
    try:
        check_member(parse({**given, "kafka.group.id": "some"}, streaming=True))
    except HoldfastError:
        return False
    return True


def check_member(read: SourceOptions) -> None:
    """Check the options that the group member uses: timeouts, logins, certificates, our own switches."""
    for key in sorted(read.kafka):
        if key.startswith(OURS) and key not in member_config.HOLDFAST_KEYS:
            keys = sorted(member_config.HOLDFAST_KEYS | QUERY_KEYS)
            raise HoldfastError(
                "INVALID_OPTION",
                f"option {PREFIX}{key} is not one of holdfast's.",
                did_you_mean(key, keys, prefix=PREFIX) or f"They are {', '.join(PREFIX + one for one in keys)}.",
            )
    try:
        member_config.parse({"group.id": "", **read.kafka, "enable.auto.commit": False})
    except HoldfastError as error:
        raise HoldfastError("INVALID_OPTION", f"option {PREFIX}{error.what}", error.do) from None


def within_start(kafka: Mapping[str, str]) -> dict[str, str]:
    """The settings with a time limit for somebody who waits for the start. A limit that the user set stays."""
    return {"default.api.timeout.ms": str(REACH_MS), **kafka}


def check_topics(read: SourceOptions) -> None:
    """Ask the brokers for the topics of a stream. Raises whatever prevents it, and if one is missing and not waited
    for."""
    from holdfast.spark.starting import topics_seen

    async def ask() -> None:
        async with Cluster(client_config(within_start(read.kafka))) as cluster:
            there = await topics_seen(cluster, read.topics)
            missing = sorted(name for name in read.topics if not name.startswith("^") and name not in there)
            if missing and read.fail_on_data_loss:
                known = [name for name, topic in (await cluster.refresh(None)).topics.items() if not topic.internal]
                raise no_such_topics(missing, streaming=True, near=did_you_mean(missing[0], known))

    asyncio.run(ask())


def check_reachable(kafka: Mapping[str, str]) -> str:
    """Ask the brokers for metadata. Raises whatever prevents it: no connection, no login, no answer. Returns the
    cluster's id; empty if its brokers have none."""

    async def ask() -> str:
        async with Cluster(client_config(within_start(kafka))) as cluster:
            return (await cluster.refresh(())).cluster_id or ""

    return asyncio.run(ask())
