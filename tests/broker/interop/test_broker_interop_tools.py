"""Kafka's own command-line tools on the embedded broker, as they come from Kafka 4.1's jars."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.broker import Broker
from holdfast.testing.members import MemberOptions, MemberProcess
from holdfast.testing.tools import (
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_GROUPS,
    DELETE_RECORDS,
    GET_OFFSETS,
    TOPICS,
    run_tool,
)

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def said(main: str, args: list[str], broker: Broker, stdin: str = "") -> str:
    return run_tool(main, args, broker.bootstrap, stdin=stdin).stdout


def test_topic_command_creates_lists_describes_grows_and_deletes(broker: Broker) -> None:
    topic = ["--topic", "by-tool"]
    assert "Created topic" in said(
        TOPICS, ["--create", *topic, "--partitions", "3", "--config", "retention.ms=1000"], broker
    )
    assert "by-tool" in said(TOPICS, ["--list"], broker).split()
    described = said(TOPICS, ["--describe", *topic], broker)
    assert "PartitionCount: 3" in described and "retention.ms=1000" in described
    assert described.count("Leader: 0") == 3
    said(TOPICS, ["--alter", *topic, "--partitions", "5"], broker)
    assert len(broker.topics.offsets("by-tool")) == 5
    said(TOPICS, ["--delete", *topic], broker)
    assert "by-tool" not in broker.topics.names()


def test_config_command_changes_and_shows_a_topic_s_settings(broker: Broker) -> None:
    broker.topics.create("settings", 1)
    topic = ["--topic", "settings"]

    said(CONFIGS, ["--alter", *topic, "--add-config", "retention.ms=5000,max.message.bytes=9999"], broker)
    assert "retention.ms=5000" in said(CONFIGS, ["--describe", *topic], broker)
    said(CONFIGS, ["--alter", *topic, "--delete-config", "retention.ms"], broker)
    shown = said(CONFIGS, ["--describe", *topic], broker)

    assert "retention.ms=5000" not in shown and "max.message.bytes=9999" in shown
    assert "num.partitions=1" in said(CONFIGS, ["--describe", "--all", "--broker", "0"], broker)


def test_the_console_producer_and_consumer_pass_lines_on(broker: Broker) -> None:
    topic = ["--topic", "lines"]
    said(CONSOLE_PRODUCER, topic, broker, stdin="one\ntwo\nthree\n")

    lines = said(CONSOLE_CONSUMER, [*topic, "--from-beginning", "--max-messages", "3", "--group", "console"], broker)

    assert sorted(lines.split()) == ["one", "three", "two"]
    assert "lines:0:3" in said(GET_OFFSETS, topic, broker)


def test_delete_records_command_moves_the_start(broker: Broker, tmp_path: Path) -> None:
    said(CONSOLE_PRODUCER, ["--topic", "shorter"], broker, stdin="one\ntwo\nthree\n")
    plan = tmp_path / "plan.json"
    plan.write_text('{"partitions": [{"topic": "shorter", "partition": 0, "offset": 2}], "version": 1}')

    assert "low_watermark: 2" in said(DELETE_RECORDS, ["--offset-json-file", str(plan)], broker)
    assert broker.topics.count("shorter") == 1


def test_consumer_group_command_sees_a_living_group(broker: Broker, tmp_path: Path) -> None:
    broker.topics.create("watched", 4)
    said(CONSOLE_PRODUCER, ["--topic", "watched"], broker, stdin="a\nb\nc\n")
    options = MemberOptions(bootstrap=broker.bootstrap, group="living", topic="watched", client_id="watcher")
    with MemberProcess("confluent", options, folder=tmp_path) as member:
        member.wait_records(3)
        member.wait_event("committed")
        group = ["--group", "living"]

        assert "living" in said(CONSUMER_GROUPS, ["--list"], broker).split()
        listed = run_tool(CONSUMER_GROUPS, ["--list", "--state"], broker.bootstrap).table()
        assert {"GROUP": "living", "STATE": "Stable"} in listed
        rows = run_tool(CONSUMER_GROUPS, ["--describe", *group], broker.bootstrap).table()
        assert sorted(row["PARTITION"] for row in rows) == ["0", "1", "2", "3"]
        assert sum(int(row["LOG-END-OFFSET"]) for row in rows) == 3
        assert {row["CLIENT-ID"] for row in rows} == {"watcher"}
        assert {row["HOST"] for row in rows} == {"/127.0.0.1"}
        members = said(CONSUMER_GROUPS, ["--describe", *group, "--members", "--verbose"], broker)
        assert "watcher" in members and "watched:0,1,2,3" in members
        state = said(CONSUMER_GROUPS, ["--describe", *group, "--state"], broker)
        assert "Stable" in state and "(0)" in state
        refused = run_tool(
            CONSUMER_GROUPS,
            ["--reset-offsets", *group, "--topic", "watched", "--to-earliest", "--execute"],
            broker.bootstrap,
            check=False,
        )
        assert "current state is Stable" in refused.stdout + refused.stderr
        member.terminate()


def test_consumer_group_command_resets_and_deletes_offsets_and_groups(broker: Broker) -> None:
    said(CONSOLE_PRODUCER, ["--topic", "again"], broker, stdin="a\nb\nc\nd\n")
    said(CONSOLE_CONSUMER, ["--topic", "again", "--from-beginning", "--max-messages", "4", "--group", "g"], broker)
    target = ["--group", "g", "--topic", "again"]

    def new_offset(*how: str) -> str:
        shown = run_tool(CONSUMER_GROUPS, ["--reset-offsets", *target, *how, "--execute"], broker.bootstrap).table()
        return shown[0]["NEW-OFFSET"]

    assert new_offset("--to-earliest") == "0"
    assert new_offset("--shift-by", "3") == "3"
    assert new_offset("--to-datetime", "2020-01-01T00:00:00.000") == "0"
    assert new_offset("--to-latest") == "4"
    assert new_offset("--to-offset", "2") == "2"
    rows = run_tool(CONSUMER_GROUPS, ["--describe", "--group", "g"], broker.bootstrap).table()
    assert [(row["CURRENT-OFFSET"], row["LAG"]) for row in rows] == [("2", "2")]
    assert "Successful" in said(CONSUMER_GROUPS, ["--delete-offsets", *target], broker)
    assert "successful" in said(CONSUMER_GROUPS, ["--delete", "--group", "g"], broker)
    assert broker.group("g").state == "Dead"
