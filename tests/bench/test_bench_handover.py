"""What the handover bench makes of its figures. The figures themselves are its own business, and no test's."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from holdfast.bench.handover import VARIANTS, chosen_variants, judged, summary, turns
from holdfast.bench.handover_group import Result, Sample


def row(group: str, event: str, moved: float, **more: Any) -> dict[str, Any]:
    return {
        "group": group,
        "event": event,
        "ours": group.startswith("holdfast"),
        "moved_median_ms": moved,
        "moved_worst_ms": moved,
        "unmoved_median_ms": 20.0,
        "steady_median_ms": 15.0,
        "lost": 0,
        "doubled": 0,
    } | more


def test_the_best_peer_is_what_we_are_compared_with() -> None:
    rows = judged([row("holdfast", "join", 30.0), row("java", "join", 3_000.0), row("confluent", "join", 3_300.0)])

    assert [one["times_better"] for one in rows] == [100.0, None, None]
    assert [one["missed"] for one in rows] == [[], [], []]


@pytest.mark.parametrize(
    ("group", "event", "changed", "missed"),
    [
        ("holdfast", "join", {"moved_median_ms": 31.0}, "median above 30"),
        ("holdfast", "drain", {"moved_worst_ms": 101.0}, "worst above 100"),
        ("holdfast", "kill", {"moved_median_ms": 101.0}, "median above 100"),
        ("holdfast-no-poke", "kill", {"moved_median_ms": 3_051.0}, "median above 3050"),
        ("holdfast-under-java", "drain", {"moved_median_ms": 121.0}, "median above 120"),
        ("holdfast-under-confluent", "drain", {"moved_worst_ms": 121.0}, "worst above 120"),
        ("holdfast", "leave", {"unmoved_median_ms": 46.0}, "unmoved 31 above steady"),
        ("holdfast", "leave", {"lost": 1}, "lost or doubled"),
        ("holdfast", "leave", {"doubled": 1}, "lost or doubled"),
    ],
)
def test_a_goal_that_is_missed_is_named(group: str, event: str, changed: dict[str, Any], missed: str) -> None:
    (seen,) = judged([row(group, event, 30.0) | changed])

    assert seen["missed"] == [missed]


def test_too_small_a_lead_over_the_peers_is_a_miss() -> None:
    rows = judged([row("holdfast", "join", 29.0), row("java", "join", 1_400.0)])

    assert rows[0]["missed"] == ["under 50 times better"]


def test_a_row_tells_the_median_of_all_and_of_each_rounds_slowest_and_the_worst() -> None:
    samples = [Sample([10.0, 30.0], [5.0], [4.0]), Sample([20.0], [7.0], [6.0]), Sample([90.0, 1.0], [6.0], [5.0])]
    (told,) = summary(Result(VARIANTS[0], {"join": samples}, lost=2))

    assert (told["moved_median_ms"], told["moved_slowest_ms"], told["moved_worst_ms"]) == (20.0, 30.0, 90.0)
    assert told["unmoved_median_ms"] == 6.0
    assert (told["steady_median_ms"], told["lost"], told["repetitions"]) == (5.0, 2, 3)


def test_a_group_nobody_knows_is_wrong_use() -> None:
    with pytest.raises(typer.BadParameter, match="nobody"):
        chosen_variants("holdfast,nobody")


def test_only_the_events_asked_for_are_run_and_a_group_without_any_is_left_out() -> None:
    chosen = chosen_variants("holdfast,holdfast-no-poke", "join,drain")

    assert [(variant.name, variant.events) for variant in chosen] == [("holdfast", ("join", "drain"))]


@pytest.mark.parametrize("events", ["join", "", "join,dance"])
def test_events_that_nobody_knows_or_that_let_nobody_out_are_wrong_use(events: str) -> None:
    with pytest.raises(typer.BadParameter, match="choose some of drain, leave, kill"):
        chosen_variants("holdfast", events)


def test_two_versions_take_turns_and_peers_run_once() -> None:
    """Ours, theirs, theirs, ours: what drifts during a run does both the same."""
    order = turns(chosen_variants("holdfast,java"), "/elsewhere/bin/python")

    assert [(variant.name, variant.python, cut) for variant, cut in order] == [
        ("holdfast", None, 2),
        ("holdfast-other", "/elsewhere/bin/python", 2),
        ("holdfast-other", "/elsewhere/bin/python", 2),
        ("holdfast", None, 2),
        ("java", None, 1),
    ]


def test_being_slower_than_the_other_version_is_a_miss_and_the_other_is_no_peer() -> None:
    other = row("holdfast-other", "join", 20.0, ours=False)

    assert judged([row("holdfast", "join", 25.0), other])[0]["missed"] == ["slower than the other's 20.0"]
    (ours, _) = judged([row("holdfast", "join", 23.0), other])
    assert (ours["missed"], ours["times_better"]) == ([], None)


def test_turns_of_one_group_are_counted_together() -> None:
    told = Result(VARIANTS[0], {"join": [Sample([10.0], [], [], [{"barrier": 8.0}])]}, lost=1)
    told.add(Result(VARIANTS[0], {"join": [Sample([30.0], [], [], [{"barrier": 4.0}])]}, lost=2, doubled=3))
    (seen,) = summary(told)

    assert (seen["repetitions"], seen["moved_median_ms"], seen["lost"], seen["doubled"]) == (2, 20.0, 3, 3)
    assert seen["stages"] == {"barrier": {"median_ms": 6.0, "share": 1.0}}
    assert seen["handover_median_ms"] == 6.0, "the handover alone, where the silence has the machine's stalls in it too"
