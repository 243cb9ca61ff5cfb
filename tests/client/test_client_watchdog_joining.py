"""A member that dies while it joins."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from holdfast.net.admin_groups import GroupAdmin
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.testing import Broker
from holdfast.testing.members import MemberOptions, MemberProcess

JOINER = """
import sys, holdfast
consumer = holdfast.Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "session.timeout.ms": 300000})
consumer.subscribe([sys.argv[3]])
while True:
    consumer.poll(0.1)
"""

NOTICED_MS = 6_000
"""The heartbeat interval of who is there already: so long a round waits for him, with the joiner parked in it."""


def members_of(broker: Broker, group: str) -> int:
    async def look() -> int:
        async with Cluster(client_config({"bootstrap.servers": broker.bootstrap})) as cluster:
            return len((await GroupAdmin(cluster).describe_group(group)).members)

    return asyncio.run(look())


def wait_for_members(broker: Broker, group: str, count: int, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while members_of(broker, group) != count:
        assert time.monotonic() < deadline, f"{members_of(broker, group)} members instead of {count}"
        time.sleep(0.05)


@pytest.mark.slow
def test_the_watchdog_leaves_for_a_member_that_dies_while_it_joins(broker: Broker, topic: str) -> None:
    """A program crashed in its first second, with its join parked at the coordinator. Its watchdog knew of no
    generation yet and kept silent, so the whole group stood in that round until the session timeout, 45 s later.
    Whoever has a member id is waited for, and so must be spoken for."""
    group = f"joining-{topic}"
    options = MemberOptions(
        bootstrap=broker.bootstrap, group=group, topic=topic, assignors=("cooperative-sticky",), heartbeat_ms=NOTICED_MS
    )
    with MemberProcess("confluent", options) as first:
        first.wait_for(lambda: len(first.owned()) == 3, "owns all")
        joiner = subprocess.Popen([sys.executable, "-c", JOINER, broker.bootstrap, group, topic])
        wait_for_members(broker, group, 2, 60)
        joiner.kill()
        joiner.wait()
        wait_for_members(broker, group, 1, 100)
