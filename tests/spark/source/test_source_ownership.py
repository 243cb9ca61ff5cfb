"""When a batch may be planned: the group's rule, and what is said when it holds one back."""

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


def test_it_is_said_once_when_planning_is_held_back_and_once_when_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    ours = Ownership(CONFIG)
    assert ours.check(STABLE, 1_000.0)
    assert not ours.check(STABLE, 1_400.0)
    assert not ours.check(STABLE, 1_500.0)
    assert ours.check(JOINING, 1_600.0)
    silent, again = caplog.messages
    assert "heard nothing from its coordinator for 1.4 s" in silent
    assert "plans batches again" in again
