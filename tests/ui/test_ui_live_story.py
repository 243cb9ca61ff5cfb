"""A live group's story: what is known by looks alone, what traces add, and whom to believe."""

from __future__ import annotations

import json

import pytest
from ui_live import WALL, Told, chronicle, look, member_id, record

from holdfast.model import HoldfastError
from holdfast.ui.live.chronicle import KEPT_MS, MOST_SEEN
from holdfast.ui.live.lags import MOST_POINTS
from holdfast.ui.plan import resized
from holdfast.ui.questions import questions
from holdfast.ui.svg import picture


def test_looks_alone_show_owners_and_who_caused_a_rebalance() -> None:
    seen = chronicle()
    seen.looked(look({"c0": [0, 1, 2, 3]}), WALL)
    seen.looked(look({"c0": [], "c1": []}, state="PreparingRebalance", protocol=""), WALL + 500)
    seen.looked(look({"c0": [0, 1], "c1": [2, 3]}), WALL + 1_000)
    told = Told(seen)
    assert told.lane(2, 600) == ("working", "c0", ""), "a cooperative member works on while it joins"
    assert told.lane(2, 1_000) == ("working", "c1", "")
    assert told.coordinator(600) == "PreparingRebalance"
    (one,) = told.story["rebalances"]
    assert one["cause"] == "c1@127.0.0.1 joined" and one["moved"] == ["P2", "P3"]
    assert told.story["witnesses"] == ["looks at the group"] and told.story["atLeast"]
    assert told.story["kind"] == "cooperative"


def test_in_an_eager_round_nobody_keeps_anything() -> None:
    seen = chronicle()
    seen.looked(look({"c0": [0, 1, 2, 3]}, protocol="range"), WALL)
    seen.looked(look({"c0": [], "c1": []}, state="PreparingRebalance", protocol=""), WALL + 500)
    seen.looked(look({"c0": [0, 1], "c1": [2, 3]}, protocol="range"), WALL + 1_000)
    told = Told(seen)
    assert told.lane(0, 700) == ("dark", "c0", "revoked")
    assert told.lane(0, 1_000) == ("working", "c0", "")
    assert told.story["kind"] == "eager" and told.story["wait"]["needless"] == 2


def traced_handover() -> list[object]:
    """c0 works on everything; c1 joins and is given P1, which nobody processes for 30 ms."""
    zero, one = member_id("c0"), member_id("c1")
    return [
        record("member", "join-sent", 0, "c0"),
        record("coordinator", "rebalance-started", 1, zero, cause=f"{zero} joined", culprit=zero, state="Empty"),
        record("coordinator", "generation", 2, generation=1, protocol="cooperative-sticky"),
        record("coordinator", "stable", 3, zero, generation=1),
        record("consumer", "callback-assigned", 9, zero, partitions={"orders": [0, 1]}),
        record("member", "stable", 10, zero, owned={"orders": [0, 1]}),
        record("member", "join-sent", 1_000, "c1"),
        record("coordinator", "rebalance-started", 1_001, one, cause=f"{one} joined", culprit=one, state="Stable"),
        record("coordinator", "generation", 1_100, generation=2, protocol="cooperative-sticky"),
        record("coordinator", "stable", 1_110, generation=2),
        record("member", "synced", 1_111, zero, owned={"orders": [0, 1]}, revoked={"orders": [1]}, added={}),
        record("member", "revoking", 1_112, zero, partitions={"orders": [1]}),
        record("member", "join-sent", 1_120, zero),
        record("coordinator", "generation", 1_130, generation=3, protocol="cooperative-sticky"),
        record("coordinator", "stable", 1_131, generation=3),
        record("member", "synced", 1_132, one, added={"orders": [1]}, revoked={}),
        record("consumer", "callback-assigned", 1_142, one, partitions={"orders": [1]}),
        record("member", "stable", 1_143, one, owned={"orders": [1]}),
        record("member", "stable", 1_144, zero, owned={"orders": [0]}),
    ]


def test_traces_show_a_handover_to_the_millisecond() -> None:
    seen = chronicle()
    seen.traced(traced_handover())  # type: ignore[arg-type]
    told = Told(seen)
    assert [told.lane(1, at)[0] for at in (500, 1_115, 1_125, 1_135, 1_142)] == [
        "working", "revoking", "dark", "taken", "working",
    ]  # fmt: skip
    assert told.lane(0, 1_125) == ("working", "c0", ""), "what does not move never goes dark"
    assert told.names == ["c0", "c1"]
    birth, joined = told.story["rebalances"]
    assert told.story["birth"] == 1
    assert joined["culprit"] == "c1" and joined["cause"] == "c1 joined" and joined["rounds"] == 2
    assert joined["moved"] == ["P1"] and joined["longest"] == 30.0
    assert told.story["kind"] == "holdfast" and told.story["witnesses"][0] == "the members' traces"
    assert birth["culprit"] == "c0"


