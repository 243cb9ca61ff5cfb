"""A program's own assignor: the documented example as it stands, and one with nothing but a name and a plan."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.assign.filled import filled
from holdfast.model import HoldfastError
from holdfast.testing import Broker
from patience import PATIENCE_S

PAGE = Path(__file__).parents[2] / "docs" / "assignors.md"


@pytest.fixture
def config(holdfast_broker: Broker) -> dict[str, Any]:
    holdfast_broker.topics.create("orders", partitions=9)
    return {"bootstrap.servers": holdfast_broker.bootstrap, "group.id": "g", "heartbeat.interval.ms": 100}


@pytest.fixture
def closing() -> Iterator[list[Any]]:
    made: list[Any] = []
    yield made
    for consumer in made:
        consumer.close()


def settle(consumers: list[Any], wanted: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while [len(consumer.assignment()) for consumer in consumers] != wanted:
        assert time.monotonic() < deadline, [len(consumer.assignment()) for consumer in consumers]
        for consumer in consumers:
            consumer.poll(0.02)


def test_the_documented_example_shares_by_weight_and_moves_little(
    config: dict[str, Any], closing: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"<!-- example -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    there: dict[str, Any] = {}
    exec(code, there)
    made = there["weighted_consumer"]
    closing += [made(2, **config), made(1, **config)]
    for consumer in closing:
        consumer.subscribe(["orders"])
    settle(closing, [6, 3])
    before = set(map(str, closing[0].assignment()))
    closing.append(made(6, **config))
    closing[2].subscribe(["orders"])
    settle(closing, [2, 1, 6])
    assert set(map(str, closing[0].assignment())) <= before
    told = capsys.readouterr().out.splitlines()
    assert any(line.startswith("g ") and closing[2].memberid() in line and line.endswith("has 6") for line in told)


class Plain:
    """The least that there can be."""

    name = "all-to-the-first"

    def assign(
        self, cluster: holdfast.ClusterView, members: Mapping[str, holdfast.Subscription]
    ) -> Mapping[str, holdfast.Assignment]:
        first, *others = sorted(members)
        everything = frozenset(
            holdfast.TopicPartition(topic, number)
            for topic, view in cluster.topics.items()
            for number in range(view.partitions)
        )
        given = {first: holdfast.Assignment(partitions=everything)}
        return given | {member: holdfast.Assignment() for member in others}


def test_a_name_and_a_plan_are_enough(config: dict[str, Any], closing: list[Any]) -> None:
    closing += [holdfast.Consumer({**config, "partition.assignment.strategy": Plain()}) for _ in range(2)]
    for consumer in closing:
        consumer.subscribe(["orders"])
    deadline = time.monotonic() + PATIENCE_S
    while sorted(len(consumer.assignment()) for consumer in closing) != [0, 9]:
        assert time.monotonic() < deadline
        for consumer in closing:
            consumer.poll(0.02)


def test_what_is_left_out_has_kafkas_defaults() -> None:
    whole = filled(Plain())
    assert whole.protocols == (holdfast.RebalanceProtocol.EAGER,)
    assert whole.version == 0
    assert whole.subscription_user_data(frozenset(), frozenset(), -1) is None
    whole.on_assignment(holdfast.Assignment(), holdfast.GroupMetadata(group="g"))


def test_what_is_no_assignor_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(HoldfastError, match="which is not an assignor"):
        holdfast.Consumer({**config, "partition.assignment.strategy": object()})
    strange: Any = Plain()
    strange.protocols = ("eager",)
    with pytest.raises(HoldfastError, match="INVALID_ASSIGNOR"):
        holdfast.Consumer({**config, "partition.assignment.strategy": strange})


def test_a_static_members_assignor_is_told_who_it_is(config: dict[str, Any], closing: list[Any]) -> None:
    told: list[holdfast.GroupMetadata] = []

    class Curious(Plain):
        def on_assignment(self, assignment: holdfast.Assignment, metadata: holdfast.GroupMetadata) -> None:
            told.append(metadata)

    named = {**config, "group.instance.id": "one", "partition.assignment.strategy": [Curious()]}
    closing.append(holdfast.Consumer(named))
    closing[0].subscribe(["orders"])
    settle(closing, [9])
    (found,) = told
    assert (found.group, found.instance_id, found.generation) == ("g", "one", 1)
    assert found.member_id == closing[0].memberid()


class Heavy(Plain):
    """Four bytes of user data, which looked like cooperative-sticky's generation; and words for every member."""

    protocols = (holdfast.RebalanceProtocol.COOPERATIVE,)

    def __init__(self, version: int = 0) -> None:
        self.version = version
        self.shown: dict[str, bytes | None] = {}
        self.heard: list[bytes | None] = []

    def subscription_user_data(self, topics: Any, assigned: Any, generation: int) -> bytes:
        return b"1000"

    def assign(
        self, cluster: holdfast.ClusterView, members: Mapping[str, holdfast.Subscription]
    ) -> Mapping[str, holdfast.Assignment]:
        self.shown = {name: one.user_data for name, one in members.items()}
        given = super().assign(cluster, members)
        return {name: holdfast.Assignment(partitions=one.partitions, user_data=b"hello") for name, one in given.items()}

    def on_assignment(self, assignment: holdfast.Assignment, metadata: holdfast.GroupMetadata) -> None:
        self.heard.append(assignment.user_data)


def test_user_data_of_its_own_arrives_as_it_was_and_the_group_keeps_its_notes(
    config: dict[str, Any], closing: list[Any]
) -> None:
    """Symptom: groups with user data of their own handed over at the next heartbeat, as with foreign clients; four
    bytes came with our note behind them; what an assignor said to its members was overwritten by a note. Rule: both
    travel, and neither sees the other."""
    assignors = [Heavy(), Heavy()]
    long = {**config, "heartbeat.interval.ms": 60_000, "session.timeout.ms": 200_000}
    for one in assignors:
        consumer = holdfast.Consumer({**long, "partition.assignment.strategy": [one]})
        closing.append(consumer)
        consumer.subscribe(["orders"])
        # Without a poke the second member's join would wait a minute for the first one's heartbeat.
        deadline = time.monotonic() + PATIENCE_S
        while sum(len(each.assignment()) for each in closing) != 9 or not consumer.memberid():
            assert time.monotonic() < deadline
            for each in closing:
                each.poll(0.02)
    assert {data for one in assignors for data in one.shown.values()} == {b"1000"}
    assert {data for one in assignors for data in one.heard} == {b"hello"}


def test_the_newest_version_of_an_assignor_leads(config: dict[str, Any], closing: list[Any]) -> None:
    assignors = [Heavy(version=1), Heavy(version=2)]
    for one in assignors:
        closing.append(holdfast.Consumer({**config, "partition.assignment.strategy": [one]}))
        closing[-1].subscribe(["orders"])
        deadline = time.monotonic() + PATIENCE_S
        while not one.heard:
            assert time.monotonic() < deadline
            for each in closing:
                each.poll(0.02)
    assert len(assignors[1].shown) == 2, "the second planned for both"
