"""What looks that follow each other tell of a group's rebalances."""

from __future__ import annotations

from dataclasses import replace

import pytest
from observe_groups import member, snapshot

from holdfast.observe.history import History
from holdfast.observe.snapshot import DescribedMember, GroupSnapshot
from holdfast.observe.watching import change_line, watch_row, watched_lines
from lines_run import lines_run

JOINING = snapshot(member("a"), member("b"), state="PreparingRebalance", protocol="")


def watched(*looks: GroupSnapshot, every_ms: float = 1_000.0) -> History:
    history = History()
    for number, look in enumerate(looks):
        history.see(look, 5_000.0 + number * every_ms)
    return history


def test_a_group_that_nothing_happens_to_has_no_rebalance() -> None:
    history = watched(*[snapshot(member("a", 0, held_in=3))] * 4)

    assert (history.total, history.share, history.per_hour()) == (0, 0.0, 0.0)


def test_a_rebalance_that_is_seen_has_its_time_its_cause_and_its_moves() -> None:
    before = snapshot(member("a", 0, 1), member("b", 2, 3))
    after = snapshot(member("a", 0), member("b", 2, 3), member("c-9", 1, client="c", host="/10.0.0.4"))

    history = watched(before, JOINING, JOINING, after)

    (found,) = history.rebalances
    assert (found.took_ms, found.cause, found.culprit, found.moved) == (2_000.0, "join", "c@10.0.0.4", 1)
    assert (history.rebalancing_ms, history.share) == (2_000.0, pytest.approx(2 / 3))
    assert change_line("billing", found) == "billing: rebalanced in 2.0 s, 1 partition moved; c@10.0.0.4 joined"
    assert watch_row(history)["LAST-CAUSE"] == "join:c@10.0.0.4"


def test_one_between_two_looks_is_counted_though_no_state_of_it_was_seen() -> None:
    history = watched(snapshot(member("a", 0), member("b", 1)), snapshot(member("a", 0, 1)))

    (found,) = history.rebalances
    assert (found.seen, found.took_ms, found.cause, found.culprit) == (False, 0.0, "leave", "b@10.0.0.1")
    assert history.share == 0.0


def test_a_generation_that_went_on_is_a_rebalance_even_if_everybody_holds_the_same() -> None:
    """Rejoins that change nothing, in a loop, are a storm too; by members and shares alone nobody would see it."""
    history = watched(snapshot(member("a", 0, held_in=3)), snapshot(member("a", 0, held_in=4)))

    assert history.total == 1 and history.rebalances[0].cause == "unknown"


def test_the_second_round_of_a_cooperative_handover_is_not_another_rebalance() -> None:
    one = snapshot(member("a", 0, 1, held_in=3))
    withheld = snapshot(member("a", 0, held_in=3), member("b", held_in=-1))
    handed = snapshot(member("a", 0, held_in=4), member("b", 1, held_in=4))

    history = watched(one, withheld, handed)

    assert history.total == 1
    (found,) = history.rebalances
    assert (found.cause, found.rounds, found.moved) == ("join", 2, 1)


def test_rejoins_without_a_reason_are_not_all_taken_for_second_rounds() -> None:
    history = watched(*[snapshot(member("a", 0, held_in=number)) for number in range(9)])

    assert history.total == 4


def test_a_process_killed_and_restarted_is_told_by_its_ghost() -> None:
    """A new id of the same process beside the old one, which is put out before the round ends: that is a crash."""
    old, new = member("c-1", 0, client="c"), member("c-2", 0, client="c")

    history = watched(snapshot(old), in_a_round(old, new), snapshot(new))

    assert [one.cause for one in history.rebalances] == ["expired"]
    assert history.culprits["expired", "c@10.0.0.1"] == 1


def in_a_round(*members: DescribedMember) -> GroupSnapshot:
    """As Kafka tells it: who is there, and nothing else of them."""
    return snapshot(
        *(replace(one, subscription=None, assigned=frozenset(), topics=()) for one in members),
        state="PreparingRebalance",
        protocol="",
    )


