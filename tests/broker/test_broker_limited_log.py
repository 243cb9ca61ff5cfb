"""Log lines that strangers cause: so many a second, and repeats counted. The clock is in the test's hands."""

from __future__ import annotations

import logging

import pytest

from holdfast.broker.limited_log import LINES_A_SECOND, REPEAT_SECONDS, LimitedLog

log = logging.getLogger("holdfast.broker.limited-log-test")


class Hands:
    def __init__(self) -> None:
        self.now = 100.0
        self.limited_log = LimitedLog(log, lambda: self.now)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_a_line_that_comes_again_is_counted_and_told_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """One client with a wrong password wrote 170 equal lines in half a minute."""
    hands = Hands()
    for _ in range(58):
        hands.limited_log.warning("%s: login failed", "10.0.0.7")
        hands.now += 0.1
    assert lines(caplog) == ["10.0.0.7: login failed"]

    hands.now = 100.0 + REPEAT_SECONDS
    hands.limited_log.tell_rest()
    assert lines(caplog) == ["10.0.0.7: login failed (57 more in 10 s)"]

    hands.limited_log.warning("%s: login failed", "10.0.0.7")
    assert lines(caplog) == [], "it goes on, so it is counted on"
    hands.now += REPEAT_SECONDS
    hands.limited_log.tell_rest()
    assert lines(caplog) == ["10.0.0.7: login failed (1 more in 10 s)"]


def test_a_trouble_that_was_over_is_told_anew(caplog: pytest.LogCaptureFixture) -> None:
    hands = Hands()
    hands.limited_log.warning("no")
    hands.now += REPEAT_SECONDS
    hands.limited_log.tell_rest()
    assert lines(caplog) == ["no"]

    hands.limited_log.warning("no")
    assert lines(caplog) == ["no"]


def test_the_same_trouble_of_another_address_is_a_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    hands = Hands()
    for host in ("a", "b", "a"):
        hands.limited_log.warning("%s: login failed", host)
    assert lines(caplog) == ["a: login failed", "b: login failed"]


def test_different_lines_are_so_many_a_second_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    hands = Hands()
    for number in range(LINES_A_SECOND + 5):
        hands.limited_log.warning("line %d", number)
    assert lines(caplog) == [f"line {number}" for number in range(LINES_A_SECOND)]

    hands.now += 1.0
    hands.limited_log.tell_rest()
    assert lines(caplog) == ["5 more lines like these were left out"]


def test_counted_repeats_keep_to_the_lines_of_a_second_too(caplog: pytest.LogCaptureFixture) -> None:
    hands = Hands()
    for number in range(3 * LINES_A_SECOND):
        if number % LINES_A_SECOND == 0:
            hands.now += 1.0
        hands.limited_log.warning("line %d", number)
        hands.limited_log.warning("line %d", number)
    assert len(lines(caplog)) == 3 * LINES_A_SECOND

    hands.now += REPEAT_SECONDS
    hands.limited_log.tell_rest()
    assert len(lines(caplog)) == LINES_A_SECOND
    for _ in range(3):
        hands.now += 1.0
        hands.limited_log.tell_rest()
    assert len(lines(caplog)) == 2 * LINES_A_SECOND, "what found no room is told in the next seconds"
