"""TLS and logins: both planes and the watchdog; and secrets that reach no log, trace, argument or environment."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

import holdfast
import inside
from holdfast.broker.settings import Security as BrokerSecurity
from holdfast.client.config.settings import parse
from holdfast.client.watchdog.guard import Watchdog
from holdfast.client.watchdog.tokens import Tokens
from holdfast.group.member import MemberConfig, MemberState
from holdfast.model import Membership, RebalanceProtocol
from holdfast.net.security import security_from
from holdfast.testing import Broker
from patience import PATIENCE_S

CERTIFICATES = Path(__file__).parents[1] / "net" / "certificates"
PASSWORD = "hush-Wq7Zk2"
TOKEN = "token-hush-9fX3"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    security = BrokerSecurity(certificate=CERTIFICATES / "broker.pem", key=CERTIFICATES / "broker.key")
    with Broker(security=security, users={"alice": (PASSWORD, ["all"])}) as running:
        running.topics.create("orders", 2)
        producer = ck.Producer(settings(running, "SCRAM-SHA-256", None))
        for number in range(10):
            producer.produce("orders", b"x", partition=number % 2)
        assert producer.flush(PATIENCE_S) == 0
        yield running


def settings(broker: Broker, mechanism: str, group: str | None) -> dict[str, Any]:
    found = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(CERTIFICATES / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    return found if group is None else {**found, "group.id": group, "auto.offset.reset": "earliest"}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_both_planes_log_in_over_tls(secured: Broker, mechanism: str) -> None:
    """The control plane joins and commits, the data plane fetches: each has connections of its own."""
    group = f"secure-{mechanism}"
    with holdfast.Consumer(settings(secured, mechanism, group)) as consumer:
        consumer.subscribe(["orders"])
        deadline, seen = time.monotonic() + PATIENCE_S, 0
        while seen < 10:
            assert time.monotonic() < deadline
            message = consumer.poll(0.1)
            seen += message is not None and message.error() is None
        consumer.commit(asynchronous=False)
        found = consumer.committed([ck.TopicPartition("orders", 0), ck.TopicPartition("orders", 1)], timeout=PATIENCE_S)
        assert [one.offset for one in found] == [5, 5]


def test_a_wrong_password_is_an_error_that_does_not_quote_it(secured: Broker) -> None:
    wrong = {**settings(secured, "SCRAM-SHA-256", "refused"), "sasl.password": "not-Wq7Zk2"}
    consumer = holdfast.Consumer({**wrong, "default.api.timeout.ms": 2_000})
    consumer.subscribe(["orders"])
    with pytest.raises(ck.KafkaException) as refused:
        consumer.committed([ck.TopicPartition("orders", 0)], timeout=20)
    assert "login failed" in str(refused.value).lower()
    assert "not-Wq7Zk2" not in str(refused.value)
    consumer.close()


PROGRAM = """
import json, sys
import holdfast
from inside import parts_of, watchdog_of
settings = json.load(sys.stdin)
if settings.pop("token", None):
    settings["oauth_cb"] = lambda _: (settings["hidden"], 2_000_000_000.0)
consumer = holdfast.Consumer(settings)
print(repr(consumer), repr(parts_of(consumer).config), watchdog_of(consumer), flush=True)
consumer.subscribe(["orders"])
while not consumer.assignment():
    consumer.poll(0.1)
watchdog_of(consumer).wait_ready()
print("watched by", watchdog_of(consumer).pid, flush=True)
while True:
    consumer.poll(0.1)
