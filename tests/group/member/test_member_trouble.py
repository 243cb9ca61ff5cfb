"""The table of error codes, and the promise that it keeps: no member ends up dead in silence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from driven import Driven

from holdfast.group.member import (
    Close,
    CommitAnswered,
    Fail,
    JoinAnswered,
    LeaveAnswered,
    Notify,
    Phase,
    PlanFailed,
    RequestFailed,
    Send,
    SyncAnswered,
    Tell,
    Tick,
)
from holdfast.group.messages import HeartbeatRequest, JoinAnswer, JoinRequest, LeaveAnswer, SyncAnswer
from holdfast.group.verdicts import LISTED, OTHERWISE, Ask, Verdict, refusal, verdict
from holdfast.model import ErrorCode, HoldfastError, Membership

CODES = [*(code for code in ErrorCode if code is not ErrorCode.NONE), ErrorCode(999), ErrorCode(32_000)]
"""Every code we know, and two that we don't."""


def joining() -> Driven:
    return Driven().subscribe()


def syncing() -> Driven:
    return Driven().subscribe().answer_join()


def stable() -> Driven:
    return Driven().stable_with("orders-0")


def asked(member: Driven) -> Driven:
    """A heartbeat is under way."""
    member.feed(Tick(), after_ms=3_000)
    assert member.state.requests.heartbeat is not None
    return member


def leaving() -> Driven:
    return stable().feed(Close("bye")).notified()


def test_every_request_has_a_verdict_for_every_code() -> None:
    for ask in Ask:
        assert verdict(ask, ErrorCode.NONE) is Verdict.FINE
        assert OTHERWISE[ask] is not Verdict.FATAL, "what we don't know can pass"
        for code in CODES:
            found = verdict(ask, code)
            if found is Verdict.FATAL:
                assert code is ErrorCode.FENCED_INSTANCE_ID
            told = refusal(ask, code)
            assert told.code == code.name and told.what and told.do
    assert set(LISTED) == set(Ask)


def refuse_join(member: Driven, code: ErrorCode) -> None:
    member.feed(JoinAnswered(member.pending, JoinAnswer(error=code, membership=Membership("m-9"))))


def refuse_sync(member: Driven, code: ErrorCode) -> None:
    member.feed(SyncAnswered(member.pending, SyncAnswer(error=code)))


def refuse_heartbeat(member: Driven, code: ErrorCode) -> None:
    asked(member).answer_heartbeat(code)


def refuse_commit(member: Driven, code: ErrorCode) -> None:
    member.feed(CommitAnswered(member.state.membership, code))


def refuse_lookup(member: Driven, code: ErrorCode) -> None:
    member.feed(RequestFailed(member.pending, "no coordinator", code=code))


def refuse_leave(member: Driven, code: ErrorCode) -> None:
    member.feed(LeaveAnswered(member.pending, LeaveAnswer(error=code)))


MEETINGS: list[tuple[Callable[[], Driven], Callable[[Driven, ErrorCode], None]]] = [
    (joining, refuse_join),
    (joining, refuse_lookup),
    (syncing, refuse_sync),
    (syncing, refuse_lookup),
    (syncing, refuse_heartbeat),
    (stable, refuse_heartbeat),
    (stable, refuse_commit),
    (leaving, refuse_leave),
    (leaving, refuse_lookup),
]


