"""`holdfast produce` on the embedded broker: lines, orders, and an exact account of what became of them."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from cli_world import Commands, end, fresh

from holdfast.cli import produce
from holdfast.model import ErrorCode
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import wait_for


@pytest.fixture
def topic(broker: Broker) -> str:
    name = fresh("produced")
    broker.topics.create(name, partitions=3)
    return name


def everything(commands: Commands, topic: str) -> list[tuple[str | None, str | None]]:
    """Keys and values of all that is in a topic."""
    printed = commands.fine("consume", topic, "--from-beginning", "--timeout-ms", "200", "-o", "json")
    return [(record["key"], record["value"]) for record in map(json.loads, printed.lines())]


def test_every_line_is_a_record_and_the_last_needs_no_newline(commands: Commands, topic: str) -> None:
    sent = commands.fine("produce", topic, "-o", "json", stdin="one\n\nthree ü".encode())

    assert (sent.json()["acknowledged"], sent.json()["failed"]) == (3, 0)
    assert sorted(everything(commands, topic), key=str) == [(None, ""), (None, "one"), (None, "three ü")]


def test_a_separator_gives_keys_and_may_be_in_the_value_too(commands: Commands, topic: str) -> None:
    sent = commands.fine("produce", topic, "--key-separator", "=", stdin=b"a=1\nb=2=3\n=4\n")

    assert sent.out == b""
    assert sent.err.startswith("3 acknowledged in ")
    assert sorted(everything(commands, topic)) == [("", "4"), ("a", "1"), ("b", "2=3")]


def test_a_line_without_the_separator_ends_the_run_after_the_lines_before_it(commands: Commands, topic: str) -> None:
    refused = commands.run("produce", topic, "--key-separator", ":", stdin=b"a:1\nb\nc:3\n")

    assert refused.code == 1
    assert "KEY_SEPARATOR_NOT_FOUND: Line 2 " in refused.err
    assert everything(commands, topic) == [("a", "1")]


@pytest.mark.parametrize("compression", ["gzip", "lz4", "snappy", "zstd"])
def test_batches_are_compressed(commands: Commands, topic: str, compression: str) -> None:
    commands.fine("produce", topic, "--compression", compression, stdin=b"x" * 1000 + b"\n")

    assert everything(commands, topic) == [(None, "x" * 1000)]


MURMUR2 = {
    "21": -973932308,
    "abc": 479470107,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
}
"""Hashes of Java's client, as its own tests list them."""


def test_keys_land_where_java_puts_them(commands: Commands, topic: str) -> None:
    lines = "".join(f"{key}:x\n" for key in MURMUR2)
    commands.fine("produce", topic, "--key-separator", ":", stdin=lines.encode())

    printed = commands.fine("consume", topic, "--from-beginning", "--max-messages", str(len(MURMUR2)), "-o", "json")
    placed = {record["key"]: record["partition"] for record in map(json.loads, printed.lines())}
    assert placed == {key: (number & 0x7FFFFFFF) % 3 for key, number in MURMUR2.items()}


def test_generated_orders_are_json_and_the_same_for_the_same_seed(commands: Commands, broker: Broker) -> None:
    runs = []
    for name in (fresh("generated"), fresh("generated")):
        broker.topics.create(name, partitions=1)
        sent = commands.fine(
            "produce", name, "--rate", "0", "--count", "200", "--keys", "5", "--seed", "3", "-o", "json"
        )
        assert sent.json()["acknowledged"] == 200
        runs.append([(key, json.loads(str(value))) for key, value in everything(commands, name)])

    for key, order in runs[0]:
        assert key == order["key"]
        assert 1 <= order["amount"] < 1000
        assert order["time"].endswith("Z")
    assert [order["order"] for _, order in runs[0]] == list(range(1, 201))
    assert {key for key, _ in runs[0]} == {f"customer-{number}" for number in range(5)}
    told = [[(order["order"], order["key"], order["amount"]) for _, order in run] for run in runs]
    assert told[0] == told[1]


@pytest.mark.slow
def test_a_rate_for_a_while_is_that_many_records(commands: Commands, topic: str) -> None:
    sent = commands.fine("produce", topic, "--rate", "100", "--duration", "1.2", "-o", "json")

    assert sent.json()["acknowledged"] == 120
    (first, *_) = sent.err.splitlines()
    assert "records/s" in first and "acknowledged" in first and "0 errors" in first


