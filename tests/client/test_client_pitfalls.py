"""What will hurt later is said once, with what to do: seed pitfalls on a consumer, and the rules by themselves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from unwarned import no_warning

import holdfast
from holdfast.assign import by_name
from holdfast.client import core
from holdfast.client import polling as polling_core
from holdfast.client.clock import now_ms
from holdfast.client.config import settings as config
from holdfast.client.config.pitfalls import SINGLE_COMMITS, Pitfalls, lopsided
from holdfast.client.config.warning import PitfallWarning
from holdfast.group import leader
from holdfast.group.messages import OffsetEntry
from holdfast.model import ClusterView, JoinedMember, Subscription, TopicPartition, TopicView, TraceRecord
from holdfast.model.consumer_protocol import encode_subscription
from holdfast.testing import Broker
from patience import PATIENCE_S

ORDERS = TopicPartition("orders", 0)


def settings(**more: Any) -> dict[str, Any]:
    return {"group.id": "g", "bootstrap.servers": "127.0.0.1:1", **more}


@pytest.fixture
def traced() -> list[TraceRecord]:
    return []


@pytest.fixture
def pitfalls(traced: list[TraceRecord]) -> Pitfalls:
    return Pitfalls(config.parse(settings(), {}), traced.append, name="c0")


@pytest.fixture
def quiet() -> Iterator[None]:
    """Any warning in here fails the test."""
    with no_warning():
        yield


# -- processing that takes too long


def test_a_pause_near_the_poll_interval_is_mentioned_once_and_one_beyond_it_once_more(
    pitfalls: Pitfalls, traced: list[TraceRecord]
) -> None:
    assert pitfalls.slow_ms == 210_000, "seven tenths of five minutes"
    with pytest.warns(PitfallWarning, match=r"80% of max.poll.interval.ms \(300000\)"):
        pitfalls.paused(240_000, 1.0, None)
    assert pitfalls.slow_ms == 300_000, "no need to look again before it is exceeded"
    with pytest.warns(PitfallWarning, match=r"It was at app.py:7 in work. Process less"):
        pitfalls.paused(300_001, 2.0, "app.py:7 in work")
    assert pitfalls.slow_ms == float("inf")
    assert [record.data["pitfall"] for record in traced] == ["poll-interval-near", "poll-interval-exceeded"]


@pytest.fixture
def four_minutes_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Of processing, for all that a consumer's polls know."""
    passed = [0.0]

    def pass_by() -> None:
        passed[0] += 250_000.0

    monkeypatch.setattr(polling_core, "CALM_MS", -1e9)  # no short cut past the look at the clock
    monkeypatch.setattr(core, "now_ms", lambda: now_ms() + passed[0])
    return pass_by


def test_a_consumer_that_polls_again_after_a_long_pause_is_told(
    broker: Broker, topic: str, tmp_path: Path, four_minutes_pass: Callable[[], None]
) -> None:
    trace = tmp_path / "trace.jsonl"
    given = {"bootstrap.servers": broker.bootstrap, "group.id": f"slow-{topic}", "holdfast.trace.file": str(trace)}
    with holdfast.Consumer(given) as consumer:
        consumer.subscribe([topic])
        consumer.poll(0)
        four_minutes_pass()
        with pytest.warns(holdfast.PitfallWarning, match="went by between two polls") as told:
            consumer.poll(0)
        assert told[0].filename == __file__, "the line to change is the application's"
        four_minutes_pass()
        consumer.poll(0)
    said = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [one["data"] for one in said if one["step"] == "pitfall"] == [{"pitfall": "poll-interval-near"}]


# -- a commit per record


def commit(pitfalls: Pitfalls, offset: int, now: float, *, partition: TopicPartition = ORDERS) -> None:
    pitfalls.committed({partition: OffsetEntry(offset)}, now)


def test_commits_of_single_records_in_quick_succession_are_mentioned_once(
    pitfalls: Pitfalls, traced: list[TraceRecord]
) -> None:
    for offset in range(SINGLE_COMMITS):
        commit(pitfalls, offset, float(offset))
    assert traced == []
    with pytest.warns(PitfallWarning, match="one record each"):
        commit(pitfalls, SINGLE_COMMITS, 100.0)
    for offset in range(SINGLE_COMMITS + 1, 3 * SINGLE_COMMITS):
        commit(pitfalls, offset, 200.0)
    assert len(traced) == 1


@pytest.mark.usefixtures("quiet")
def test_batches_rare_records_and_repeated_commits_are_no_pitfall(pitfalls: Pitfalls) -> None:
    for number in range(5 * SINGLE_COMMITS):
        commit(pitfalls, 10 * number, float(number))
    for number in range(5 * SINGLE_COMMITS):
        commit(pitfalls, number, 1_000.0 * number, partition=TopicPartition("rare", 0))
    for number in range(5 * SINGLE_COMMITS):
        commit(pitfalls, 7, float(number), partition=TopicPartition("again", 0))


