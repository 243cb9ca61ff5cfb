"""Under a foreign leader nobody marks, so holdfast members ask quickly for a while: within the coordinator's budget."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka as ck
import pytest

from holdfast.assign import by_name
from holdfast.broker.limits import Limits
from holdfast.group import member as mb
from holdfast.group.member.syncing import COORDINATOR_BUDGET_PER_S, COUNT_STANDS_MS_PER_MEMBER, HOT_WINDOW_MS
from holdfast.net.channel import GroupChannel
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.net.driver import Hooks, MemberDriver
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S

MEMBERS = 200
GROUP = "crowd"


@contextmanager
def foreign_leader(bootstrap: str, topic: str) -> Iterator[None]:
    """A librdkafka member that came first, and so leads."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": 500,
        }
    )
    leads, done = threading.Event(), threading.Event()
    consumer.subscribe([topic], on_assign=lambda _consumer, _partitions: leads.set())

    def poll() -> None:
        while not done.is_set():
            consumer.poll(0.05)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert leads.wait(PATIENCE_S)
        yield
    finally:
        done.set()
        thread.join()
        consumer.close()


class Crowd:
    """Many members on one loop, whose listeners return at once."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self.drivers: list[MemberDriver] = []
        self.failures: list[object] = []
        self._moved = asyncio.Event()

    def add(self, number: int) -> None:
        assignor = by_name("cooperative-sticky")
        config = mb.MemberConfig(
            group=GROUP, assignors=(assignor,), protocol=mb.select_protocol([assignor]), client_id=f"crowd-{number}"
        )
        box: list[MemberDriver] = []
        hooks = Hooks(
            notify=lambda effect: box[0].feed(mb.Notified(effect.serial, {})),
            fail=self.failures.append,
            trace=lambda _record: None,
            cluster_view=self._cluster.view,
            last_poll=lambda: time.monotonic() * 1_000,
            changed=lambda _state: self._moved.set(),
        )
        channel = GroupChannel(self._cluster, GROUP)
        box.append(MemberDriver(config, channel, hooks, clock=lambda: time.monotonic() * 1_000))
        self.drivers.append(box[0])
        box[0].feed(mb.Subscribe(frozenset({self._topic})))

    def settled(self) -> bool:
        """Stable in one generation, every partition owned."""
        return (
            all(driver.state.phase is mb.Phase.STABLE for driver in self.drivers)
            and len({driver.state.membership.generation for driver in self.drivers}) == 1
            and sum(len(driver.state.owned) for driver in self.drivers) >= MEMBERS
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._moved.clear()
                await self._moved.wait()


@pytest.mark.slow
def test_quick_heartbeats_of_two_hundred_members_stay_within_the_coordinators_budget() -> None:
    """Symptom: every member asked every 25 ms, 8,000 requests a second. Cause: nobody told the members how many they
    are. Invariant: each asks so seldom that all together stay below 4,000 a second."""
    asked: dict[str, list[float]] = defaultdict(list)

    def note(exchange: Any) -> None:
        asked[exchange.body.member_id].append(time.monotonic() * 1_000)

    async def storm(broker: Broker) -> dict[str, tuple[float, float]]:
        async with Cluster(client_config({"bootstrap.servers": broker.bootstrap})) as cluster:
            crowd = Crowd(cluster, "many")
            for number in range(MEMBERS):
                crowd.add(number)
            await crowd.until(crowd.settled)
            await asyncio.sleep((MEMBERS + 1) * COUNT_STANDS_MS_PER_MEMBER / 1_000)  # earlier counts saw fewer members
            broker.faults.call(Api.HEARTBEAT, note)
            crowd.drivers[0].feed(mb.Enforce("one more round, and quick heartbeats after it"))
            before = crowd.drivers[0].state.membership.generation
            await crowd.until(lambda: all(d.state.membership.generation > before for d in crowd.drivers))
            await crowd.until(crowd.settled)
            await asyncio.sleep(HOT_WINDOW_MS / 1_000)
            assert crowd.failures == []
            pace = {driver.state.beats.hot_interval_ms for driver in crowd.drivers}
            assert pace == {(MEMBERS + 1) * 1_000 / COORDINATOR_BUDGET_PER_S}, "they know how many they are"
            spans = {
                d.state.membership.member_id: (d.state.round.synced_at, d.state.beats.hot_until) for d in crowd.drivers
            }
            await asyncio.gather(*(driver.stop() for driver in crowd.drivers))
            return spans

    with Broker(limits=Limits(max_connections=3 * MEMBERS)) as broker:
        broker.topics.create("many", partitions=MEMBERS + 1)
        with foreign_leader(broker.bootstrap, "many"):
            spans = asyncio.run(storm(broker))

    allowed = HOT_WINDOW_MS / 1_000 * COORDINATOR_BUDGET_PER_S / (MEMBERS + 1) + 1
    counts = {
        member: sum(synced <= time_ms <= hot for time_ms in asked[member]) for member, (synced, hot) in spans.items()
    }
    assert max(counts.values()) <= allowed
    assert sum(counts.values()) > 0, "they do ask before the normal tick of 3 s"
