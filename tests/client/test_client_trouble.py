"""What can go wrong with a group and pass again: the same programs on both classes, with the broker's faults.

Symptom of most of these before: poll raised once, then returned None for ever, and subscribing again did nothing.
Rule: a member comes back by itself from everything that can pass, and poll says what is wrong as confluent's does, by
a message with an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from polling import COUNTER, take, until

import holdfast
from holdfast.assign import by_name
from holdfast.broker.exchange import Exchange
from holdfast.client.member.duplicate_errors import DuplicateErrors
from holdfast.client.member.events import error_message
from holdfast.model import Assignment, Assignor, ClusterView, ErrorCode, Subscription, TopicPartition
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S

Make = Callable[..., Any]
OURS = pytest.mark.parametrize("make", ["holdfast"], indirect=True)


def everything(consumer: Any, count: int, heard: list[ck.KafkaError]) -> None:
    """So many records, with whatever errors come between."""
    deadline = time.monotonic() + PATIENCE_S
    while count:
        assert time.monotonic() < deadline, f"{count} records did not come; told: {heard}"
        message = consumer.poll(0.1)
        if message is not None and (error := message.error()) is not None:
            heard.append(error)
        elif message is not None:
            count -= 1


def ours(group: str) -> Callable[[Exchange], bool]:
    """Requests of this group alone: the broker is everybody's."""

    def asked(exchange: Exchange) -> bool:
        body = exchange.body
        if exchange.api is Api.FIND_COORDINATOR:
            return group in (getattr(body, "key", None), *getattr(body, "coordinator_keys", ()))
        if exchange.api is Api.OFFSET_FETCH and getattr(body, "groups", None):
            return group in [each.group_id for each in body.groups]
        return getattr(body, "group_id", None) == group

    return asked


def subscribed(make: Make, group: str, topic: str) -> Any:
    consumer = make(group_id=group)
    consumer.subscribe([topic])
    return consumer


TOLD = [
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.INVALID_SESSION_TIMEOUT,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode(999),
]


@pytest.mark.parametrize("code", TOLD, ids=lambda code: code.name)
@pytest.mark.parametrize("api", [Api.JOIN_GROUP, Api.FIND_COORDINATOR], ids=lambda api: api.name)
def test_one_refusal_at_the_door_is_told_and_everything_is_read(
    make: Make, broker: Broker, topic: str, api: Api, code: ErrorCode
) -> None:
    if api is Api.FIND_COORDINATOR and code not in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode(999)):
        return
    group = f"door-{topic}"
    fault = broker.faults.error(api, code, times=1, when=ours(group))
    heard: list[ck.KafkaError] = []
    everything(subscribed(make, group, topic), 15, heard)
    assert fault.hits == 1
    if api is Api.JOIN_GROUP or heard:  # librdkafka's own search for a coordinator may have met the fault
        assert {error.code() for error in heard} == {int(code)}
        assert not any(error.fatal() for error in heard)


def test_a_group_that_is_denied_is_told_once_although_two_look_for_it(make: Make, broker: Broker, topic: str) -> None:
    """A missing right to the group came out of poll twice within 30 ms, in librdkafka's words and in ours: both look
    for the coordinator. confluent-kafka tells it once."""
    group = f"denied-{topic}"
    broker.faults.error(Api.FIND_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=2, when=ours(group))
    consumer = make(group_id=group)
    consumer.subscribe([topic])
    heard: list[ck.KafkaError] = []
    everything(consumer, 15, heard)
    assert [error.code() for error in heard] == [ErrorCode.GROUP_AUTHORIZATION_FAILED]


