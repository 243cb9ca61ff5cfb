"""A story is what the page draws: trace records in, lanes, members, rounds and words out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from holdfast.cli.main import main
from holdfast.model import TraceRecord
from holdfast.sim.played import Played, play
from holdfast.sim.ready import SCENES
from holdfast.sim.setup import KINDS, Setup
from holdfast.ui.plan import resized
from holdfast.ui.questions import WHAT_IFS, compared, lag_at, questions
from holdfast.ui.story import at, story
from holdfast.ui.svg import picture

QUICK = ["tick8", "hung", "third", "third-quick", "ten", "deploy", "deploy-static"]


@cache
def both(name: str, kind: str) -> tuple[Played, dict[str, Any]]:
    played = play(SCENES[name].setup, kind)
    return played, story(played.records, played.result.ended_at_ms, kind)


def told(name: str, kind: str) -> dict[str, Any]:
    return both(name, kind)[1]


def states(lane: dict[str, Any], since: float = 0.0) -> list[str]:
    return [span[1] for span in lane["spans"] if span[0] >= since]


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("kind", KINDS)
def test_lanes_are_dark_exactly_when_the_timeline_has_a_gap(name: str, kind: str) -> None:
    """Two readings of one trace: the page's lanes and the simulator's gaps must agree to the millisecond."""
    played, made = both(name, kind)
    for lane, (partition, _) in zip(made["partitions"], sorted(played.line.stretches.items()), strict=True):
        assert lane["name"] == str(partition)
        dark = sum(
            (lane["spans"][index + 1][0] if index + 1 < len(lane["spans"]) else made["end"]) - span[0]
            for index, span in enumerate(lane["spans"])
            if span[1] not in ("working", "zombie")
            and any(earlier[1] == "working" for earlier in lane["spans"][:index])
        )
        gaps = sum(gap.ms for gap in played.gaps if gap.partition == partition)
        assert dark == pytest.approx(gaps, abs=0.2 * len(lane["spans"])), lane["label"]


@pytest.mark.parametrize("name", [*QUICK, "storm"])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_moved_is_told_of_a_rebalance(name: str, kind: str) -> None:
    """In the storm the evicted member works on while others take over, so there is no gap: "nothing moved"."""
    played, made = both(name, kind)
    moved = {
        f"P{partition.partition}"
        for partition, stretches in played.line.stretches.items()
        if len({stretch.member for stretch in stretches}) > 1
    }
    assert {label for each in made["rebalances"] for label in each["moved"]} == moved
    if name == "storm":
        assert made["rebalances"][1]["moved"] == ["P0", "P4"] and "did not poll" in made["rebalances"][1]["cause"]


@pytest.mark.parametrize("name", ["tick8", "hung", "third", "ten"])
def test_in_cooperative_lanes_that_do_not_move_never_go_dark_and_in_eager_all_do(name: str) -> None:
    event = both(name, "eager")[0].event_ms
    for kind in ("cooperative", "holdfast"):
        for lane in told(name, kind)["partitions"]:
            owners = {span[2] for span in lane["spans"] if span[1] == "working"}
            if len(owners) == 1:
                assert set(states(lane, event)) <= {"working"}, (kind, lane["label"])
    assert all("dark" in states(lane, event) for lane in told(name, "eager")["partitions"])


def test_a_lane_goes_from_revoking_over_dark_to_taken() -> None:
    (lane,) = [lane for lane in told("third", "holdfast")["partitions"] if "dark" in states(lane)]
    assert states(lane)[-5:] == ["working", "revoking", "dark", "taken", "working"]
    assert lane["spans"][-1][3] == "handed over"


def test_a_hung_owner_stands_still_until_it_is_taken_out() -> None:
    lane = told("tick8", "cooperative")["partitions"][0]
    spans = {state: since for since, state, *_ in reversed(lane["spans"]) if since < 12_000}
    assert spans["stalled"] == 2_000 and spans["dark"] == pytest.approx(8_000, abs=2)


def test_a_zombie_does_not_take_the_lane_back() -> None:
    """C0 comes back from its hang and works on for 100 ms at what is others' by then: the lane stays theirs."""
    story_ = told("tick8", "cooperative")
    owners = [story_["members"][span[2]]["name"] for span in story_["partitions"][0]["spans"] if span[1] == "working"]
    assert owners == ["c0", "c2"]


