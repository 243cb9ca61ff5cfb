"""`holdfast groups list` and `describe` on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cli_members import Members
from cli_world import Commands, fresh

from holdfast.testing import Broker
from holdfast.wire.api import Api


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


@pytest.fixture
def share_group(broker: Broker) -> Iterator[str]:
    """The broker lists one, as Kafka 4.1 does, and knows no group of that name otherwise."""
    name = fresh("shared")
    listed = {"group_id": name, "protocol_type": "share", "group_state": "Stable", "group_type": "share"}
    fault = broker.faults.change(Api.LIST_GROUPS, lambda body: {**body, "groups": [*body["groups"], listed]})
    yield name
    fault.clear()


def test_a_share_group_is_listed_and_left_out_of_what_is_of_consumers(commands: Commands, share_group: str) -> None:
    """Symptom: one share group in the cluster, and `describe` of all groups ended with 1 for good, `serve` counted a
    failed look every two seconds, and its alert fired. Cause: brokers describe share groups by another request. Rule:
    without a name only groups of consumers are looked at."""
    topic, group = fresh("orders"), fresh("billing")
    commands.fine("produce", topic, stdin=b"one\n")
    commands.fine("consume", topic, "--group", group, "--from-beginning", "--max-messages", "1")

    listed = commands.fine("groups", "list", "-o", "json").json()
    described = commands.fine("groups", "describe", "-o", "json").json()
    watched = commands.fine("groups", "describe", "--watch", "--for", "0", "-o", "json")

    assert {"group": share_group, "protocol": "share", "type": "Share", "state": "Stable"} in listed
    names = {one["group"] for one in described}
    assert group in names and share_group not in names
    assert share_group not in watched.err


@pytest.mark.parametrize(
    "command",
    [
        ["describe"],
        ["check", "--for", "0"],
        ["export"],
        ["reset-offsets", "--to-earliest", "--topic", "orders"],
    ],
)
def test_a_share_group_that_is_named_is_told_as_what_it_is(
    commands: Commands, share_group: str, command: list[str]
) -> None:
    """It was said not to exist, though `list` shows it; and `reset-offsets` said that its first offsets create it."""
    found = commands.run("groups", command[0], share_group, *command[1:])

    assert found.code == 1
    assert f"GROUP_KIND_UNSUPPORTED: The group {share_group} is a share group" in found.err
    assert "kafka-share-groups.sh" in found.err
