"""`holdfast consume` on the embedded broker: lines as Kafka prints them, and commits of what was printed."""

from __future__ import annotations

import base64
import json
import os
import signal
from pathlib import Path

import confluent_kafka as ck
import pytest
from cli_world import Commands, end, fresh, spoken

from holdfast.testing import Broker
from kept import KEPT
from patience import PATIENCE_S

pytestmark = pytest.mark.slow
"""Each starts the command as its own process, which takes a second or two."""

RECORDS = 12


@pytest.fixture
def topic(broker: Broker) -> str:
    """Three partitions with four records in each: `partition:number`, with the partition as key."""
    name = fresh("consumed")
    broker.topics.create(name, partitions=3, configs=KEPT)
    fill(broker, name)
    return name


def fill(broker: Broker, name: str) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(3):
        for number in range(RECORDS // 3):
            value = f"{partition}:{number}".encode()
            producer.produce(name, value, str(partition).encode(), partition=partition, timestamp=1_000 + number)
    assert producer.flush(PATIENCE_S) == 0


def committed(broker: Broker, group: str, topic: str) -> dict[int, int]:
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        found = consumer.committed([ck.TopicPartition(topic, number) for number in range(3)], timeout=PATIENCE_S)
        return {one.partition: one.offset for one in found if one.offset >= 0}
    finally:
        consumer.close()


ALL = sorted(f"{partition}:{number}" for partition in range(3) for number in range(RECORDS // 3))


def test_without_a_group_everything_is_printed_and_nothing_is_left_behind(
    commands: Commands, broker: Broker, topic: str
) -> None:
    printed = commands.fine("consume", topic, "--from-beginning", "--timeout-ms", "300")

    assert sorted(printed.lines()) == ALL
    assert printed.err == f"{RECORDS} records\n"
    assert broker.group("holdfast-consume").state == "Dead"


def test_without_from_beginning_the_past_is_not_printed(commands: Commands, topic: str) -> None:
    assert commands.fine("consume", topic, "--timeout-ms", "300").out == b""
    assert commands.fine("consume", topic, "--timeout-ms", "300", "--group", fresh("g")).out == b""


def test_fields_come_in_kafkas_order_before_the_value(commands: Commands, topic: str) -> None:
    printed = commands.fine(
        "consume", topic, "--from-beginning", "--max-messages", "12", "--print", "key,offset,partition,timestamp"
    )

    assert "CreateTime:1002\tPartition:1\tOffset:2\t1\t1:2" in printed.lines()
    named = commands.fine("consume", topic, "--from-beginning", "--max-messages", "1", "--print", "headers,topic")
    assert named.lines()[0].startswith(f"Topic:{topic}\tNO_HEADERS\t")


def test_json_keeps_what_is_no_text(commands: Commands, broker: Broker) -> None:
    name = fresh("binary")
    broker.topics.create(name, partitions=1, configs=KEPT)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(name, b"\xff\x00", None, timestamp=7, headers=[("trace", b"abc"), ("empty", None)])
    producer.produce(name, None, b"k", timestamp=8)
    assert producer.flush(PATIENCE_S) == 0

    printed = commands.fine("consume", name, "--from-beginning", "--max-messages", "2", "-o", "json")

    first, second = map(json.loads, printed.lines())
    assert first == {
        "topic": name,
        "partition": 0,
        "offset": 0,
        "timestamp": 7,
        "timestamp_type": "CreateTime",
        "key": None,
        "value": {"base64": base64.b64encode(b"\xff\x00").decode()},
        "headers": [["trace", "abc"], ["empty", None]],
    }
    assert (second["key"], second["value"]) == ("k", None)
    plain = commands.fine("consume", name, "--from-beginning", "--max-messages", "2", "--print", "headers,key")
    assert plain.out == b"trace:abc,empty:null\tnull\t\xff\x00\nNO_HEADERS\tk\tnull\n"


def test_a_group_goes_on_where_it_stopped(commands: Commands, broker: Broker, topic: str) -> None:
    group = fresh("billing")
    joined = ("consume", topic, "--group", group, "--from-beginning")

    first = commands.fine(*joined, "--max-messages", "5")
    assert len(first.lines()) == 5
    assert sum(committed(broker, group, topic).values()) == 5
    rest = commands.fine(*joined, "--timeout-ms", "1000")
    assert sorted(first.lines() + rest.lines()) == ALL
    assert committed(broker, group, topic) == {0: 4, 1: 4, 2: 4}
    assert broker.group(group).state == "Empty", "it left"


def test_a_pattern_finds_its_topics_in_a_group(commands: Commands, broker: Broker, topic: str) -> None:
    printed = commands.fine(
        "consume", f"^{topic}$", "--group", fresh("billing"), "--from-beginning", "--max-messages", "12"
    )

    assert sorted(printed.lines()) == ALL


def test_several_topics_are_read_together(commands: Commands, broker: Broker, topic: str) -> None:
    other = fresh("consumed")
    broker.topics.create(other, partitions=3)
    fill(broker, other)

    printed = commands.fine("consume", topic, other, "--from-beginning", "--max-messages", "24", "--print", "topic")

    assert sorted(printed.lines()) == sorted(f"Topic:{name}\t{value}" for name in (topic, other) for value in ALL)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_commits_what_was_printed_and_leaves(
    commands: Commands, broker: Broker, topic: str, sign: signal.Signals
) -> None:
    group = fresh("billing")
    process = commands.start("consume", topic, "--group", group, "--from-beginning")
    lines = spoken(process, RECORDS)
    process.send_signal(sign)

    ended = end(process)
    assert (ended.code, ended.out) == (0, b""), ended.err
    assert sorted(lines) == ALL
    assert committed(broker, group, topic) == {0: 4, 1: 4, 2: 4}
    assert broker.group(group).state == "Empty"


def test_lines_come_as_the_records_do(commands: Commands, broker: Broker) -> None:
    name = fresh("lines")
    broker.topics.create(name, partitions=1)
    process = commands.start("consume", name, "--from-beginning")
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})

    for number in range(3):
        producer.produce(name, str(number).encode())
        assert producer.flush(PATIENCE_S) == 0
        assert spoken(process) == [str(number)], "a record is not held back for the next one"
    process.send_signal(signal.SIGINT)
    assert end(process).code == 0


@pytest.mark.parametrize("group", [[], ["--group", "billing"]], ids=["reader", "member"])
def test_a_broker_that_restarts_is_waited_for(commands: Commands, tmp_path: Path, group: list[str]) -> None:
    with Broker(data=tmp_path / "data") as restarted:
        restarted.topics.create("orders", partitions=1)
        process = commands.start(
            "consume", "orders", "--from-beginning", *group, "--bootstrap-server", restarted.bootstrap
        )
        for value in (b"before", b"after"):
            producer = ck.Producer({"bootstrap.servers": restarted.bootstrap})
            producer.produce("orders", value)
            assert producer.flush(PATIENCE_S) == 0
            assert spoken(process) == [value.decode()]
            if value == b"before":
                restarted.restart()
        process.send_signal(signal.SIGINT)

        ended = end(process)
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err


def test_what_nobody_read_is_not_committed(commands: Commands, broker: Broker, topic: str) -> None:
    """`holdfast consume … | head` in a group.

    Symptom: records that never reached the reader are skipped by the next run. Cause: the consumer's position counts
    what it handed out, not what was written. Invariant: only what was written out is ever committed.
    """
    group = fresh("billing")
    reading, writing = os.pipe()
    os.close(reading)
    process = commands.start("consume", topic, "--group", group, "--from-beginning", stdout=writing)
    os.close(writing)

    assert end(process).code == 0, "a reader may go away"
    assert committed(broker, group, topic) == {}


def test_a_topic_that_is_not_there_is_refused_and_not_created(commands: Commands, broker: Broker) -> None:
    for more in ([], ["--group", fresh("g")]):
        refused = commands.run("consume", "nobody", *more)
        assert (refused.code, refused.out) == (1, b"")
        assert refused.err.startswith("holdfast: UNKNOWN_TOPIC_OR_PARTITION: ") and refused.err.count("\n") == 1
    assert "nobody" not in broker.topics.names()


@pytest.mark.parametrize(
    "args", [[], ["t", "--print", "colour"], ["t", "--max-messages", "0"], ["t", "--group", ""], ["t", "-o", "xml"]]
)
def test_wrong_use_ends_with_2_and_says_why(commands: Commands, args: list[str]) -> None:
    refused = commands.run("consume", *args)

    assert (refused.code, refused.out) == (2, b"")
    assert refused.err and "Traceback" not in refused.err


def test_one_file_for_kafkas_java_tools_serves_every_command(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="open sesame";\n'
        "key.deserializer=org.apache.kafka.common.serialization.StringDeserializer\n"
    )
    with Broker(users={"alice": ("open sesame", ["all"])}) as guarded:
        at = ("--bootstrap-server", guarded.bootstrap, "--command-config", str(file))
        commands.fine("topics", "create", "orders", *at)
        commands.fine("produce", "orders", *at, stdin=b"hello\n")
        for more in ([], ["--group", "g"]):
            printed = commands.fine("consume", "orders", "--from-beginning", "--max-messages", "1", *more, *at)
            assert printed.lines() == ["hello"]


def test_a_group_that_may_not_be_read_is_told_once(commands: Commands, tmp_path: Path) -> None:
    """The log's line and the error that ended the command said the same, one below the other. And where librdkafka was
    quicker than our member, in every other run over TLS, it was said to be for the topic's sake.
    """
    login = tmp_path / "client.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=billing\nsasl.password=x\n"
    )
    with Broker(users={"billing": ("x", ["read:topic:orders"])}) as guarded:
        guarded.topics.create("orders", partitions=1)
        refused = commands.start(
            "consume", "orders", "--group", "g", "--bootstrap-server", guarded.bootstrap, "--command-config", str(login)
        )
        ended = end(refused)

    assert ended.code == 1
    assert ended.err.count("GROUP_AUTHORIZATION_FAILED") == 1
    assert "Check your rights to the group." in ended.err and "the topic" not in ended.err


def test_commands_stay_light_until_they_are_called() -> None:
    import subprocess
    import sys

    program = (
        "import sys, holdfast.cli.topics, holdfast.cli.produce, holdfast.cli.consume\n"
        "print(','.join(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    heavy = {"numpy", "numba", "confluent_kafka", "pyarrow", "kio", "cramjam"}
    assert not heavy & set(loaded.stdout.strip().split(","))