def test_who_works_on_after_it_was_taken_out_does_not_light_its_lane() -> None:
    """C0's batch outlasts max.poll.interval.ms: it works on at what it can't commit, and its lane was shown as lit.

    What a member does that is not in the group any more counts for nobody."""
    played = play(
        Setup(members=2, partitions=2, events="batch:c0@2s+60s", max_poll="10s", duration="30s"), "cooperative"
    )
    made = story(played.records, played.result.ended_at_ms, "cooperative")
    (lane,) = [lane for lane in made["partitions"] if lane["spans"][1][2] == 0]
    (gone,) = [r.at for r in played.records if r.step == "member-left"]
    assert [(state, owner) for since, state, owner, _ in lane["spans"] if since >= gone - 1] == [
        ("zombie", 0),
        ("working", 1),
    ]
    assert any(text == "c0 leaves: no poll for 10000 ms, max.poll.interval.ms is 10000" for _, _, text in made["steps"])


def test_members_are_hung_out_and_in_again() -> None:
    member = told("tick8", "eager")["members"][0]
    assert [state for _, state in member["spans"]] == ["joining", "in", "hung", "out", "joining", "in"]


def test_a_rebalance_has_its_cause_its_culprit_and_all_of_its_rounds() -> None:
    first, gone, back = told("hung", "cooperative")["rebalances"]
    assert first["generation"] == 1
    assert gone["culprit"] == "c1" and "did not poll in time" in gone["cause"] and gone["rounds"] == 1
    assert gone["paused"] == 0 and gone["moved"] == ["P1", "P4"]
    assert back["culprit"] == "c1" and back["rounds"] == 2, "the round that follows a revoke is no new rebalance"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_taken_over_from_one_who_still_works_has_moved(kind: str) -> None:
    """In the storm P0 and P4 went from c0, out of the group and still busy, to others. There was no gap,
    so the page said "nothing moved" beside lanes that changed their colour. Others began half a minute after the group
    was stable, when their batches were done: these were said to be nobody's doing."""
    out, back = told("storm", kind)["rebalances"][1:3]
    assert out["moved"] == ["P0", "P4"] and out["culprit"] == "c0"
    assert back["moved"] == ["P5", "P6"]
    lanes = {lane["label"]: lane["spans"] for lane in told("storm", kind)["partitions"]}
    for label in out["moved"]:
        lit = next(span for span in lanes[label] if span[0] > out["from"] and span[1] == "working")
        assert lit[2] != 0
        assert out["to"] >= lit[0], "it lasts until the last lane is lit again"


def test_a_rebalance_is_over_before_its_culprit_wakes_and_works_on_what_it_has_lost() -> None:
    _, out, back = told("tick8", "eager")["rebalances"]
    assert out["moved"] == ["P0", "P4"] and out["to"] < 13_000 < back["from"]


def test_a_rebalance_is_over_before_one_that_woke_works_on_what_it_has_lost_when_the_scene_ends() -> None:
    """C3 wakes in the scene's last moment and has not heard yet that C0 has its lanes: that rebalance was long over."""
    setup = Setup(
        partitions=7, seed=175, events="freeze:c3@48s,restart:c0@48s", max_poll="10s", session="8s", batch="3s"
    )
    played = play(setup, "holdfast")
    last = story(played.records, played.result.ended_at_ms, "holdfast")["rebalances"][-1]
    assert last["moved"] == ["P3", "P4"] and last["to"] < 56_000


