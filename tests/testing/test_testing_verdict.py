"""The judge, on logs written by hand: what each rule excuses, and what it does not."""

from __future__ import annotations

from holdfast.testing.members.log import MemberLog
from holdfast.testing.verdict import judge

ACKNOWLEDGED = {0: [0, 1, 2, 3]}


def log(name: str, text: str) -> MemberLog:
    return MemberLog.of_text(name, text)


def test_a_clean_handover_is_clean() -> None:
    a = log("a", "#assigned 1 0\n0 0 10\n0 1 11\n#revoked 12 0\n")
    b = log("b", "#assigned 13 0\n0 2 14\n0 3 15\n")

    verdict = judge(ACKNOWLEDGED, [a, b])

    assert verdict.clean
    assert str(verdict) == "clean, 0 excused"


def test_a_record_twice_after_a_clean_handover_is_a_fault() -> None:
    a = log("a", "#assigned 1 0\n0 0 10\n0 1 11\n#revoked 12 0\n")
    b = log("b", "#assigned 13 0\n0 1 14\n0 2 14\n0 3 15\n")

    verdict = judge(ACKNOWLEDGED, [a, b])

    assert not verdict.clean
    assert [(each.partition, each.offset) for each in verdict.doubled] == [(0, 1)]
    assert "doubled" in str(verdict)


def test_nothing_excuses_a_lost_record() -> None:
    a = log("a", "#assigned 1 0\n0 0 10\n0 1 11\n")

    verdict = judge(ACKNOWLEDGED, [a], killed={"a"}, zombies={"a"})

    assert not verdict.clean
    assert verdict.lost == {0: [2, 3]}


def test_what_a_killed_member_did_in_its_last_stint_may_be_done_again_and_nothing_before() -> None:
    a = log("a", "#assigned 1 0\n0 0 2\n#revoked 3 0\n#assigned 8 0\n0 1 10\n0 2 11\n")
    b = log("b", "#assigned 4 0\n0 0 5\n#revoked 6 0\n#assigned 20 0\n0 1 21\n0 2 21\n0 3 22\n")

    verdict = judge(ACKNOWLEDGED, [a, b], killed={"a"})

    assert [(each.partition, each.offset) for each in verdict.doubled] == [(0, 0)]
    assert verdict.excused == 2
    assert verdict.double_owners == [], "a dead member owns nothing"


def test_for_a_member_that_was_spoken_for_only_the_batch_in_its_hands_may_come_again() -> None:
    a = log("a", "#assigned 1 0\n0 0 10\n0 1 11\n0 2 11\n")
    b = log("b", "#assigned 20 0\n0 1 21\n0 2 21\n0 3 22\n")
    c = log("c", "#assigned 20 0\n0 0 21\n0 1 21\n0 2 21\n0 3 22\n")

    assert judge(ACKNOWLEDGED, [a, b], killed={"a"}, spoken_for={"a"}).clean
    faults = judge(ACKNOWLEDGED, [a, c], killed={"a"}, spoken_for={"a"}).doubled
    assert [each.offset for each in faults] == [0], "its watchdog knew of this one"


def test_a_member_that_lost_its_partitions_may_have_done_what_others_do_again_but_does_nothing_more() -> None:
    hung = log("a", "#assigned 1 0\n0 0 10\n0 1 11\n#lost 30 0\n")
    works_on = log("a", "#assigned 1 0\n0 0 10\n0 1 11\n0 2 25\n#lost 30 0\n")
    b = log("b", "#assigned 20 0\n0 1 21\n0 2 22\n0 3 26\n")

    assert judge(ACKNOWLEDGED, [hung, b]).clean
    assert judge(ACKNOWLEDGED, [works_on, b]).overlaps != []


def test_two_owners_at_once_are_a_fault_even_if_only_one_of_them_works() -> None:
    a = log("a", "#assigned 1 0\n0 0 10\n0 1 11\n0 2 12\n0 3 13\n#revoked 30 0\n")
    b = log("b", "#assigned 20 0\n")

    assert len(judge(ACKNOWLEDGED, [a, b]).double_owners) == 1


def test_what_a_frozen_foreign_client_does_on_waking_is_not_held_against_the_group() -> None:
    zombie = log("z", "#assigned 1 0\n0 0 10\n0 1 25\n#lost 30 0\n")
    b = log("b", "#assigned 20 0\n0 1 21\n0 2 22\n0 3 26\n")

    assert not judge(ACKNOWLEDGED, [zombie, b]).clean
    assert judge(ACKNOWLEDGED, [zombie, b], zombies={"z"}).clean


def test_a_batch_in_the_hands_of_a_member_that_froze_can_not_be_taken_back_but_the_next_one_can() -> None:
    frozen = "#assigned 1 0\n0 0 10\n#held 25 8000\n0 1 25\n"
    b = log("b", "#assigned 20 0\n0 1 21\n0 2 22\n0 3 26\n")

    assert judge(ACKNOWLEDGED, [log("a", frozen + "#lost 30 0\n"), b]).clean
    assert judge(ACKNOWLEDGED, [log("a", frozen + "0 2 28\n#lost 30 0\n"), b]).overlaps != []


def test_a_message_about_many_faults_shows_the_first_few() -> None:
    a = log("a", "#assigned 1 0\n" + "".join(f"0 {offset} 10\n" for offset in range(50)) + "#revoked 12 0\n")
    b = log("b", "#assigned 13 0\n" + "".join(f"0 {offset} 14\n" for offset in range(50)))

    text = str(judge({0: range(50)}, [a, b]))

    assert text.count("\n") < 20
    assert "40 more of doubled" in text


def test_a_foreign_client_that_says_its_commit_was_refused_may_leave_what_it_did_to_the_next() -> None:
    """kafka-python, closed between two generations, refuses its own commit: CI failed for what is not ours."""
    a = log("a", "#assigned 1 0\n0 0 10\n0 1 11\n#revoked 12 0\n#commit-failed 12 RebalanceInProgressError\n")
    b = log("b", "#assigned 13 0\n0 1 14\n0 2 14\n0 3 15\n")

    assert judge(ACKNOWLEDGED, [a, b], foreign={"a", "b"}).excused == 1
    assert not judge(ACKNOWLEDGED, [a, b], foreign={"b"}).clean, "one of ours has no such excuse"
    late = log("a", "#assigned 1 0\n0 0 10\n0 1 11\n#revoked 12 0\n#commit-failed 20 RebalanceInProgressError\n")
    assert not judge(ACKNOWLEDGED, [late, b], foreign={"a", "b"}).clean, "refused when the next had done it already"