def test_what_comes_late_is_put_in_its_place() -> None:
    """A trace file is read a moment after the broker has answered, and two files one after the other."""
    in_order, late = chronicle(), chronicle()
    records = traced_handover()
    in_order.traced(records)  # type: ignore[arg-type]
    late.traced(records[10:])  # type: ignore[arg-type]
    late.traced(records[:10])  # type: ignore[arg-type]
    assert late.story() == in_order.story()


def test_a_trace_is_believed_against_a_look_until_it_has_been_silent() -> None:
    seen = chronicle()
    seen.traced(traced_handover())  # type: ignore[arg-type]
    seen.looked(look({"c0": [0, 1], "c1": []}), WALL + 1_145)
    assert Told(seen).lane(1, 1_145)[1] == "c1", "the look was on its way while c1 got it"
    seen.looked(look({"c0": [0, 1], "c1": []}), WALL + 9_000)
    assert Told(seen).lane(1, 9_000)[1] == "c0", "nobody has written c1's trace for seconds"


def test_a_killed_member_and_its_successor_of_the_same_name() -> None:
    """The coordinator puts the old membership out when the new process works already: that must darken nothing."""
    seen = chronicle()
    old, new = member_id("c0"), member_id("c0", 2)
    seen.traced(
        [
            record("demo", "process-started", 0, "c0"),
            record("member", "stable", 10, old, owned={"orders": [0]}),
            record("demo", "process-died", 1_000, "c0"),
            record("demo", "process-started", 1_200, "c0"),
            record("member", "stable", 1_500, new, owned={"orders": [0]}),
            record("coordinator", "member-expired", 1_600, old, cause=f"{old}'s session expired", culprit=old),
        ]
    )
    told = Told(seen)
    assert told.names == ["c0"]
    assert told.lane(0, 1_100) == ("dark", "c0", "crashed")
    assert told.lane(0, 1_700) == ("working", "c0", "")
    assert [told.member("c0", at) for at in (500, 1_100, 1_300, 1_700)] == ["in", "gone", "joining", "in"]
    assert any("c0 (before) is taken out" in text for _, _, text in told.story["steps"])


def test_a_hung_member_stands_still_until_it_is_out() -> None:
    seen = chronicle()
    seen.traced(
        [
            record("demo", "process-started", 0, "c0"),
            record("member", "stable", 10, member_id("c0"), owned={"orders": [0]}),
            record("demo", "application-hung", 1_000, "c0"),
            record("coordinator", "member-left", 7_000, member_id("c0"), cause="it did not poll"),
        ]
    )
    told = Told(seen)
    assert told.lane(0, 2_000) == ("stalled", "c0", "hung") and told.member("c0", 2_000) == "hung"
    assert told.lane(0, 7_100) == ("dark", "c0", "out of the group") and told.member("c0", 7_100) == "out"


def test_two_processes_of_one_name_are_told_apart_and_a_free_name_is_used_again() -> None:
    seen = chronicle()
    both = look({"rdkafka": [0]})
    other = look({"rdkafka": [1]}, life=2)
    members = both.described.members + other.described.members
    from dataclasses import replace

    seen.looked(replace(both, described=replace(both.described, members=members)), WALL)
    assert Told(seen).names == ["rdkafka", "rdkafka #2"]
    seen.looked(other, WALL + 5_000)
    seen.looked(look({"rdkafka": [0, 1]}, life=3), WALL + 10_000)
    assert Told(seen).names == ["rdkafka", "rdkafka #2"]


def test_what_is_old_is_forgotten_and_what_still_holds_is_not() -> None:
    seen = chronicle()
    seen.looked(look({"c0": [0, 1, 2, 3]}), WALL)
    for second in range(0, int(KEPT_MS / 1000) * 3, 4):
        seen.looked(look({"c0": [0, 1, 2, 3]}, lag=second % 100), WALL + second * 1000.0)
    told = Told(seen)
    assert told.story["begin"] > told.story["end"] - KEPT_MS * 1.2
    assert told.lane(3, KEPT_MS * 2.9) == ("working", "c0", "")
    assert len(seen.seen) < 400
    assert all(len(lane["lag"]) <= MOST_POINTS for lane in told.story["partitions"])


def test_a_storm_of_records_stays_within_bounds() -> None:
    seen = chronicle()
    for burst in range(30):
        seen.traced(
            [
                record("coordinator", "stable", burst * 1_000.0 + each / 10, generation=burst * 1_000 + each)
                for each in range(1_000)
            ]
        )
    assert len(seen.seen) <= MOST_SEEN * 1.1


def test_records_of_others_and_of_before_are_left_out() -> None:
    seen = chronicle()
    foreign = record("member", "stable", 10, member_id("x"), owned={"orders": [0]})
    from dataclasses import replace

    seen.traced([replace(foreign, group="other"), replace(foreign, wall=None), replace(foreign, wall=1_000.0)])
    assert seen.seen == []


