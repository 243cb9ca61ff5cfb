"""The ready scenes: each is played in all three ways, and what is told of it stands beside what was measured."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.cli.main import main
from holdfast.model import HoldfastError, TopicPartition
from holdfast.sim.played import MEASURES, play
from holdfast.sim.ready import SCENES, told_and_played
from holdfast.sim.setup import KINDS, Setup, setup_of

SLOW = {"restore", "hundred", "fifty", "storm"}
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in SCENES]


@pytest.mark.parametrize("name", NAMES)
def test_a_ready_scene_shows_what_is_told_of_it_and_says_why_exactly_where_it_differs(name: str) -> None:
    """The heart of the picture is in each: whoever keeps a partition in cooperative never stops working on it."""
    played = {kind: play(SCENES[name].setup, kind) for kind in KINDS}
    for row in told_and_played(SCENES[name], played):
        assert row["holds"] == (row["why"] == ""), row
    for kind, each in played.items():
        assert each.result.violations == [], kind
        assert each.event is not None, "something happens"
        assert (each.summary.needless > 0) == (kind == "eager"), "only eager takes and gives back"
    assert played["eager"].summary.paused_partitions > played["cooperative"].summary.paused_partitions


def test_state_is_restored_one_partition_after_the_other() -> None:
    setup = Setup(members=1, partitions=3, restore="5s", duration="30s")
    opened = {p: stretches[0].from_ms for p, stretches in play(setup, "holdfast").line.stretches.items()}
    first, second, third = (opened[TopicPartition("orders", number)] for number in range(3))
    assert second - first == third - second == 5_000


def test_what_is_taken_away_while_it_is_restored_is_never_processed() -> None:
    """A partition that moves on before its state is there opens at its new owner alone, after that one's restore."""
    setup = Setup(members=1, partitions=4, restore="20s", events="join@30s", duration="3m")
    each = play(setup, "holdfast")
    restoring = [r for r in each.records if r.step == "lane-restoring"]
    assert {r.member for r in restoring} == {"c0", "c1"}
    for stretches in each.line.stretches.values():
        assert all(a.to_ms <= b.from_ms for a, b in pairwise(stretches))
    assert each.result.violations == []


def test_a_member_that_freezes_while_it_restores_opens_nothing_until_it_wakes() -> None:
    setup = Setup(members=1, partitions=2, restore="4s", events="freeze:c0@2s+10s", duration="30s")
    line = play(setup, "holdfast").line
    assert all(stretches[0].from_ms >= 12_000 for stretches in line.stretches.values())


def test_batches_of_one_member_can_become_long() -> None:
    each = play(Setup(members=2, events="batch:c0@5s+20s", max_poll="10s", duration="40s"), "holdfast")
    gone = each.first_after(0.0, "member-left", source="coordinator")
    assert gone is not None and gone.member.startswith("c0")


def test_two_thousand_members_can_be_played() -> None:
    """The command line stopped at 50 and the world at 200; an article's group of 100 could not be shown."""
    config = Setup(members=2_000, partitions=2_000, duration="3m").config("holdfast")
    assert len(config.members) == 2_000
    with pytest.raises(HoldfastError, match="BAD_SIZE"):
        Setup(members=2_001).config("holdfast")
    with pytest.raises(HoldfastError, match="TOO_MUCH_TO_PLAY"):
        Setup(members=2_000, duration="60m").config("holdfast")


@pytest.mark.parametrize("name", SCENES)
def test_a_setup_goes_through_its_address_and_back(name: str) -> None:
    setup = SCENES[name].setup
    assert setup_of(setup.as_words()) == setup


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({"members": "many"}, "BAD_SETTING"),
        ({"spread": "1.5"}, "BAD_SPREAD"),
        ({"events": "eat:c0@1s"}, "UNKNOWN_EVENT"),
    ],
)
def test_a_strangers_address_is_refused_with_a_code(words: dict[str, str], code: str) -> None:
    with pytest.raises(HoldfastError, match=code):
        setup_of(words).config("holdfast")


def test_every_claim_is_about_something_that_can_be_measured() -> None:
    for scene in SCENES.values():
        assert scene.claims
        for claim in scene.claims:
            assert claim.measure in MEASURES and claim.about in KINDS and claim.low <= claim.high


def test_the_documentation_lists_every_scene() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    for name in SCENES:
        assert f"| `{name}` |" in page


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["sim", *args])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_command_line_plays_a_scene_with_what_is_told_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--scene", "third-quick")
    assert code == 0
    assert "told, and played" in out and "less than 200 ms" in out and "on its heartbeat" in out
    code, out, _ = run(capsys, "--scene", "third-quick", "-o", "json")
    answer = json.loads(out)
    assert set(answer) == {*KINDS, "told"} and [row["holds"] for row in answer["told"]] == [False, True, False, True]


def test_one_way_of_a_scene_is_played_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--scene", "tick8", "--kind", "eager")
    assert code == 0 and "rebalance-started" in out and "max.poll.interval.ms is 6000" in out
    for more in ((), ("--svg", "-")):
        code, out, err = run(capsys, "--scene", "tick8", "--kind", "lazy", *more)
        assert code == 2 and out == "" and "UNKNOWN_KIND" in err
    code, _, err = run(capsys, "--scene", "nowhere")
    assert code == 2 and "UNKNOWN_SCENE" in err


def test_the_scenes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--scenes")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == list(SCENES)


def test_a_scene_names_the_options_that_play_it(capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed can be typed: it plays the same world."""
    options = SCENES["third"].setup.as_options().split()
    _, typed, _ = run(capsys, *options, "-o", "jsonl")
    _, named, _ = run(capsys, "--scene", "third", "--kind", "holdfast", "-o", "jsonl")
    assert typed == named
