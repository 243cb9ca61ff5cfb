"""An application that hangs while somebody joins: what others own goes on, until the hang is over."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.client import consumer as client
from holdfast.testing import Broker

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


def run(members: list[Member], until: Callable[[], bool], limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while not until():
        assert time.monotonic() < deadline, [(one.owned, one.steps()[-5:]) for one in members]
        for one in members:
            one.consumer.poll(0.005)


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


def test_an_application_that_polls_is_never_waited_for(member: Callable[[], Member]) -> None:
    """The driver tells the machine of polls before every event, not only when a timer runs out: with a heartbeat of
    seconds the machine would take an application for silent that has polled all the while."""
    first = member()
    run([first], lambda: first.owned == 3)
    over = time.monotonic() + 2 * RESPONSIVE_MS / 1_000
    run([first], lambda: time.monotonic() > over)
    second = member()
    run([first, second], lambda: first.owned > 0 and second.owned > 0 and first.owned + second.owned == 3)
    assert "waiting-for-poll" not in first.steps() + second.steps()


def test_a_drain_that_is_waited_for_counts_as_polling(member: Callable[[], Member]) -> None:
    """drain(timeout) serves the group without returning records: a round must not wait for a poll meanwhile."""
    first, second = member(), member()
    run([first, second], lambda: first.owned > 0 and second.owned > 0)
    time.sleep(2 * RESPONSIVE_MS / 1_000)
    before = second.consumer._polled_at
    assert not second.consumer.drain(timeout=0.3), "first does not poll, so nobody takes over"
    assert second.consumer._polled_at >= before + 250
    run([first, second], second.consumer.drain)
    run([first], lambda: first.owned == 3)
