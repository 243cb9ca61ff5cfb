"""`holdfast groups list` and `describe` on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cli_members import PARTITIONS, Members
from cli_world import Commands, fresh

from holdfast.testing import Broker


@pytest.fixture
def members(broker: Broker) -> Iterator[Members]:
    made = Members(broker.bootstrap)
    broker.topics.create(made.topic, PARTITIONS)
    try:
        yield made
    finally:
        made.stop()


def test_a_living_group_is_listed_and_described(commands: Commands, members: Members) -> None:
    members.add("cooperative-sticky", "c0")
    members.add("cooperative-sticky", "c1")
    commands.fine("produce", members.topic, "--rate", "0", "--count", "20")

    rows = [line.split() for line in commands.fine("groups", "list").lines()]
    assert rows[0] == ["GROUP", "PROTOCOL", "TYPE", "STATE"]
    assert [members.group, "consumer", "Classic", "Stable"] in rows
    (found,) = commands.fine("groups", "describe", members.group, "-o", "json").json()
    assert (found["state"], found["can_process"], found["member_count"]) == ("Stable", "yes", 2)
    assert sum(one["log_end_offset"] for one in found["offsets"]) == 20
    assert sorted(one["client_id"] for one in found["members"]) == ["c0", "c1"]
    lines = commands.fine("groups", "describe", members.group).lines()
    assert [line.split()[1] for line in lines if line.startswith("GROUP")] == ["COORDINATOR", "CONSUMER-ID", "TOPIC"]
    only = commands.fine("groups", "describe", members.group, "--members", "--verbose").lines()
    assert len(only) == 3 and f"{members.topic}:" in only[1]


def test_each_of_several_groups_is_answered_for_itself(commands: Commands) -> None:
    topic, group = fresh("orders"), fresh("billing")
    commands.fine("produce", topic, stdin=b"one\n")
    commands.fine("consume", topic, "--group", group, "--from-beginning", "--max-messages", "1")

    found = commands.run("groups", "describe", group, "nobody", "--state")

    assert found.code == 1
    assert found.lines()[1].split()[0] == group and "Empty" in found.lines()[1]
    assert "holdfast: GROUP_ID_NOT_FOUND: There is no group nobody." in found.err


def test_groups_are_listed_by_state(commands: Commands) -> None:
    topic, group = fresh("orders"), fresh("billing")
    commands.fine("produce", topic, stdin=b"one\n")
    commands.fine("consume", topic, "--group", group, "--from-beginning", "--max-messages", "1")

    empty = commands.fine("groups", "list", "--state", "empty", "-o", "json").json()
    stable = commands.fine("groups", "list", "--state", "Stable", "-o", "json").json()

    assert {"group": group, "protocol": "consumer", "type": "Classic", "state": "Empty"} in empty
    assert group not in [one["group"] for one in stable]
