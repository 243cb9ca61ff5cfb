"""OAUTHBEARER on a real Apache Kafka: both planes log in with tokens of the application's, and so does the watchdog."""

from __future__ import annotations

import base64
import inspect
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

import holdfast
from holdfast.testing.kafka import RealKafka
from holdfast.testing.kafka_security import Secure
from patience import PATIENCE_S

pytestmark = pytest.mark.kafka

HERE = Path(__file__).parents[1] / "net" / "certificates"
SECURE = Secure(
    certificate=HERE / "broker.pem", key=HERE / "broker.key", ca=HERE / "ca.pem", users={"alice": "hush-hush"}
)

ASKED: list[str] = []


def oauth_cb(argument: str) -> tuple[str, float]:
    """What Kafka's own test validator accepts: a token with no signature."""

    def part(content: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    ASKED.append(argument)
    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': 'alice', 'iat': now, 'exp': now + 3600})}.", float(now + 3600)


@pytest.fixture(scope="module")
def secured() -> Iterator[RealKafka]:
    with RealKafka(secure=SECURE) as kafka:
        yield kafka


def settings(kafka: RealKafka, group: str) -> dict[str, Any]:
    return {
        **SECURE.client_settings("alice", mechanism="OAUTHBEARER"),
        "bootstrap.servers": kafka.secure_bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "sasl.oauthbearer.config": "an argument",
    }


def produce(kafka: RealKafka, topic: str) -> None:
    kafka.create_topic(topic)
    producer = ck.Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(5):
        producer.produce(topic, str(number).encode())
    assert producer.flush(PATIENCE_S) == 0


def test_both_planes_ask_oauth_cb_and_read_and_commit(secured: RealKafka) -> None:
    produce(secured, "oauth-read")
    ASKED.clear()
    seen = 0
    with holdfast.Consumer({**settings(secured, "readers"), "oauth_cb": oauth_cb}) as consumer:
        consumer.subscribe(["oauth-read"])
        deadline = time.monotonic() + PATIENCE_S
        while seen < 5:
            assert time.monotonic() < deadline
            message = consumer.poll(0.1)
            seen += message is not None and message.error() is None
        consumer.commit(asynchronous=False)
        assert consumer.committed([ck.TopicPartition("oauth-read", 0)], timeout=20)[0].offset == 5
    assert len(ASKED) >= 2 and set(ASKED) == {"an argument"}, "each plane asked for itself"


MEMBER = f"""
import base64, json, sys, time
import holdfast
ASKED = []
{inspect.getsource(oauth_cb)}
consumer = holdfast.Consumer({{**json.load(sys.stdin), "oauth_cb": oauth_cb}})
consumer.subscribe(["oauth-killed"])
while True:
    message = consumer.poll(0.1)
    if message is not None and message.error() is None:
        print("got", message.offset(), flush=True)
"""


def test_the_watchdog_of_a_killed_member_logs_in_with_its_token(secured: RealKafka) -> None:
    """Without a token it could not leave in the member's name, and the next one would wait for the session: 45 s."""
    produce(secured, "oauth-killed")
    member = subprocess.Popen([sys.executable, "-c", MEMBER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert member.stdin is not None and member.stdout is not None
    with member.stdin as told, member.stdout as said:
        told.write(json.dumps(settings(secured, "killed")))
        told.close()
        for line in said:
            if line == "got 4\n":
                break
        time.sleep(0.5)  # one more poll, which notes where it stands
        member.send_signal(signal.SIGKILL)
        member.wait()
    began = time.monotonic()
    plain = {"bootstrap.servers": secured.bootstrap, "group.id": "killed", "auto.offset.reset": "earliest"}
    with holdfast.Consumer(plain) as survivor:
        survivor.subscribe(["oauth-killed"])
        while not survivor.assignment():
            survivor.poll(0.1)
            assert time.monotonic() - began < 40, "the watchdog did not leave for it"
        assert survivor.committed([ck.TopicPartition("oauth-killed", 0)], timeout=20)[0].offset == 5