@pytest.mark.parametrize(("who", "after_ms", "again"), [("b", 0.0, True), ("a", 0.0, False), ("b", 3_000.0, False)])
def test_only_what_the_other_one_has_just_said_is_left_out(who: str, after_ms: float, again: bool) -> None:
    denied = error_message(ck.KafkaError(ck.KafkaError.GROUP_AUTHORIZATION_FAILED))
    voice = DuplicateErrors()
    assert not voice.note("a", denied, 1_000.0)
    assert voice.note(who, denied, 1_000.0 + after_ms) is again
    of_a_topic = error_message(ck.KafkaError(ck.KafkaError.GROUP_AUTHORIZATION_FAILED), TopicPartition("orders", 0))
    assert not voice.note("b", of_a_topic, 1_000.0)
    assert not voice.note("b", error_message(ck.KafkaError(ck.KafkaError.INVALID_GROUP_ID)), 1_000.0)


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, *TOLD[-2:]], ids=lambda code: code.name)
@pytest.mark.parametrize("api", [Api.SYNC_GROUP, Api.HEARTBEAT], ids=lambda api: api.name)
@pytest.mark.parametrize("times", [1, 3])
def test_a_refused_sync_or_heartbeat_costs_nothing(
    make: Make, broker: Broker, topic: str, api: Api, code: ErrorCode, times: int
) -> None:
    group = f"refused-{topic}"
    lost: list[str] = []
    fault = broker.faults.error(api, code, times=times, when=ours(group))
    consumer = make(group_id=group, heartbeat_interval_ms=100)
    consumer.subscribe([topic], on_lost=lambda *_: lost.append("lost"), on_revoke=lambda *_: lost.append("revoked"))
    everything(consumer, 15, [])
    until(consumer, lambda: fault.hits == times)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"after", partition=1)
    producer.flush(PATIENCE_S)
    everything(consumer, 1, [])
    assert lost == []


CUT = [Api.FIND_COORDINATOR, Api.SYNC_GROUP, Api.HEARTBEAT, Api.OFFSET_FETCH, Api.OFFSET_COMMIT]


@OURS
@pytest.mark.parametrize(
    ("api", "how"),
    # A join may be parked for as long as the slowest member takes: an answer that never comes is known late.
    [*((api, how) for api in CUT for how in ("disconnect", "lose_answer")), (Api.JOIN_GROUP, "disconnect")],
    ids=lambda part: part if isinstance(part, str) else part.name,
)
def test_a_connection_cut_before_or_after_an_answer_is_made_anew(
    make: Make, broker: Broker, topic: str, api: Api, how: str
) -> None:
    """Where no answer comes the request is given up within the session, a heartbeat after a third of it."""
    group = f"cut-{topic}"
    fault = getattr(broker.faults, how)(api, times=1, when=ours(group))
    consumer = make(
        group_id=group, heartbeat_interval_ms=100, session_timeout_ms=1_500, socket_timeout_ms=1_000,
        max_poll_interval_ms=10_000, auto_commit_interval_ms=100,
    )  # fmt: skip
    consumer.subscribe([topic])
    everything(consumer, 15, [])
    until(consumer, lambda: fault.hits == 1)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"after", partition=1)
    producer.flush(PATIENCE_S)
    everything(consumer, 1, [])


@OURS
def test_a_heartbeat_that_is_never_answered_costs_nothing(make: Make, broker: Broker, topic: str) -> None:
    """Group requests were waited for during 30 s, also with a session of 10: by then the member was expelled."""
    group = f"silent-{topic}"
    lost: list[str] = []
    consumer = make(group_id=group, session_timeout_ms=3_000, heartbeat_interval_ms=200)
    consumer.subscribe([topic], on_lost=lambda *_: lost.append("lost"))
    take(consumer, 15)
    (member,) = broker.group(group).members
    fault = broker.faults.drop(Api.HEARTBEAT, times=1, when=ours(group))
    until(consumer, lambda: fault.hits == 1)
    over = time.monotonic() + 4.0
    until(consumer, lambda: time.monotonic() > over)
    assert lost == [] and [one.member_id for one in broker.group(group).members] == [member.member_id]


def test_a_missing_topic_is_told_and_read_as_soon_as_it_is_there(make: Make, broker: Broker) -> None:
    name = f"later-{next(COUNTER)}"
    consumer = make(topic_metadata_refresh_interval_ms=500)
    consumer.subscribe([name])
    deadline = time.monotonic() + PATIENCE_S
    message = None
    while message is None and time.monotonic() < deadline:
        message = consumer.poll(0.1)
    assert message is not None
    error = message.error()
    assert (error.code(), message.topic(), message.partition()) == (ck.KafkaError.UNKNOWN_TOPIC_OR_PART, name, 0)
    assert f"Subscribed topic not available: {name}" in error.str()
    assert message.value() == error.str().encode()
    broker.topics.create(name, partitions=2)
    until(consumer, lambda: len(consumer.assignment()) == 2)