def test_two_processes_of_one_name_are_no_crash_when_one_of_them_stops() -> None:
    """Both answered the round, so both were alive: one that is stopped with Ctrl-C later was told as a crash."""
    first, second = member("c-1", 0, client="c"), member("c-2", 1, client="c")

    history = watched(snapshot(first), in_a_round(first, second), snapshot(first, second), snapshot(second))

    assert [one.cause for one in history.rebalances] == ["join", "leave"]
    assert str(history.rebalances[-1].changes[0]) == "c@10.0.0.1 left"


def test_where_two_processes_share_a_name_a_new_id_is_a_restart_that_may_be_a_deploy() -> None:
    first, second, third = (member(f"c-{number}", number, client="c") for number in range(3))

    history = watched(snapshot(first, second), in_a_round(first, second, third), snapshot(second, third))

    assert [str(change) for change in history.rebalances[0].changes] == ["c@10.0.0.1 restarted or was redeployed"]


def test_in_a_round_the_last_settled_look_says_whether_the_group_is_cooperative() -> None:
    """A coordinator tells neither the assignor nor the members' metadata then: a cooperative group was called eager."""
    one = member("a", 0)
    for protocol, cooperative, shown in (("cooperative-sticky", True, "what-does-not-move"), ("range", False, "no")):
        history = watched(snapshot(one, protocol=protocol), in_a_round(one))

        assert (history.cooperative, history.protocol) == (cooperative, protocol)
        assert watch_row(history)["CAN-PROCESS"] == shown
    assert watch_row(watched(in_a_round(one)))["CAN-PROCESS"] is None
    assert watched(snapshot(one), snapshot(state="Empty", protocol=""), in_a_round(one)).cooperative is None


def test_a_member_that_is_away_and_back_is_told_with_the_time_it_was_away() -> None:
    other = member("b", 1)
    history = watched(
        snapshot(member("a-1", 0, client="a"), other),
        snapshot(other),
        snapshot(other),
        snapshot(member("a-2", 0, client="a"), other),
    )

    assert [one.cause for one in history.rebalances] == ["leave", "return"]
    (change,) = history.rebalances[1].changes
    assert change.away_ms == 2_000.0 and str(change) == "a@10.0.0.1 came back after 2 s"


def test_a_restart_within_one_rebalance_is_one() -> None:
    history = watched(snapshot(member("a-1", 0, client="a")), JOINING, snapshot(member("a-2", 0, client="a")))

    assert [one.cause for one in history.rebalances] == ["restart"]


def test_an_instance_id_in_other_hands_is_told_by_its_name() -> None:
    history = watched(
        snapshot(member("x-1", 0, instance="pod-0", host="/10.0.0.1")),
        snapshot(member("x-2", 0, instance="pod-0", host="/10.0.0.2")),
    )

    assert history.culprits == {("replaced", "pod-0@10.0.0.2"): 1}


def test_a_static_member_that_restarts_within_its_session_is_no_rebalance() -> None:
    """It takes over what it held, and nobody else notices: a rolling deploy of static members looked like a storm."""
    other = member("b", 1, instance="pod-1", held_in=3)
    history = watched(
        snapshot(member("x-1", 0, instance="pod-0", held_in=3), other),
        snapshot(member("x-2", 0, instance="pod-0"), other),
    )

    assert (history.total, history.moved) == (0, 0)


def test_one_whose_return_does_start_a_round_is_a_rebalance() -> None:
    history = watched(
        snapshot(member("x-1", 0, instance="pod-0", held_in=3)),
        snapshot(state="PreparingRebalance", protocol=""),
        snapshot(member("x-2", 0, instance="pod-0", held_in=4)),
    )

    assert [(one.cause, one.culprit) for one in history.rebalances] == [("replaced", "pod-0@10.0.0.1")]


