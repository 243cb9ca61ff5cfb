"""Logins that change while a consumer lives, and those that librdkafka makes by itself: all three of our connections
must have them, librdkafka's, the control plane's and the watchdog's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from polling import COUNTER, until

import holdfast
from holdfast.client.aio import key_check
from holdfast.client.config.settings import parse
from holdfast.client.watchdog.guard import Watchdog, watched
from holdfast.testing import Broker
from patience import PATIENCE_S

OLD, NEW = "hush-old-4Kd", "hush-new-9Qw"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    with Broker(users={"alice": (OLD, ["all"]), "bob": (NEW, ["all"])}) as running:
        running.topics.create("orders", 1)
        yield running


def settings(broker: Broker, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"logins-{next(COUNTER)}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
        "default.api.timeout.ms": 5_000,
        "log_level": 0,
        "error_cb": lambda _error: None,
    }


def told_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What watchdogs are told of users and passwords."""
    heard: list[tuple[str, str]] = []
    tell = Watchdog.login

    def login(self: Watchdog, user: str, password: str) -> None:
        heard.append((user, password))
        tell(self, user, password)

    monkeypatch.setattr(Watchdog, "login", login)
    return heard


def test_credentials_that_are_set_reach_the_control_plane_and_the_watchdog(
    guarded: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`set_sasl_credentials` changed librdkafka's login alone: after a password was rotated the consumer went on
    fetching, and could neither join nor commit from its next connection on."""
    heard = told_of(monkeypatch)
    consumer = holdfast.Consumer(settings(guarded, "alice", "expired"))
    consumer.subscribe(["orders"])  # a member has a watchdog
    with pytest.raises(ck.KafkaException):
        consumer.committed([ck.TopicPartition("orders", 0)], PATIENCE_S)
    consumer.set_sasl_credentials("bob", NEW)
    assert heard == [("bob", NEW)]
    found = consumer.committed([ck.TopicPartition("orders", 0)], PATIENCE_S)
    assert [p.offset for p in found] == [ck.OFFSET_INVALID]
    assert consumer.list_topics("orders", PATIENCE_S).topics["orders"].error is None
    consumer.close()


def test_an_asyncio_consumers_credentials_may_be_set_too(guarded: Broker) -> None:
    async def scene() -> None:
        given = settings(guarded, "alice", "expired")
        async with holdfast.AsyncConsumer(given) as consumer:
            await consumer.set_sasl_credentials("bob", NEW)
            found = await consumer.committed([ck.TopicPartition("orders", 0)], PATIENCE_S)
            assert [p.offset for p in found] == [ck.OFFSET_INVALID]

    asyncio.run(asyncio.wait_for(scene(), 120))


def test_without_a_login_setting_credentials_does_nothing(broker: Broker) -> None:
    consumer = holdfast.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    consumer.set_sasl_credentials("alice", OLD)
    consumer.close()


def test_tokens_of_a_provider_are_librdkafkas_own_and_overheard_by_the_watchdog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka asks the provider itself; our plane does too, and its tokens go to the watchdog."""
    given = {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "g",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "sasl.oauthbearer.config": "principal=admin extension_pool=p",
    }
    heard: list[Any] = []
    monkeypatch.setattr(Watchdog, "token", lambda _self, *token: heard.append(token))
    config = parse(given)
    assert "oauth_cb" not in config.librdkafka()
    assert config.tokens is not None and config.login is None
    watchdog = watched(config)
    token = config.tokens("")[0]
    assert watchdog is not None
    watchdog.dismiss()
    assert heard == [(token, {"pool": "p"})]


def test_credentials_that_are_set_reach_the_trace_topic(guarded: Broker) -> None:
    """Symptom: after a rotation of passwords a consumer's trace no longer came to its topic. Cause: the producer behind
    it has connections of its own, and kept the old password."""
    guarded.topics.create("traces", 1)
    consumer = holdfast.Consumer({**settings(guarded, "alice", "expired"), "holdfast.trace.topic": "traces"})
    consumer.set_sasl_credentials("bob", NEW)
    consumer.subscribe(["orders"])
    until(consumer, lambda: guarded.topics.count("traces") > 0)
    consumer.close()


def test_no_password_is_remembered_beyond_its_consumer(guarded: Broker) -> None:
    """Which settings librdkafka has accepted was remembered with the settings themselves, for as long as the process
    lived: a password of every user that ever had an AsyncConsumer."""

    async def scene() -> None:
        async with holdfast.AsyncConsumer(settings(guarded, "alice", OLD)):
            pass

    asyncio.run(scene())
    assert key_check.checked
    assert OLD not in repr(key_check.checked)