def back_to_work(member: Driven, limit_ms: float = 60_000.0) -> None:
    """A healthy coordinator from now on: every request is answered, every call is made, until the member is stable."""
    until = member.now + limit_ms
    while member.phase not in (Phase.STABLE, Phase.CLOSED):
        for effect in [*member.last]:
            match effect:
                case Notify(serial, _) if serial == member.state.requests.pending:
                    member.notified()
                case Send(serial, request) if serial == member.state.requests.pending and isinstance(
                    request, JoinRequest
                ):
                    member.answer_join(generation=5)
                case Send(serial, request) if serial == member.state.requests.heartbeat and isinstance(
                    request, HeartbeatRequest
                ):
                    member.answer_heartbeat()
                case _:
                    continue
            break
        else:
            if member.phase is Phase.SYNCING and member.state.requests.pending is not None:
                member.answer_sync("orders-0")
            elif member.phase is Phase.LEAVING and member.state.requests.pending is not None:
                member.feed(LeaveAnswered(member.pending, LeaveAnswer()))
            else:
                deadline = member.deadline
                assert deadline is not None, f"nothing will ever happen to this member again: {member.phase}"
                member.feed(Tick(), after_ms=max(0.0, deadline - member.now))
        assert member.now <= until, f"not back after {limit_ms:.0f} ms: {member.phase}"


@pytest.mark.parametrize(("begin", "refuse"), MEETINGS, ids=lambda part: part.__name__)
@pytest.mark.parametrize("times", [1, 5])
def test_no_answer_to_anything_leaves_a_member_dead_in_silence(
    begin: Callable[[], Driven], refuse: Callable[[Driven, ErrorCode], None], times: int
) -> None:
    """One UNKNOWN_SERVER_ERROR on a heartbeat ended a membership for good: poll raised once and was silent ever after.
    Every code at every request, once and five times in a row: the member works again, or every poll says why not."""
    for code in CODES:
        member = begin()
        phase = member.phase
        for _ in range(times):
            if member.phase is phase and (member.state.requests.pending is not None or phase is Phase.STABLE):
                refuse(member, code)
        if member.phase is Phase.FAILED:
            assert code is ErrorCode.FENCED_INSTANCE_ID
            assert any(isinstance(effect, Fail) for effect in member.history)
            continue
        back_to_work(member)
        owner = member.phase is Phase.STABLE
        assert not owner or member.state.owned, code


@pytest.mark.parametrize("code", CODES)
def test_a_join_that_is_refused_is_tried_again_ever_more_slowly_and_told(code: ErrorCode) -> None:
    """GROUP_AUTHORIZATION_FAILED or GROUP_MAX_SIZE_REACHED on a join ended the membership; both can pass. The tries
    are spaced, whatever the code: librdkafka sends thousands in a second for some."""
    if verdict(Ask.JOIN, code) is Verdict.FATAL:
        return
    member = joining()
    sent = []
    while member.now < 20_000.0:
        if member.state.requests.pending is not None:
            sent.append(member.now)
            refuse_join(member, code)
        else:
            assert member.deadline is not None
            member.feed(Tick(), after_ms=max(0.0, member.deadline - member.now))
    assert len(sent) <= 28, "at first a few at once, then one a second"
    assert len(sent) >= 18, "and it never gives up"
    told = [effect.error.code for effect in member.history if isinstance(effect, Tell)]
    if verdict(Ask.JOIN, code) is Verdict.TELL:
        assert told[0] == code.name and 4 <= len(told) <= 8, "at once, and every three seconds"