def test_records_that_are_refused_are_counted_and_explained_in_one_line(
    commands: Commands, broker: Broker, topic: str
) -> None:
    fault = broker.faults.error(Api.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    try:
        refused = commands.run("produce", topic, "-o", "json", stdin=b"1\n2\n3\n")
    finally:
        fault.clear()

    assert refused.code == 1
    assert (refused.json()["acknowledged"], refused.json()["failed"]) == (0, 3)
    assert refused.err.count("\n") == 1 and "TOPIC_AUTHORIZATION_FAILED" in refused.err


def test_a_record_that_is_too_large_does_not_keep_the_others_back(commands: Commands, topic: str) -> None:
    refused = commands.run("produce", topic, "-o", "json", stdin=b"small\n" + b"x" * 2_000_000 + b"\nlast\n")

    assert refused.code == 1
    assert (refused.json()["acknowledged"], refused.json()["failed"]) == (2, 1)
    assert "MSG_SIZE_TOO_LARGE" in refused.err


@pytest.mark.slow
def test_nobody_there_is_told_with_the_reason(commands: Commands, tmp_path: Path) -> None:
    quick = tmp_path / "client.properties"
    quick.write_text("message.timeout.ms=300\n")

    lost = commands.run(
        "produce", "t", "--bootstrap-server", "127.0.0.1:1", "--command-config", str(quick), stdin=b"1\n"
    )

    assert lost.code == 1
    assert "MSG_TIMED_OUT" in lost.err and "0 acknowledged, 1 failed" in lost.err


def test_a_server_that_is_not_there_is_told_while_it_tries(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For thirty seconds it said nothing, though the reason was known at once."""
    monkeypatch.setattr(produce, "SILENCE_S", 0.2)
    quick = tmp_path / "client.properties"
    quick.write_text("message.timeout.ms=1500\n")

    lost = commands.run(
        "produce", "t", "--bootstrap-server", "127.0.0.1:1", "--command-config", str(quick), stdin=b"1\n"
    )

    assert "Connection refused" in lost.err.splitlines()[0] and "Still trying, for 1.5 s in all." in lost.err


def test_a_login_that_is_refused_ends_the_run_at_once(commands: Commands, tmp_path: Path) -> None:
    """A wrong password was known after 60 ms and told after 30 s, when the records had timed out. No time-out decides
    here: the records may take ten minutes, and the run ends all the same."""
    login = tmp_path / "client.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\nsasl.password=wrong\n"
        "message.timeout.ms=600000\n"
    )
    with Broker(users={"alice": ("open sesame", ["all"])}) as guarded:
        refused = commands.run(
            "produce", "t", "--bootstrap-server", guarded.bootstrap, "--command-config", str(login), stdin=b"1\n2\n"
        )

    assert refused.code == 1
    assert "AUTHENTICATION: Nothing was sent: the login failed. sasl_plaintext://127.0.0.1:" in refused.err
    assert "0 acknowledged, 2 failed" in refused.err


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_flushes_and_says_how_many_were_acknowledged(
    commands: Commands, broker: Broker, topic: str, sign: signal.Signals
) -> None:
    process = commands.start("produce", topic, "--rate", "500", "-o", "json")
    wait_for(lambda: broker.topics.count(topic) > 20, "the first records")
    process.send_signal(sign)

    ended = end(process)
    assert ended.code == 0, ended.err
    assert ended.json()["acknowledged"] == broker.topics.count(topic)
    assert ended.json()["failed"] == 0


def test_ctrl_c_ends_a_run_that_waits_for_its_next_line(commands: Commands, broker: Broker, topic: str) -> None:
    process = commands.start("produce", topic)
    assert process.stdin is not None
    process.stdin.write(b"first\nhalf a l")
    process.stdin.flush()
    wait_for(lambda: broker.topics.count(topic) == 1, "the first line")
    process.send_signal(signal.SIGINT)

    ended = end(process)
    assert (ended.code, ended.out) == (0, b"")
    assert ended.err.startswith("1 acknowledged in ")
    assert broker.topics.count(topic) == 1, "half a line is no record"


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["t", "--count", "5"],
        ["t", "--duration", "5"],
        ["t", "--rate", "-1"],
        ["t", "--rate", "nan"],
        ["t", "--rate", "5", "--key-separator", ":"],
        ["t", "--rate", "5", "--keys", "0"],
        ["t", "--key-separator", ""],
        ["t", "--compression", "rar"],
    ],
)
def test_wrong_use_ends_with_2_and_says_why(commands: Commands, args: list[str]) -> None:
    refused = commands.run("produce", *args)

    assert (refused.code, refused.out) == (2, b"")
    assert refused.err and "Traceback" not in refused.err


def test_a_setting_that_librdkafka_does_not_know_is_one_line(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("colour=red\nkey.serializer=org.apache.kafka.common.serialization.StringSerializer\n")

    refused = commands.run("produce", "t", "--command-config", str(file), stdin=b"1\n")

    assert refused.code == 1
    assert refused.err.count("\n") == 1 and '"colour"' in refused.err
