"""Subscriptions by pattern: to topics that are there, that come later, and to a cluster that does not answer yet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import confluent_kafka as ck
import pytest
from polling import COUNTER, take, until

import holdfast
from holdfast.client.config.settings import parse
from holdfast.client.member.patterns import blacklisted, compiled
from holdfast.client.member.topics import Topics
from holdfast.model import ClusterView, TopicView
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S

Make = Callable[..., Any]
OURS = pytest.mark.parametrize("make", ["holdfast"], indirect=True)


def test_a_topic_that_comes_later_is_read_too(make: Make, broker: Broker, topic: str) -> None:
    consumer = make(metadata_max_age_ms=100, topic_metadata_refresh_interval_ms=100)
    consumer.subscribe([f"^{topic}"])
    take(consumer, 15)

    broker.topics.create(f"{topic}-more", partitions=1)
    until(consumer, lambda: f"{topic}-more" in {p.topic for p in consumer.assignment()})


@OURS
def test_who_unsubscribes_from_a_pattern_stays_out(make: Make, broker: Broker, topic: str) -> None:
    """Symptom: half a minute after unsubscribe() the consumer was a member again, and owned partitions that its
    application thought given up. Cause: the regular look at the cluster still knew the pattern, and took the difference
    to what was subscribed (nothing) for new topics. Invariant: only subscribe() makes a member."""
    group = f"g-{next(COUNTER)}"
    consumer = make(group_id=group, metadata_max_age_ms=20)
    consumer.subscribe([f"^{topic}"])
    take(consumer, 15)
    consumer.unsubscribe()
    broker.topics.create(f"{topic}-more", partitions=1)

    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        assert consumer.poll(0.02) is None
    assert consumer.assignment() == []
    assert broker.group(group).members == ()

    consumer.subscribe([f"^{topic}-more"])
    until(consumer, lambda: {p.topic for p in consumer.assignment()} == {f"{topic}-more"})


@OURS
@pytest.mark.parametrize("pattern", ["", "^"], ids=["name", "pattern"])
def test_an_unsubscribe_right_behind_a_subscribe_takes_it_back(
    make: Make, broker: Broker, topic: str, pattern: str
) -> None:
    """Symptom: the consumer became a member after unsubscribe() had returned. Cause: the subscription took effect in a
    step of its own, which the unsubscribe overtook."""
    group = f"g-{next(COUNTER)}"
    consumer = make(group_id=group)
    consumer.subscribe([f"{pattern}{topic}"])
    consumer.unsubscribe()
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        assert consumer.poll(0.02) is None
    assert consumer.assignment() == []
    assert broker.group(group).members == ()


@OURS
def test_a_pattern_waits_for_a_cluster_that_does_not_answer(make: Make, broker: Broker, topic: str) -> None:
    """Symptom: a consumer that subscribed to a pattern while no broker answered polled for ever, and nothing told why.
    Cause: what the pattern matched was asked for once, and nobody heard that it failed. Invariant: a subscription
    takes effect as soon as it can."""
    silence = broker.faults.disconnect(Api.METADATA, times=None)
    consumer = make(default_api_timeout_ms=100)
    consumer.subscribe([f"^{topic}$"])
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        assert consumer.poll(0.02) is None
    silence.clear()

    assert {message.topic() for message in take(consumer, 15)} == {topic}


@pytest.mark.parametrize("pattern", ["^(", "^[", "^*a", "^(?:a)", "^(?i)A"])
def test_what_is_no_pattern_is_refused_at_once(make: Make, pattern: str) -> None:
    """It made the background work die. Python's own inventions are no POSIX patterns: librdkafka refuses them."""
    consumer = make()
    with pytest.raises(ck.KafkaException) as refused:
        consumer.subscribe([pattern])
    assert refused.value.args[0].code() == ck.KafkaError._INVALID_ARG
    assert "Failed to set subscription" in refused.value.args[0].str()


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("^[[:alpha:]]+$", ["aa", "abc"]),
        ("^[[:alpha:][:digit:]]+$", ["12", "a1", "aa", "abc"]),
        ("^[^[:alpha:]]+$", ["12"]),
        ("^a{2}$", ["aa"]),
        ("^[[:upper:]_]", ["Z_"]),
        (r"^x\.y", ["x.y"]),
        ("^a|b", ["a1", "aa", "abc"]),
    ],
)
def test_posix_classes_mean_what_they_mean_to_librdkafka(pattern: str, matched: list[str]) -> None:
    """[[:alpha:]] was read as a set of the letters a, l, p, h and a colon. The matches are librdkafka's own."""
    names = ["aa", "abc", "12", "x.y", "a1", "Z_"]
    assert sorted(name for name in names if compiled(pattern).search(name)) == matched


