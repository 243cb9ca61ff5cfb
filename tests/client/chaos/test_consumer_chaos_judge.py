"""The judge of the chaos convicts and acquits by its rule: each case is a short log, written by hand."""

from __future__ import annotations

import pytest
from consumer_chaos_judge import COMMIT_KNOWN_S, Fault, Findings, judge, short

from holdfast.testing.members.log import MemberLog

DONE = "0 7 1000.0\n"
AGAIN = "0 7 60000.0\n"


def judged(first: str, second: str = AGAIN, *faults: Fault, foreign: frozenset[str] = frozenset()) -> Findings:
    """Members a and b wrote this; record 7 of partition 0 was produced."""
    logs = [MemberLog.of_text("a", first), MemberLog.of_text("b", second)]
    return judge({0: [7]}, logs, faults, foreign)


def reasons(findings: Findings) -> dict[str, int]:
    assert not findings.unexplained, str(findings)
    return dict(findings.due_to)


def test_a_record_that_nobody_did_is_lost_whatever_happened() -> None:
    findings = judged("", "", Fault("a", "killed", 1.0, 2.0))
    assert findings.lost == {0: [7]} and not findings.clean
    assert "lost of partition 0: [7]" in str(findings)


def test_a_record_done_once_is_nobodys_fault() -> None:
    findings = judged(DONE, "")
    assert findings.clean and findings.doubled == 0


def test_two_members_that_nothing_happened_to_do_nothing_twice() -> None:
    findings = judged(DONE, AGAIN)
    assert not findings.clean
    assert "unexplained" in str(findings) and "'a'" in str(findings) and "'b'" in str(findings)


def test_whoever_is_killed_leaves_behind_what_it_has_not_heard_to_be_committed() -> None:
    kill = Fault("a", "killed", 2_000.0, 2_010.0)
    assert reasons(judged(DONE, AGAIN, kill)) == {"killed": 1}
    heard = DONE + "#acknowledged 1500.0 0:8\n"
    assert judged(heard, AGAIN, kill).unexplained, "the commit was known"
    assert reasons(judged(DONE + "#acknowledged 1500.0 0:7\n", AGAIN, kill)) == {"killed": 1}, "of what came before it"


def test_the_fault_must_hit_the_first_doer_between_the_two_doings() -> None:
    assert judged(DONE, AGAIN, Fault("b", "killed", 2_000.0, 2_010.0)).unexplained, "another member"
    assert judged(DONE, AGAIN, Fault("a", "killed", 500.0, 510.0)).unexplained, "before"
    assert judged(DONE, AGAIN, Fault("a", "killed", 70_000.0, 70_010.0)).unexplained, "after"


def test_what_was_done_long_before_the_fault_must_have_been_committed() -> None:
    at_ms = 1_000.0 + COMMIT_KNOWN_S * 1_000 + 1
    assert judged(DONE, AGAIN, Fault("a", "killed", at_ms, at_ms + 10)).unexplained


@pytest.mark.parametrize(("kind", "short_ms", "long_ms"), [("frozen", 4_000.0, 12_000.0), ("hung", 6_000.0, 14_000.0)])
def test_a_freeze_within_the_session_and_a_hang_within_the_interval_excuse_nothing(
    kind: str, short_ms: float, long_ms: float
) -> None:
    assert judged(DONE, AGAIN, Fault("a", kind, 2_000.0, 2_000.0 + short_ms)).unexplained
    assert reasons(judged(DONE, AGAIN, Fault("a", kind, 2_000.0, 2_000.0 + long_ms))) == {kind: 1}


def test_hangs_and_starvation_are_read_from_the_members_own_log() -> None:
    assert reasons(judged(DONE + "#hang 1100.0 14000\n#awake 15200.0\n")) == {"hung": 1}
    assert judged(DONE + "#hang 1100.0 3000\n#awake 4200.0\n").unexplained
    assert reasons(judged(DONE + "#stalled 15000.0 9000\n")) == {"starved": 1}
    froze = Fault("a", "frozen", 2_000.0, 6_000.0)
    assert judged(DONE + "#stalled 6100.0 4000\n", AGAIN, froze).unexplained, "one short freeze, and told once"


