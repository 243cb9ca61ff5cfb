"""What a member costs before its first record: modules that it loads, and questions that everybody waits for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import pytest
from polling import until

from holdfast import Consumer
from holdfast.client.member import control
from holdfast.model import ClusterView
from holdfast.net.cluster import Cluster
from holdfast.net.metadata import ClusterInfo
from holdfast.testing import Broker
from patience import PATIENCE_S

READS_ONE = """
import asyncio, sys
import confluent_kafka
from holdfast import AsyncConsumer

bootstrap, topic = sys.argv[1:]

async def main():
    config = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    async with AsyncConsumer(config) as consumer:
        consumer.subscribe([topic])
        while await consumer.poll(1.0) is None:
            pass

asyncio.run(main())
assert "pandas" not in sys.modules
"""


def test_a_consumer_that_reads_does_not_load_pandas(broker: Broker, topic: str) -> None:
    """Symptom: where pandas was installed, the first AsyncConsumer of a process took half a second more than others;
    and so did the first revoke of a partition with records that were not read yet, while everybody waited. Cause:
    `pyarrow.array` loads it, here for an array of no rows and for some row numbers. Rule: what needs no pandas does not
    load it. This program reads one record of fifteen, and closes."""
    ended = subprocess.run(
        [sys.executable, "-c", READS_ONE, broker.bootstrap, topic],
        timeout=PATIENCE_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_a_leader_that_looked_when_it_joined_does_not_ask_again_when_all_wait_for_its_plan(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: in a group of 400 the second round of a handover waited for a look at the topics. Cause: what was just
    fresh enough when the leader joined, and so was not looked at again, was too old when the others had joined too.
    Rule: a plan may go by what is older than that. Here nothing is fresh enough to join by, and all to plan by."""
    monkeypatch.setattr(control, "FRESH_S", 0.0)
    monkeypatch.setattr(control, "PLANS_BY_S", PATIENCE_S)
    refreshed = 0
    looks: list[tuple[float, int]] = []
    sound_view, sound_refresh = Cluster.view, Cluster.refresh

    async def refresh(self: Cluster, topics: Iterable[str] | None = ()) -> ClusterInfo:
        nonlocal refreshed
        refreshed += 1
        return await sound_refresh(self, topics)

    async def view(self: Cluster, topics: Iterable[str], *, within_s: float = 0.0) -> ClusterView:
        before = refreshed
        found = await sound_view(self, topics, within_s=within_s)
        looks.append((within_s, refreshed - before))
        return found

    monkeypatch.setattr(Cluster, "view", view)
    monkeypatch.setattr(Cluster, "refresh", refresh)
    with Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic}) as leader:
        leader.subscribe([topic])
        until(leader, lambda: len(leader.assignment()) == 3)
    to_plan = [asked for within_s, asked in looks if within_s == PATIENCE_S]
    assert to_plan == [0] * len(to_plan) != []