def test_a_blacklisted_topic_is_left_to_others(make: Make, broker: Broker, topic: str) -> None:
    """Symptom: topic.blacklist was heeded by librdkafka alone. The group gave us the partitions of an excluded topic,
    we read nothing of them, and no other member could. Rule: for us such a topic does not exist."""
    broker.topics.create(f"{topic}-not", partitions=2)
    consumer = make(topic_blacklist="nothing,-not$")
    consumer.subscribe([f"^{topic}"])
    until(consumer, consumer.assignment)
    assert {p.topic for p in consumer.assignment()} == {topic}


@OURS
def test_a_blacklisted_topic_that_is_named_is_told_to_be_missing(make: Make, broker: Broker, topic: str) -> None:
    """The others are read. confluent-kafka says nothing, and does not read those either."""
    broker.topics.create(f"{topic}-not", partitions=2)
    consumer = make(topic_blacklist="-not$")
    consumer.subscribe([topic, f"{topic}-not"])
    told: list[ck.Message] = []
    read: list[ck.Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while not (told and len(read) == 15):
        assert time.monotonic() < deadline
        message = consumer.poll(0.1)
        if message is not None:
            (read if message.error() is None else told).append(message)
    (missing,) = told
    error = missing.error()
    assert missing.topic() == f"{topic}-not"
    assert error is not None and error.code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert {p.topic for p in consumer.assignment()} == {topic}


@pytest.mark.parametrize("patterns", ["a(", "fine,a["])
def test_a_blacklist_that_is_no_pattern_is_refused(make: Make, patterns: str) -> None:
    with pytest.raises(ck.KafkaException) as caught:
        make(topic_blacklist=patterns)
    assert caught.value.args[0].code() == ck.KafkaError._INVALID_ARG


def test_an_asyncio_consumer_refuses_such_a_blacklist_too() -> None:
    with pytest.raises(holdfast.HoldfastError, match=r"CONFIG_INVALID: topic\.blacklist"):
        parse({"group.id": "g", "topic.blacklist": "a("})


@pytest.mark.parametrize(
    ("patterns", "matched"),
    [
        ("", []),
        ("a1", ["a1"]),
        ("^a1$,b", ["a1", "b1"]),
        ("a1,", ["a1"]),
        ("a1, b", ["a1"]),
        (",a", ["a1", "a2", "b1"]),
    ],
)
def test_a_blacklist_is_split_as_librdkafka_splits_it(patterns: str, matched: list[str]) -> None:
    """Between commas stands a pattern, spaces included; an empty one matches everything, one at the end is none."""
    assert list(filter(blacklisted(patterns), ["a1", "a2", "b1"])) == matched


def test_who_unsubscribes_at_once_never_joins() -> None:
    """Symptom: after subscribe(), unsubscribe() and assign(), a commit was refused now and then: UNKNOWN_MEMBER_ID. The
    consumer sat in the group as a member that subscribes to nothing, until it was closed. Cause: the work of the
    subscribe read what is wanted when it came to run, and the unsubscribe had been there before it; nothing was wanted,
    still nothing was wanted, so it joined with nothing. Rule: a subscribe is for what it was called with."""
    fed: list[object] = []

    async def running() -> str | None:
        return None

    async def scene() -> None:
        driver = SimpleNamespace(feed=fed.append, closed=asyncio.Event())
        topics = Topics(cast(Any, None), cast(Any, driver), lambda *_: None, running, parse({"group.id": "g"}))
        under_way = asyncio.ensure_future(topics.subscribe(topics.want(["orders"])))
        topics.forget()
        await under_way

    asyncio.run(scene())
    assert fed == []


def test_a_look_at_the_cluster_for_an_earlier_subscription_says_nothing_of_the_next() -> None:
    """Symptom: a member that subscribed to another topic gave its new partitions up again. Cause: a slow look at the
    cluster had begun before, for the old topic; its answer did not name the new one, whose partitions were taken for
    vanished. Rule: an answer counts for the subscription it was asked for."""
    fed: list[object] = []
    asked, answered = asyncio.Event(), asyncio.Event()

    class Slow:
        async def view(self, topics: set[str]) -> ClusterView:
            asked.set()
            await answered.wait()
            return ClusterView({name: TopicView(1) for name in topics})

    async def running() -> str | None:
        return None

    async def scene() -> None:
        state = SimpleNamespace(planning=SimpleNamespace(counts=None), topics=frozenset())
        driver = SimpleNamespace(feed=fed.append, closed=asyncio.Event(), state=state)
        config = SimpleNamespace(internal_topics=True, raw={})
        topics = Topics(cast(Any, Slow()), cast(Any, driver), lambda *_: None, running, cast(Any, config))
        topics.want(["orders"])
        look = asyncio.ensure_future(topics.look())
        await asked.wait()
        topics.want(["payments"])
        answered.set()
        await look

    asyncio.run(scene())
    assert fed == []
