"""The same commands on a real Kafka, beside its own tools."""

from __future__ import annotations

import re

import pytest
from cli_world import Commands, fresh

from holdfast.testing.kafka import RealKafka
from holdfast.testing.tools import TOPICS, run_tool


@pytest.mark.kafka
def test_topics_produce_and_consume_work_on_a_real_kafka(
    kafka: RealKafka, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    topic, group = fresh("tour"), fresh("tour-group")
    with Commands(kafka.bootstrap, monkeypatch, capfdbinary) as commands:
        commands.fine("topics", "create", topic, "--partitions", "3", "--config", "retention.ms=3600000")
        ours = commands.fine("topics", "describe", topic).lines()
        theirs = run_tool(TOPICS, ["--describe", "--topic", topic], kafka.bootstrap).stdout.splitlines()
        assert ours[0].partition("\tConfigs: ")[0] == theirs[0].partition("\tConfigs: ")[0]
        assert "retention.ms=3600000" in ours[0]
        assert ours[1:] == [re.sub(r"\s*\tElr:.*", "", line) for line in theirs[1:]]

        sent = commands.fine("produce", topic, "--rate", "0", "--count", "500", "--compression", "zstd", "-o", "json")
        assert (sent.json()["acknowledged"], sent.json()["failed"]) == (500, 0)
        read = ("consume", topic, "--from-beginning", "--max-messages")
        assert len(commands.fine(*read, "500", "--print", "key,partition,offset,timestamp").lines()) == 500
        first = commands.fine(*read, "200", "--group", group, "--print", "partition,offset").lines()
        rest = commands.fine(*read, "300", "--group", group, "--print", "partition,offset").lines()
        assert len({line.split("\t{")[0] for line in first + rest}) == 500, "the group went on where it stopped"

        refused = commands.run("topics", "create", topic)
        assert refused.code == 1 and "TOPIC_ALREADY_EXISTS" in refused.err
        commands.fine("topics", "delete", topic)
