"""A query as a member: what it plans, what it commits and when it lets go. Spark's calls come from a stand-in."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from source_engine import Checkpoint, Engine, committed, every, produce

from holdfast.broker.exchange import Exchange
from holdfast.group.user_data import read_member_note
from holdfast.model import ErrorCode, TopicPartition
from holdfast.model.consumer_protocol import decode_subscription
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import wait_for


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=4)
        yield running


def members(broker: Broker) -> int:
    return len(broker.group("g").members)


def test_a_query_reads_everything_and_commits_what_is_done_when_it_is_asked_again(broker: Broker) -> None:
    produce(broker, 10)
    query = Engine(broker.bootstrap)
    planned = query.plan()
    assert planned is not None
    query.sink(planned)
    assert committed(broker) == dict.fromkeys(range(4), 0), "a batch that Spark has not finished is not committed"
    query.commit()
    assert query.plan() is None
    wait_for(lambda: committed(broker) == dict.fromkeys(range(4), 10))
    assert sorted(query.seen) == every(10)
    view = broker.group("g")
    assert (view.state, len(view.members)) == ("Stable", 1)
    query.stop()
    assert members(broker) == 0


def test_the_first_question_waits_until_it_is_known_where_the_first_partitions_begin(broker: Broker) -> None:
    """Symptom: with startingOffsets=latest, records produced right after a query's first answer were never read. Cause:
    the round counted as ended while the offsets of its partitions were still being asked for, so nothing was held, and
    where they begin was not committed. Invariant: the first answer is given over what the first round gave."""
    produce(broker, 5)
    broker.faults.delay(Api.OFFSET_FETCH, ms=150)
    query = Engine(broker.bootstrap)
    planned = query.plan()
    assert planned is not None
    assert len(planned.ranges) == 4
    query.stop()


def test_two_queries_share_a_topic_and_each_plans_only_what_it_owns(broker: Broker) -> None:
    produce(broker, 5)
    first = Engine(broker.bootstrap)
    first.run_until(lambda: len(first.seen) == 20)
    second = Engine(broker.bootstrap)
    first.run_until(lambda: len(first.owned()) == len(second.owned()) == 2, second)
    assert first.owned() | second.owned() == {0, 1, 2, 3}
    produce(broker, 5)
    first.run_until(lambda: len(first.seen) + len(second.seen) == 40, second)
    assert sorted(first.seen + second.seen) == every(10)
    assert {p for p, _ in second.seen} == second.owned()
    assert second.plan() is None
    second.stop()
    produce(broker, 5)
    first.run_until(lambda: len(first.seen) + len(second.seen) == 60)
    assert sorted(first.seen + second.seen) == every(15)
    first.stop()


def test_a_partition_in_the_running_batch_is_released_only_when_that_batch_is_done(broker: Broker) -> None:
    """Joining does not wait for a batch, releasing does: the newcomer gets nothing that somebody is still working on,
    and what it gets begins where the finished batch ended."""
    produce(broker, 5)
    first = Engine(broker.bootstrap)
    planned = first.plan()
    assert planned is not None
    second = Engine(broker.bootstrap)
    wait_for(lambda: members(broker) == 2)
    wait_for(lambda: first.member.report()["generation"] == 2, "the round's first half does not wait for the batch")
    assert first.owned() == {0, 1, 2, 3}
    assert second.owned() == set()
    first.sink(planned)
    first.commit()
    assert first.plan() is None
    wait_for(lambda: len(second.owned()) == 2)
    assert len(first.owned()) == 2
    produce(broker, 5)
    second.run_until(lambda: len(first.seen) + len(second.seen) == 40, first)
    assert sorted(first.seen + second.seen) == every(10)
    first.stop()
    second.stop()


def test_an_idle_partition_is_released_although_spark_asks_nothing(broker: Broker) -> None:
    """A trigger may be minutes away: only the running batch holds a partition, and there is none."""
    produce(broker, 5)
    first = Engine(broker.bootstrap)
    first.run_until(lambda: len(first.seen) == 20)
    assert first.plan() is None
    second = Engine(broker.bootstrap)
    second.run_until(lambda: len(second.owned()) == 2)
    assert len(first.owned()) == 2
    first.stop()
    second.stop()


def test_a_round_that_takes_nothing_from_a_query_does_not_wait_for_its_batch(broker: Broker) -> None:
    """Symptom: with a long batch in one query, others could not complete a second round. Cause: every call of the group
    waited for the batch. Invariant: only a release does."""
    broker.topics.create("other", partitions=2)
    produce(broker, 5)
    busy = Engine(broker.bootstrap)
    assert busy.plan() is not None
    others = [Engine(broker.bootstrap, subscribe="other") for _ in range(2)]
    others[0].run_until(lambda: all(other.owned() for other in others), others[1])
    assert busy.owned() == {0, 1, 2, 3}
    for query in (busy, *others):
        query.stop()


def test_what_a_round_takes_is_handed_over_although_the_round_also_gives_something(broker: Broker) -> None:
    """Symptom: the next owner of a query's partition began without the position that the query was to hand over; if the
    commit had failed, it did a finished batch again. Cause: in a round that also gave partitions, the query waited for
    their start offsets, and forgot the final positions of those it had just released. Rule: what the calls of a round
    hand over is kept until the round is answered."""
    broker.topics.create("other", partitions=2)
    produce(broker, 5)
    calm = {"kafka__holdfast__poke": "false"}
    query = Engine(broker.bootstrap, subscribe="orders,other", **calm)
    leaving = Engine(broker.bootstrap, subscribe="other", **calm)
    query.run_until(lambda: bool(len(query.seen) == 20 and leaving.owned() == {0, 1}), leaving)
    assert query.plan() is None
    no_news = broker.faults.error(Api.HEARTBEAT, ErrorCode.NONE)  # so that a leave and a join become one round
    leaving.stop()
    newcomer = Engine(broker.bootstrap, **calm)
    wait_for(lambda: len(broker.group("g").members) == 2)
    broker.faults.delay(Api.OFFSET_FETCH, ms=200)
    handed: set[TopicPartition] = set()
    broker.faults.call(Api.JOIN_GROUP, lambda exchange: handed.update(handed_over(exchange)))
    no_news.clear()
    wait_for(lambda: len(newcomer.owned()) == 3)
    assert query.member.report()["owned"]["other"] == [0, 1]
    assert {p.partition for p in handed if p.topic == "orders"} == newcomer.owned()
    query.stop()
    newcomer.stop()


def handed_over(exchange: Exchange) -> set[TopicPartition]:
    """The partitions whose final positions this JoinGroup carries."""
    found: set[TopicPartition] = set()
    for protocol in exchange.body.protocols:
        note = read_member_note(decode_subscription(bytes(protocol.metadata)).user_data)
        found |= set() if note is None else note.positions.keys()
    return found


def test_a_stopped_query_commits_nothing_of_the_batch_it_leaves_behind(broker: Broker) -> None:
    produce(broker, 5)
    first = Engine(broker.bootstrap)
    assert first.plan() is not None
    first.stop()
    assert committed(broker) == dict.fromkeys(range(4), 0)
    second = Engine(broker.bootstrap)
    second.run_until(lambda: len(second.seen) == 20)
    assert sorted(second.seen) == every(5)
    second.stop()


def test_a_drain_hands_over_everything_while_the_batch_goes_on(broker: Broker) -> None:
    produce(broker, 5)
    leaving, staying = Engine(broker.bootstrap), Engine(broker.bootstrap)
    leaving.run_until(lambda: len(leaving.owned()) == len(staying.owned()) == 2, staying)
    leaving.run_until(lambda: len(leaving.seen) + len(staying.seen) == 20, staying)
    assert leaving.plan() is None
    assert staying.plan() is None
    before = len(staying.seen)
    produce(broker, 5)
    planned = leaving.plan_something()
    leaving.member.drain()
    staying.run_until(lambda: len(staying.seen) == before + 10)
    assert not leaving.member.report()["drained"], "its batch is not done"
    leaving.sink(planned)
    leaving.commit()
    assert leaving.plan() is None
    wait_for(lambda: leaving.member.report()["drained"])
    assert members(broker) == 1
    produce(broker, 5)
    staying.run_until(lambda: len(staying.seen) + len(leaving.seen) == 60)
    assert sorted(staying.seen + leaving.seen) == every(15)
    assert leaving.plan() is None, "whoever has left plans nothing"
    staying.stop()
    leaving.stop()


def test_a_batch_longer_than_the_poll_interval_loses_its_membership_and_its_commit(broker: Broker) -> None:
    produce(broker, 5)
    short = {"kafka__session__timeout__ms": "300", "kafka__heartbeat__interval__ms": "50"}
    slow = Engine(broker.bootstrap, kafka__max__poll__interval__ms="300", **short)
    planned = slow.plan()
    assert planned is not None
    other = Engine(broker.bootstrap)
    other.run_until(lambda: len(other.seen) == 20)
    assert other.plan() is None
    wait_for(lambda: committed(broker) == dict.fromkeys(range(4), 5))
    produce(broker, 1)
    other.run_until(lambda: len(other.seen) == 24)
    assert other.plan() is None
    slow.sink(planned)
    slow.commit()
    slow.plan()
    slow.run_until(lambda: len(slow.owned()) == 2, other)
    wait_for(lambda: committed(broker) == dict.fromkeys(range(4), 6), "the late batch does not move offsets back")
    assert len(other.seen) == 24
    slow.stop()
    other.stop()


def test_a_late_batch_counts_when_nobody_else_did_it(broker: Broker) -> None:
    """The membership was lost for the time of the batch, and nobody took its partitions: doing them again would double
    every record for nothing."""
    produce(broker, 5)
    short = {"kafka__session__timeout__ms": "300", "kafka__heartbeat__interval__ms": "50"}
    slow = Engine(broker.bootstrap, kafka__max__poll__interval__ms="300", **short)
    planned = slow.plan()
    assert planned is not None
    wait_for(lambda: members(broker) == 0)
    slow.sink(planned)
    slow.commit()
    slow.run_until(lambda: committed(broker) == dict.fromkeys(range(4), 5))
    assert sorted(slow.seen) == every(5)
    slow.stop()


def test_available_now_goes_on_after_a_batch_longer_than_the_poll_interval(broker: Broker) -> None:
    """Symptom: AvailableNow ended after 20 of 100 rows, without an error. Cause: the batch was longer than
    max.poll.interval.ms, so the membership was lost, and "nothing for now" was taken for "all is read". Rule: a trigger
    that ends by itself is told "nothing" by a member only."""
    produce(broker, 10)
    short = {"kafka__session__timeout__ms": "300", "kafka__heartbeat__interval__ms": "50"}
    query = Engine(broker.bootstrap, kafka__max__poll__interval__ms="300", **short)
    query.member.stop_at_what_is_there()
    planned = query.plan(20)
    assert planned is not None
    wait_for(lambda: members(broker) == 0)
    query.sink(planned)
    query.commit()
    while query.step(20):
        pass
    assert sorted(query.seen) == every(10)
    query.stop()


def test_a_query_whose_coordinator_is_silent_plans_nothing_until_it_answers(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Symptom: a query that was cut off from its coordinator went on planning batches of partitions that others had by
    then. Rule: the consumer's. After a session without an answer nothing new is begun; it says so, and goes on by
    itself when the coordinator answers."""
    short = {"kafka__session__timeout__ms": "400", "kafka__heartbeat__interval__ms": "50"}
    query = Engine(broker.bootstrap, **short)
    assert query.plan() is None
    silence = broker.faults.drop(Api.HEARTBEAT)
    wait_for(lambda: bool(query.plan() is None and "heard nothing from its coordinator" in caplog.text))
    produce(broker, 5)
    for _ in range(20):  # partitions' ends are looked at every few milliseconds
        assert query.plan() is None
        time.sleep(0.005)
    silence.clear()
    query.run_until(lambda: len(query.seen) == 20)
    assert sorted(query.seen) == every(5)
    assert "plans batches again" in caplog.text
    query.stop()


