"""When a batch may be planned: the group's rule, by the clock of a query that is rarely asked."""

from __future__ import annotations

import pytest

from holdfast.client.config.settings import parse
from holdfast.group import member as mb
from holdfast.model import Membership
from holdfast.spark.ownership import Ownership

CONFIG = parse({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "session.timeout.ms": 1_000})
MEMBER = mb.MemberConfig(
    group="g", assignors=CONFIG.assignors, protocol=CONFIG.protocol, session_timeout_ms=CONFIG.session_timeout_ms
)
STABLE = mb.MemberState(config=MEMBER, phase=mb.Phase.STABLE, membership=Membership("m", 3))
JOINING = mb.MemberState(config=MEMBER, phase=mb.Phase.JOINING, membership=Membership("m", 3))
"""Both were last vouched for at 0."""


def test_a_batch_longer_than_the_session_is_no_freeze(caplog: pytest.LogCaptureFixture) -> None:
    """Spark asks once in a batch. Between its questions the member's own clock goes on: a join that is parked meanwhile
    keeps our place, so the next batch need not wait for the round's end."""
    ours = Ownership(CONFIG, now=0.0)
    for now in range(0, 5_000, 250):
        ours.tick(now)
    assert ours.check(JOINING, 5_000.0)
    assert not caplog.text


def test_a_process_that_was_frozen_for_a_session_waits_for_an_answer() -> None:
    ours = Ownership(CONFIG, now=0.0)
    assert not ours.check(JOINING, 5_000.0)


def test_it_is_said_once_when_planning_is_held_back_and_once_when_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    ours = Ownership(CONFIG, now=0.0)
    assert ours.check(STABLE, 1_000.0)
    assert not ours.check(STABLE, 1_400.0)
    assert not ours.check(STABLE, 1_500.0)
    assert ours.check(JOINING, 1_600.0)
    silent, again = caplog.messages
    assert "heard nothing from its coordinator for 1.4 s" in silent
    assert "plans batches again" in again
