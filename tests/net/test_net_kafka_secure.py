"""TLS and every mechanism against a real Apache Kafka, logging in again included."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.group import messages as m
from holdfast.model import TopicPartition
from holdfast.net import connection as connection_module
from holdfast.net.admin import Admin, NewTopic
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.net.connection import Connection
from holdfast.net.errors import NetError
from holdfast.net.security import security_from
from holdfast.testing.kafka import RealKafka
from holdfast.testing.kafka_security import Secure
from holdfast.wire.api import Api

pytestmark = pytest.mark.kafka

HERE = Path(__file__).parent / "certificates"
SECURE = Secure(
    certificate=HERE / "broker.pem", key=HERE / "broker.key", ca=HERE / "ca.pem", users={"alice": "hush-hush"}
)


@pytest.fixture(scope="module")
def secured() -> Iterator[RealKafka]:
    with RealKafka(secure=SECURE, settings={"connections.max.reauth.ms": "3600000"}) as kafka:
        yield kafka


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 120))


def unsigned_token(argument: str) -> tuple[str, float]:
    """What Kafka's test validator accepts: a token with no signature."""

    def part(content: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    now = int(time.time())
    expires = now + 7_200
    return f"{part({'alg': 'none'})}.{part({'sub': 'alice', 'iat': now, 'exp': expires})}.", float(expires)


def settings(mechanism: str) -> dict[str, Any]:
    found: dict[str, Any] = dict(SECURE.client_settings("alice", mechanism=mechanism))
    return found | ({"oauth_cb": unsigned_token} if mechanism == "OAUTHBEARER" else {})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_we_log_in_and_log_in_again_on_the_same_connection(
    secured: RealKafka, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    again_s = 1.1  # Kafka takes an earlier login for an attack
    monkeypatch.setattr(connection_module, "REAUTHENTICATE_AT", 0.0)
    monkeypatch.setattr(connection_module, "LEAST_SESSION_S", again_s)
    log_in, logins = connection_module.log_in, list[float]()

    async def counted(*given: Any) -> None:
        logins.append(time.monotonic())
        await log_in(*given)

    monkeypatch.setattr(connection_module, "log_in", counted)

    async def scene() -> None:
        host, _, port = secured.secure_bootstrap.partition(":")
        connection = await Connection.open(host, int(port), security=security_from(settings(mechanism)))
        for before in (1, 2):
            assert len(logins) >= before
            await asyncio.sleep(again_s)
            answers = await asyncio.gather(
                *(connection.request(Api.METADATA, {"topics": []}, timeout_s=30) for _ in range(20))
            )
            assert all(len(answer.brokers) == 1 for answer in answers)
            assert len(logins) > before, "Kafka was told to limit sessions"
        await connection.close()

    run(scene())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_by_kafka_and_said_plainly(secured: RealKafka, mechanism: str) -> None:
    async def scene() -> None:
        host, _, port = secured.secure_bootstrap.partition(":")
        wrong = security_from(settings(mechanism) | {"sasl.password": "guessed-in-vain"})
        with pytest.raises(NetError, match="AUTHENTICATION_FAILED") as failed:
            await Connection.open(host, int(port), security=wrong)
        assert not failed.value.retriable
        assert "guessed-in-vain" not in str(failed.value)

    run(scene())


def test_a_client_without_tls_is_told_what_the_listener_may_want(secured: RealKafka) -> None:
    async def scene() -> None:
        host, _, port = secured.secure_bootstrap.partition(":")
        with pytest.raises(NetError):
            await Connection.open(host, int(port), timeout_s=15)

    run(scene())


def test_the_whole_client_works_over_tls_with_a_login(secured: RealKafka) -> None:
    async def scene() -> None:
        config = client_config(settings("SCRAM-SHA-256") | {"bootstrap.servers": secured.secure_bootstrap})
        async with Cluster(config) as cluster:
            admin = Admin(cluster)
            assert await admin.create_topics([NewTopic(name="secured", partitions=2, replication_factor=1)]) == {
                "secured": None
            }
            at = TopicPartition("secured", 0)
            await cluster.leader_of(at)
            assert await admin.commit("secured-group", {at: m.OffsetEntry(4)}) == {at: None}
            assert (await admin.committed("secured-group"))[at].offset == 4

    run(scene())
