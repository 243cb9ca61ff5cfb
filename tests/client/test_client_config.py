"""Configurations: whatever confluent-kafka takes is taken, and what it refuses is refused under the name it has there.

Each case is tried on confluent's own class first, so that the table can't drift from what it is about.
"""

from __future__ import annotations

import logging
import math
import pickle
import time
import warnings
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka import cimpl
from polling import COUNTER, take, until

import holdfast
from holdfast.client.config.errors import ConfigError
from holdfast.client.config.keys import read_committed
from holdfast.client.config.settings import parse, session_refused
from holdfast.client.errors import as_kafka_error
from holdfast.client.reading.fetch_settings import fetch_settings
from holdfast.group.verdicts import Ask, refusal
from holdfast.model import ErrorCode
from holdfast.net.config import client_config
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}

TAKEN: dict[str, dict[str, Any]] = {
    "a group that is a number": {"group.id": 5},
    "no bootstrap servers": {"bootstrap.servers": None},
    "a heartbeat at its default beside a shorter session": {"session.timeout.ms": 1_000},
    "a heartbeat as long as the session": {"session.timeout.ms": 1_000, "heartbeat.interval.ms": 1_000},
    "a client id that is a number": {"client.id": 7},
    "no client id": {"client.id": None},
    "an instance that is a number": {"group.instance.id": 5, "session.timeout.ms": 6_000},
    "never to refresh metadata": {"topic.metadata.refresh.interval.ms": -1},
    "a switch in one letter": {"security.protocol": "SSL", "enable.ssl.certificate.verification": "f"},
    "no rack": {"client.rack": None},
    "numbers as text": {"session.timeout.ms": "6000"},
    "numbers with a point": {"session.timeout.ms": 6000.0},
    "a switch as a number": {"enable.auto.commit": 0},
    "one assignor twice": {"partition.assignment.strategy": "range,range"},
    "an empty strategy": {"partition.assignment.strategy": ""},
    "topic settings": {"default.topic.config": {"auto.offset.reset": "earliest", "enable.auto.commit": False}},
    "Java's limit per poll": {"max.poll.records": 5},
}

REFUSED: dict[str, tuple[dict[Any, Any], type[Exception]]] = {
    "an unknown key": ({"no.such.key": 1}, ck.KafkaException),
    "an unknown topic setting": ({"default.topic.config": {"no.such.key": 1}}, ck.KafkaException),
    "a key that is a number": ({5: 1}, ck.KafkaException),
    "a key that is bytes": ({b"client.id": "x"}, ck.KafkaException),
    "no key": ({None: "x"}, ck.KafkaException),
    "no number": ({"session.timeout.ms": None}, ck.KafkaException),
    "no reset": ({"auto.offset.reset": None}, ck.KafkaException),
    "no reset of a topic": ({"default.topic.config": {"auto.offset.reset": None}}, ck.KafkaException),
    "no protocol": ({"group.protocol": None}, ck.KafkaException),
    "a switch for a number": ({"auto.commit.interval.ms": True}, ck.KafkaException),
    "a word for a number": ({"session.timeout.ms": "soon"}, ck.KafkaException),
    "a session that is no time": ({"session.timeout.ms": 0}, ck.KafkaException),
    "a switch that is neither": ({"enable.auto.commit": "maybe"}, ck.KafkaException),
    "an unknown reset": ({"auto.offset.reset": "somewhere"}, ck.KafkaException),
    "an unknown assignor": ({"partition.assignment.strategy": "foo"}, ck.KafkaException),
    "an unknown protocol": ({"security.protocol": "foo"}, ck.KafkaException),
    "an unknown mechanism": (
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "FOO"},
        ck.KafkaException,
    ),
    "no password": ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, ck.KafkaException),
    "an unknown group protocol": ({"group.protocol": "foo"}, ck.KafkaException),
    "a poll interval below the session": (
        {"max.poll.interval.ms": 10_000, "session.timeout.ms": 20_000},
        ck.KafkaException,
    ),
    "an on_commit that can't be called": ({"on_commit": 5}, ck.KafkaException),
    "an on_commit that is None": ({"on_commit": None}, ck.KafkaException),
    "an error_cb that can't be called": ({"error_cb": 5}, TypeError),
    "a stats_cb that is None": ({"stats_cb": None}, TypeError),
    "an oauth_cb that can't be called": ({"oauth_cb": 5}, TypeError),
    "a throttle_cb that can't be called": ({"throttle_cb": 5}, ValueError),
}

