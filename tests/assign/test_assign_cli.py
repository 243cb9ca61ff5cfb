"""`holdfast assign`: one case a line in, one answer a line out."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str, text: bytes = b""
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    with pytest.raises(SystemExit) as left:
        main(["assign", *args])
    return int(left.value.code or 0), capsys.readouterr().out


def answers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *cases: object) -> list[Any]:
    lines = [case if isinstance(case, bytes) else json.dumps(case).encode() for case in cases]
    code, out = run(monkeypatch, capsys, "--jsonl", text=b"\n".join(lines) + b"\n")
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def case(strategy: str, **more: Any) -> dict[str, Any]:
    return {"strategy": strategy, **more}


def test_the_example_of_the_design_is_answered_as_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = {"topics": ["orders"], "owned": {"orders": [0, 1]}, "generation": 7, "instance_id": None, "rack": "a"}
    topics = {"orders": 6, "pay": {"partitions": 2, "racks": [["a", "b"], ["b"]]}}
    (answer,) = answers(monkeypatch, capsys, case("cooperative-sticky", topics=topics, members={"c0": one}))
    everything = {"c0": {"orders": [0, 1, 2, 3, 4, 5]}}
    assert answer == {"assignment": everything, "target": everything, "revoked": [], "moved": [], "rounds": 1}


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "sticky", "range", "roundrobin"])
def test_a_join_is_told_in_moves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], strategy: str
) -> None:
    members = {"c1": {"topics": ["t"], "owned": {"t": [0, 1]}, "generation": 1}, "c2": {"topics": ["t"]}}
    (answer,) = answers(monkeypatch, capsys, case(strategy, topics={"t": 2}, members=members))
    assert answer["target"] == {"c1": {"t": [0]}, "c2": {"t": [1]}}
    assert answer["moved"] == [{"topic": "t", "partition": 1, "from": "c1", "to": "c2"}]
    assert answer["revoked"] == [{"topic": "t", "partition": 1, "from": "c1"}]
    cooperative = strategy == "cooperative-sticky"
    assert answer["assignment"]["c2"] == ({} if cooperative else {"t": [1]})
    assert answer["rounds"] == (2 if cooperative else 1)


def test_malformed_lines_are_answered_and_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = case("range", topics={"t": 1}, members={"c": {"topics": ["t"]}})
    topics: list[Any] = [[], {"t": -1}, {"t": 1.5}, {"t": True}, {"t": 2**31}, {"t": 2**30}]
    no_racks: list[Any] = [[[], []], [[1]], 7]
    topics += [{"t": {"partitions": 1, "racks": racks}} for racks in no_racks]
    people: list[Any] = [[], {}, {"topics": "t"}, {"topics": [1]}, {"topics": ["\ud800"]}]
    people += [{"topics": [], "rack": 1}, {"topics": [], "generation": "x"}, {"topics": [], "instance_id": 1}]
    people += [{"topics": [], "owned": owned} for owned in ([1], {"t": 1}, {"t": [2**31]}, {"t": ["0"]})]
    broken: list[Any] = [b"not json", b"\xff\xfe", b"[" * 100_000, [], 5, None, {}]
    broken += [case("nope", topics={}, members={}), {"strategy": 7, "topics": {}, "members": {}}]
    broken += [case("range", topics=given, members={}) for given in topics]
    broken += [case("range", topics={}, members={"c": given}) for given in people]
    found = answers(monkeypatch, capsys, *[item for one in broken for item in (one, good)])
    assert len(found) == 2 * len(broken)
    for bad, fine in zip(found[::2], found[1::2], strict=True):
        assert set(bad) == {"error"}
        assert set(bad["error"]) == {"code", "message"}
        assert fine["target"] == {"c": {"t": [0]}}


def test_claims_that_make_no_sense_are_dropped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = {"topics": ["t"], "owned": {"t": [0, -4, 9], "gone": [1]}, "generation": 1}
    (answer,) = answers(
        monkeypatch, capsys, case("cooperative-sticky", topics={"t": 1}, members={"c": one}), b"", b"  "
    )
    assert answer["assignment"] == {"c": {"t": [0]}}
    assert answer["revoked"] == [
        {"topic": "gone", "partition": 1, "from": "c"},
        {"topic": "t", "partition": 9, "from": "c"},
    ]


def test_one_case_is_shown_as_tables_or_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    members = {"c1": {"topics": ["t"], "owned": {"t": [0, 1, 2, 3]}, "generation": 1}, "c2": {"topics": ["t"]}}
    text = json.dumps(case("cooperative-sticky", topics={"t": 4}, members=members)).encode()
    code, out = run(monkeypatch, capsys, text=text)
    assert code == 0
    assert "SETTLES WITH" in out
    assert "t 0-1" in out
    assert "2 moved, 2 revoked" in out
    path = tmp_path / "case.json"
    path.write_bytes(text)
    code, out = run(monkeypatch, capsys, str(path), "-o", "json")
    assert (code, json.loads(out)["rounds"]) == (0, 2)
    code, out = run(monkeypatch, capsys, "--jsonl", str(path))
    assert (code, json.loads(out)["rounds"]) == (0, 2)


def test_wrong_use_ends_with_2_and_a_malformed_case_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, capsys, "/does/not/exist")[0] == 2
    assert run(monkeypatch, capsys, "-o", "yaml", text=b"{}")[0] == 2
    code, out = run(monkeypatch, capsys, text=b"{")
    assert code == 1
    assert json.loads(out)["error"]["code"] == "MALFORMED_JSON"
