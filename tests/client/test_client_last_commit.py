"""Commits that nobody waits for, made while partitions are given up."""

from __future__ import annotations

import time
from typing import Any

import holdfast
from holdfast.testing import Broker


def test_a_commit_made_while_revoking_is_sent_as_the_member_that_still_owns(broker: Broker, topic: str) -> None:
    """Symptom: of 22 commits before a revoke that nobody waited for, 19 were never sent, and an asynchronous commit in
    on_revoke failed with "not owned". Cause: who we are was looked up when the loop got to the commit, after it had
    heard that the listener was done and had taken the partitions off the books. Where the positions did not reach the
    next owner, it did everything again. Invariant: a commit is made by whoever owned the partitions when it was asked
    for."""
    told: list[Any] = []
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"last-{topic}",
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 100,
        "enable.auto.commit": False,
        "holdfast.watchdog": False,
    }
    first = holdfast.Consumer(
        {**settings, "on_commit": lambda error, partitions: told.append((error, len(partitions)))}
    )
    revoked: list[Any] = []

    def revoke(consumer: Any, partitions: list[Any]) -> None:
        revoked.extend(partitions)
        consumer.commit(asynchronous=True)

    first.subscribe([topic], on_revoke=revoke)
    seen, deadline = 0, time.monotonic() + 30
    while seen < 15:
        assert time.monotonic() < deadline
        seen += first.poll(0.05) is not None
    second = holdfast.Consumer(settings)
    second.subscribe([topic])
    while not (revoked and told):
        assert time.monotonic() < deadline
        first.poll(0.01)
        second.poll(0.01)
    assert told == [(None, 3)], "everything it stood at, while it still owned all of it"
    first.close()
    second.close()
