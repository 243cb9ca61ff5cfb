"""`holdfast bench describe`: its group is a real one, and its verdict follows from the times."""

from __future__ import annotations

import asyncio
import math

import pytest

from holdfast.bench.describe import GROUP, TOPIC, commands, fill, judged, timed
from holdfast.model import HoldfastError
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.net.group_snapshots import read_group
from holdfast.observe.snapshot import GroupSnapshot
from holdfast.testing import Broker


def test_the_group_that_is_described_has_its_members_shares_and_offsets() -> None:
    async def filled(bootstrap: str) -> GroupSnapshot:
        async with Cluster(client_config({"bootstrap.servers": bootstrap})) as cluster:
            await fill(cluster, members=5, partitions=20)
            return await read_group(cluster, GROUP)

    with Broker(initial_rebalance_delay_ms=500) as broker:
        found = asyncio.run(filled(broker.bootstrap))

    assert (found.described.state, len(found.described.members)) == ("Stable", 5)
    assert {len(member.assigned) for member in found.described.members} == {4}
    assert len(found.offsets) == len(found.owners) == 20
    assert {(at.topic, one.committed, one.lag) for at, one in found.offsets.items()} == {(TOPIC, 0, 0)}


@pytest.mark.parametrize(("ours", "reached"), [([3.0, 1.0, 2.0], True), ([4.0, 4.0, 1.0], False)])
def test_the_goal_is_less_than_twice_the_median_of_kafkas_tool(ours: list[float], reached: bool) -> None:
    assert judged({"holdfast": ours, "kafka": [2.0, 1.5, 9.0]}, 60.0)["reached"] is reached


def test_a_peer_that_is_not_done_counts_with_the_limit_and_ours_has_to_be_done() -> None:
    """Kafka's tool asks for the ends of partitions member by member, 1,000 times: minutes."""
    late = judged({"holdfast": [5.0], "kafka": [math.inf]}, 60.0)
    assert (late["kafka_s"], late["kafka_done"], late["ratio"], late["reached"]) == (60.0, False, 0.083, True)
    assert judged({"holdfast": [math.inf], "kafka": [math.inf]}, 60.0)["reached"] is False


def test_a_tool_that_shows_too_little_is_no_quick_one() -> None:
    with pytest.raises(HoldfastError, match="showed 0 of 3 rows"):
        timed(["true"], rows=3, limit_s=60.0)


@pytest.mark.java
def test_both_tools_are_asked_for_the_same_rows() -> None:
    ours, theirs = commands("127.0.0.1:9").values()

    assert ours[-3:] == ["--offsets", "--bootstrap-server", "127.0.0.1:9"]
    assert "--describe" in theirs and GROUP in theirs
