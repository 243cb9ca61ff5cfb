"""An application that hangs while somebody joins: what others own goes on, until the hang is over."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.assign import by_name
from holdfast.client import core as client
from holdfast.group.member import HeartbeatAnswered, MemberConfig, Phase
from holdfast.group.member.parts import Requests
from holdfast.group.messages import HeartbeatAnswer, JoinRequest
from holdfast.model import ClusterView, ErrorCode, Membership, RebalanceProtocol
from holdfast.net.driver import Hooks, MemberDriver
from holdfast.testing import Broker
from inside import core_of
from patience import PATIENCE_S

RESPONSIVE_MS = 200.0


class Member:
    def __init__(self, broker: Broker, group: str, topic: str, trace: Path) -> None:
        self.trace = trace
        self.revoked: list[int] = []
        self.consumer = holdfast.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "heartbeat.interval.ms": 50,
                "session.timeout.ms": 10_000,
                "holdfast.trace.file": str(trace),
                "holdfast.watchdog": False,
            }
        )
        self.consumer.subscribe([topic], on_revoke=self._revoke)

    def _revoke(self, _consumer: Any, partitions: list[Any]) -> None:
        self.revoked += [p.partition for p in partitions]

    @property
    def owned(self) -> int:
        return len(self.consumer.assignment())

    def steps(self) -> list[str]:
        return [json.loads(line)["step"] for line in self.trace.read_text().splitlines()]


@pytest.fixture
def member(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Member]]:
    assert client.RESPONSIVE_MS == 1_000.0
    monkeypatch.setattr(client, "RESPONSIVE_MS", RESPONSIVE_MS)
    made: list[Member] = []

    def make() -> Member:
        made.append(Member(broker, f"waiting-{topic}", topic, tmp_path / f"{len(made)}.jsonl"))
        return made[-1]

    yield make
    for one in made:
        one.consumer.close()


def run(members: list[Member], until: Callable[[], bool], limit_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + limit_s
    while not until():
        assert time.monotonic() < deadline, [(one.owned, one.steps()[-5:]) for one in members]
        for one in members:
            one.consumer.poll(0.005)


@pytest.mark.slow
def test_a_hung_application_does_not_hold_the_second_half_of_a_round(member: Callable[[], Member]) -> None:
    """Symptom: while one application hung, partitions of healthy members stood still for as long as it did. Cause: the
    hung one's member joined by itself, so the others revoked for the newcomer; the second half of the round then waited
    for a listener that nobody called. Invariant: whoever's application does not poll joins no round until it does."""
    busy = member()
    run([busy], lambda: busy.owned == 3)
    hung = member()
    run([busy, hung], lambda: (busy.owned, hung.owned) == (2, 1))
    revoked = list(busy.revoked)
    time.sleep(2 * RESPONSIVE_MS / 1_000)  # the hang
    newcomer = member()
    run([busy, newcomer], lambda: "waiting-for-poll" in hung.steps())
    over = time.monotonic() + 1.0
    run([busy, newcomer], lambda: time.monotonic() > over)
    assert busy.owned == 2 and busy.revoked == revoked, "nobody gave anything up for a round that can't be finished"
    assert newcomer.owned == 0
    run([busy, hung, newcomer], lambda: {one.owned for one in (busy, hung, newcomer)} == {1})


class Mute:
    """A way to a coordinator that never answers."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def send(self, request: Any, timeout_ms: float) -> Any:
        self.sent.append(request)
        await asyncio.Event().wait()

    async def members(self) -> int:
        return 1

    def forget(self) -> None:
        """There is nothing to forget."""


@pytest.mark.parametrize(("polled_at", "joins"), [(49_500.0, True), (48_000.0, False)])
def test_the_driver_tells_of_polls_before_every_event(polled_at: float, joins: bool) -> None:
    """Symptom: a member asked for a round waited for a poll although its application had polled all the while. Cause:
    the machine heard of polls when a timer ran out, which with a heartbeat of seconds is seconds ago."""

    async def scene() -> tuple[list[Any], list[str]]:
        channel, traced = Mute(), list[str]()
        hooks = Hooks(
            notify=lambda _: None,
            fail=lambda _: None,
            trace=lambda record: traced.append(record.step),
            cluster_view=lambda _: asyncio.sleep(0, ClusterView()),
            last_poll=lambda: polled_at,
        )
        config = MemberConfig(
            group="g",
            assignors=(by_name("cooperative-sticky"),),
            protocol=RebalanceProtocol.COOPERATIVE,
            heartbeat_interval_ms=3_000,
            responsive_ms=1_000.0,
        )
        driver = MemberDriver(config, channel, hooks, clock=lambda: 50_000.0)
        driver.state = replace(
            driver.state,
            phase=Phase.STABLE,
            membership=Membership("m", 1),
            topics=frozenset({"orders"}),
            requests=Requests(heartbeat=7, heard_at=49_000.0),
            last_polled_at=47_000.0,
        )
        driver.feed(HeartbeatAnswered(7, HeartbeatAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS)))
        await asyncio.sleep(0)
        await driver.stop()
        return channel.sent, traced

    sent, traced = asyncio.run(scene())
    assert [type(request) for request in sent] == ([JoinRequest] if joins else [])
    assert ("waiting-for-poll" in traced) is not joins


def test_a_drain_that_is_waited_for_counts_as_polling(member: Callable[[], Member]) -> None:
    """drain(timeout) serves the group without returning records: a round must not wait for a poll meanwhile."""
    first, second = member(), member()
    run([first, second], lambda: first.owned > 0 and second.owned > 0)
    time.sleep(2 * RESPONSIVE_MS / 1_000)
    polled_at = core_of(second.consumer).offsets.polled_at
    before = polled_at()
    assert not second.consumer.drain(timeout=0.3), "first does not poll, so nobody takes over"
    assert polled_at() >= before + 250
    run([first, second], second.consumer.drain)
    run([first], lambda: first.owned == 3)
