"""What is told of offsets that were moved or deleted, above all when only some were."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer

from holdfast.cli import groups_deleted, groups_moved
from holdfast.cli.common import Output
from holdfast.cli.groups_moved import Outcome
from holdfast.model import ErrorCode, TopicPartition
from holdfast.net import group_offsets
from holdfast.net.admin import Admin
from holdfast.net.errors import BrokerError, NetError, disconnected
from holdfast.observe.resetting import Move

AT = TopicPartition("orders", 0)
PLACES = [TopicPartition("orders", number) for number in range(4)]
CLUSTER: Any = None
"""Nobody asks it: the commit is replaced."""

Answer = NetError | None


def moved(group: str, *, still: int = 0) -> Outcome:
    """Four partitions go from 4 to 10, and so many more stay."""
    moves = {at: Move(before=4, after=10, end=10) for at in PLACES}
    moves |= {TopicPartition("quiet", number): Move(before=4, after=4, end=10) for number in range(still)}
    return Outcome(group=group, moves=moves, existed=True)


def commits(monkeypatch: pytest.MonkeyPatch, *script: Answer) -> list[str]:
    """Each request's fate in turn: None is written, an error is raised. Which groups were tried."""
    tried: list[str] = []

    async def commit(self: Admin, group: str, offsets: Mapping[TopicPartition, Any]) -> dict[TopicPartition, Answer]:
        tried.append(group)
        if (error := script[len(tried) - 1]) is not None:
            raise error
        return dict.fromkeys(offsets)

    monkeypatch.setattr(Admin, "commit", commit)
    return tried


def executed(*outcomes: Outcome) -> list[Outcome]:
    return asyncio.run(groups_moved.written(CLUSTER, list(outcomes), execute=True))


def test_a_byte_order_mark_is_no_part_of_the_first_groups_name(tmp_path: Path) -> None:
    """Excel saves CSV with a mark in front. The first line's offset went to a new group, its name with the mark."""
    file = tmp_path / "kept.csv"
    file.write_bytes(b"\xef\xbb\xbfbilling,orders,0,4\n")

    assert groups_moved.read_file(file, None) == {"billing": {AT: 4}}


def test_what_was_written_before_a_request_failed_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second request of the second group is lost. There was the error and nothing else: nobody could know that
    six offsets had moved."""
    monkeypatch.setattr(group_offsets, "COMMIT_AT_ONCE", 2)
    tried = commits(monkeypatch, None, None, None, disconnected("b:9092", "reset"))

    outcomes = executed(moved("billing", still=1), moved("mail"), moved("pay"))
    with pytest.raises(typer.Exit) as ended:
        groups_moved.show(outcomes, execute=True, output=Output.JSON)

    shown, said = capsys.readouterr()
    found = json.loads(shown)
    statuses = {
        group: [one["status"] for one in found["offsets"] if one["group"] == group]
        for group in ("billing", "mail", "pay")
    }
    assert ended.value.exit_code == 1 and found["executed"] is False
    assert statuses["billing"] == ["Successful"] * 4 + ["Unchanged"]
    assert statuses["mail"] == ["Successful"] * 2 + ["DISCONNECTED"] * 2
    assert statuses["pay"] == ["DISCONNECTED"] * 4
    assert tried == ["billing", "billing", "mail", "mail"], "nobody answers, so the third is not waited for"
    assert said.count("DISCONNECTED") == 2 and "6 of 13 offsets were changed." in said
    assert "2 of 4 offsets of group mail were not set, or it is not known" in said


def test_an_error_of_one_group_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "No.")
    commits(monkeypatch, refused, None)

    first, second = executed(moved("billing"), moved("mail"))

    assert set(first.statuses.values()) == {"GROUP_AUTHORIZATION_FAILED"}
    assert set(second.statuses.values()) == {"Successful"}


def test_a_partition_that_the_answer_leaves_out_is_not_called_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async def commit(self: Admin, group: str, offsets: Mapping[TopicPartition, Any]) -> dict[TopicPartition, Answer]:
        return dict.fromkeys(PLACES[1:])

    monkeypatch.setattr(Admin, "commit", commit)

    (outcome,) = executed(moved("billing"))

    assert outcome.statuses[PLACES[0]] == "UNKNOWN_SERVER_ERROR" and list(outcome.refused) == PLACES[:1]


def test_without_execute_there_is_no_status(capsys: pytest.CaptureFixture[str]) -> None:
    groups_moved.show([moved("billing")], execute=False, output=Output.JSON)

    found = json.loads(capsys.readouterr().out)
    assert found["executed"] is False and all("status" not in one for one in found["offsets"])


def test_a_topic_in_use_is_told_once_with_a_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Sixteen partitions were sixteen lines, and none of them named the group or what to do."""
    verdicts = {at: BrokerError(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "No.") for at in PLACES}

    with pytest.raises(typer.Exit):
        groups_deleted.show_deleted("billing", verdicts, [], output=Output.TABLE)

    (line,) = capsys.readouterr().err.splitlines()
    assert "GROUP_SUBSCRIBED_TO_TOPIC: 4 of 4 offsets of group billing were not deleted" in line
    assert "subscribe to orders. Stop them" in line


def test_what_was_named_and_had_no_offset_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A slip in a topic's name was "Successful", for the other topic's sake."""
    with pytest.raises(typer.Exit) as ended:
        groups_deleted.show_deleted("billing", {AT: None}, [("orders", 99), ("ordres", None)], output=Output.JSON)

    shown, said = capsys.readouterr()
    assert [(one["topic"], one["partition"], one["status"]) for one in json.loads(shown)] == [
        ("orders", 0, "Successful"),
        ("orders", 99, "OFFSET_MISSING"),
        ("ordres", None, "OFFSET_MISSING"),
    ]
    assert ended.value.exit_code == 1 and "The group billing has no offset of orders:99, ordres." in said