def test_one_that_is_out_does_not_get_a_lane_back_when_the_next_gives_it_up() -> None:
    """C4 is out and at its last batch, C0 has taken over and hands on at once: until C1 began the lane was said to be
    processed by C4, and the list to have moved it there."""
    events = "join@24s,leave:c3@8s,drain:c0@28s"
    played = play(Setup(partitions=7, seed=877, events=events, max_poll="10s", session="8s", batch="12s"), "holdfast")
    made = story(played.records, played.result.ended_at_ms, "holdfast")
    spans = [
        (state, made["members"][owner]["name"]) for at, state, owner, _ in made["partitions"][0]["spans"] if at > 35_000
    ]
    assert spans[:4] == [("zombie", "c4"), ("working", "c0"), ("zombie", "c4"), ("working", "c1")]


def test_a_static_member_that_restarts_keeps_its_lanes_and_nobody_revokes_them() -> None:
    """Seen on a picture: for the 35 s of a restart its lanes said that a listener commits, long after the process had
    ended; and the group's first rebalance was said to last for minutes, because it got the gaps of all restarts."""
    static = told("deploy-static", "holdfast")
    spans = [span for lane in static["partitions"] for span in lane["spans"] if span[0] >= 10_000]
    away = [span for span in spans if span[3] == "away"]
    assert away and all(state == "stalled" for _, state, _, _ in away)
    for lane in static["partitions"]:
        for (since, state, _, _), (until, *_rest) in zip(lane["spans"], lane["spans"][1:], strict=False):
            assert state != "revoking" or until - since < 1_000
    (first,) = static["rebalances"]
    assert first["to"] - first["from"] < 5_000


def test_lag_grows_while_a_lane_is_dark_and_falls_when_it_is_lit() -> None:
    lane = told("tick8", "eager")["partitions"][0]
    assert lag_at(lane["lag"], 1_900) == pytest.approx(0, abs=1)
    assert lag_at(lane["lag"], 7_000) == pytest.approx(500, rel=0.1), "100 records a second for 5 s"
    assert lag_at(lane["lag"], 19_000) == pytest.approx(0, abs=1)


def test_the_line_at_work_is_lit() -> None:
    made = told("tick8", "eager")
    lines = made["code"]["coordinator"]["lines"]
    assert "wait until" in lines[at(made["code"]["coordinatorLit"], 12_000)[1]]
    consumer = made["code"]["consumer"]["lines"]
    waiting = made["members"].index(next(m for m in made["members"] if m["name"] == "c2"))
    assert "join()" in consumer[at(made["code"]["memberLit"][waiting], 11_000)[1]]
    assert "poll()" in consumer[at(made["code"]["memberLit"][waiting], 18_000)[1]]


def test_a_story_is_plain_json_and_says_so_in_words() -> None:
    made = told("tick8", "eager")
    assert json.loads(json.dumps(made)) == made
    words = [text for _, _, text in made["steps"]]
    assert "c0 hangs" in words and any(text.startswith("a rebalance begins: c0-1 left") for text in words)


def test_the_page_needs_no_server_to_be_drawn() -> None:
    """Importing holdfast, or drawing a picture, brings neither starlette nor uvicorn."""
    code = "import sys, holdfast, holdfast.ui.svg, holdfast.ui.questions, holdfast.ui.plan\n"
    code += "assert not {'starlette', 'uvicorn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# Questions


def asked(name: str, kind: str, moment: float) -> dict[str, Any]:
    return {each["id"]: each for each in questions(told(name, kind), moment, SCENES[name].setup)}


def test_why_a_lane_is_dark_is_answered_with_its_numbers() -> None:
    answer = asked("tick8", "eager", 10_000)["lane-P2"]["answer"]
    assert "c2 stopped at 9.5 s (revoked)" in answer
    assert "c0-1 left: the application did not poll in time" in answer
    assert "c2 goes on at 12.6 s (fetched), after 3.1 s" in answer


def test_what_the_group_waits_for_names_who_has_not_joined() -> None:
    answer = asked("tick8", "eager", 10_000)["waiting"]["answer"]
    assert answer.startswith("For c1, c3.") and "1 have joined" in answer


def test_everybody_or_nobody_stopped() -> None:
    everybody = asked("tick8", "eager", 24_000)["everybody"]["answer"]
    assert "6 of 6 partitions paused, 5 of them only to be given back" in everybody
    nobody = asked("tick8", "holdfast", 24_000)["nobody"]["answer"]
    assert "given up: P5" in nobody and "; 5 were worked on all along" in nobody


