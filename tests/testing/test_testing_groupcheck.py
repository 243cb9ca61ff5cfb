"""The checkers, on logs written by hand: each one must be able to fail."""

from __future__ import annotations

import pytest

from holdfast.testing.groupcheck import (
    double_owners,
    doubled,
    longest_gaps,
    lost,
    moved,
    overlaps,
    owners_at,
    stints,
)
from holdfast.testing.members.log import Event, MemberLog, Record, parse_line

CLEAN_HANDOVER = (
    MemberLog.of_text(
        "a",
        "#ready 90 java 7\n#joining 95\n#assigned 100 0,1\n0 0 110.5\n1 0 110.5\n0 1 120\n1 1 120\n"
        "#revoked 130 1\n#committed 131 1\n#assigned 132 -\n0 2 135\n0 3 140\n",
    ),
    MemberLog.of_text("b", "#joining 125\n#assigned 128 -\n#assigned 150 1\n1 2 151\n1 3 160\n"),
)


def test_a_record_line_and_an_event_line_read_back_as_they_were_written() -> None:
    assert parse_line("7 10423 1763251200123.417") == Record(7, 10423, 1763251200123.417)
    assert parse_line("#revoked 12.5 3,1") == Event("revoked", 12.5, (1, 3))
    assert parse_line("#assigned 12.5 -") == Event("assigned", 12.5, ())
    assert parse_line("#commit-failed 12.5 code 22, stale") == Event("commit-failed", 12.5, text="code 22, stale")


@pytest.mark.parametrize("line", ["", "1 2", "1 2 3 4", "#assigned", "#assigned now 1", "#revoked 1 a"])
def test_a_malformed_line_is_an_error(line: str) -> None:
    with pytest.raises(ValueError):
        parse_line(line)


def test_a_clean_handover_has_nothing_lost_doubled_or_overlapping() -> None:
    acknowledged = {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}

    assert lost(acknowledged, CLEAN_HANDOVER) == {}
    assert doubled(CLEAN_HANDOVER) == []
    assert overlaps(CLEAN_HANDOVER) == []
    assert double_owners(CLEAN_HANDOVER) == []


def test_an_acknowledged_record_that_nobody_processed_is_lost() -> None:
    assert lost({0: [0, 1, 2, 3, 4], 1: [0, 1, 2, 3], 2: [0]}, CLEAN_HANDOVER) == {0: [4], 2: [0]}


def test_a_record_processed_by_two_members_or_twice_by_one_is_doubled() -> None:
    a = MemberLog.of_text("a", "#assigned 1 0,1\n0 5 10\n1 8 10\n1 8 11\n")
    b = MemberLog.of_text("b", "#assigned 20 0\n0 5 21\n0 6 22\n")

    found = doubled([a, b])

    assert [(each.partition, each.offset, each.times) for each in found] == [
        (0, 5, ((10.0, "a"), (21.0, "b"))),
        (1, 8, ((10.0, "a"), (11.0, "a"))),
    ]


def test_two_members_processing_one_partition_at_a_time_overlap() -> None:
    a = MemberLog.of_text("a", "#assigned 1 0\n0 0 10\n0 1 30\n#revoked 40 0\n")
    b = MemberLog.of_text("b", "#assigned 15 0\n0 1 20\n0 2 50\n")

    (found,) = overlaps([a, b])

    assert (found.partition, found.first.member, found.second.member) == (0, "a", "b")


def test_an_overlap_is_found_behind_a_short_stint_that_lies_inside_a_long_one() -> None:
    """A sweep that compares neighbours only misses the second of two short stints inside a long one."""
    long = MemberLog.of_text("long", "#assigned 1 0\n0 0 10\n0 9 100\n")
    short = MemberLog.of_text("short", "#assigned 15 0\n0 1 20\n#revoked 21 0\n#assigned 60 0\n0 2 70\n#revoked 71 0\n")

    assert len(overlaps([long, short])) == 2


def test_a_partition_that_comes_back_to_its_owner_does_not_overlap_with_the_time_between() -> None:
    a = MemberLog.of_text("a", "#assigned 1 0\n0 0 10\n#revoked 20 0\n#assigned 60 0\n0 2 70\n")
    b = MemberLog.of_text("b", "#assigned 30 0\n0 1 40\n#lost 50 0\n")

    assert overlaps([a, b]) == []
    assert double_owners([a, b]) == []
    assert [(stint.assigned_ms, stint.ended_ms, stint.lost) for stint in stints(b)] == [(30.0, 50.0, True)]


def test_two_owners_without_records_are_double_owners_but_no_overlap() -> None:
    a = MemberLog.of_text("a", "#assigned 1 0\n#revoked 40 0\n")
    b = MemberLog.of_text("b", "#assigned 15 0\n")

    assert overlaps([a, b]) == []
    (found,) = double_owners([a, b])
    assert (found.first.member, found.second.member) == ("a", "b")
    with pytest.raises(ValueError, match="partition 0 is owned by a and b"):
        owners_at([a, b], 20)


def test_a_record_after_the_revocation_still_counts_for_overlaps() -> None:
    """A client that hands over records of a partition it has revoked must not slip through for want of a stint."""
    a = MemberLog.of_text("a", "#assigned 1 0\n0 0 10\n#revoked 20 0\n0 1 45\n0 2 47\n")
    b = MemberLog.of_text("b", "#assigned 30 0\n0 1 40\n0 2 50\n")

    (found,) = overlaps([a, b])

    assert {found.first.member, found.second.member} == {"a", "b"}


def test_the_longest_gap_spans_both_owners() -> None:
    gaps = longest_gaps(CLEAN_HANDOVER, [0, 1], 105, 165)

    assert (gaps[1].start_ms, gaps[1].end_ms, gaps[1].length_ms) == (120, 151, 31)
    assert gaps[0].length_ms == 25, "from the last record of partition 0 at 140 to the end of the window"


def test_a_partition_that_nobody_processes_is_silent_for_the_whole_window() -> None:
    assert longest_gaps(CLEAN_HANDOVER, [5], 100, 160)[5].length_ms == 60


def test_owners_before_and_after_tell_which_partitions_moved() -> None:
    before, after = owners_at(CLEAN_HANDOVER, 129), owners_at(CLEAN_HANDOVER, 155)

    assert before == {0: "a", 1: "a"}
    assert after == {0: "a", 1: "b"}
    assert moved(before, after) == ([1], [0])
    assert owners_at(CLEAN_HANDOVER, 140) == {0: "a"}, "between the two owners nobody has partition 1"
