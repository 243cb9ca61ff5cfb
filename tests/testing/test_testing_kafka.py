"""A real Kafka: it starts, serves, survives restarts on its ports and data, and never outlives the test run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from holdfast.model import HoldfastError
from holdfast.testing.kafka import RealKafka
from holdfast.testing.kafka_security import Secure
from holdfast.testing.tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, CONSUMER_GROUPS, TOPICS, run_tool
from patience import PATIENCE_S

pytestmark = [pytest.mark.java, pytest.mark.kafka]

START_A_BROKER_AND_SAY_ITS_PID = """
from holdfast.testing.kafka import RealKafka
import sys, time
kafka = RealKafka()
kafka.start()
print(kafka.nodes[0].pid, flush=True)
time.sleep(600)
"""


def produce(kafka: RealKafka, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 2})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0


def text(message: Message) -> str:
    value = message.value()
    assert value is not None
    return value.decode()


def consume(kafka: RealKafka, topic: str, count: int) -> list[str]:
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": f"read-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"log_level": 2})
    consumer.subscribe([topic])
    try:
        return [text(message) for message in consumer.consume(count, timeout=60)]
    finally:
        consumer.close()


def ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_the_tools_create_a_topic_fill_it_read_it_and_describe_the_group(kafka: RealKafka) -> None:
    server = kafka.bootstrap
    run_tool(TOPICS, ["--create", "--topic", "tools", "--partitions", "2"], server)
    run_tool(CONSOLE_PRODUCER, ["--topic", "tools"], server, stdin="a\nb\nc\n")
    reading = ["--topic", "tools", "--from-beginning", "--max-messages", "3", "--group", "tools-group"]
    read = run_tool(CONSOLE_CONSUMER, reading, server)
    described = run_tool(CONSUMER_GROUPS, ["--describe", "--group", "tools-group"], server)

    assert sorted(read.stdout.split()) == ["a", "b", "c"]
    rows = described.table()
    assert sum(int(row["CURRENT-OFFSET"]) for row in rows) == 3
    assert {row["LAG"] for row in rows} == {"0"}


def test_a_tool_that_fails_says_why(kafka: RealKafka) -> None:
    with pytest.raises(HoldfastError, match=r"KAFKA_TOOL_FAILED.*nowhere"):
        run_tool(TOPICS, ["--describe", "--topic", "nowhere"], kafka.bootstrap)


def test_topics_are_there_when_created_and_gone_when_deleted(kafka: RealKafka) -> None:
    kafka.create_topic("short-lived", partitions=5, config={"retention.ms": "60000"})
    assert len(kafka.admin.list_topics("short-lived", timeout=PATIENCE_S).topics["short-lived"].partitions) == 5

    kafka.delete_topic("short-lived")

    assert "short-lived" not in kafka.admin.list_topics(timeout=PATIENCE_S).topics


def test_a_restart_and_a_crash_keep_ports_and_data() -> None:
    with RealKafka(settings={"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}) as kafka:
        bootstrap = kafka.bootstrap
        kafka.create_topic("kept")
        produce(kafka, "kept", ["before the restart"])
        kafka.restart()
        produce(kafka, "kept", ["before the crash"])
        pid = kafka.nodes[0].pid
        kafka.kill()
        assert ended(pid)
        kafka.start()

        assert kafka.bootstrap == bootstrap
        assert consume(kafka, "kept", 2) == ["before the restart", "before the crash"]
        folder = kafka.nodes[0].spec.folder
    assert not folder.exists(), "the data is deleted at the end"


def test_a_start_that_fails_shows_the_end_of_the_log() -> None:
    with (
        pytest.raises(HoldfastError, match=r"(?s)KAFKA_START_FAILED.*num\.io\.threads"),
        RealKafka(settings={"num.io.threads": "many"}),
    ):
        pytest.fail("it started")


def test_a_broker_ends_with_the_process_that_started_it() -> None:
    """Symptom: brokers of killed test runs kept running and held memory until the machine was restarted.

    Cause: nothing tells a child that its parent was killed. Invariant: the broker watches its standard input and stops
    when that ends, which the kernel sees to whatever way the parent goes.
    """
    command = [sys.executable, "-c", START_A_BROKER_AND_SAY_ITS_PID]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as run:
        assert run.stdout is not None
        broker = int(run.stdout.readline())
        assert not ended(broker)
        run.kill()
    deadline = time.monotonic() + 60
    while not ended(broker):
        assert time.monotonic() < deadline, f"broker {broker} outlived its test run by a minute"
        time.sleep(0.05)


def test_the_secured_listener_lets_in_who_can_prove_it_and_nobody_else() -> None:
    certificates = Path(__file__).parents[1] / "net" / "certificates"
    secure = Secure(
        certificate=certificates / "broker.pem",
        key=certificates / "broker.key",
        ca=certificates / "ca.pem",
        users={"alice": "wonder-land"},
    )
    tokens = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=alice"}

    def brokers_seen(settings: dict[str, str], *, limit_s: float = 20) -> int:
        admin = AdminClient({"bootstrap.servers": kafka.secure_bootstrap, "log_level": "0", **settings})
        return len(admin.list_topics(timeout=limit_s).brokers)

    with RealKafka(secure=secure) as kafka:
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            assert brokers_seen(secure.client_settings("alice", mechanism=mechanism)) == 1
        token_bearer = secure.client_settings("alice", mechanism="OAUTHBEARER") | tokens
        assert brokers_seen(token_bearer) == 1
        with pytest.raises(KafkaException):
            brokers_seen(secure.client_settings("alice") | {"sasl.password": "guessed"}, limit_s=3)


@pytest.mark.slow
def test_three_brokers_in_three_racks_place_replicas_as_told_and_one_may_go() -> None:
    with RealKafka(brokers=3, racks=["a", "b", "c"]) as kafka:
        kafka.create_topic("spread", replicas=[[1, 2], [2, 3], [3, 1]])
        found = kafka.admin.list_topics("spread", timeout=PATIENCE_S).topics["spread"].partitions
        assert {number: partition.replicas for number, partition in found.items()} == {0: [1, 2], 1: [2, 3], 2: [3, 1]}

        kafka.stop(3)

        assert [node.running for node in kafka.nodes] == [True, True, False]
        produce(kafka, "spread", ["still"])