def test_the_loop_that_commits_every_record_is_found_in_a_consumer(broker: Broker, topic: str) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(SINGLE_COMMITS + 10):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    given = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"committer-{topic}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with holdfast.Consumer(given) as consumer:
        consumer.subscribe([topic])
        with pytest.warns(PitfallWarning, match="Commit once per batch") as told:
            deadline = time.monotonic() + PATIENCE_S
            while not told.list and time.monotonic() < deadline:
                message = consumer.poll(0.05)
                if message is not None:
                    consumer.commit(message=message)


# -- range over many topics


def planned(topics: dict[str, int], members: int, strategy: str = "range") -> leader.LeaderPlan:
    cluster = ClusterView({name: TopicView(count) for name, count in topics.items()})
    data = encode_subscription(Subscription(topics=tuple(sorted(topics))))
    joined = [JoinedMember(member_id=f"c{number}", metadata=data) for number in range(members)]
    return leader.plan(by_name(strategy), cluster, joined, generation=1, leader="c0", token="t")


def test_range_with_many_small_topics_piles_up_on_the_first_members() -> None:
    text = lopsided(planned({f"t{number}": 2 for number in range(10)}, members=8))
    assert text is not None
    assert "range gives c0 10 of 20 partitions over 10 topics, and another member 0, where 3 each would be fair" in text
    assert "holdfast preflight" in text


def test_range_that_divides_well_or_has_one_topic_is_no_pitfall() -> None:
    assert lopsided(planned({f"t{number}": 8 for number in range(10)}, members=4)) is None
    assert lopsided(planned({"only": 3}, members=8)) is None
    assert lopsided(planned({"a": 5, "b": 5}, members=4)) is None


def test_a_leader_tells_of_a_lopsided_plan_from_its_polling_thread(pitfalls: Pitfalls) -> None:
    plan = planned({f"t{number}": 2 for number in range(10)}, members=8)
    with no_warning():
        pitfalls.planned(plan)  # on the control plane's thread, where a warning would be nobody's
    with pytest.warns(PitfallWarning, match="starts every topic with the first member again"):
        pitfalls.tell(1.0)
    with no_warning():
        pitfalls.planned(plan)
        pitfalls.tell(2.0)


def test_the_others_plans_are_not_even_looked_at(pitfalls: Pitfalls, quiet: None) -> None:
    pitfalls.planned(planned({f"t{number}": 2 for number in range(10)}, members=8, strategy="cooperative-sticky"))
    pitfalls.tell(1.0)


def test_a_group_of_three_with_range_hears_of_it(broker: Broker) -> None:
    names = [f"small-{number}" for number in range(4)]
    for name in names:
        broker.topics.create(name, 1)
    given = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "lopsided",
        "heartbeat.interval.ms": 200,
        "partition.assignment.strategy": "range",
        "holdfast.watchdog": False,
    }
    members = [holdfast.Consumer(given) for _ in range(3)]
    try:
        with pytest.warns(PitfallWarning, match="over 4 topics") as told:
            for member in members:
                member.subscribe(names)
            deadline = time.monotonic() + PATIENCE_S
            while not told.list and time.monotonic() < deadline:
                for member in members:
                    member.poll(0.005)
    finally:
        for member in members:
            member.close()


# -- a cooperative member in an eager group


def test_a_leader_on_range_notices_a_member_that_joined_with_partitions_in_hand(pitfalls: Pitfalls) -> None:
    """KIP-429's silent danger: an eager plan takes what everybody holds for free, and nothing fails."""
    cluster = ClusterView({"orders": TopicView(2)})
    held = Subscription(topics=("orders",), owned=frozenset({ORDERS, TopicPartition("orders", 1)}), generation=1)
    joined = [
        JoinedMember(member_id="keeper", metadata=encode_subscription(held)),
        JoinedMember(member_id="other", metadata=encode_subscription(Subscription(topics=("orders",)))),
    ]
    pitfalls.planned(leader.plan(by_name("range"), cluster, joined, generation=2, leader="other", token="t"))
    with pytest.warns(PitfallWarning, match="keeper joined with partitions in hand, which range gives to others"):
        pitfalls.tell(1.0)
    cooperative = Pitfalls(config.parse(settings(), {}), lambda _: None, name="c0")
    cooperative.planned(
        leader.plan(by_name("cooperative-sticky"), cluster, joined, generation=2, leader="other", token="t")
    )
    with no_warning():
        cooperative.tell(1.0)


# -- a static id that hides the dead


def test_a_static_id_with_a_session_of_minutes_is_mentioned() -> None:
    given = settings(**{"group.instance.id": "pod-0", "session.timeout.ms": 180_000})
    with pytest.warns(PitfallWarning, match=r"nobody reads its partitions for 3.0 minutes") as told:
        config.parse(given, {})
    assert told[0].filename == __file__


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    "more",
    [
        {"group.instance.id": "pod-0"},
        {"group.instance.id": "pod-0", "session.timeout.ms": 60_000},
        {"session.timeout.ms": 180_000},
        {"group.instance.id": "pod-0", "session.timeout.ms": 180_000, "holdfast.watchdog": True},
    ],
    ids=["default", "a minute", "dynamic", "with a watchdog"],
)
def test_what_does_not_hide_the_dead_for_minutes_is_no_pitfall(more: dict[str, Any]) -> None:
    config.parse(settings(**more), {})
