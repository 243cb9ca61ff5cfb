"""Where a group shall go on: rules, bounds, times and files."""

from __future__ import annotations

import pytest

from holdfast.model import HoldfastError, TopicPartition
from holdfast.observe.resetting import (
    Rule,
    Standing,
    ago_ms,
    datetime_ms,
    duration_ms,
    parse_scope,
    plan,
    read_offsets,
    without_offset,
    write_offsets,
)

AT = TopicPartition("orders", 0)
HERE = Standing(committed=50, start=10, end=90, at_time=70)


@pytest.mark.parametrize(
    ("rule", "number", "after"),
    [
        (Rule.EARLIEST, 0, 10),
        (Rule.LATEST, 0, 90),
        (Rule.CURRENT, 0, 50),
        (Rule.OFFSET, 33, 33),
        (Rule.SHIFT, -20, 30),
        (Rule.SHIFT, 20, 70),
        (Rule.TIME, 0, 70),
    ],
)
def test_each_rule_has_its_place(rule: Rule, number: int, after: int) -> None:
    (move,) = plan(rule, {AT: HERE}, number=number).values()

    assert (move.before, move.after, move.note, move.problem) == (50, after, "", "")


@pytest.mark.parametrize(
    ("rule", "number", "after", "note"),
    [
        (Rule.OFFSET, 5, 10, "5 is before the start of the log: 10 is taken"),
        (Rule.OFFSET, 100, 90, "100 is behind the end of the log: 90 is taken"),
        (Rule.SHIFT, -1000, 10, "-950 is before the start of the log: 10 is taken"),
    ],
)
def test_what_is_outside_of_the_log_is_moved_into_it_and_said(rule: Rule, number: int, after: int, note: str) -> None:
    (move,) = plan(rule, {AT: HERE}, number=number).values()

    assert (move.after, move.note) == (after, note)


def test_a_time_after_the_last_record_is_the_end_and_said() -> None:
    (move,) = plan(Rule.TIME, {AT: Standing(committed=50, start=10, end=90)}).values()

    assert (move.after, move.note) == (90, "no record is that late: the end is taken")


def test_what_can_not_be_known_is_a_problem_and_no_offset() -> None:
    nowhere = Standing(start=10, end=90)
    leaderless = Standing(committed=50, problem="LEADER_NOT_AVAILABLE")

    (shifted,) = plan(Rule.SHIFT, {AT: nowhere}, number=5).values()
    (moved,) = plan(Rule.EARLIEST, {AT: leaderless}).values()
    (current,) = plan(Rule.CURRENT, {AT: nowhere}).values()

    assert shifted.after is None and "no offset here" in shifted.problem
    assert (moved.after, moved.problem) == (None, "LEADER_NOT_AVAILABLE")
    assert (current.after, current.problem) == (90, "")


def test_a_file_says_the_same_when_it_is_read_again() -> None:
    one = {"billing": {TopicPartition("a", 0): 5, TopicPartition("a", 1): 6}}
    two = {**one, "mail, and more": {TopicPartition("b", 0): 7}}

    assert write_offsets(one) == "a,0,5\na,1,6\n"
    assert read_offsets(write_offsets(one), "billing") == one
    assert read_offsets(write_offsets(two), None) == two
    assert read_offsets(write_offsets(two), "billing") == one


@pytest.mark.parametrize(
    "text",
    ["a,0", "a,x,5", "a,0,-1", "a,0,5\na,0,6", "g,a,0,5,9", ",0,5", "a,0,99999999999999999999", "a,0," + "9" * 5000],
)
def test_a_line_that_is_no_offset_is_refused_with_its_number(text: str) -> None:
    with pytest.raises(HoldfastError) as refused:
        read_offsets(text, "billing")

    assert refused.value.code == "OFFSETS_FILE_INVALID" and refused.value.what.startswith("Line ")


def test_a_file_that_does_not_say_whose_offsets_they_are_needs_a_name() -> None:
    with pytest.raises(HoldfastError, match="Name the group with --group"):
        read_offsets("a,0,5\n", None)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("PT30M", 1_800_000), ("P1D", 86_400_000), ("P1DT1H", 90_000_000), ("PT0.5S", 500), ("pt1m", 60_000)],
)
def test_durations_are_those_of_iso_8601(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "30m", "P1H", "PT-5S", "P99999999999999999D", "P" + "9" * 400 + "D", "PT" + "9" * 400 + "S"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(HoldfastError, match="DURATION_INVALID"):
        duration_ms(text)


def test_a_moment_is_utc_unless_it_says_otherwise() -> None:
    assert datetime_ms("1970-01-02T00:00:00.500") == 86_400_500
    assert datetime_ms("1970-01-02T01:00:00+01:00") == datetime_ms("1970-01-02T00:00:00Z") == 86_400_000
    with pytest.raises(HoldfastError, match="DATETIME_INVALID"):
        datetime_ms("yesterday")


def test_a_time_before_1970_is_the_beginning_and_not_kafkas_word_for_the_end() -> None:
    """A millisecond before 1970 is -1, and -1 asks Kafka for the latest offset: everything would be skipped."""
    assert datetime_ms("1969-12-31T23:59:59.999") == datetime_ms("1969-12-31T23:59:59.998") == 0
    assert datetime_ms("0001-01-01T00:00:00+01:00") == 0
    assert ago_ms("PT1M", 59_999) == ago_ms("P99999D", 1_800_000_000_000) == 0
    assert ago_ms("PT1M", 90_000) == 30_000


def test_a_name_that_begins_or_ends_with_a_blank_is_another_name() -> None:
    """Kafka takes " pay" as a group. Written as it is and read without the blank, its offsets went to "pay"."""
    two = {" pay": {AT: 5}, "pay ": {AT: 6}}

    assert read_offsets(write_offsets(two), None) == two
    assert read_offsets(write_offsets(two), "pay") == {}
    assert read_offsets("orders, 0, 5 \n", "pay") == {"pay": {AT: 5}}


@pytest.mark.parametrize(
    ("text", "line"), [("a,0,5\ra,1,6\r", 1), ("a,0,5\n" + "b" * 140_000 + ",0,5\n", 2)], ids=["cr-only", "huge-cell"]
)
def test_what_is_no_csv_is_the_files_fault_and_told_so(text: str, line: int) -> None:
    with pytest.raises(HoldfastError) as refused:
        read_offsets(text, "billing")

    assert refused.value.code == "OFFSETS_FILE_INVALID" and refused.value.what.startswith(f"Line {line} ")


def test_a_scope_names_topics_and_some_of_their_partitions() -> None:
    assert parse_scope(["a", "b:0,1", "b:2"]) == {"a": None, "b": frozenset({0, 1, 2})}
    assert parse_scope(["a:1", "a"]) == {"a": None}
    for text in ("", ":1", "a:", "a:x"):
        with pytest.raises(HoldfastError, match="TOPIC_SCOPE_INVALID"):
            parse_scope([text])


def test_what_a_scope_names_and_nobody_has_is_found() -> None:
    scope = parse_scope(["orders:0,99", "ordres", "mail"])

    assert without_offset(scope, [AT, TopicPartition("mail", 3)]) == [("orders", 99), ("ordres", None)]