CLASSES = [pytest.param(cimpl.Consumer, id="confluent"), pytest.param(holdfast.Consumer, id="holdfast")]


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("case", TAKEN)
def test_what_confluent_takes_is_taken(case: str, kind: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", holdfast.PitfallWarning)
        kind({**NOWHERE, **TAKEN[case]}).close()


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("case", REFUSED)
def test_what_confluent_refuses_is_refused_by_the_same_exception(case: str, kind: Any) -> None:
    """A bad configuration raised a HoldfastError, which no `except KafkaException` of an application catches."""
    settings, expected = REFUSED[case]
    with pytest.raises(expected) as caught:
        kind({**NOWHERE, **settings})
    if expected is ck.KafkaException:
        assert caught.value.args[0].code() == ck.KafkaError._INVALID_ARG


@pytest.mark.parametrize("kind", CLASSES)
def test_a_group_must_be_named_and_a_configuration_be_a_dict(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"group\.id must be set"):
        kind({"bootstrap.servers": "127.0.0.1:1"})
    kind(**NOWHERE).close()
    with pytest.raises(TypeError, match="expected configuration dict"):
        kind()
    for wrong in (None, 5, [("group.id", "g")]):
        with pytest.raises(TypeError, match="expected configuration dict"):
            kind(wrong)


def test_our_error_is_caught_as_ours_and_as_theirs_and_says_what_to_do() -> None:
    with pytest.raises(holdfast.HoldfastError, match=r"CONFIG_INVALID: enable\.auto\.commit is 'maybe'\. Choose") as it:
        holdfast.Consumer({**NOWHERE, "enable.auto.commit": "maybe"})
    assert isinstance(it.value, ck.KafkaException)
    assert "Choose true or false" in it.value.args[0].str()
    again = pickle.loads(pickle.dumps(it.value))  # our own: workers send their errors home
    assert (str(again), again.args[0].code()) == (str(it.value), ck.KafkaError._INVALID_ARG)


# -- auto commit by its other names


def test_the_old_name_of_auto_commit_switches_it_off() -> None:
    """`auto.commit.enable=False` was passed over, and offsets were committed that the application had not asked for."""
    assert parse({**NOWHERE, "auto.commit.enable": False}).auto_commit is False
    assert parse({**NOWHERE, "auto.commit.enable": False, "enable.auto.commit": True}).auto_commit is True
    assert parse({**NOWHERE, "auto.commit.enable": True, "enable.auto.commit": False}).auto_commit is False


def test_topic_settings_win_over_what_stands_beside_them() -> None:
    """`default.topic.config` was ignored. confluent-kafka merges it, and it wins."""
    found = parse(
        {
            **NOWHERE,
            "enable.auto.commit": True,
            "auto.offset.reset": "latest",
            "default.topic.config": {"enable.auto.commit": False, "auto.offset.reset": "smallest"},
        }
    )
    assert (found.auto_commit, found.auto_offset_reset) == (False, "earliest")
    assert "default.topic.config" not in found.librdkafka()


@pytest.mark.parametrize("kind", CLASSES)
def test_an_interval_of_zero_commits_at_the_end_and_not_before(kind: Any, broker: Broker, topic: str) -> None:
    """`auto.commit.interval.ms=0` committed with every poll; librdkafka starts no timer then, and commits at close."""
    group = f"zero-{next(COUNTER)}"
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = kind({**settings, "auto.commit.interval.ms": 0})
    consumer.subscribe([topic])
    take(consumer, 15)
    for _ in range(20):
        consumer.poll(0.01)
    everything = [ck.TopicPartition(topic, number) for number in range(3)]
    assert [p.offset for p in consumer.committed(everything, PATIENCE_S)] == [ck.OFFSET_INVALID] * 3
    consumer.close()
    reader = cimpl.Consumer(settings)
    assert [p.offset for p in reader.committed(everything, PATIENCE_S)] == [5] * 3
    reader.close()
    assert parse({**NOWHERE, "auto.commit.interval.ms": 0}).auto_commit_interval_ms == math.inf


# -- time limits beside each other


def test_what_was_left_open_gives_way_to_what_was_said() -> None:
    """`max.poll.interval.ms=30000` was refused beside the default session, which its user never named."""
    found = parse({**NOWHERE, "max.poll.interval.ms": 30_000})
    assert (found.session_timeout_ms, found.max_poll_interval_ms) == (30_000, 30_000)
    assert parse({**NOWHERE, "session.timeout.ms": 6_000}).heartbeat_interval_ms == 2_000
    assert parse({**NOWHERE, "session.timeout.ms": 30_000}).heartbeat_interval_ms == 3_000


def test_two_limits_that_contradict_each_other_say_which_value_would_do() -> None:
    with pytest.raises(ConfigError, match=r"Raise it to 20000 or more, or lower session\.timeout\.ms to 10000 or less"):
        parse({**NOWHERE, "max.poll.interval.ms": 10_000, "session.timeout.ms": 20_000})


def test_a_heartbeat_that_comes_too_late_is_lowered_and_told() -> None:
    with pytest.warns(holdfast.PitfallWarning, match=r"every heartbeat would come too late. 2000 is used"):
        found = parse({**NOWHERE, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 7_000})
    assert found.heartbeat_interval_ms == 2_000


# -- Java's names


def test_javas_name_of_a_setting_is_the_setting() -> None:
    handed_on = parse({**NOWHERE, "fetch.max.wait.ms": 20, "auto.offset.reset": "none"}).librdkafka()
    assert handed_on["fetch.wait.max.ms"] == 20
    assert "fetch.max.wait.ms" not in handed_on
    assert handed_on["auto.offset.reset"] == "error"
    with pytest.raises(ConfigError, match=r"fetch\.wait\.max\.ms say different things"):
        parse({**NOWHERE, "fetch.max.wait.ms": 20, "fetch.wait.max.ms": 30})


@pytest.mark.parametrize("key", ["key.deserializer", "value.deserializer"])
def test_a_deserializer_is_refused_with_what_to_do(key: str) -> None:
    with pytest.raises(ConfigError, match=r"leave the key out and decode message\.value"):
        parse({**NOWHERE, key: "org.apache.kafka.common.serialization.StringDeserializer"})


def test_a_limit_per_poll_that_does_nothing_says_so() -> None:
    with pytest.warns(holdfast.PitfallWarning, match=r"max\.poll\.records does nothing here"):
        parse({**NOWHERE, "max.poll.records": 5})


def test_the_new_group_protocol_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"Leave the key out, here and in the other members"):
        parse({**NOWHERE, "group.protocol": "consumer"})


