"""The same judgement on histories that real members make on the embedded broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.model import ErrorCode
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.net.errors import BrokerError
from holdfast.net.group_snapshots import read_group
from holdfast.observe.health import Verdict, judge
from holdfast.observe.history import History
from holdfast.observe.snapshot import GroupSnapshot
from holdfast.testing import Broker
from holdfast.testing.members import MemberOptions, MemberProcess
from patience import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=4)
        yield running


class Watched:
    """A group that is looked at while a scene goes on."""

    def __init__(self, broker: Broker) -> None:
        self._settings = client_config({"bootstrap.servers": broker.bootstrap})
        self.history = History()

    def until(self, holds: Callable[[GroupSnapshot], bool], meanwhile: Callable[[], object] = lambda: None) -> None:
        """Look, again and again, until a look is like this."""

        async def look() -> None:
            async with Cluster(self._settings) as cluster:
                deadline = time.monotonic() + PATIENCE_S
                while True:
                    meanwhile()
                    found = await self._look(cluster)
                    if found is not None and holds(found):
                        return
                    assert time.monotonic() < deadline, found
                    await asyncio.sleep(0.02)

        asyncio.run(look())

    async def _look(self, cluster: Cluster) -> GroupSnapshot | None:
        """None until the first member's join has reached the coordinator."""
        try:
            found = await read_group(cluster, "billing")
        except BrokerError as error:
            assert error.error is ErrorCode.GROUP_ID_NOT_FOUND
            return None
        self.history.see(found, time.monotonic() * 1000)
        return found

    def found(self) -> list[str]:
        """The questions of the investigation that were answered with yes."""
        return [one.about[:2] for one in judge(self.history).investigation if one.verdict is Verdict.FINDING]


def consumer(broker: Broker, name: str, **more: Any) -> holdfast.Consumer:
    made = holdfast.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "billing",
            "client.id": name,
            "heartbeat.interval.ms": 100,
            "holdfast.watchdog": False,
            **{key.replace("_", "."): value for key, value in more.items()},
        }
    )
    made.subscribe(["orders"])
    return made


def names(look: GroupSnapshot) -> list[str]:
    return sorted(member.client_id for member in look.described.members) if look.described.state == "Stable" else []


def test_a_consumer_that_takes_too_long_for_a_batch_is_named(broker: Broker) -> None:
    """A rebalance storm: one member exceeds max.poll.interval.ms, leaves, comes back with its next poll, again."""
    steady = consumer(broker, "steady")
    slow = consumer(broker, "slow", session_timeout_ms=1_000, max_poll_interval_ms=1_000)
    watched = Watched(broker)
    for _ in range(2):
        watched.until(lambda look: names(look) == ["slow", "steady"], lambda: (steady.poll(0.02), slow.poll(0.02)))
        watched.until(lambda look: names(look) == ["steady"], lambda: steady.poll(0.02))  # slow is busy with a batch
    watched.until(lambda look: names(look) == ["slow", "steady"], lambda: (steady.poll(0.02), slow.poll(0.02)))
    steady.close()
    slow.close()

    assert watched.found() == ["2."]
    (answer,) = [one for one in judge(watched.history).investigation if one.verdict is Verdict.FINDING]
    assert answer.said.startswith("slow@127.0.0.1 left and came back 2 times")


def test_a_process_that_crashes_and_is_restarted_is_named(broker: Broker, tmp_path: Path) -> None:
    """kill -9, and the new process is in the group while the old membership waits for its session to end."""
    watched = Watched(broker)
    options = MemberOptions(bootstrap=broker.bootstrap, group="billing", topic="orders", client_id="crasher")
    with ExitStack() as started:
        member = started.enter_context(MemberProcess("confluent", options, name="m0", folder=tmp_path))
        _until_joined(broker, 1)
        for number in (1, 2):
            watched.until(lambda look: names(look) == ["crasher"])
            (old,) = [one.member_id for one in broker.group("billing").members]
            member.kill()
            member = started.enter_context(MemberProcess("confluent", options, name=f"m{number}", folder=tmp_path))
            # The join of the new one starts a round that waits for the old one, until its session is over.
            _until_joined(broker, 2)
            broker.expel("billing", old)
            watched.until(lambda look: names(look) == ["crasher"])

    assert watched.found() == ["1.", "4."], "it crashes; and librdkafka's default assignor is an eager one"
    assert "crasher@127.0.0.1 was restarted or redeployed 2 times" in judge(watched.history).investigation[0].said


def _until_joined(broker: Broker, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(broker.group("billing").members) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_processes_with_one_instance_id_are_named_and_restarts_of_one_are_no_rebalances(broker: Broker) -> None:
    """A static member that restarts within its session moves nothing: no rebalance. Again and again: a collision."""
    watched = Watched(broker)
    held: list[holdfast.Consumer] = []
    ids: set[str] = set()
    joined = 0

    def taken_over(look: GroupSnapshot) -> bool:
        return names(look) == ["pod"] and not {one.member_id for one in look.described.members} <= ids

    for _ in range(3):
        held.append(consumer(broker, "pod", group_instance_id="pod-0"))
        watched.until(taken_over, lambda: held[-1].poll(0.02))
        ids.update(one.member_id for one in broker.group("billing").members)
        joined = joined if len(held) > 1 else watched.history.total

    assert watched.found() == ["3."]
    assert watched.history.total == joined, watched.history.rebalances
    for one in reversed(held):
        one.close()
