"""The checklist and the investigation, on groups that are well and groups that are not."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from observe_groups import member, snapshot

from holdfast.observe.health import Health, Verdict, judge
from holdfast.observe.history import History
from holdfast.observe.latency import latency_rows
from holdfast.observe.snapshot import GroupSnapshot


def judged(*looks: GroupSnapshot, every_ms: float = 6_000.0) -> Health:
    history = History()
    for number, look in enumerate(looks):
        history.see(look, number * every_ms)
    return judge(history)


def verdicts(health: Health) -> list[str]:
    return [one.verdict.lower() for one in health.checklist]


WELL = [
    snapshot(
        member("a", 0, instance="pod-0"),
        member("b", 1, instance="pod-1"),
        offsets={0: (committed, 100), 1: (100, 100)},
    )
    for committed in (40, 60, 90)
]


def test_a_healthy_group_has_no_finding_and_needs_no_investigation() -> None:
    health = judged(*WELL)

    assert verdicts(health) == ["ok"] * 6
    assert health.findings == [] and health.investigation == ()


def test_an_eager_group_is_found_and_the_way_out_is_named() -> None:
    health = judged(*[snapshot(member("a", 0, instance="x"), protocol="range", offsets={0: (5, 5)})] * 3)

    (checked, investigated) = health.findings
    assert "range is eager" in checked.said and "preflight" in checked.do
    assert investigated.about.startswith("4. ")
    assert [one.about[:2] for one in health.investigation] == ["1.", "2.", "3.", "4."]


def test_a_group_that_does_not_settle_is_found() -> None:
    health = judged(snapshot(member("a"), state="PreparingRebalance", protocol=""))

    assert health.checklist[0].verdict is Verdict.FINDING and "PreparingRebalance" in health.checklist[0].said


def test_nobody_in_the_group_is_a_finding_with_another_advice() -> None:
    (state, *_) = judged(snapshot(state="Empty", protocol="")).checklist

    assert state.verdict is Verdict.FINDING and "Start its consumers" in state.do


def test_instance_ids_that_only_some_have_are_a_finding_and_none_at_all_an_advice() -> None:
    some = judged(*[snapshot(member("a", 0, instance="x"), member("b", 1), offsets={0: (1, 1)})] * 3)
    none = judged(*[snapshot(member("a", 0), offsets={0: (1, 1)})] * 3)

    assert some.checklist[2].verdict is Verdict.FINDING and "1 of 2 have none: b@10.0.0.1" in some.checklist[2].said
    assert none.checklist[2].verdict is Verdict.ADVICE and none.findings == []


def test_a_partition_of_nobody_is_limbo() -> None:
    health = judged(*[snapshot(member("a", 0, instance="x"), offsets={0: (1, 1), 1: (1, 1)})] * 3)

    assert "1 partition of nobody, first orders-1" in health.checklist[3].said
    assert health.checklist[3].verdict is Verdict.FINDING


def test_a_partition_where_nothing_is_committed_is_found_with_its_owner() -> None:
    looks = [
        snapshot(member("a", 0, instance="x"), member("b", 1, instance="y"), offsets={0: (5, end), 1: (end, end)})
        for end in (10, 20, 30)
    ]

    lag = judged(*looks).checklist[5]

    assert lag.verdict is Verdict.FINDING and "first orders-0 of x@10.0.0.1, 25 behind" in lag.said


def watched(*committed: int, every_ms: float = 5_000.0) -> Verdict:
    """The verdict on the lag of one partition, by what was committed at each look; 100 records come between two."""
    looks = [
        snapshot(member("a", 0, instance="x"), offsets={0: (done, 100 * number + 100)})
        for number, done in enumerate(committed)
    ]
    return judged(*looks, every_ms=every_ms).checklist[5].verdict


def test_a_member_that_stops_while_it_is_watched_is_found() -> None:
    """Symptom: watched for five minutes, a member that hung after twenty seconds was well. Cause: the first look was
    compared with the last, and it had committed in between. Rule: what counts is the time since the last commit."""
    assert watched(0, 100, 200, 300, 300, 300, 300) is Verdict.FINDING


def test_a_group_that_commits_seldom_is_not_called_stuck_between_two_commits() -> None:
    """Every 30 s here: twelve looks show two commits, and the last was 25 s ago."""
    seldom = [0] * 3 + [300] * 6 + [900] * 6

    assert watched(*seldom) is not Verdict.FINDING
    assert watched(*seldom, *[900] * 9) is Verdict.FINDING


def test_a_partition_that_was_idle_is_given_time_when_records_come() -> None:
    """Nothing was committed for a minute because there was nothing to commit; the first record came just now."""
    looks = [snapshot(member("a", 0, instance="x"), offsets={0: (5, end)}) for end in [5] * 12 + [6]]

    assert judged(*looks).checklist[5].verdict is not Verdict.FINDING


def test_a_partition_that_nobody_holds_needs_a_reader_and_no_stack_dump() -> None:
    """Symptom: all members had died, and the check asked whether the consumer of "nobody" was stuck in a record."""
    looks = [snapshot(state="Empty", protocol="", offsets={0: (5, end)}) for end in (10, 20, 30)]

    lag = judged(*looks).checklist[5]

    assert lag.verdict is Verdict.FINDING and "of nobody, 25 behind" in lag.said
    assert "start its consumers" in lag.do and "stack" not in lag.do


def test_lag_is_not_judged_before_anybody_could_have_committed() -> None:
    looks = [snapshot(member("a", 0, instance="x"), offsets={0: (5, 10)})] * 2

    assert judged(*looks, every_ms=1_000.0).checklist[5].verdict is Verdict.UNKNOWN


def test_lag_that_grows_is_an_advice() -> None:
    looks = [snapshot(member("a", 0, instance="x"), offsets={0: (n, 100 * n)}) for n in (1, 2, 3)]

    lag = judged(*looks).checklist[5]

    assert lag.verdict is Verdict.ADVICE and "a second more" in lag.said


def test_lag_that_could_not_be_read_before_has_not_grown() -> None:
    """A partition without a leader at the first look, and with one at the last, was all growth: 833 records a second
    more, of a group that stood as it had stood."""
    looks = [
        snapshot(member("a", 0, 1, instance="x"), offsets={0: (committed, committed), 1: (5_000 + committed, end)})
        for committed, end in ((10, None), (20, 10_020))
    ]
    assert verdicts(judged(*looks, every_ms=12_000.0))[-1] == "ok"


def test_lag_that_goes_up_and_down_with_commits_is_none() -> None:
    """A consumer that did everything at once, and committed every 5 s, was told to add members whenever the last look
    came longer after a commit than the first one."""
    looks = [snapshot(member("a", 0, instance="x"), offsets={0: (done, end)}) for done, end in ((0, 0), (800, 1_200))]

    lag = judged(*looks, every_ms=12_000.0).checklist[5]

    assert lag.verdict is Verdict.FINE and lag.said == "400 records behind"


def test_one_look_at_a_group_that_keeps_up_is_enough() -> None:
    """`groups check --for 0` of a group without lag ended in a ZeroDivisionError."""
    lag = judged(snapshot(member("a", 0, instance="x"), offsets={0: (9, 9)})).checklist[5]

    assert lag.verdict is Verdict.FINE and lag.said == "0 records behind"


def found_by(health: Health) -> list[str]:
    return [one.about[:2] for one in health.investigation if one.verdict is Verdict.FINDING]


@pytest.mark.parametrize(
    ("before", "verdict"), [([], Verdict.UNKNOWN), ([snapshot(member("a", 0))], Verdict.FINE)], ids=["unseen", "seen"]
)
def test_a_cooperative_group_in_mid_rebalance_is_not_called_eager(
    before: list[GroupSnapshot], verdict: Verdict
) -> None:
    """In a round a coordinator names no assignor, and Kafka's no metadata: it was told to become what it is."""
    silent = replace(member("a"), subscription=None)

    health = judged(*before, snapshot(silent, state="PreparingRebalance", protocol=""))

    assert {one.verdict for one in health.checklist if one.about == "cooperative assignor in use"} == {verdict}
    assert "4." not in found_by(health)


