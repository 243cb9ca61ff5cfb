"""`holdfast sim` as its users call it: what it prints, and with which code it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cli.main import main
from holdfast.trace import BadLine, read_trace

SCENE = ["--members", "4", "--partitions", "6", "--seed", "7", "--event", "join@4s,leave:c1@8s", "--duration", "12s"]


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code: str | int | None = None
    try:
        main(["sim", *args])
    except SystemExit as ended:
        code = ended.code
    out, err = capsys.readouterr()
    return int(code or 0), out, err


def test_the_scene_has_its_steps_its_timeline_and_its_gaps(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SCENE)
    assert code == 0
    assert "seed 7: 4 members, orders with 6 partitions, 12 s" in out, "the configuration comes first"
    assert "join@4s" in out and "rebalance-started" in out and "because c4-5 joined" in out
    rows = [line for line in out.splitlines() if line.startswith("orders-")]
    assert len(rows) == 6 and all(set(row.split()[1]) <= set("ABCDE·▒") for row in rows)
    assert "A  c0" in out and "gaps: when nobody processed a partition" in out
    assert "paused by rebalances" in out


def test_a_scene_that_ends_within_its_first_batch_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Symptom: batches longer than max.poll.interval.ms seemed to cost no rebalance at all. Cause: a scene lasts a
    minute unless told otherwise, and ended before the first batch did."""
    slow = ["--batch", "6m", "--max-poll", "5m"]
    _, short, _ = run(capsys, *slow)
    _, long, _ = run(capsys, *slow, "--duration", "20m")
    assert "play longer, with --duration" in short
    assert "play longer" not in long and "18 times taken and given back" in long


def test_everything_is_printed_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    _, short, _ = run(capsys, *SCENE)
    _, long, _ = run(capsys, *SCENE, "--all")
    assert "commit-taken" in long and "commit-taken" not in short
    assert "join-sent" in long and "join-sent" not in short


def test_compare_prints_both_protocols_and_the_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--compare", *SCENE)
    assert code == 0
    assert "eager: everybody gives up everything" in out and "cooperative: only what moves is given up" in out
    (row,) = [line for line in out.splitlines() if "taken from a member and given back to it" in line]
    eager, cooperative, holdfast, *_ = (word for word in row.replace("│", " ").split() if word[0].isdigit())
    assert int(eager) > 0 and int(cooperative) == int(holdfast) == 0
    (row,) = [line for line in out.splitlines() if "longest pause by a rebalance" in line]
    words = [word for word in row.replace("│", " ").split() if word[0].isdigit()]
    eager, cooperative, holdfast, first, second = words
    assert float(first) == pytest.approx(float(eager) / float(cooperative), abs=0.1)
    assert float(second) == pytest.approx(float(eager) / float(holdfast), abs=0.1)


def test_compare_plays_eager_and_cooperative_as_other_clients_do(capsys: pytest.CaptureFixture[str]) -> None:
    """It lent holdfast's pokes and marks to both, and cooperative's second round seemed to cost nothing anywhere."""
    _, out, _ = run(capsys, "--compare", *SCENE, "-o", "json")
    answer = json.loads(out)
    assert answer["cooperative"]["rebalanced_longest_ms"] > 2_000, "it waits for a heartbeat"
    assert answer["holdfast"]["rebalanced_longest_ms"] < 500


def test_compare_alone_plays_a_scene_in_which_something_happens(capsys: pytest.CaptureFixture[str]) -> None:
    """README praises `holdfast sim --compare`, and it compared two groups that nobody touched: 0 ms beside 0 ms."""
    code, out, _ = run(capsys, "--compare", "-o", "json")
    answer = json.loads(out)
    assert code == 0
    assert answer["eager"]["gaps"] and answer["cooperative"]["gaps"]
    assert answer["eager"]["needless"] > 0 and answer["cooperative"]["needless"] == 0


def test_compare_as_json_has_the_same_figures(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--compare", *SCENE, "-o", "json")
    answer = json.loads(out)
    assert code == 0
    assert answer["eager"]["needless"] > 0 and answer["cooperative"]["needless"] == 0
    assert answer["cooperative"]["violations"] == []
    assert {gap["cause"] for gap in answer["cooperative"]["gaps"]} <= {"revoked", "left"}


def test_the_trace_comes_as_json_lines_and_is_the_same_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SCENE, "-o", "jsonl")
    bad: list[BadLine] = []
    records = list(read_trace(out.splitlines(), on_bad=bad.append))
    assert code == 0 and bad == [] and len(records) > 100
    assert run(capsys, *SCENE, "-o", "jsonl")[1] == out


