"""A position that was handed over is its new owner's to commit, and nobody's who is no longer the owner."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.assign import by_name
from holdfast.client.member.group_offsets import GroupOffsets
from holdfast.group.member.state import MemberConfig, MemberState, Phase
from holdfast.group.messages import CommitAnswer, CommitRequest, FetchOffsetsAnswer, OffsetEntry
from holdfast.model import ErrorCode, Membership, RebalanceProtocol, TopicPartition

P = TopicPartition("orders", 9)
HANDED = {P: OffsetEntry(100)}
MEMBER = MemberState(
    config=MemberConfig(
        group="billing", assignors=(by_name("cooperative-sticky"),), protocol=RebalanceProtocol.COOPERATIVE
    ),
    membership=Membership(member_id="b", generation=5),
    phase=Phase.STABLE,
    owned=frozenset({P}),
)


class Coordinator:
    """Refuses the first commit. What the member has become by then is up to the test."""

    def __init__(self, then: MemberState) -> None:
        self.state = MEMBER
        self.tries = 0
        self.committed: dict[TopicPartition, int] = {}
        self._then = then

    async def send(self, request: Any, _timeout_ms: float = 0.0) -> Any:
        if not isinstance(request, CommitRequest):
            return FetchOffsetsAnswer()
        self.tries += 1
        if self.tries == 1:
            self.state = self._then
            return CommitAnswer(errors=dict.fromkeys(request.offsets, ErrorCode.UNKNOWN_SERVER_ERROR))
        self.committed.update({p: entry.offset for p, entry in request.offsets.items()})
        return CommitAnswer(errors=dict.fromkeys(request.offsets, ErrorCode.NONE))

    async def send_commit(self, request: CommitRequest) -> Any:
        return await self.send(request)

    def forget(self) -> None: ...


REJOINED = replace(MEMBER, membership=Membership(member_id="b2", generation=7))


@pytest.mark.parametrize(
    ("then", "reaches"),
    [
        pytest.param(MEMBER, True, id="the owner"),
        pytest.param(replace(MEMBER, membership=Membership(member_id="b", generation=6)), True, id="a round later"),
        pytest.param(replace(MEMBER, owned=frozenset()), False, id="taken from it"),
        pytest.param(replace(MEMBER, lost=True), False, id="out of the group"),
        pytest.param(REJOINED, False, id="out of the group and in again"),
    ],
)
def test_only_the_owner_goes_on_trying(monkeypatch: pytest.MonkeyPatch, then: MemberState, reaches: bool) -> None:
    """A member that was thrown out and had joined again tried once more, as after any refusal, to commit what had been
    handed to it before. The next owner was further by then, and its commit was moved back."""
    monkeypatch.setattr("holdfast.client.member.group_offsets.MOST_BACKOFF_S", 0.0)
    coordinator = Coordinator(then)
    config = SimpleNamespace(group="billing", retry_backoff_ms=1)
    given = cast("Any", coordinator)
    offsets = GroupOffsets(cast("Any", config), given, given, backoff_max_s=0.01)
    left: dict[TopicPartition, OffsetEntry] = {}
    asyncio.run(offsets.commit_handed(HANDED, left=left))
    assert coordinator.committed == ({P: 100} if reaches else {})
    assert left == {}