"""


@pytest.mark.slow
def test_secrets_reach_no_log_no_trace_no_argument_and_no_environment(secured: Broker, tmp_path: Path) -> None:
    """One member with everything switched on that writes; then a grep, also over its watchdog's files in /proc. Its
    watchdog logs in for it after a kill -9, so it has the password: through the pipe."""
    trace, log = tmp_path / "trace.jsonl", tmp_path / "log"
    given = settings(secured, "SCRAM-SHA-512", "greped") | {"holdfast.trace.file": str(trace), "debug": "security"}
    with log.open("wb") as errors:
        member = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": str(Path(inside.__file__).parent)},
        )
        assert member.stdin is not None and member.stdout is not None
        with member.stdout as said, member.stdin as told:
            told.write(json.dumps(given).encode())
            told.close()
            lines = []
            for line in said:
                lines.append(line)
                if line.startswith(b"watched by"):
                    break
            watchdog = int(lines[-1].split()[-1])
            shown = b"".join(lines)
            for pid in (watchdog, member.pid):
                for name in ("cmdline", "environ"):
                    shown += Path(f"/proc/{pid}/{name}").read_bytes()
            member.send_signal(signal.SIGKILL)
            member.wait()
            deadline = time.monotonic() + PATIENCE_S
            while secured.group("greped").members:
                assert time.monotonic() < deadline, "the watchdog logged in and left in the member's name"
                time.sleep(0.02)
    shown += trace.read_bytes() + log.read_bytes()
    assert b"join-sent" in shown, "there is something to grep"
    encoded = base64.b64encode(f"\0alice\0{PASSWORD}".encode())
    for secret in (PASSWORD.encode(), encoded):
        assert secret not in shown


def test_a_configuration_that_is_shown_shows_no_secret() -> None:
    given = {
        "group.id": "g",
        "bootstrap.servers": "h:1",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.key.pem": PASSWORD,
        "sasl.jaas.config": PASSWORD,
        "sasl.oauthbearer.client.secret": PASSWORD,
        "sasl.oauthbearer.config": PASSWORD,
        "oauth_cb": Tokens(lambda _: (PASSWORD, 0.0)),
    }
    assert PASSWORD not in repr(parse(given, {}))


# -- OAUTHBEARER


def test_every_token_that_either_plane_asks_for_is_overheard() -> None:
    given = iter(["first", "second", "third"])
    tokens = Tokens(lambda argument: (f"{argument}:{next(given)}", 1.0, "alice", {"pool": argument}))
    heard: list[tuple[str, Mapping[str, str]]] = []
    assert tokens("a") == ("a:first", 1.0, "alice", {"pool": "a"})
    tokens.tell(lambda token, extensions: heard.append((token, extensions)))
    tokens("b")
    tokens("c")
    assert heard == [("a:first", {"pool": "a"}), ("b:second", {"pool": "b"}), ("c:third", {"pool": "c"})]
    assert "first" not in repr(tokens)


class Coordinator:
    """Enough of a broker to be logged in to and left."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.asked: list[tuple[int, bytes]] = []
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        link, _ = self._listener.accept()
        with link, link.makefile("rb") as incoming:
            while head := incoming.read(4):
                content = incoming.read(struct.unpack(">i", head)[0])
                key, _, number = struct.unpack_from(">hhi", content)
                self.asked.append((key, content))
                answer = {
                    17: struct.pack(">hi", 0, 0),
                    36: struct.pack(">hhiq", 0, -1, 0, 0),
                    13: struct.pack(">ihi", 0, 0, 0),
                }[key]
                link.sendall(struct.pack(">ii", 4 + len(answer), number) + answer)

    def close(self) -> None:
        self._listener.close()


HOLDER = """
import json, sys, time
from holdfast.client.watchdog.guard import Watchdog
from holdfast.group.member import MemberConfig, MemberState
from holdfast.model import Membership, RebalanceProtocol
from holdfast.net.security import security_from
given = json.load(sys.stdin)
security = security_from({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": print})
watchdog = Watchdog(security)
watchdog.wait_ready()
state = MemberState(
    config=MemberConfig(group="g", assignors=(), protocol=RebalanceProtocol.EAGER), membership=Membership("m-1", 3)
)
watchdog.note(state, ("127.0.0.1", given["port"]), commits=False)
for token in given["tokens"]:
    watchdog.token(token, {"logicalCluster": "lkc-1"})
print(watchdog.pid, flush=True)
time.sleep(60)
"""


def test_the_watchdog_logs_in_with_the_newest_token_which_came_through_the_pipe() -> None:
    coordinator = Coordinator()
    member = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ)
    )
    assert member.stdin is not None and member.stdout is not None
    long_token = TOKEN + "x" * 9_000  # longer than what a pipe writes in one piece
    with member.stdin as told, member.stdout as said:
        told.write(json.dumps({"port": coordinator.port, "tokens": ["old-one", long_token]}).encode())
        told.close()
        watchdog = int(said.readline())
        for name in ("cmdline", "environ"):
            assert TOKEN.encode() not in Path(f"/proc/{watchdog}/{name}").read_bytes()
        member.kill()
        member.wait()
    coordinator.thread.join(20)
    coordinator.close()
    assert [key for key, _ in coordinator.asked] == [17, 36, 13], "handshake, login, leave"
    login = coordinator.asked[1][1]
    assert f"auth=Bearer {long_token}".encode() in login and b"old-one" not in login
    assert b"logicalCluster=lkc-1" in login, "without its extensions a cloud's broker refuses the token"
    assert b"m-1" in coordinator.asked[2][1]


def test_a_clean_close_after_tokens_is_still_a_clean_close() -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: ("t", 0.0)}
    watchdog = Watchdog(security_from(given))
    watchdog.wait_ready()
    coordinator = Coordinator()
    config = MemberConfig(group="g", assignors=(), protocol=RebalanceProtocol.EAGER)
    state = MemberState(config=config, membership=Membership("m-1", 3))
    watchdog.note(state, ("127.0.0.1", coordinator.port), commits=False)
    watchdog.token("one", {})
    watchdog.token("two", {})
    watchdog.dismiss()
    assert not Path(f"/proc/{watchdog.pid}").exists()
    assert coordinator.asked == []
    with socket.create_connection(("127.0.0.1", coordinator.port)):
        pass
    coordinator.thread.join(PATIENCE_S)
    coordinator.close()