def test_a_mistyped_key_of_ours_names_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean holdfast\.watchdog\?"):
        parse({**NOWHERE, "holdfast.watchdogs": True})


# -- warnings


def test_a_warning_never_stops_a_program_that_works(caplog: pytest.LogCaptureFixture) -> None:
    """Under `-W error` a pitfall was an exception out of the constructor, or out of poll."""
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING, "holdfast"):
        warnings.simplefilter("error")
        parse({**NOWHERE, "max.poll.records": 5})
    assert "max.poll.records does nothing here" in caplog.text


# -- without a group


@pytest.mark.parametrize("group", [None, ""])
def test_without_a_group_what_was_assigned_is_read(broker: Broker, topic: str, group: str | None) -> None:
    """A reader of its own assignment needs no group until it asks for something of one; confluent-kafka 2.16 ends the
    whole process on an empty group."""
    consumer = holdfast.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.assign([ck.TopicPartition(topic, 0), ck.TopicPartition(topic, 1, 3)])
    assert sorted((m.partition(), m.offset()) for m in take(consumer, 7)) == [
        *((0, offset) for offset in range(5)),
        (1, 3),
        (1, 4),
    ]
    of_a_group: list[Callable[[], object]] = [
        lambda: consumer.subscribe([topic]),
        lambda: consumer.commit(asynchronous=False),
        lambda: consumer.committed([ck.TopicPartition(topic, 0)]),
    ]
    for call in of_a_group:
        with pytest.raises(ck.KafkaException) as caught:
            call()
        assert caught.value.args[0].code() == ck.KafkaError._UNKNOWN_GROUP
    until(consumer, lambda: consumer.poll(0.01) is None)
    consumer.close()


# -- what librdkafka takes


def test_a_number_as_the_instance_is_its_digits() -> None:
    """`group.instance.id=5` made a consumer that never joined, without a word: a number can't be sent as a text."""
    assert parse({**NOWHERE, "group.instance.id": 5}).instance_id == "5"
    consumer = holdfast.Consumer({**NOWHERE, "group.instance.id": 5})
    assert consumer.consumer_group_metadata().endswith(b"\x005\x00")
    consumer.close()


def test_never_to_refresh_metadata_is_taken() -> None:
    """librdkafka's range begins at -1. Refused, a program that runs on confluent-kafka could not make its consumer."""
    found = parse({**NOWHERE, "topic.metadata.refresh.interval.ms": -1})
    assert client_config(found.raw).metadata_max_age_s == 0
    for key, wrong in (("topic.metadata.refresh.interval.ms", -2), ("metadata.max.age.ms", -1)):
        with pytest.raises(ck.KafkaException, match="CONFIG_INVALID"):
            parse({**NOWHERE, key: wrong})


@pytest.mark.parametrize(("word", "meant"), [("t", True), ("T", True), ("1", True), ("f", False), ("FALSE", False)])
def test_yes_and_no_are_the_same_words_everywhere(word: str, meant: bool) -> None:
    """Two readers of booleans differed from each other and from librdkafka, which takes true, t and 1."""
    assert parse({**NOWHERE, "enable.auto.commit": word}).auto_commit is meant
    secure = {**NOWHERE, "security.protocol": "SSL", "enable.ssl.certificate.verification": word}
    tls = client_config(parse(secure).raw).security.tls
    assert tls is not None and tls.verify_certificate is meant


