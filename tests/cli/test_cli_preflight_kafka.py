"""`holdfast preflight` on a real Apache Kafka: its coordinator answers the question about all members as ours does."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka as ck
import pytest
from cli_members import PARTITIONS, Members
from cli_world import Commands

from holdfast.testing.kafka import RealKafka

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka() -> Iterator[RealKafka]:
    with RealKafka() as running:
        yield running


@pytest.fixture
def members(kafka: RealKafka) -> Iterator[Members]:
    made = Members(kafka.bootstrap)
    kafka.create_topic(made.topic, partitions=PARTITIONS)
    yield made
    made.stop()


@pytest.fixture
def asked(
    kafka: RealKafka, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Iterator[Commands]:
    with Commands(kafka.bootstrap, monkeypatch, capfdbinary) as made:
        yield made


def test_members_that_say_nothing_are_judged_together_and_not_disturbed(asked: Commands, members: Members) -> None:
    members.add("range,roundrobin", "a", ck.Consumer)
    members.add("range", "b", ck.Consumer)
    rounds = members.rounds
    found = asked.fine("preflight", members.group, "--to", "cooperative-sticky", "-o", "json").json()
    assert (found["stage"], found["protocol"], len(found["unsaid"])) == ("before-first", "range", 2)
    assert asked.run("preflight", members.group, "--to", "cooperative-sticky", "--bounce", "2").code == 1
    same = asked.fine("preflight", members.group, "--to", "range", "-o", "json").json()
    assert same["stage"] == "done"
    time.sleep(1.0)  # ten heartbeats: whoever had to rejoin would have heard
    assert members.rounds == rounds
    settled = asked.fine("preflight", members.group, "--to", "cooperative-sticky", "-o", "json").json()
    assert [one["client_id"] for one in settled["members"]] == ["a", "b"], "nobody is left behind in the group"


def test_a_mixed_group_in_its_second_bounce_is_seen_as_such(asked: Commands, members: Members) -> None:
    members.add("cooperative-sticky,range", "ours")
    up = asked.fine("preflight", members.group, "--to", "cooperative-sticky", "-o", "json").json()
    assert up["stage"] == "after-first"
    members.add("cooperative-sticky", "theirs", ck.Consumer)
    found = asked.fine("preflight", members.group, "--to", "cooperative-sticky", "-o", "json").json()
    assert (found["stage"], found["bounce"]) == ("in-second", 2)
    assert asked.run("preflight", members.group, "--to", "range").code == 1