def test_a_crash_loop_is_the_answer_to_the_first_question() -> None:
    ids = [member(f"c-{number}", 0, client="c") for number in range(4)]
    looks = [snapshot(ids[0])]
    for old, new in itertools.pairwise(ids):
        looks += [snapshot(old, new, state="PreparingRebalance", protocol=""), snapshot(new)]

    health = judged(*looks)

    assert found_by(health) == ["1."]
    assert "c@10.0.0.1 was restarted or redeployed 3 times" in health.investigation[0].said


def test_a_member_beyond_its_poll_interval_is_the_answer_to_the_second() -> None:
    other = member("b", 1)
    looks = []
    for number in range(3):
        looks += [snapshot(member(f"slow-{number}", 0, client="slow"), other), snapshot(other)]

    health = judged(*looks)

    assert found_by(health) == ["2."]
    assert "slow@10.0.0.1 left and came back 2 times (for 6 s)" in health.investigation[1].said


def test_a_member_that_leaves_and_returns_may_as_well_be_restarted() -> None:
    """Symptom: of a process that closed and was started again, and of one of ours that was killed again and again and
    whose watchdog left for it, the check said that nobody was restarted, and to poll fewer records. Cause: a
    coordinator keeps no reason of a leave. Rule: both are named, and what tells them apart."""
    other = member("b", 1)
    looks = []
    for number in range(3):
        looks += [snapshot(member(f"c-{number}", 0, client="c"), other), snapshot(other)]

    crashes, slow = judged(*looks).investigation[:2]

    assert crashes.verdict is Verdict.UNKNOWN and "c@10.0.0.1 left first, and came back: see 2" in crashes.said
    assert "or is restarted each time" in slow.said
    assert "restart count" in slow.do and "max.poll.records" in slow.do


def test_a_shared_instance_id_is_the_answer_to_the_third() -> None:
    looks = [snapshot(member(f"x-{number}", 0, instance="pod-0", host="/10.0.0.7")) for number in range(4)]

    health = judged(*looks)

    assert found_by(health) == ["3."]
    assert "pod-0@10.0.0.7 changed hands 3 times" in health.investigation[2].said


def test_the_low_latency_table_stands_beside_what_is_known() -> None:
    rows = latency_rows({"session.timeout.ms": "45000", "max.poll.records": "80"})

    assert [(row["SETTING"], row["THIS-GROUP"], row["FITS"]) for row in rows] == [
        ("session.timeout.ms", "45000", "no"),
        ("heartbeat.interval.ms", None, None),
        ("max.poll.interval.ms", None, None),
        ("max.poll.records", "80", "yes"),
    ]
    assert [row["LOW-LATENCY"] for row in rows] == ["10000", "3000", "30000", "50–100"]


def test_a_large_group_is_judged_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The map of owners is made from all members each time it is asked for. It was asked for once for each partition:
    with 10,000 of them `groups check` computed for a minute after it had watched."""
    made = 0
    owners = vars(GroupSnapshot)["owners"].fget

    def counted(look: GroupSnapshot) -> object:
        nonlocal made
        made += 1
        return owners(look)

    monkeypatch.setattr(GroupSnapshot, "owners", property(counted))
    look = snapshot(member("a", *range(500), instance="x"), offsets=dict.fromkeys(range(500), (5, 5)))
    assert judged(look).findings == []
    assert made < 10
