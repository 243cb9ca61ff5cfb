"""`holdfast bench assign`: the small form runs, and a missed goal is told."""

from __future__ import annotations

import json

import pytest

from holdfast.bench import assign as bench
from holdfast.bench.assign_worker import NOTHING, joining, load, prepare, wanted
from holdfast.cli.main import main
from holdfast.model import TopicPartition
from holdfast.model.consumer_protocol import decode_assignment, decode_subscription


def test_cases_are_written_and_read_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bench")
    scale = bench.Scale("differing", topics=6, partitions=4, members=5, differing=True)
    prepare(scale, folder)
    view, fresh = load(folder / "fresh")
    assert sum(topic.partitions for topic in view.topics.values()) == 24
    assert len(fresh) == 5
    _, joins = load(folder / "join")
    _, leaves = load(folder / "leave")
    assert (len(joins), len(leaves)) == (6, 4)
    owned = [part for one in joins for part in decode_subscription(one.metadata).owned]
    assert len(owned) == len(set(owned)) == 24
    people = wanted(scale)
    assert all(set(decode_subscription(one.metadata).topics) == set(people[one.member_id]) for one in joins)


def test_an_assignment_becomes_a_claim_byte_for_byte() -> None:
    assert decode_assignment(NOTHING).partitions == frozenset()
    given = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\3" + b"\0\0\0\4" + b"\xff\xff\xff\xff"
    claim = decode_subscription(joining(["t"], given, 7, {}))
    assert claim.owned == {TopicPartition("t", 3), TopicPartition("t", 4)}
    assert (claim.topics, claim.generation, claim.rack) == (("t",), 7, None)


@pytest.mark.parametrize(("warm", "peak", "reached"), [(1.0, 100.0, True), (1.01, 100.0, False), (0.1, 2049.0, False)])
def test_a_goal_is_reached_by_speed_and_memory(warm: float, peak: float, reached: bool) -> None:
    ours = {"cold_s": 9.0, "warm_s": warm, "peak_mb": peak, "moved": 3.0}
    result = bench.judged_case(bench.FULL[0], bench.Goal("equal", "join", 5), ours, (20.0, 5.0))
    assert result["reached"] is reached


def test_a_missed_goal_ends_with_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ours = {"cold_s": 9.0, "warm_s": 2.0, "peak_mb": 50.0, "moved": 3.0}
    case = bench.judged_case(bench.FULL[0], bench.Goal("equal", "join", 5), ours, (20.0, 5.0))
    monkeypatch.setattr(bench, "run", lambda **_: {"cases": [case], "memory_goal_mb": 2048, "full_size": True})
    for output in ("table", "json"):
        with pytest.raises(SystemExit) as left:
            main(["bench", "assign", "-o", output])
        assert left.value.code == 1
        out = capsys.readouterr().out
        assert ("MISSED" in out) if output == "table" else (json.loads(out)["cases"][0]["times_faster"] == 2.5)


@pytest.mark.slow
@pytest.mark.java
def test_the_small_form_runs_beside_java() -> None:
    result = bench.run(quick=True, repeats=1)
    assert [(case["group"], case["case"]) for case in result["cases"]] == [(g.scale, g.case) for g in bench.GOALS]
    assert all(case["java_warm_s"] > 0 and case["holdfast_warm_s"] > 0 for case in result["cases"])
    assert {case["case"]: case["moved"] for case in result["cases"] if case["group"] == "equal"} == {
        "fresh": 0, "join": 99, "leave": 0,
    }  # fmt: skip