def test_the_longest_pause_is_not_all_put_down_to_the_round() -> None:
    """Fourteen minutes of restoring state were "how long the first to stop waited for the last to come"."""
    answer = asked("restore", "eager", 1_000_000)["everybody"]["answer"]
    assert "the longest for 14.0 min" in answer and "the round took 1.1 s" in answer and "take them up again" in answer


def test_a_lane_that_stands_still_with_its_owner_is_none_that_was_worked_on_all_along() -> None:
    """C0 hangs, and "6 noticed nothing" of six lanes, two of which nobody worked on."""
    made = told("tick8", "cooperative")
    eviction = made["rebalances"][1]
    assert eviction["culprit"] == "c0"
    answer = asked("tick8", "cooperative", eviction["from"] + 100)["nobody"]["answer"]
    still = {lane["label"] for lane in made["partitions"] if at(lane["spans"], eviction["from"] - 100)[1] == "stalled"}
    assert still and f"; {6 - len(still)} were worked on all along" in answer


def test_the_wait_time_has_the_same_standstill_as_the_claim_beside_it() -> None:
    """What restores after a leave is no pause by a rebalance: the bar said "0 ms, none at all", the claim 61.2 s."""
    played = {kind: both("restore", kind)[0] for kind in ("eager", "cooperative")}
    claims = {claim.about: claim for claim in SCENES["restore"].claims}
    for kind, each in played.items():
        wait = told("restore", kind)["wait"]
        assert wait["darkLongest"] == pytest.approx(each.measure(claims[kind].measure), abs=0.1)
    waits = {kind: told("restore", kind)["wait"] for kind in played}
    assert waits["cooperative"]["paused"] == 0
    words = picture(told("restore", "eager"), 1_000_000, waits=waits)
    assert "none by rebalances" in words and "none at all" not in words


def test_nobody_has_stopped_who_never_worked_and_who_is_out_works_in_vain() -> None:
    """A member that restores its first state was said to have stopped, and so was one that went on with its batch."""
    answer = asked("restore", "holdfast", 20_000)["lane-P0"]["answer"]
    assert "Nobody has worked on it yet" in answer and "stopped at" not in answer
    made = told("storm", "eager")
    lane = next(lane for lane in made["partitions"] if any(span[1] == "zombie" for span in lane["spans"]))
    since = next(span[0] for span in lane["spans"] if span[1] == "zombie")
    question = asked("storm", "eager", since + 1)[f"lane-{lane['label']}"]
    assert "in vain" in question["text"] and "works on, but has been out of the group since" in question["answer"]


def test_a_what_if_is_played_beside_and_compared() -> None:
    assert asked("deploy", "holdfast", 11_000)["static"]["answer"] is None
    assert "static" not in asked("deploy-static", "holdfast", 11_000)
    other = WHAT_IFS["static"].change(SCENES["deploy"].setup)
    assert other == SCENES["deploy-static"].setup
    words = compared(told("deploy", "holdfast")["wait"], told("deploy-static", "holdfast")["wait"])
    assert "partitions that paused: 6 as it is, 0 then" in words


def test_from_four_to_six_members_says_what_will_move_before_it_is_done() -> None:
    played = play(Setup(members=4, partitions=12, duration="10s"), "holdfast")
    made = story(played.records, played.result.ended_at_ms, "holdfast")
    plan = resized(made, 9_000, 6)
    assert (plan["from"], plan["to"], plan["of"]) == (4, 6, 12)
    assert len(plan["moves"]) == 4 == plan["stopped"] and {move["to"] for move in plan["moves"]} == {"c4", "c5"}
    fewer = resized(made, 9_000, 3)
    assert len(fewer["moves"]) == 3 and {move["from"] for move in fewer["moves"]} == {"c3"}


