"""Moving a group's offsets: shown first, then done, and never by halves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from cli_members import Members
from cli_world import Commands, Ended, fresh

from holdfast.model import ErrorCode
from holdfast.testing import Broker
from holdfast.wire.api import Api
from kept import KEPT
from patience import PATIENCE_S


@pytest.fixture
def topic(broker: Broker) -> str:
    """Two partitions with ten records each, a second apart from 1970 on."""
    name = fresh("orders")
    broker.topics.create(name, partitions=2, configs=KEPT)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(20):
        producer.produce(name, str(number), partition=number % 2, timestamp=1_000 * (number // 2 + 1))
    assert producer.flush(PATIENCE_S) == 0
    return name


@pytest.fixture
def group(commands: Commands, topic: str, tmp_path: Path) -> str:
    """A group that stands at 4 in both partitions."""
    name = fresh("billing")
    file = tmp_path / "start.csv"
    file.write_text(f"{topic},0,4\n{topic},1,4\n")
    commands.fine("groups", "import", str(file), "--group", name, "--execute")
    return name


def committed(commands: Commands, group: str) -> list[int]:
    (found,) = commands.fine("groups", "describe", group, "--offsets", "-o", "json").json()
    return [one["current_offset"] for one in found["offsets"]]


def new_offsets(ended: Ended) -> list[int | None]:
    return [one["new_offset"] for one in ended.json()["offsets"]]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [10, 10]),
        (["--to-current"], [4, 4]),
        (["--to-offset", "7"], [7, 7]),
        (["--shift-by", "-3"], [1, 1]),
        (["--shift-by", "100"], [10, 10]),
        (["--to-datetime", "1970-01-01T00:00:06.000"], [5, 5]),
        (["--by-duration", "PT1H"], [10, 10]),
    ],
)
def test_a_target_is_shown_and_then_reached(
    commands: Commands, topic: str, group: str, target: list[str], expected: list[int]
) -> None:
    args = ["groups", "reset-offsets", group, *target, "--topic", topic, "-o", "json"]

    shown = commands.fine(*args)
    assert new_offsets(shown) == expected and not shown.json()["executed"]
    assert "Add --execute" in shown.err and committed(commands, group) == [4, 4]
    done = commands.fine(*args, "--execute")
    assert done.json()["executed"] and committed(commands, group) == expected


def test_some_partitions_of_a_topic_are_moved_and_the_others_stay(commands: Commands, topic: str, group: str) -> None:
    done = commands.fine("groups", "reset-offsets", group, "--to-latest", "--topic", f"{topic}:1", "--execute")

    assert [line.split()[:4] for line in done.lines()[1:]] == [[group, topic, "1", "10"]]
    assert committed(commands, group) == [4, 10]


def test_a_group_that_somebody_is_in_is_refused(commands: Commands, broker: Broker) -> None:
    members = Members(broker.bootstrap)
    broker.topics.create(members.topic, partitions=4)
    members.add("cooperative-sticky", "c0")
    try:
        for args in (["reset-offsets", members.group, "--to-earliest", "--topic", members.topic, "--execute"],):
            refused = commands.run("groups", *args)
            assert (refused.code, refused.out) == (1, b"")
            assert "NON_EMPTY_GROUP" in refused.err and "Stable with 1 member," in refused.err
        kept = commands.run("groups", "delete", members.group)
        assert kept.code == 1 and "Stop its members first" in kept.err
        forgotten = commands.run("groups", "delete-offsets", members.group, "--topic", members.topic)
        assert forgotten.code == 1
    finally:
        members.stop()


def test_a_member_that_joins_after_the_look_is_not_overruled(
    commands: Commands, topic: str, group: str, broker: Broker
) -> None:
    """Between the look and the commit somebody joined: the coordinator refuses, and that is told once for the group."""
    fault = broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID)
    try:
        refused = commands.run("groups", "reset-offsets", group, "--to-latest", "--topic", topic, "--execute")
    finally:
        fault.clear()

    assert refused.code == 1 and refused.err.count("UNKNOWN_MEMBER_ID") == 1
    assert f"2 of 2 offsets of group {group} were not set" in refused.err and "Stop its members" in refused.err
    assert refused.out.decode().count("UNKNOWN_MEMBER_ID") == 2
    assert committed(commands, group) == [4, 4]


def test_if_one_partition_can_not_be_moved_none_is(commands: Commands, topic: str, group: str, broker: Broker) -> None:
    """Half a reset is worse than none: one would have to find out which half."""

    def leaderless(body: Any) -> Any:
        topics = [
            {**one, "partitions": [{**p, "leader_id": -1} if p["partition_index"] else p for p in one["partitions"]]}
            for one in body["topics"]
        ]
        return {**body, "topics": topics}

    fault = broker.faults.change(Api.METADATA, leaderless)
    try:
        refused = commands.run("groups", "reset-offsets", group, "--to-latest", "--topic", topic, "--execute")
    finally:
        fault.clear()

    assert refused.code == 1 and "RESET_INCOMPLETE" in refused.err and "LEADER_NOT_AVAILABLE" in refused.out.decode()
    assert committed(commands, group) == [4, 4]


def test_offsets_go_out_to_a_file_and_come_back(commands: Commands, topic: str, group: str, tmp_path: Path) -> None:
    file = tmp_path / "kept.csv"
    commands.fine("groups", "export", group, "--to-file", str(file))
    assert file.read_text() == f"{topic},0,4\n{topic},1,4\n"
    assert commands.fine("groups", "export", group).out.decode() == file.read_text()
    commands.fine("groups", "reset-offsets", group, "--to-latest", "--all-topics", "--execute")

    shown = commands.fine("groups", "reset-offsets", group, "--from-file", str(file), "-o", "json")
    assert new_offsets(shown) == [4, 4] and committed(commands, group) == [10, 10]
    commands.fine("groups", "import", "-", "--group", group, "--execute", stdin=file.read_bytes())
    assert committed(commands, group) == [4, 4]


def test_several_groups_share_a_file(commands: Commands, topic: str, group: str, tmp_path: Path) -> None:
    other, file = fresh("mail"), tmp_path / "both.csv"
    commands.fine("groups", "import", "-", "--group", other, "--execute", stdin=f"{topic},0,2\n".encode())

    commands.fine("groups", "export", group, other, "--to-file", str(file))
    commands.fine("groups", "delete", group, other)
    assert commands.run("groups", "describe", group).code == 1
    back = commands.fine("groups", "import", str(file), "--execute")
    assert back.err.count("does not exist: its first offsets create it") == 2
    assert (committed(commands, group), committed(commands, other)) == ([4, 4], [2])


def test_what_does_not_change_is_not_written_and_keeps_its_metadata(
    commands: Commands, topic: str, broker: Broker
) -> None:
    name = fresh("billing")
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})
    consumer.commit(offsets=[ck.TopicPartition(topic, 0, 4, "checkpoint-7")], asynchronous=False)
    consumer.close()

    done = commands.fine("groups", "reset-offsets", name, "--to-offset", "4", "--topic", topic, "--execute")
    assert "1 of 2 offsets were changed" in done.err

    kept = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})
    (first, second) = kept.committed([ck.TopicPartition(topic, number) for number in (0, 1)], timeout=60)
    kept.close()
    assert (first.offset, first.metadata, second.offset) == (4, "checkpoint-7", 4)


def test_offsets_of_one_topic_are_forgotten(commands: Commands, topic: str, group: str) -> None:
    gone = commands.fine("groups", "delete-offsets", group, "--topic", f"{topic}:0", "-o", "json").json()
    assert gone == [{"topic": topic, "partition": 0, "status": "Successful"}]
    assert committed(commands, group) == [4]
    again = commands.run("groups", "delete-offsets", group, "--topic", f"{topic}:0")
    assert again.code == 1 and "NOTHING_TO_RESET" in again.err
    some = commands.run("groups", "delete-offsets", group, "--topic", f"{topic}:1,99", "--topic", "ordres")
    assert some.code == 1 and f"OFFSET_MISSING: The group {group} has no offset of {topic}:99, ordres." in some.err


def test_a_topic_or_group_that_is_not_there_changes_nothing(commands: Commands, topic: str, group: str) -> None:
    nowhere = commands.run("groups", "reset-offsets", group, "--to-latest", "--topic", "nothing", "--execute")
    assert nowhere.code == 1 and "There is no topic nothing" in nowhere.err
    nobody = commands.run("groups", "reset-offsets", "nobody", "--to-latest", "--all-topics", "--execute")
    assert nobody.code == 1 and "NOTHING_TO_RESET" in nobody.err and "does not exist" in nobody.err
    assert "There is no group nobody" in commands.run("groups", "delete", "nobody").err
    assert commands.run("groups", "export", "nobody").code == 1


@pytest.mark.parametrize(
    "args",
    [
        ["reset-offsets", "g"],
        ["reset-offsets", "g", "--to-earliest"],
        ["reset-offsets", "g", "--to-earliest", "--to-latest", "--all-topics"],
        ["reset-offsets", "g", "--to-earliest", "--all-topics", "--topic", "t"],
        ["reset-offsets", "g", "--from-file", "x", "--topic", "t"],
        ["reset-offsets", "g", "--to-datetime", "soon", "--all-topics"],
        ["reset-offsets", "g", "--by-duration", "1h", "--all-topics"],
        ["reset-offsets", "g", "--to-offset", "-1", "--all-topics"],
        ["reset-offsets", "g", "--to-earliest", "--topic", "t:x"],
        ["delete-offsets", "g"],
        ["delete"],
        ["export"],
    ],
)
def test_wrong_use_ends_with_2_and_says_why(commands: Commands, args: list[str]) -> None:
    refused = commands.run("groups", *args)

    assert (refused.code, refused.out) == (2, b"")
    assert refused.err and "Traceback" not in refused.err


@pytest.mark.parametrize("content", [b"", b"no,offsets\n", b"\xff\xfe,0,1\n"])
def test_a_file_that_holds_no_offsets_is_refused(commands: Commands, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(content)

    refused = commands.run("groups", "import", str(file), "--group", "g", "--execute")

    assert refused.code == 1 and "OFFSETS_FILE_" in refused.err and "Traceback" not in refused.err
