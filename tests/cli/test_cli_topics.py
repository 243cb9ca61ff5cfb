"""`holdfast topics` on the embedded broker: what it prints, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_world import Commands, fresh

from holdfast.cli import common
from holdfast.testing import Broker


def test_a_topic_is_created_listed_described_and_deleted(commands: Commands) -> None:
    name = fresh("orders")

    created = commands.fine("topics", "create", name, "--partitions", "2", "--config", "retention.ms=3600000")
    assert created.lines() == [f"Created topic {name}."]
    assert name in commands.fine("topics", "list").lines()
    (topic, *partitions) = commands.fine("topics", "describe", name).lines()
    assert topic.startswith(f"Topic: {name}\tTopicId: ")
    assert topic.endswith("\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=3600000")
    assert partitions == [
        f"\tTopic: {name}\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0",
        f"\tTopic: {name}\tPartition: 1\tLeader: 0\tReplicas: 0\tIsr: 0",
    ]
    assert commands.fine("topics", "delete", name).lines() == [f"Deleted topic {name}."]
    assert name not in commands.fine("topics", "list").lines()


def test_json_says_the_same(commands: Commands) -> None:
    name = fresh("orders")

    created = commands.fine("topics", "create", name, "--partitions", "2", "-o", "json")
    assert created.json() == {"created": True, "partitions": 2, "topic": name}
    assert name in commands.fine("topics", "list", "-o", "json").json()
    (topic,) = commands.fine("topics", "describe", name, "-o", "json").json()
    assert len(topic.pop("topic_id")) == 22
    assert topic == {
        "topic": name,
        "partition_count": 2,
        "replication_factor": 1,
        "configs": {},
        "partitions": [
            {"partition": 0, "leader": 0, "replicas": [0], "isr": [0]},
            {"partition": 1, "leader": 0, "replicas": [0], "isr": [0]},
        ],
    }
    deleted = commands.fine("topics", "delete", name, "-o", "json")
    assert deleted.json() == {"deleted": [name], "errors": {}}


def test_a_topic_that_is_there_is_refused_unless_that_is_fine(commands: Commands) -> None:
    name = fresh("orders")
    commands.fine("topics", "create", name, "--partitions", "3")

    again = commands.run("topics", "create", name)
    assert (again.code, again.out) == (1, b"")
    assert again.err == (
        f"holdfast: TOPIC_ALREADY_EXISTS: The topic {name} exists already. "
        "Use it, choose another name, or give --if-not-exists.\n"
    )
    fine = commands.fine("topics", "create", name, "--if-not-exists", "-o", "json")
    assert fine.json() == {"created": False, "partitions": 3, "topic": name}
    assert commands.fine("topics", "create", name, "--if-not-exists").lines() == [f"Topic {name} is there already."]


def test_each_of_several_names_is_answered_for_itself(commands: Commands) -> None:
    first, second = sorted([fresh("orders"), fresh("orders")])
    for name in (first, second):
        commands.fine("topics", "create", name)

    described = commands.run("topics", "describe", first, "nobody")
    assert described.code == 1
    assert described.lines()[0].startswith(f"Topic: {first}\t")
    assert "UNKNOWN_TOPIC_OR_PARTITION: There is no topic nobody." in described.err
    deleted = commands.run("topics", "delete", first, "nobody", second)
    assert deleted.code == 1
    assert deleted.lines() == [f"Deleted topic {first}.", f"Deleted topic {second}."]
    assert "There is no topic nobody." in deleted.err
    assert commands.fine("topics", "delete", "nobody", "--if-exists").out == b""


@pytest.mark.parametrize(
    "args",
    [
        ["create"],
        ["create", "t", "--partitions", "0"],
        ["create", "t", "--replication-factor", "0"],
        ["create", "t", "--config", "retention.ms"],
        ["create", "t", "--config", "=5"],
        ["list", "-o", "yaml"],
        ["delete"],
        ["shout"],
    ],
)
def test_wrong_use_ends_with_2_and_says_why(commands: Commands, args: list[str]) -> None:
    refused = commands.run("topics", *args)

    assert (refused.code, refused.out) == (2, b"")
    assert refused.err and "Traceback" not in refused.err


@pytest.mark.parametrize("args", [["create", "no/slash"], ["create", "t", "--config", "colour=red"]])
def test_what_the_broker_refuses_ends_with_1_in_its_words(commands: Commands, args: list[str]) -> None:
    refused = commands.run("topics", *args)

    assert (refused.code, refused.out) == (1, b"")
    assert "The broker says: " in refused.err and refused.err.count("\n") == 1


def test_replicas_are_told_by_rack_where_there_are_racks(commands: Commands) -> None:
    with Broker(racks=("north", "south")) as racks:
        at = ("--bootstrap-server", racks.bootstrap)
        commands.fine("topics", "create", "orders", "--partitions", "2", "--replication-factor", "2", *at)

        lines = commands.fine("topics", "describe", *at).lines()
        (topic,) = commands.fine("topics", "describe", "-o", "json", *at).json()

    assert lines[1:] == [
        "\tTopic: orders\tPartition: 0\tLeader: 0\tReplicas: 0,1\tIsr: 0,1\tRacks: north,south",
        "\tTopic: orders\tPartition: 1\tLeader: 1\tReplicas: 1,0\tIsr: 1,0\tRacks: south,north",
    ]
    assert [one["racks"] for one in topic["partitions"]] == [["north", "south"], ["south", "north"]]


def test_the_option_wins_over_the_file_and_the_file_over_the_environment(
    commands: Commands, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    nowhere = "127.0.0.1:1"
    file.write_text(f"bootstrap.servers={nowhere}\ndefault.api.timeout.ms=200\n")

    commands.fine("topics", "list", "--command-config", str(file), "--bootstrap-server", broker.bootstrap)
    lost = commands.run("topics", "list", "--command-config", str(file))
    assert (lost.code, lost.err.count("\n")) == (1, 1)
    assert "LOOKUP_TIMED_OUT" in lost.err and nowhere in lost.err
    file.write_text(f"bootstrap.servers={broker.bootstrap}\n")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", nowhere)
    commands.fine("topics", "list", "--command-config", str(file))


def test_no_broker_at_all_is_wrong_use(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS")

    refused = commands.run("topics", "list")

    assert refused.code == 2
    assert "BOOTSTRAP_MISSING" in refused.err and "--bootstrap-server" in refused.err


def test_an_unreadable_configuration_is_one_line(commands: Commands, tmp_path: Path) -> None:
    refused = commands.run("topics", "list", "--command-config", str(tmp_path / "nothing"))

    assert refused.code == 1
    assert refused.err.startswith("holdfast: CONFIG_UNREADABLE: ") and refused.err.count("\n") == 1


def test_a_server_that_is_not_there_is_told_after_two_seconds_and_not_after_ten(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command said nothing for ten seconds, though "Connection refused" was known after none of them; and at the
    end `topics create` said "nobody answered", because the look-up within its look-up had had the whole time."""
    monkeypatch.setattr(common, "SILENCE_S", 0.1)
    quick = tmp_path / "client.properties"
    quick.write_text("default.api.timeout.ms=700\n")

    for args in (["list"], ["create", "x"]):
        lost = commands.run("topics", *args, "--bootstrap-server", "127.0.0.1:1", "--command-config", str(quick))

        told, ended = lost.err.splitlines()
        assert told == "holdfast: No connection to 127.0.0.1:1: Connection refused. Still trying, for 0.7 s in all."
        assert "LOOKUP_TIMED_OUT" in ended and "127.0.0.1:1: Connection refused" in ended and lost.code == 1


def test_an_address_that_is_none_is_wrong_use(commands: Commands) -> None:
    refused = commands.run("topics", "list", "--bootstrap-server", "localhost:no")

    assert refused.code == 2 and "BOOTSTRAP_INVALID" in refused.err


def test_a_user_without_the_right_is_told_which_it_is(commands: Commands, tmp_path: Path) -> None:
    """ "The broker's log tells more", it said, and nobody said which right was missing."""
    with Broker(users={"billing": ("x", ["read:topic:orders"])}) as guarded:
        login = _login(tmp_path, "billing", "x")
        refused = commands.run(
            "topics", "create", "x", "--bootstrap-server", guarded.bootstrap, "--command-config", login
        )
        wrong = commands.run(
            "topics", "list", "--bootstrap-server", guarded.bootstrap, "--command-config", _login(tmp_path, "eve", "x")
        )

    assert "No rule of this user allows create:topic:x" in refused.err and "Ask for the right" in refused.err
    assert wrong.err.count("The login failed") == 1 and wrong.code == 1


def _login(folder: Path, user: str, password: str) -> str:
    file = folder / f"{user}.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f"sasl.username={user}\nsasl.password={password}\n"
    )
    return str(file)