def test_static_members_restart_without_a_round(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--static", "--event", "restart:c0@5s+2s", "--duration", "12s", "-o", "json")
    assert json.loads(out)["rounds"] == 1


def test_a_crash_is_over_at_once_and_without_watchdog_and_poke_it_takes_a_session(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A crash in the scene stayed dark for 11 s, and people took that for what they would get."""
    scene = ["--event", "crash:c0@5s", "--duration", "60s", "-o", "json"]
    _, out, _ = run(capsys, *scene)
    assert json.loads(out)["dark_longest_ms"] < 500, "200 ms of it are a batch, 100 ms a listener"
    _, out, _ = run(capsys, *scene, "--without", "watchdog,poke")
    assert 40_000 < json.loads(out)["dark_longest_ms"] < 46_000


def test_batches_longer_than_max_poll_show(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--batch", "6m", "--max-poll", "5m", "--duration", "10m")
    assert code == 0
    assert "no poll for 300000 ms, max.poll.interval.ms is 300000" in out
    assert "member-left" in out and "losing" in out


def test_a_world_of_the_swarm_is_replayed_by_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--world", "3")
    assert code == 0
    assert out.startswith("seed 3: ") and "healed" in out


def test_a_swarm_that_finds_nothing_ends_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--swarm", "--seeds", "3", "--jobs", "1")
    assert code == 0
    assert out.startswith("3 worlds, ") and "every invariant held" in out


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--event", "explode:c0@2s"], "UNKNOWN_EVENT"),
        (["--protocol", "telepathic"], "BAD_PROTOCOL"),
        (["--duration", "soon"], "BAD_TIME"),
        (["--duration", "61m"], "BAD_DURATION"),
        (["--members", "0"], "BAD_SIZE"),
        (["-o", "xml"], "BAD_OUTPUT"),
        (["--without", "magic"], "UNKNOWN_SWITCH"),
        (["--swarm", "--seeds", "0"], "BAD_SWARM"),
        (["--heartbeat", "0ms"], "BAD_TIMEOUT"),
        (["--heartbeat", "0.4ms"], "BAD_TIMEOUT"),
        (["--session", "0s"], "BAD_TIMEOUT"),
        (["--max-poll", "0"], "BAD_TIMEOUT"),
        (["--max-poll", "999999999m"], "BAD_TIMEOUT"),
    ],
)
def test_wrong_use_ends_with_two_and_one_line_of_advice(
    capsys: pytest.CaptureFixture[str], args: list[str], word: str
) -> None:
    code, out, err = run(capsys, *args)
    assert code == 2
    assert word in err and len(err.strip().splitlines()) == 1
    assert out == ""


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--scene", "tick8", "--members", "50"], "--scene brings its own --members."),
        (["--scene", "tick8", "--members", "4"], "--scene brings its own --members."),  # the usual value, but given
        (["--scene", "tick8", "--svg", "-", "--event", "join@1s", "--batch-spread", "0.5"], "--event, --batch-spread."),
        (["--scene", "tick8", "--static", "--protocol", "eager"], "--static, --protocol."),
        (["--world", "3", "--max-poll", "1m"], "--world brings its own --max-poll."),
        (["--swarm", "--seed", "3"], "--swarm brings its own --seed."),
    ],
)
def test_what_a_scene_fixes_is_not_dropped_in_silence(
    capsys: pytest.CaptureFixture[str], args: list[str], named: str
) -> None:
    """`--scene tick8 --members 50` played four members, and whoever read the figures took them for those of fifty."""
    code, out, err = run(capsys, *args)
    assert code == 2 and out == ""
    assert "OPTION_FIXED" in err and named in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--kind", "eager"], "--kind has no effect without --scene or --svg."),
        (["--at", "5s"], "--at has no effect without --svg."),
        (["--seeds", "5"], "--seeds has no effect without --swarm."),
        (["--svg", "-", "--protocol", "eager"], "--protocol would have no effect beside --svg."),
        (["--compare", "--protocol", "eager"], "--protocol would have no effect beside --compare."),
        (["--world", "3", "--svg", "-"], "--svg would have no effect beside --world."),
        (["--swarm", "--scene", "tick8"], "--scene would have no effect beside --swarm."),
    ],
)
def test_what_would_have_no_effect_is_not_dropped_in_silence(
    capsys: pytest.CaptureFixture[str], args: list[str], named: str
) -> None:
    """`--svg F --protocol eager` drew holdfast, and `--svg F --world 3` a scene that nobody had asked for."""
    code, out, err = run(capsys, *args)
    assert code == 2 and out == ""
    assert "OPTION_UNUSED" in err and named in err and len(err.strip().splitlines()) == 1


def test_compare_with_no_events_plays_none(capsys: pytest.CaptureFixture[str]) -> None:
    """The page gives this line for a scene without events."""
    code, out, _ = run(capsys, "--compare", "--event", "", "--duration", "5s", "-o", "json")
    assert code == 0 and json.loads(out)["eager"]["rebalanced_ms"] == 0.0


def test_a_picture_that_can_not_be_written_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It was a traceback. Nothing is wrong with how it was called, so the code is 1."""
    place = tmp_path / "nowhere" / "x.svg"
    code, out, err = run(capsys, *SCENE, "--svg", str(place))
    assert code == 1 and out == ""
    assert err == (
        f"holdfast: FILE_NOT_WRITTEN: {place} can't be written: No such file or directory. "
        "Choose a place that can be written to.\n"
    )


@pytest.mark.parametrize("how", [[], ["--compare"], ["--svg", "-"]])
def test_a_scene_that_takes_too_many_calls_is_refused_and_no_broken_invariant(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    """A heartbeat of a millisecond, say: "I10 was broken", as if the group had a fault. A world of the swarm that spins
    still is a finding."""
    monkeypatch.setattr("holdfast.sim.clock.MAX_CALLS", 200)
    code, out, err = run(capsys, *how)
    assert code == 2 and "TOO_MUCH_TO_PLAY" in err and "shorter time" in err
    assert "I10" not in out + err
    code, out, _ = run(capsys, "--world", "3")
    assert code == 1 and "I10" in out
