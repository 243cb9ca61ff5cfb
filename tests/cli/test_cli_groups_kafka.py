"""`holdfast groups` beside Kafka's own tool on a real Kafka: the same groups, the same figures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_world import Commands, fresh
from confluent_kafka import Consumer, KafkaError, KafkaException

from holdfast.testing.kafka import RealKafka
from holdfast.testing.tools import CONSUMER_GROUPS, run_tool
from patience import PATIENCE_S

pytestmark = pytest.mark.kafka
PARTITIONS = 3


@pytest.fixture
def tool(
    kafka: RealKafka, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Iterator[Commands]:
    with Commands(kafka.bootstrap, monkeypatch, capfdbinary) as commands:
        yield commands


class Group:
    """confluent-kafka's consumers of one group, polled by this thread until each has its share."""

    def __init__(self, kafka: RealKafka, topic: str, *settings: dict[str, Any]) -> None:
        self.name = fresh("group")
        common = {"bootstrap.servers": kafka.bootstrap, "group.id": self.name, "auto.offset.reset": "earliest"}
        self._consumers = [Consumer({**common, **each}) for each in settings]
        for consumer in self._consumers:
            consumer.subscribe([topic])
        deadline = time.monotonic() + PATIENCE_S
        read = 0
        while read < 30 or not self._settled():
            assert time.monotonic() < deadline, f"{read} records were read"
            read += sum(consumer.poll(0.05) is not None for consumer in self._consumers)
        for consumer in self._consumers:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._NO_OFFSET:  # it has read nothing, the others read it all
                    raise

    def _settled(self) -> bool:
        shares = [len(consumer.assignment()) for consumer in self._consumers]
        return all(shares) and sum(shares) == PARTITIONS

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()


@pytest.fixture
def topic(tool: Commands) -> str:
    name = fresh("orders")
    tool.fine("topics", "create", name, "--partitions", str(PARTITIONS))
    tool.fine("produce", name, "--rate", "0", "--count", "30", "--keys", "30")
    return name


def theirs(kafka: RealKafka, group: str, *args: str) -> list[dict[str, str]]:
    return run_tool(CONSUMER_GROUPS, ["--describe", "--group", group, *args], kafka.bootstrap).table()


def ours(tool: Commands, group: str, *args: str) -> list[dict[str, str]]:
    header, *rows = (line.split() for line in tool.fine("groups", "describe", group, *args).lines())
    return [dict(zip(header, row, strict=True)) for row in rows]


def same(kafka: RealKafka, tool: Commands, group: str, *args: str) -> None:
    """Every column that Kafka's tool prints has the same values in ours."""
    wanted = theirs(kafka, group, *args)
    columns = set(wanted[0])
    found = [{key: value for key, value in row.items() if key in columns} for row in ours(tool, group, *args)]
    key = sorted(columns)
    assert sorted(found, key=lambda row: [row[one] for one in key]) == sorted(
        wanted, key=lambda row: [row[one] for one in key]
    )


def test_a_classic_group_is_described_as_kafkas_tool_describes_it(kafka: RealKafka, tool: Commands, topic: str) -> None:
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    group = Group(kafka, topic, {**settings, "client.id": "c0", "group.instance.id": "pod-0"}, settings)
    try:
        same(kafka, tool, group.name, "--offsets")
        same(kafka, tool, group.name, "--offsets", "--verbose")
        (static,) = [one for one in ours(tool, group.name, "--members") if one["GROUP-INSTANCE-ID"] != "-"]
        assert (static["GROUP-INSTANCE-ID"], static["CLIENT-ID"]) == ("pod-0", "c0")
        state = tool.fine("groups", "describe", group.name, "--state").lines()[1].split()
        (said,) = run_tool(
            CONSUMER_GROUPS, ["--describe", "--group", group.name, "--state"], kafka.bootstrap
        ).stdout.split("#MEMBERS")[1:]
        assert state[:-1] == said.split() and state[-1] == "yes"
    finally:
        group.close()


def test_a_group_of_the_new_protocol_is_described_too(kafka: RealKafka, tool: Commands, topic: str) -> None:
    group = Group(kafka, topic, {"group.protocol": "consumer", "client.id": "n0"})
    try:
        same(kafka, tool, group.name, "--offsets")
        same(kafka, tool, group.name, "--members", "--verbose")
        (found,) = tool.fine("groups", "describe", group.name, "-o", "json").json()
        assert (found["type"], found["state"], found["assignment_strategy"]) == ("consumer", "Stable", "uniform")
        assert found["group_epoch"] >= 1
        listed = tool.fine("groups", "list", "-o", "json").json()
        assert {"group": group.name, "protocol": "consumer", "type": "Consumer", "state": "Stable"} in listed
        checked = tool.run("groups", "check", group.name, "--for", "0", "-o", "json").json()
        known = {row["setting"]: row["this_group"] for row in checked["low_latency"]}
        assert (known["session.timeout.ms"], known["heartbeat.interval.ms"]) == ("45000", "5000"), "the broker tells"
        assert checked["checklist"][4]["said"] == "the new protocol (KIP-848), uniform"
    finally:
        group.close()


def test_a_reset_does_what_kafkas_tool_would_do_and_files_go_both_ways(
    kafka: RealKafka, tool: Commands, topic: str, tmp_path: Path
) -> None:
    group = Group(kafka, topic, {"client.id": "c0"})
    refused = tool.run("groups", "reset-offsets", group.name, "--to-earliest", "--all-topics", "--execute")
    assert refused.code == 1 and "NON_EMPTY_GROUP" in refused.err
    group.close()
    theirs_too = ["--reset-offsets", "--group", group.name, "--all-topics", "--dry-run"]
    for target in (["--to-earliest"], ["--shift-by", "-2"]):
        wanted = run_tool(CONSUMER_GROUPS, [*theirs_too, *target], kafka.bootstrap).table()
        _, *rows = tool.fine("groups", "reset-offsets", group.name, *target, "--all-topics").lines()
        assert sorted(row.split()[:4] for row in rows) == sorted(list(row.values()) for row in wanted)

    file = tmp_path / "offsets.csv"
    file.write_text(run_tool(CONSUMER_GROUPS, [*theirs_too, "--to-earliest", "--export"], kafka.bootstrap).stdout)
    tool.fine("groups", "import", str(file), "--group", group.name, "--execute")
    assert {one["CURRENT-OFFSET"] for one in theirs(kafka, group.name)} == {"0"}
    tool.fine("groups", "reset-offsets", group.name, "--to-latest", "--all-topics", "--execute")
    tool.fine("groups", "export", group.name, "--to-file", str(file))
    tool.fine("groups", "reset-offsets", group.name, "--to-earliest", "--all-topics", "--execute")
    from_file = ["--reset-offsets", "--group", group.name, "--from-file", str(file), "--execute"]
    run_tool(CONSUMER_GROUPS, from_file, kafka.bootstrap)
    assert {one["LAG"] for one in ours(tool, group.name, "--offsets")} == {"0"}
    tool.fine("groups", "delete-offsets", group.name, "--topic", f"{topic}:0")
    assert len(ours(tool, group.name, "--offsets")) == PARTITIONS - 1
    assert tool.fine("groups", "delete", group.name).lines() == [f"Deleted group {group.name}."]
    assert group.name not in run_tool(CONSUMER_GROUPS, ["--list"], kafka.bootstrap).stdout.split()