def test_what_was_in_hand_over_a_fault_is_late_and_takes_nothing_from_who_did_it_meanwhile() -> None:
    late = "#held 60000.0 45000\n" + AGAIN
    freeze = Fault("b", "frozen", 20_000.0, 59_000.0)
    assert reasons(judged("0 7 30000.0\n", late, freeze)) == {"in hand while frozen": 1}
    assert judged("0 7 30000.0\n", AGAIN, freeze).unexplained, "handed out after it woke"
    rounded = "#held 60000.0 40000\n" + AGAIN
    assert reasons(judged("0 7 30000.0\n", rounded, Fault("b", "hung", 19_999.6, 59_000.0)))


def test_only_a_foreign_client_may_go_on_until_it_has_heard_that_it_is_out() -> None:
    freeze, done, stranger = Fault("b", "frozen", 20_000.0, 59_000.0), "0 7 30000.0\n", frozenset({"b"})
    unaware = {"foreign and not yet aware that it was frozen": 1}
    assert reasons(judged(done, AGAIN + "#lost 60500.0 0\n", freeze, foreign=stranger)) == unaware
    assert judged(done, AGAIN + "#lost 60500.0 0\n", freeze).unexplained, "ours must know"
    assert judged(done, "#lost 59500.0 0\n" + AGAIN, freeze, foreign=stranger).unexplained, "it knew"
    assert judged(done, AGAIN, freeze, foreign=stranger).unexplained, "it never lost anything"
    killed = Fault("b", "killed", 60_400.0, 60_500.0)
    assert reasons(judged(done, AGAIN, freeze, killed, foreign=stranger)) == unaware, "it did not live to hear of it"
    late = "0 7 75000.0\n#lost 76000.0 0\n"
    assert judged(done, late, freeze, foreign=stranger).unexplained, "more than a session later"


def test_only_a_foreign_client_may_be_closed_without_a_commit_and_only_if_it_says_so() -> None:
    closing, stranger = DONE + "#closing 1100.0\n", frozenset({"a"})
    closed = {"foreign and closed in a round": 1}
    for word in ("#lost 1200.0 0\n", "#refused 1200.0 ILLEGAL_GENERATION\n"):
        assert reasons(judged(closing + word, AGAIN, foreign=stranger)) == closed
        assert judged(closing + word, AGAIN).unexplained, "ours commits"
        assert judged(DONE + word, AGAIN, foreign=stranger).unexplained, "it was not closed"
    assert judged(closing + "#revoked 1200.0 0\n", AGAIN, foreign=stranger).unexplained, "nothing went wrong"
    known = closing + "#acknowledged 1150.0 0:8\n#refused 1200.0 ILLEGAL_GENERATION\n"
    assert judged(known, AGAIN, foreign=stranger).unexplained, "it was committed"


def test_at_the_end_all_is_committed_but_for_what_a_foreign_client_says_it_could_not_commit() -> None:
    """Seen once: librdkafka was closed in a round, its last commit was refused, and the next owner was closed before it
    had done the record again."""
    said = DONE + "#closing 1100.0\n#refused 1200.0 ILLEGAL_GENERATION\n"
    missing = {0: (7, 8)}

    def found(first: str, second: str = "", committed: int = 7, foreign: frozenset[str] = frozenset({"a"})) -> object:
        logs = [MemberLog.of_text("a", first), MemberLog.of_text("b", second)]
        return short({0: 8}, {0: committed}, logs, foreign)

    assert found(said) == {} and found(DONE, committed=8) == {}
    assert found(said, foreign=frozenset()) == missing, "ours commits"
    assert found(DONE + "#closing 1100.0\n#closed 1200.0\n") == missing, "nothing went wrong"
    assert found(said, AGAIN) == missing, "somebody else did it later"
    assert found(said, committed=9) == {0: (9, 8)}, "nobody did so much"


def test_every_doing_but_the_last_needs_a_reason_of_its_own() -> None:
    logs = [
        MemberLog.of_text(name, f"0 7 {at_ms}\n") for name, at_ms in (("a", 1_000.0), ("b", 5_000.0), ("c", 9_000.0))
    ]
    first, second = Fault("a", "killed", 2_000.0, 2_010.0), Fault("b", "murdered", 6_000.0, 6_010.0)
    assert judge({0: [7]}, logs, [first], frozenset()).unexplained
    assert reasons(judge({0: [7]}, logs, [first, second], frozenset())) == {"killed": 1, "murdered": 1}