@pytest.mark.parametrize(
    "wrong",
    [
        {"enable.auto.commit": "maybe"},
        {"broker.address.family": "v5"},
        {"request.timeout.ms": "soon"},
        {"security.protocol": "SSL", "enable.ssl.certificate.verification": "maybe"},
    ],
)
def test_a_setting_that_can_not_be_used_has_one_code(wrong: dict[str, str]) -> None:
    """There were two, and only one of them was known where errors become confluent-kafka's."""
    with pytest.raises(holdfast.HoldfastError) as caught:
        parse({**NOWHERE, **wrong})
    assert caught.value.code == "CONFIG_INVALID"
    assert as_kafka_error(caught.value).code() == ck.KafkaError._INVALID_ARG
    theirs = holdfast.HoldfastError("INVALID_CONFIG", "The broker says so.", "Look there.")
    assert as_kafka_error(theirs).code() == 40


def test_a_session_that_is_refused_is_told_with_its_value_and_where_it_came_from(broker: Broker) -> None:
    """`max.poll.interval.ms=1000` alone: poll spoke of session.timeout.ms, which nobody had set, without a number."""
    told = refusal(Ask.JOIN, ErrorCode.INVALID_SESSION_TIMEOUT)
    said = session_refused(parse({**NOWHERE, "session.timeout.ms": 2_000}), told)
    assert "session.timeout.ms is 2000, outside" in said.what and "max.poll" not in said.what
    assert (said.code, said.do) == (told.code, told.do)
    group = f"session-{next(COUNTER)}"
    refused = broker.faults.error(
        Api.JOIN_GROUP, ErrorCode.INVALID_SESSION_TIMEOUT, when=lambda exchange: exchange.body.group_id == group
    )
    consumer = holdfast.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "max.poll.interval.ms": 7_000}
    )
    consumer.subscribe(["orders"])
    message, deadline = None, time.monotonic() + PATIENCE_S
    while message is None:
        assert time.monotonic() < deadline
        message = consumer.poll(0.1)
    error = message.error()
    assert error is not None and error.code() == ErrorCode.INVALID_SESSION_TIMEOUT
    text = error.str()
    assert "JoinGroup failed: session.timeout.ms is 7000, taken from max.poll.interval.ms" in text
    assert "Raise max.poll.interval.ms" in text
    refused.clear()
    consumer.close()


@pytest.mark.parametrize(("level", "committed"), [("READ_UNCOMMITTED", False), ("Read_Committed", True), (None, True)])
def test_an_isolation_level_means_the_same_in_any_case_and_everywhere(level: str | None, committed: bool) -> None:
    """Three places read it, one of them by the exact letters: the lag in the statistics of a READ_UNCOMMITTED reader
    was counted from the last stable offset."""
    kafka = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "isolation.level": level}
    consumer = ck.Consumer({key: value for key, value in kafka.items() if value is not None})
    consumer.close()
    config = parse(kafka)
    assert read_committed(config.raw) is committed
    assert fetch_settings(config).read_committed is committed


@pytest.mark.parametrize("kind", [holdfast.Consumer, holdfast.AsyncConsumer])
@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("auto.ofset.reset", "earliest", "Did you mean auto.offset.reset?"),
        ("enable.autocommit", False, "Did you mean enable.auto.commit?"),
        ("interceptor.classes", "x.Y", "leave it out"),
        ("quite.another.thing", 1, "spelling"),
        ("queued.min.messages", "many", "documentation"),
        ("queued.min.messages", 0, "1..10000000. See librdkafka's documentation"),
    ],
)
def test_what_librdkafka_refuses_says_what_to_do_as_well(kind: Any, key: str, value: object, advice: str) -> None:
    """Keys that go to librdkafka untouched were refused in its words alone: no code of ours, no key that was meant,
    and not the HoldfastError that docs/consumer.md promises for every configuration that can't be used."""
    with pytest.raises(ck.KafkaException) as theirs:
        cimpl.Consumer({**NOWHERE, key: value})
    with pytest.raises(holdfast.HoldfastError) as refused:
        kind({**NOWHERE, key: value})

    assert isinstance(refused.value, ck.KafkaException)
    assert refused.value.args[0].code() == theirs.value.args[0].code() == ck.KafkaError._INVALID_ARG
    assert theirs.value.args[0].str().rstrip() in str(refused.value)  # its texts on ranges end with a new line
    assert advice in str(refused.value) and str(refused.value).startswith("CONFIG_INVALID: ")
