"""What is checked before a query runs: every option at `.load()`, and at the start that the brokers can be reached.

At `.load()` nobody says whether a stream or a batch is to come, so options are refused that would be wrong for both.
What only one of them minds (a stream without a group) is told when the query starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from holdfast.client.config import settings as member_config
from holdfast.model import HoldfastError
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.spark.kafka_keys import PREFIX
from holdfast.spark.options import SourceOptions, parse

REACH_MS = 10_000
"""How long a start waits for a first answer. Later, while a query runs, brokers may be away for longer
(default.api.timeout.ms, a minute)."""


def check_at_load(given: Mapping[str, str]) -> None:
    """Raise for options that no query could run with."""
    try:
        read = parse(given, streaming=True)
    except HoldfastError as as_stream:
        try:
            read = parse(given, streaming=False)
        except HoldfastError as as_batch:
            if any(key.lower() == "kafka.group.id" for key in given):
                raise as_stream from None
            if not _is_stream_but_for_its_group(given):
                raise as_batch from None
            return  # a stream's start says that it needs a group; a batch's, what is wrong with it
    check_member(read)


def _is_stream_but_for_its_group(given: Mapping[str, str]) -> bool:
    try:
        check_member(parse({**given, "kafka.group.id": "some"}, streaming=True))
    except HoldfastError:
        return False
    return True


def check_member(read: SourceOptions) -> None:
    """What the member reads of the options: timeouts, logins, certificates, our own switches."""
    try:
        member_config.parse({"group.id": "", **read.kafka, "enable.auto.commit": False})
    except HoldfastError as error:
        raise HoldfastError("INVALID_OPTION", f"option {PREFIX}{error.what}", error.do) from None


def within_start(kafka: Mapping[str, str]) -> dict[str, str]:
    """The same settings with a limit that suits a person who waits. A limit that was given stays."""
    return {"default.api.timeout.ms": str(REACH_MS), **kafka}


def check_reachable(kafka: Mapping[str, str]) -> None:
    """Ask the brokers who they are. Raises what stood in the way: no connection, no login, no answer."""

    async def ask() -> None:
        async with Cluster(client_config(within_start(kafka))) as cluster:
            await cluster.refresh(())

    asyncio.run(ask())
