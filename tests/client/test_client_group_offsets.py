"""A consumer's requests about its group's offsets, by themselves: as whom they are made, how long they are tried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from stand_ins import MEMBER, A, B, config_of

from holdfast.client.member import group_offsets
from holdfast.client.member.group_offsets import GroupOffsets
from holdfast.group import member as mb
from holdfast.group.messages import CommitAnswer, CommitRequest, FetchOffsetsAnswer, OffsetEntry
from holdfast.model import NOBODY, ErrorCode, HoldfastError, TopicPartition
from holdfast.net.errors import NetError

AT_5, AT_9 = OffsetEntry(5), OffsetEntry(9)
GONE = NetError("DISCONNECTED", "the coordinator is gone.", "Wait.", retriable=True)


class Coordinator:
    """Answers in turn with what it is given, then accepts everything. Both the member's driver and its channel."""

    def __init__(self, state: mb.MemberState = MEMBER) -> None:
        self.state = state
        self.answers: list[ErrorCode | BaseException] = []
        self.kept: dict[TopicPartition, OffsetEntry] = {}
        self.asked: list[Any] = []
        self.by_driver: list[Any] = []
        self.looked_up = 0

    def _next(self) -> ErrorCode:
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def send(self, request: Any, _timeout_ms: float) -> Any:
        self.asked.append(request)
        code = self._next()
        if isinstance(request, CommitRequest):
            return CommitAnswer(errors=dict.fromkeys(request.offsets, code))
        return FetchOffsetsAnswer(error=code, offsets=self.kept if code is ErrorCode.NONE else {})

    async def send_commit(self, request: CommitRequest) -> Any:
        self.by_driver.append(request)
        return await self.send(request, 0.0)

    async def committed(self, partitions: tuple[TopicPartition, ...]) -> Any:
        """As the driver asks."""
        return await self.send(partitions, 0.0)

    def forget(self) -> None:
        self.looked_up += 1


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Retries follow at once."""
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _seconds: sleep(0))
    yield


def offsets_of(coordinator: Any) -> GroupOffsets:
    return GroupOffsets(config_of(retry_backoff_ms=1), coordinator, coordinator, backoff_max_s=0.01)


# -- as whom


def test_a_commit_is_made_under_the_membership_of_the_moment_in_which_it_was_asked_for() -> None:
    """By the time the loop gets to it, a revoke may have taken the partitions."""
    coordinator = Coordinator()
    sending = offsets_of(coordinator).commit_soon({A: AT_5}, ahead_of_join=True)
    coordinator.state = replace(MEMBER, owned=frozenset(), membership=replace(MEMBER.membership, generation=6))
    answer = asyncio.run(sending)
    (request,) = coordinator.by_driver
    assert (request.membership, request.ahead_of_join) == (MEMBER.membership, True)
    assert answer.errors == {A: ErrorCode.NONE}


def test_only_what_was_given_up_is_refused_of_a_commit_that_names_more_than_is_owned() -> None:
    """An application may commit what it has assigned itself beside the group's."""
    coordinator = Coordinator(replace(MEMBER, owned=frozenset({A})))
    offsets = offsets_of(coordinator)
    asyncio.run(offsets.commit_soon({A: AT_5, B: AT_9}))
    assert coordinator.by_driver[0].offsets == {A: AT_5, B: AT_9}
    with pytest.raises(HoldfastError, match="NOT_OWNED"):
        asyncio.run(offsets.commit_soon({A: AT_5, B: AT_9}, given_up=frozenset({B})))
    assert len(coordinator.by_driver) == 1


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (replace(MEMBER, phase=mb.Phase.SYNCING), "REBALANCE_IN_PROGRESS"),
        (replace(MEMBER, lost=True), "UNKNOWN_MEMBER_ID"),
    ],
)
def test_a_commit_that_may_not_be_sent_fails_when_it_is_awaited(state: mb.MemberState, code: str) -> None:
    """Not when it is asked for: the application hears of it as of any other outcome."""
    coordinator = Coordinator(state)
    sending = offsets_of(coordinator).commit_soon({A: AT_5})
    with pytest.raises(HoldfastError, match=code):
        asyncio.run(sending)
    assert coordinator.asked == []