@OURS
def test_a_denied_topic_is_told(make: Make, broker: Broker, topic: str) -> None:
    def named(exchange: Exchange) -> bool:
        return [each.name for each in exchange.body.topics or ()] == [topic]

    fault = broker.faults.error(Api.METADATA, ErrorCode.TOPIC_AUTHORIZATION_FAILED, when=named)
    consumer = make(topic_metadata_refresh_interval_ms=200)
    consumer.subscribe([topic])
    heard: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while ck.KafkaError.TOPIC_AUTHORIZATION_FAILED not in heard and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None:
            heard.append(message.error().code())
    fault.clear()
    assert ck.KafkaError.TOPIC_AUTHORIZATION_FAILED in heard
    everything(consumer, 15, [])


@OURS
def test_one_look_that_misses_a_topic_takes_nothing_from_anybody(make: Make, broker: Broker, topic: str) -> None:
    """Its partitions were lost without a commit."""
    heard: list[str] = []
    consumer = make(topic_metadata_refresh_interval_ms=100)
    consumer.subscribe([topic], on_lost=lambda *_: heard.append("lost"), on_revoke=lambda *_: heard.append("revoked"))
    take(consumer, 15)

    def named(exchange: Exchange) -> bool:
        return [each.name for each in exchange.body.topics or ()] == [topic]

    fault = broker.faults.error(Api.METADATA, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, times=5, when=named)
    deadline = time.monotonic() + PATIENCE_S
    while fault.hits < 5:
        assert time.monotonic() < deadline
        consumer.poll(0.05)
    later = time.monotonic() + 0.5
    while time.monotonic() < later:
        consumer.poll(0.05)
    assert heard == [] and len(consumer.assignment()) == 3


@OURS
def test_a_topic_that_is_really_gone_is_revoked_and_told(make: Make, broker: Broker, topic: str) -> None:
    kept = f"kept-{topic}"
    broker.topics.create(kept, partitions=1)
    heard: list[tuple[str, list[str]]] = []
    consumer = make(topic_metadata_refresh_interval_ms=100, topic_metadata_propagation_max_ms=300)
    consumer.subscribe(
        [kept, topic],
        on_revoke=lambda _, gone: heard.append(("revoked", sorted({p.topic for p in gone}))),
        on_lost=lambda _, gone: heard.append(("lost", sorted({p.topic for p in gone}))),
    )
    take(consumer, 15)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    told: set[tuple[int, str | None]] = set()
    deadline = time.monotonic() + PATIENCE_S
    while not heard or (ck.KafkaError.UNKNOWN_TOPIC_OR_PART, topic) not in told:
        assert time.monotonic() < deadline, (heard, told)
        message = consumer.poll(0.05)
        if message is not None:
            told.add((message.error().code(), message.topic()))
    assert heard == [("revoked", [topic])]
    assert {p.topic for p in consumer.assignment()} == {kept}


@OURS
def test_a_leader_that_can_not_look_up_its_topics_plans_by_what_it_saw(make: Make, broker: Broker, topic: str) -> None:
    """A metadata outage while planning ended the leader's membership, and its partitions with it."""
    group = f"blind-{topic}"
    lost: list[str] = []
    leader = make(group_id=group, default_api_timeout_ms=500, heartbeat_interval_ms=100, client_id="blind")
    leader.subscribe([topic], on_lost=lambda *_: lost.append("lost"))
    take(leader, 15)
    time.sleep(1.1)  # what it saw is no longer fresh
    fault = broker.faults.disconnect(Api.METADATA, when=lambda exchange: exchange.frame.client_id == "blind")
    other = make(group_id=group, heartbeat_interval_ms=100)
    other.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    while not other.assignment() or len(leader.assignment()) + len(other.assignment()) != 3:
        assert time.monotonic() < deadline, (leader.assignment(), other.assignment())
        leader.poll(0.02)
        other.poll(0.02)
    fault.clear()
    assert lost == []