def test_more_partitions_are_a_cause_of_their_own() -> None:
    history = watched(snapshot(member("a", 0, held_in=1)), snapshot(member("a", 0, 1, held_in=2)))

    assert [(one.cause, one.culprit) for one in history.rebalances] == [("partitions", "orders")]


def test_the_last_member_that_leaves_rebalances_nobody() -> None:
    history = watched(snapshot(member("a", 0)), snapshot(state="Empty", protocol=""))

    assert history.total == 0


def test_a_rebalance_that_had_begun_before_the_first_look_counts_from_it() -> None:
    history = watched(JOINING, JOINING, snapshot(member("a", 0), member("b", 1)))

    assert (history.total, history.rebalances[0].took_ms, history.rebalances[0].cause) == (1, 2_000.0, "unknown")


def test_the_rate_is_that_of_the_last_hour() -> None:
    """A mean over a whole life hides a storm after a quiet day."""
    quiet = snapshot(member("a", 0, held_in=1))
    history = History()
    history.see(quiet, 0.0)
    day = 24 * 3_600_000.0
    history.see(quiet, day)
    for number in range(6):
        joined = snapshot(member("a", 0), member(f"b{number}", 1))
        history.see(joined, day + 60_000.0 * (number + 1))

    assert history.per_hour() == pytest.approx(6.0)


def test_a_deploy_of_everybody_costs_twice_as_much_for_twice_as_many() -> None:
    """Each member that had gone was compared with each that had come: two thousand took a second, in which the page and
    the metrics of all groups stood still."""

    def deploy(count: int) -> int:
        history = History()
        history.see(snapshot(*(member(f"a{n}", n, host=f"/old-{n}", instance=f"i{n}") for n in range(count))), 0.0)
        after = snapshot(*(member(f"b{n}", n, host=f"/new-{n}", client=f"a{n}") for n in range(count)))
        return lines_run(lambda: history.see(after, 1_000.0))

    assert deploy(200) < 3 * deploy(100)


def test_an_outage_is_no_long_rebalance() -> None:
    """Symptom: a broker was away for ten minutes, and when it was back the alert about a storm fired. Cause: what was
    seen last was a rebalance, and all the time until the next look counted as that. Rule: the time around a failed
    look is neither watched nor spent in a rebalance."""
    history = History()
    history.see(snapshot(member("a", 0)), 0.0)
    history.see(snapshot(member("a", 0), state="PreparingRebalance"), 2_000.0)
    for _ in range(3):
        history.miss()
    ended = history.see(snapshot(member("a", 0), member("b", 1)), 602_000.0)
    history.see(snapshot(member("a", 0), member("b", 1)), 604_000.0)

    assert (history.rebalancing_ms, history.watched_ms, history.total) == (0.0, 4_000.0, 1)
    assert ended is not None and not ended.seen and ended.took_ms == 0


def test_a_watched_group_that_rebalances_is_seen_on_any_terminal() -> None:
    """Symptom: with 31 groups on a terminal of 24 lines, the live table ended at the 22nd: no event was ever seen, nor
    a storm in a group further down. Cause: all groups were drawn, by name, and what happened below them. Rule: what is
    drawn fits, the restless first, and it is said how many are left out."""
    quiet, storm = History(), History()
    quiet.see(snapshot(member("a", 0)), 0.0)
    for number in range(4):
        look = snapshot(member(f"a-{number}", 0))
        storm.see(replace(look, described=replace(look.described, group="z-storm")), number * 1_000.0)
    groups = {f"g{number:02d}": quiet for number in range(30)} | {"z-storm": storm}
    said = [f"event {number}" for number in range(12)]

    lines = watched_lines(groups, said, 24)

    assert len(lines) == 24 and lines[-1] == "event 11"
    assert any(line.startswith("z-storm") for line in lines)
    assert any("more that were disturbed less" in line for line in lines)
    assert watched_lines({"z-storm": storm}, said, 24)[-12:] == said
