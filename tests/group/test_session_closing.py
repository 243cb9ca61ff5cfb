"""When a close need not wait any longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.group.member import MemberConfig, MemberState, Phase
from holdfast.group.session.closing import is_out
from holdfast.model import RebalanceProtocol

STATE = MemberState(config=MemberConfig(group="g", assignors=(), protocol=RebalanceProtocol.COOPERATIVE))


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("calls_wait", [True, False])
def test_a_member_is_out_when_it_has_left_or_failed_and_its_listener_knows(phase: Phase, *, calls_wait: bool) -> None:
    expected = phase in (Phase.CLOSED, Phase.FAILED) and not calls_wait
    assert is_out(replace(STATE, phase=phase), calls_wait=calls_wait) is expected