class Moody:
    """cooperative-sticky, while it is in the mood."""

    def __init__(self) -> None:
        self.inner: Assignor = by_name("cooperative-sticky")
        self.name, self.version, self.protocols = "moody", 0, self.inner.protocols
        self.mood = "well"

    def subscription_user_data(self, *args: Any) -> bytes | None:
        return self.inner.subscription_user_data(*args)

    def assign(self, cluster: ClusterView, members: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        if self.mood == "raises":
            raise ZeroDivisionError("not today")
        if self.mood == "nonsense":
            return {"a stranger": Assignment()}
        return self.inner.assign(cluster, members)

    def on_assignment(self, *args: Any) -> None:
        self.inner.on_assignment(*args)


@pytest.mark.parametrize("mood", ["raises", "nonsense"])
def test_an_assignor_that_fails_costs_nobody_anything_and_is_asked_again(broker: Broker, topic: str, mood: str) -> None:
    """The leader lost its partitions, while the message said that the group keeps its plan."""
    moody = Moody()
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"moody-{topic}",
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 100,
        "partition.assignment.strategy": [moody],
    }
    heard: list[str] = []
    with holdfast.Consumer(config) as leader, holdfast.Consumer(config) as other:
        leader.subscribe([topic], on_lost=lambda *_: heard.append("lost"), on_revoke=lambda *_: heard.append("revoked"))
        take(leader, 15)
        moody.mood = mood
        other.subscribe([topic])
        told = None
        deadline = time.monotonic() + PATIENCE_S
        while told is None:
            assert time.monotonic() < deadline
            told = leader.poll(0.02)
            other.poll(0.02)
        error = told.error()
        assert error is not None and "the assignor 'moody' gave no plan" in error.str()
        assert "Every member keeps its partitions" in error.str()
        assert heard == [] and len(leader.assignment()) == 3 and other.assignment() == []
        moody.mood = "well"
        while not other.assignment():
            assert time.monotonic() < deadline + PATIENCE_S, "it is asked again by itself"
            leader.poll(0.02)
            other.poll(0.02)


@OURS
def test_a_broker_that_restarts_empty_is_joined_anew(make: Make) -> None:
    """Without a data folder it forgets topics and groups, as a new cluster at the old address."""
    with Broker() as own:
        own.topics.create("orders", partitions=2)
        consumer = make(bootstrap_servers=own.bootstrap, heartbeat_interval_ms=100, session_timeout_ms=2_000)
        consumer.subscribe(["orders"])
        until(consumer, lambda: len(consumer.assignment()) == 2)
        own.restart()
        own.topics.create("orders", partitions=2)
        producer = ck.Producer({"bootstrap.servers": own.bootstrap})
        for partition in range(2):
            producer.produce("orders", b"new", partition=partition)
        producer.flush(PATIENCE_S)
        everything(consumer, 2, [])
        consumer.close()


@OURS
def test_consume_returns_errors_as_messages_too(make: Make, broker: Broker, topic: str) -> None:
    group = f"batch-{topic}"
    broker.faults.error(Api.JOIN_GROUP, ErrorCode.GROUP_MAX_SIZE_REACHED, times=1, when=ours(group))
    consumer = make(group_id=group)
    consumer.subscribe([topic])
    found: list[ck.Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < 16 and time.monotonic() < deadline:
        found += consumer.consume(100, 0.2)
    errors = [error.code() for message in found if (error := message.error()) is not None]
    assert (len(found), errors) == (16, [ck.KafkaError.GROUP_MAX_SIZE_REACHED])


@OURS
def test_who_subscribes_again_after_a_refusal_is_a_member(make: Make, broker: Broker, topic: str) -> None:
    """It did nothing: the member had ended without a word."""
    group = f"again-{topic}"
    fault = broker.faults.error(Api.JOIN_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, when=ours(group))
    consumer = make(group_id=group)
    consumer.subscribe([topic])
    until(consumer, lambda: fault.hits >= 2)
    consumer.unsubscribe()
    fault.clear()
    consumer.subscribe([topic])
    everything(consumer, 15, [])