def test_what_is_planned_is_what_then_happens() -> None:
    setup = Setup(members=4, partitions=12, events="join@10s,join@10s", duration="30s")
    played = play(setup, "holdfast")
    made = story(played.records, played.result.ended_at_ms, "holdfast")
    planned = {move["partition"] for move in resized(made, 9_900, 6)["moves"]}
    moved = {label for each in made["rebalances"][1:] for label in each["moved"]}
    assert len(planned) == len(moved) == 4


# The picture


@pytest.mark.parametrize("kind", KINDS)
def test_the_picture_is_sound_and_shows_each_lane(kind: str) -> None:
    made = told("tick8", kind)
    text = picture(made, 12_400, title="Tick 8", waits={k: told("tick8", k)["wait"] for k in KINDS})
    root = ElementTree.fromstring(text)
    words = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any("P5 →" in word for word in words) and any("Wait time" in word for word in words)
    assert "http://www.w3.org/2000/svg" in text and "href" not in text and "<script" not in text
    lit = sum(at(lane["spans"], 12_400)[1] == "working" for lane in made["partitions"])
    assert f"Can the group process now? {lit} of 6" in words
    assert all(len(word) <= 50 for word in words if word in made["legend"]["states"].values()), (
        "it would not fit its box"
    )


def test_the_readmes_picture_is_what_the_command_draws(tmp_path: Path) -> None:
    """Run `holdfast sim --scene tick8 --svg docs/rebalance.svg` when this fails."""
    with pytest.raises(SystemExit) as ended:
        main(["sim", "--scene", "tick8", "--svg", str(tmp_path / "drawn.svg")])
    assert not ended.value.code
    kept = Path(__file__).parents[2] / "docs" / "rebalance.svg"
    assert (tmp_path / "drawn.svg").read_text() == kept.read_text()


def test_a_moment_and_a_way_can_be_chosen_for_the_picture(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sim", "--event", "join@5s", "--duration", "12s", "--kind", "eager", "--at", "5.1s", "--svg", "-"])
    out = capsys.readouterr().out
    assert out.startswith("<svg") and "eager · 5.1 s" in out


def test_strangers_names_are_text_in_the_picture() -> None:
    evil = '<script>alert(1)</script>"&\x00'

    def renamed(records: Sequence[TraceRecord]) -> list[TraceRecord]:
        from dataclasses import replace

        return [replace(r, member=evil) if r.member == "c0" else r for r in records]

    played = both("tick8", "eager")[0]
    made = story(renamed(played.records), played.result.ended_at_ms, "eager")
    text = picture(made, 1_500, title=evil)
    assert "<script" not in text and "\x00" not in text
    assert "<script>alert(1)</script>" in "".join(ElementTree.fromstring(text).itertext())


def test_a_name_does_not_turn_around_the_text_of_a_picture() -> None:
    made = json.loads(json.dumps(told("third-quick", "holdfast")))
    made["members"][0]["name"] = "c\u202egnp\u2067"
    drawn = picture(made, 20_000)
    assert "gnp" in drawn and not set(drawn) & set("\u202e\u2067")


def test_a_thousand_partitions_fit_the_picture() -> None:
    played = play(Setup(members=20, partitions=1_000, duration="5s"), "holdfast")
    text = picture(story(played.records, played.result.ended_at_ms, "holdfast"), 4_000)
    height = float(ElementTree.fromstring(text).attrib["height"])
    assert height < 1_800


def test_a_picture_needs_no_colours_to_show_who_took_over_and_its_thin_rows_lie_together() -> None:
    """A lane that moved within milliseconds differed from the others by its colour alone. And a hundred rows in the
    order of partitions, each beside one of another owner, blended into one colour."""
    small = picture(told("third-quick", "holdfast"), 20_000)
    assert small.count('width="2" height="21.3" class="bg"') == 1, "one partition moved"
    rows = [
        drawn.get("class", "")
        for drawn in ElementTree.fromstring(picture(told("ten", "cooperative"), 10_000)).iter()
        if drawn.tag.endswith("rect") and drawn.get("x") != "0" and drawn.get("class", "").startswith("o")
    ]
    changes = sum(one != other for one, other in pairwise(rows))
    assert changes < 50, "blocks, not stripes"