def test_a_spread_keeps_members_from_coming_back_as_one() -> None:
    """The machine is pure: the driver draws the factor."""
    for spread in (0.8, 1.2):
        member = Driven(settings={"retry_spread": spread}).subscribe()
        refuse_join(member, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert member.deadline == 100 * spread


def test_one_heartbeat_refused_is_nobodys_business_but_a_row_of_them_is_told() -> None:
    """confluent's consumer says nothing of one refused heartbeat; nor of a hundred, until its session is over."""
    member = stable()
    refuse_heartbeat(member, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert not member.effects(Tell)
    while not member.effects(Tell):
        assert member.now < 45_000.0
        assert member.deadline is not None
        member.feed(Tick(), after_ms=max(0.0, member.deadline - member.now))
        if member.state.requests.heartbeat is not None:
            member.answer_heartbeat(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert member.phase is Phase.STABLE and member.state.owned
    asked(member).answer_heartbeat()
    assert member.state.trouble.tries == 0


def test_a_wrong_password_is_told_at_once_and_tried_again() -> None:
    """A failure of the connection that may not pass by itself comes with its error."""
    member = joining()
    wrong = HoldfastError("SASL_AUTHENTICATION_FAILED", "the broker refuses the password.", "Mend it.")
    member.feed(RequestFailed(member.pending, str(wrong), error=wrong))
    assert [effect.error for effect in member.effects(Tell)] == [wrong]
    member.feed(Tick(), after_ms=100)
    assert member.requests(JoinRequest)


def test_a_leader_whose_assignor_fails_leaves_everybody_with_what_he_has() -> None:
    """The leader lost its partitions, while the message said that the group keeps its plan. It syncs what all claim,
    says so, and tries another round after a second, two, four."""
    member = Driven().subscribe().answer_join(leader="m-1", members=("m-1",))
    raised = HoldfastError("ASSIGNOR_FAILED", "it raised.", "Mend it.")
    member.feed(PlanFailed(member.pending, raised, {"m-1": b"kept"}))
    assert [effect.error for effect in member.effects(Tell)] == [raised]
    (sync,) = [effect.request for effect in member.effects(Send)]
    assert sync.assignments == {"m-1": b"kept"}  # type: ignore[union-attr]
    member.answer_sync("orders-0").notified()
    assert member.phase is Phase.STABLE and member.state.owned
    member.feed(Tick(), after_ms=1_000)
    assert member.phase is Phase.JOINING and member.state.round.reason == "the last plan failed"
    member.answer_join(generation=2, leader="m-1", members=("m-1",))
    member.feed(PlanFailed(member.pending, raised, {"m-1": b"kept"})).answer_sync("orders-0").notified()
    member.feed(Tick(), after_ms=1_999)
    assert member.phase is Phase.STABLE
    member.feed(Tick(), after_ms=1)
    member.answer_join(generation=3, leader="m-1", members=("m-1",)).planned(orders=1)
    member.answer_sync("orders-0").notified().feed(Tick(), after_ms=10_000)
    assert member.phase is Phase.STABLE and member.state.planning.again_at is None


def test_an_eager_leader_without_a_plan_stays_in_the_round_and_follows_the_next() -> None:
    """Nothing can be kept: it was revoked before the join. The driver goes on planning; when somebody starts another
    round meanwhile, this one is nobody's any more."""
    member = Driven().subscribe().answer_join(leader="m-1", members=("m-1",))
    member.feed(PlanFailed(member.pending, HoldfastError("ASSIGNOR_FAILED", "it raised.", "Mend it.")))
    assert member.phase is Phase.PLANNING and member.effects(Tell)
    asked(member).answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.phase is Phase.JOINING


def test_an_unreadable_assignment_is_told_and_asked_for_again() -> None:
    member = syncing()
    member.feed(SyncAnswered(member.pending, SyncAnswer(assignment=b"\x00\x01\xff")))
    assert member.effects(Tell)[0].error.code == "BAD_ASSIGNMENT"
    assert member.requests(JoinRequest)


def test_a_leave_that_meets_a_coordinator_that_moved_is_said_again() -> None:
    """Everybody else waited for the session of a member that had left at the wrong address."""
    member = leaving()
    refuse_leave(member, ErrorCode.NOT_COORDINATOR)
    assert member.phase is Phase.LEAVING
    member.feed(Tick(), after_ms=100)
    member.feed(LeaveAnswered(member.pending, LeaveAnswer()))
    assert member.phase is Phase.CLOSED


def test_an_application_that_polled_too_seldom_is_told_when_it_polls_again() -> None:
    member = Driven(settings={"max_poll_interval_ms": 60_000}).stable_with("orders-0").feed(Tick(), after_ms=60_500)
    assert member.phase is Phase.EVICTED
    (told,) = member.effects(Tell)
    assert told.error.code == "MAX_POLL_EXCEEDED" and "(60000ms) exceeded by 500ms" in told.error.what