def test_damaged_and_hostile_records_are_text_and_nothing_else() -> None:
    name = "<img src=x onerror=alert(1)>\x1b[2J\n"
    seen = chronicle()
    seen.traced(
        [
            record("member", "stable", 0, name, owned={"orders": [True, -1, 10**12, "0", 0], "x": 5}),
            record("member", "revoking", 5, name, partitions="orders"),
            record("member", "revoking", 5, name, partitions={"orders": [0, 0]}),
            record("coordinator", "rebalance-started", 6, cause=f"{name} joined", culprit=name),
            record("coordinator", "generation", 7, generation=1, protocol=7),
            record("demo", "happened", 8, what=name),
        ]
    )
    told = Told(seen)
    assert len(told.story["partitions"]) == 1
    drawn = picture(told.story, told.story["end"], title=f"Group {name}")
    assert "<img" not in drawn and "\x1b" not in drawn
    json.dumps(told.story, allow_nan=False)


def test_questions_the_plan_and_the_picture_work_on_a_live_group() -> None:
    seen = chronicle()
    seen.traced(traced_handover())  # type: ignore[arg-type]
    seen.looked(look({"c0": [0], "c1": [1]}, lag=7, of=2), WALL + 1_150)
    made = seen.story()
    asked = {each["id"]: each["answer"] for each in questions(made, made["end"], None)}
    assert asked["cause"].startswith("c1: c1 joined, at ") and " s" not in asked["cause"].partition(", at ")[2]
    assert asked["lag"] == "14 records wait in all; most of them in P0: 7."
    assert resized(made, made["end"], 1)["moves"] == [{"partition": "P1", "from": "c1", "to": "c0"}]
    assert "<svg" in picture(made, made["end"], title="Group billing")


def test_a_resize_is_planned_by_the_groups_own_assignor() -> None:
    """Of a group with `range` the page told what `sticky` would move, which is less."""
    seen = chronicle()
    seen.looked(look({"c0": [0, 1, 2], "c1": [3, 4, 5]}, protocol="range", of=6), WALL)
    moves = resized(seen.story(), KEPT_MS, 3)
    assert moves["stopped"] == 6
    assert [(each["partition"], each["to"]) for each in moves["moves"]] == [("P2", "c1"), ("P4", "c2"), ("P5", "c2")]
    seen.looked(look({"c0": [0, 1, 2], "c1": [3, 4, 5]}, protocol="theirs", of=6), WALL + 3_000)
    with pytest.raises(HoldfastError, match="ASSIGNOR_NOT_KNOWN: the group's assignor is theirs"):
        resized(seen.story(), KEPT_MS + 3_000, 3)


def test_questions_about_a_moment_before_the_first_look_are_answered() -> None:
    """The trace is read before the broker has answered; asked then, the page's server divided by zero."""
    seen = chronicle()
    seen.traced(traced_handover())  # type: ignore[arg-type]
    seen.looked(look({"c0": [0], "c1": [1]}, lag=7, of=2), WALL + 1_150)
    made = seen.story()
    asked = {each["id"]: each["answer"] for each in questions(made, made["begin"], None)}
    assert "14 records wait" in asked["lag"]


def test_a_rebalance_between_two_looks_has_no_duration() -> None:
    seen = chronicle()
    seen.looked(look({"c0": [0, 1, 2, 3]}), WALL)
    seen.looked(look({"c0": [0, 1], "c1": [2, 3]}), WALL + 1_500)
    (one,) = seen.story()["rebalances"]
    assert one["from"] == one["to"] and one["moved"] == ["P2", "P3"]
    assert seen.story()["code"]["coordinatorLit"][-1][1] == 7, "Stable, though nobody told of a round"


def test_lag_and_rate_are_measured_and_unknown_where_nobody_told() -> None:
    seen = chronicle()
    seen.traced(traced_handover())  # type: ignore[arg-type]
    assert seen.story()["produces"] is None and seen.story()["partitions"][0]["lag"] == []
    for second in range(6):
        seen.looked(look({"c0": [0], "c1": [1]}, lag=100 * second, of=2), WALL + 2_000 + 1_000 * second)
    made = seen.story()
    assert made["produces"] == 200.0
    assert [lag for _, lag in made["partitions"][0]["lag"]] == [0, 500], "points on a line are left out"


def test_a_partition_that_is_added_to_a_hung_member_was_not_there_before() -> None:
    """Its lane began with the moment in which it was seen, standing still. A moment before that one took the first
    span, so the partition stood still before there was one; and asked why, the server failed, with all questions."""
    seen = chronicle()
    seen.looked(look({"c0": [0]}), WALL)
    seen.traced([record("live", "process-started", 500, "c0"), record("live", "application-hung", 600, "c0")])
    seen.looked(look({"c0": [0, 1]}), WALL + 5_000)
    told = Told(seen)
    assert told.lane(1, 4_000)[0] == "waiting" and told.lane(1, 5_000)[0] == "stalled"
    asked = [one["text"] for one in questions(told.story, told.story["begin"] + 4_000, None)]
    assert "Why does nobody process P0?" in asked and "Why does nobody process P1?" not in asked
