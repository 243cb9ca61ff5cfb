"""What is done around each call of a round, for every driver, as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from driven import Driven, tps

from holdfast.group.member import Assigned, Lost, MemberState, OnAssignment, Revoked
from holdfast.group.session.steps import (
    CARRIED_MS,
    REVOKE_MS,
    Await,
    Commit,
    Committer,
    HoldBack,
    LetGo,
    Start,
    Step,
    Tell,
    steps_around,
)
from holdfast.group.user_data import LeaderNote
from holdfast.model import Assignment, Membership

OURS = tps("orders-0")
TOLD = Revoked(OURS)
ALL_READ = LeaderNote(all_read=True, room=10_000)
AUTOMATIC, CERTAIN, BY_APPLICATION = Committer.AUTOMATIC, Committer.CERTAIN, Committer.BY_APPLICATION

FINAL = Await(REVOKE_MS, OURS)
OLDER = Await(CARRIED_MS, OURS, only_theirs=True)


def revoked(*, carried: bool, committer: Committer) -> tuple[Step, ...]:
    state = Driven().stable_with("orders-0", note=ALL_READ if carried else LeaderNote()).state
    return steps_around(state, TOLD, committer)


@pytest.mark.parametrize(
    ("committer", "carried", "between"),
    [
        (AUTOMATIC, True, (OLDER, Commit(OURS), Tell(TOLD), Commit(OURS), Await(0.0, OURS, with_text_ms=REVOKE_MS))),
        (AUTOMATIC, False, (Commit(OURS), FINAL, Tell(TOLD), Commit(OURS), FINAL)),
        (CERTAIN, True, (Commit(OURS), FINAL, Tell(TOLD))),
        (CERTAIN, False, (Commit(OURS), FINAL, Tell(TOLD))),
        (BY_APPLICATION, True, (FINAL, Tell(TOLD), Await(CARRIED_MS, OURS, with_text_ms=REVOKE_MS))),
        (BY_APPLICATION, False, (FINAL, Tell(TOLD), FINAL)),
    ],
)
def test_what_is_committed_and_waited_for_while_revoking(
    committer: Committer, carried: bool, between: tuple[Step, ...]
) -> None:
    first, *found, last = revoked(carried=carried, committer=committer)
    assert first == HoldBack(OURS, ahead_of_join=carried)
    assert tuple(found) == between
    assert last == LetGo(OURS, hands_over=True)


def test_what_an_application_committed_before_its_listener_is_called_gets_the_whole_time_and_no_more() -> None:
    """Symptom: with commits of its own and a coordinator that hung, a consumer stood for six seconds before on_revoke
    was called. Cause: it waited one second for commits that the join carries, and then five for all commits. Rule: the
    join carries nothing of what was committed before, and there is one limit."""
    waits = [step for step in revoked(carried=True, committer=BY_APPLICATION) if isinstance(step, Await)]
    assert waits[0] == FINAL


@pytest.mark.parametrize("committer", Committer)
def test_what_is_lost_is_let_go_before_the_listener_hears_of_it(committer: Committer) -> None:
    state: MemberState = replace(Driven().stable_with("orders-0").state, lost=True)
    expected = (LetGo(OURS, hands_over=False), Tell(Lost(OURS)))
    assert steps_around(state, TOLD, committer) == expected
    assert steps_around(state, Lost(OURS), committer) == expected


@pytest.mark.parametrize("committer", Committer)
def test_what_is_assigned_is_told_and_read(committer: Committer) -> None:
    state = Driven().stable_with("orders-0").state
    call = Assigned(OURS, {})
    assert steps_around(state, call, committer) == (Tell(call), Start(OURS))
    heard = OnAssignment("cooperative-sticky", Assignment(), Membership("m-1", 1))
    assert steps_around(state, heard, committer) == (Tell(heard),)