def test_a_manual_assignment_commits_from_outside_the_group() -> None:
    """edge B44 K-14201: without an instance id, too."""
    coordinator = Coordinator(replace(MEMBER, config=replace(MEMBER.config, instance_id="pod-7")))
    asyncio.run(offsets_of(coordinator).commit_soon({A: AT_5}, member=False, ahead_of_join=True))
    assert coordinator.by_driver == []
    (request,) = coordinator.asked
    assert (request.membership, request.instance_id, request.ahead_of_join) == (NOBODY, None, False)


# -- how long


def test_a_commit_is_tried_until_the_coordinator_takes_it_and_looked_up_where_it_moved() -> None:
    coordinator = Coordinator()
    coordinator.answers = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, GONE]
    answer = asyncio.run(offsets_of(coordinator).commit({A: AT_5}))
    assert answer.first_error is ErrorCode.NONE
    assert len(coordinator.asked) == 4
    assert coordinator.looked_up >= 1


def test_a_refusal_that_lasts_is_the_answer() -> None:
    coordinator = Coordinator()
    coordinator.answers = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    answer = asyncio.run(offsets_of(coordinator).commit({A: AT_5}))
    assert answer.errors == {A: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert len(coordinator.asked) == 1


def test_a_retry_does_not_undo_a_later_commit() -> None:
    coordinator = Coordinator()
    offsets = offsets_of(coordinator)
    coordinator.answers = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]

    async def both() -> None:
        await asyncio.gather(offsets.commit_soon({A: AT_5, B: AT_5}), offsets.commit_soon({A: AT_9}))

    asyncio.run(both())
    last = {p: entry for request in coordinator.asked for p, entry in request.offsets.items()}
    assert last == {A: AT_9, B: AT_5}


def test_what_is_committed_is_asked_for_until_somebody_knows() -> None:
    coordinator = Coordinator()
    coordinator.kept = {A: AT_5}
    coordinator.answers = [ErrorCode.COORDINATOR_NOT_AVAILABLE, GONE]
    answer = asyncio.run(offsets_of(coordinator).committed((A, B)))
    assert answer.offsets == {A: AT_5}
    assert (len(coordinator.asked), coordinator.looked_up) == (3, 2)


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, None),
        (NetError("TLS", "a wrong certificate.", "Mend it.", retriable=False), "TLS"),
    ],
)
def test_what_no_retry_can_mend_is_told_at_once(refusal: Any, error: str | None) -> None:
    coordinator = Coordinator()
    coordinator.answers = [refusal]
    asking = offsets_of(coordinator).committed((A,))
    if error is None:
        assert asyncio.run(asking).error is refusal
    else:
        with pytest.raises(NetError, match=error):
            asyncio.run(asking)
    assert len(coordinator.asked) == 1


# -- where partitions start


def starts(coordinator: Coordinator, wanted: Callable[[], bool], told: list[str]) -> dict[TopicPartition, int | None]:
    def tell(error: HoldfastError) -> None:
        told.append(error.code)

    return asyncio.run(offsets_of(coordinator).starts((A, B), wanted=wanted, tell=tell))


def test_added_partitions_start_where_the_group_stands_or_nowhere_yet() -> None:
    coordinator, told = Coordinator(), list[str]()
    coordinator.kept = {A: AT_5}
    coordinator.answers = [ErrorCode.NOT_COORDINATOR, GONE]
    assert starts(coordinator, lambda: True, told) == {A: 5, B: None}
    assert told == []


def test_a_round_that_is_over_asks_no_more() -> None:
    coordinator = Coordinator()
    coordinator.answers = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 100
    assert starts(coordinator, lambda: len(coordinator.asked) < 3, []) == {}
    assert len(coordinator.asked) == 3


def test_a_lasting_refusal_is_told_once_in_a_while_and_tried_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """An administrator may allow it meanwhile."""
    coordinator, told = Coordinator(), list[str]()
    coordinator.answers = [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 5
    assert starts(coordinator, lambda: True, told) == {A: None, B: None}
    assert told == ["GROUP_AUTHORIZATION_FAILED"]
    monkeypatch.setattr(group_offsets, "TELL_AGAIN_MS", 0.0)
    coordinator.answers = [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 5
    assert starts(coordinator, lambda: True, told) == {A: None, B: None}
    assert len(told) == 6