def test_a_trigger_rarer_than_the_poll_interval_costs_no_membership(broker: Broker) -> None:
    short = {"kafka__session__timeout__ms": "300", "kafka__heartbeat__interval__ms": "50"}
    query = Engine(broker.bootstrap, kafka__max__poll__interval__ms="300", **short)
    assert query.plan() is None
    generation = query.member.report()["generation"]
    beats: list[Api] = []
    broker.faults.call(Api.HEARTBEAT, lambda _: beats.append(Api.HEARTBEAT))
    wait_for(lambda: len(beats) > 12)  # 12 times 50 ms
    assert members(broker) == 1
    assert query.member.report()["generation"] == generation
    query.stop()


def test_a_static_member_that_restarts_in_time_causes_no_round(broker: Broker) -> None:
    produce(broker, 5)
    checkpoint = Checkpoint()
    static = {"kafka__group__instance__id": "app-1"}
    first, other = Engine(broker.bootstrap, checkpoint, **static), Engine(broker.bootstrap)
    first.run_until(lambda: len(first.owned()) == len(other.owned()) == 2, other)
    first.run_until(lambda: len(first.seen) + len(other.seen) == 20, other)
    owned = first.owned()
    generation = other.member.report()["generation"]
    first.stop()
    again = Engine(broker.bootstrap, checkpoint, **static)
    again.run_until(lambda: again.owned() == owned)
    assert other.member.report()["generation"] == generation
    assert broker.group("g").generation == generation
    again.member.drain()
    again.stop()
    other.stop()
