"""Where a query begins: the group's offsets first, then the options; and what came later is read from its beginning."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from source_engine import Engine, committed, every, produce, source_options

from holdfast.model import HoldfastError
from holdfast.spark.batch import ranges
from holdfast.spark.options import parse
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S, wait_for


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=4)
        produce(running, 10)
        yield running


def commit(broker: Broker, offsets: dict[int, int]) -> None:
    """As any tool may, from outside the group."""
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    consumer.commit(offsets=[ck.TopicPartition("orders", p, at) for p, at in offsets.items()], asynchronous=False)
    consumer.close()


def first_rows(broker: Broker, count: int, **options: str) -> list[tuple[int, int]]:
    """What a fresh query reads first."""
    query = Engine(broker.bootstrap, **options)
    query.run_until(lambda: len(query.seen) >= count)
    query.stop()
    return sorted(query.seen)


def test_the_groups_offsets_go_before_every_option(broker: Broker) -> None:
    commit(broker, {0: 7, 1: 10, 2: 8, 3: 10})
    for options in ({"startingOffsets": "earliest"}, {"startingOffsets": json.dumps({"orders": {"0": 1}})}):
        assert first_rows(broker, 5, **options) == [(0, 7), (0, 8), (0, 9), (2, 8), (2, 9)]


def test_committed_begins_at_the_groups_offsets_and_says_so_where_there_are_none(broker: Broker) -> None:
    query = Engine(broker.bootstrap, startingOffsets="committed")
    with pytest.raises(HoldfastError, match=r"NO_COMMITTED_OFFSET.*import-checkpoint"):
        query.plan()
    query.stop()
    commit(broker, {0: 7, 1: 10, 2: 8, 3: 10})
    assert len(first_rows(broker, 5, startingOffsets="committed")) == 5


def test_committed_falls_back_to_kafkas_own_reset_if_that_is_given(broker: Broker) -> None:
    commit(broker, {0: 9, 1: 9, 2: 9})
    rows = first_rows(broker, 13, startingOffsets="committed", kafka__auto__offset__reset="earliest")
    assert rows == [(0, 9), (1, 9), (2, 9), *((3, offset) for offset in range(10))]


def test_latest_is_where_the_group_stands_from_then_on_although_nothing_was_read(broker: Broker) -> None:
    """Symptom: records produced between two starts of a query with startingOffsets=latest were never read. Cause: the
    end was looked up anew. Invariant: where a partition begins is committed before anything is read."""
    query = Engine(broker.bootstrap, startingOffsets="latest")
    assert query.plan() is None
    assert committed(broker) == dict.fromkeys(range(4), 10)
    query.stop()
    produce(broker, 2)
    assert first_rows(broker, 8, startingOffsets="latest") == [(p, o) for p in range(4) for o in (10, 11)]


def test_offsets_by_name_and_by_time(broker: Broker) -> None:
    named = json.dumps({"orders": {"0": 8, "1": -2, "2": -1, "3": 9}})
    assert len(first_rows(broker, 13, startingOffsets=named)) == 2 + 10 + 0 + 1
    now_ms = str(int(time.time() * 1_000) + 3_600_000)
    early = Engine(broker.bootstrap, kafka__group__id="timed", startingTimestamp="1000")
    early.run_until(lambda: len(early.seen) == 40)
    early.stop()
    late = Engine(broker.bootstrap, kafka__group__id="late", startingTimestamp=now_ms)
    with pytest.raises(HoldfastError, match=r"NO_RECORD_THAT_LATE.*=latest"):
        late.plan()
    late.stop()


def test_a_partition_not_named_is_an_error_that_names_it(broker: Broker) -> None:
    query = Engine(broker.bootstrap, startingOffsets=json.dumps({"orders": {"0": 8}}))
    with pytest.raises(HoldfastError, match=r"orders-1 .* no offset"):
        query.plan()
    query.stop()


def test_a_topic_that_does_not_exist_is_an_error_or_waited_for(broker: Broker) -> None:
    typo = Engine(broker.bootstrap, subscribe="odrers")
    with pytest.raises(HoldfastError, match=r"UNKNOWN_TOPIC: there is no topic odrers"):
        typo.plan()
    typo.stop()
    patient = Engine(
        broker.bootstrap, subscribe="tomorrow", failOnDataLoss="false", kafka__metadata__max__age__ms="100"
    )
    assert patient.plan() is None
    broker.topics.create("tomorrow", partitions=1)
    produce(broker, 3, topic="tomorrow", partitions=1)
    patient.run_until(lambda: len(patient.seen) == 3)
    patient.stop()


def test_a_batch_of_a_topic_that_does_not_exist_is_not_told_to_wait(broker: Broker) -> None:
    """Symptom: a batch was advised to set failOnDataLoss=false, with which "the query waits": only a stream does."""
    with pytest.raises(HoldfastError, match=r"UNKNOWN_TOPIC: there is no topic odrers") as raised:
        ranges(parse(source_options(broker.bootstrap, subscribe="odrers"), streaming=False))
    assert "waits" not in raised.value.do


def test_brokers_that_are_not_there_are_told_as_that(broker: Broker) -> None:
    query = Engine("127.0.0.1:1", kafka__default__api__timeout__ms="200")
    with pytest.raises(HoldfastError, match=r"LOOKUP_TIMED_OUT.*brokers run"):
        query.plan()
    query.stop()


def grow(broker: Broker, count: int) -> None:
    admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_partitions([NewPartitions("orders", count)]).values():
        future.result(PATIENCE_S)


def test_a_partition_that_is_added_under_the_query_is_read_from_its_beginning(broker: Broker) -> None:
    query = Engine(broker.bootstrap, startingOffsets="latest", kafka__metadata__max__age__ms="100")
    assert query.plan() is None
    grow(broker, 5)
    produce(broker, 3, partitions=5)
    query.run_until(lambda: len(query.seen) == 15)
    assert sorted(query.seen) == [(p, o) for p in range(4) for o in (10, 11, 12)] + [(4, 0), (4, 1), (4, 2)]
    query.stop()


def test_a_partition_that_was_added_while_nobody_ran_is_read_from_its_beginning(broker: Broker) -> None:
    """What was there when the group began travels in its commits: a query that starts later knows it from them."""
    query = Engine(broker.bootstrap, startingOffsets="latest")
    assert query.plan() is None
    query.stop()
    grow(broker, 5)
    produce(broker, 1, partitions=5)
    assert first_rows(broker, 5, startingOffsets="latest") == [(0, 10), (1, 10), (2, 10), (3, 10), (4, 0)]


def test_a_topic_that_comes_to_match_the_pattern_is_read_from_its_beginning(broker: Broker) -> None:
    query = Engine(
        broker.bootstrap,
        subscribePattern="^orders$|late-.*",
        startingOffsets="latest",
        kafka__metadata__max__age__ms="100",
    )
    assert query.plan() is None
    broker.topics.create("late-orders", partitions=1)
    broker.topics.create("unrelated-orders", partitions=1)
    produce(broker, 3, topic="late-orders", partitions=1)
    produce(broker, 3, topic="unrelated-orders", partitions=1)
    query.run_until(lambda: len(query.seen) == 3)
    assert set(query.member.report()["owned"]) == {"late-orders", "orders"}
    query.stop()


def with_an_internal_topic(body: Any) -> Any:
    return {**body, "topics": [{**topic, "is_internal": topic["name"].startswith("__")} for topic in body["topics"]]}


def test_a_pattern_means_no_internal_topics_and_a_name_does(broker: Broker) -> None:
    """Symptom: `subscribePattern` `.*` read `__consumer_offsets` too, which grows with each commit of the query itself.
    Rule: as in Spark's own source, whose admin client lists no internal topics."""
    broker.topics.create("__consumer_offsets", partitions=1)
    produce(broker, 3, topic="__consumer_offsets", partitions=1)
    broker.faults.change(Api.METADATA, with_an_internal_topic)
    query = Engine(broker.bootstrap, subscribePattern=".*")
    query.run_until(lambda: len(query.seen) >= 40)
    assert set(query.member.report()["owned"]) == {"orders"}
    query.stop()
    batch = parse(source_options(broker.bootstrap, subscribePattern=".*"), streaming=False)
    assert {p.topic for p in ranges(batch)} == {"orders"}
    named = Engine(broker.bootstrap, kafka__group__id="named", subscribe="__consumer_offsets")
    named.run_until(lambda: len(named.seen) == 3)
    named.stop()


def test_a_pattern_is_found_anywhere_in_a_name(broker: Broker) -> None:
    """Symptom: a job with the pattern `orders` read `orders-late` on Spark's own source, and not on ours: the pattern
    had to fit the whole name. Spark's source looks for it anywhere."""
    for name in ("late-orders", "orders-late", "payments"):
        broker.topics.create(name, partitions=1)
    found = {
        pattern: {
            p.topic for p in ranges(parse(source_options(broker.bootstrap, subscribePattern=pattern), streaming=False))
        }
        for pattern in ("orders", "^orders", "orders$", "^orders$", "pay|late")
    }
    assert found == {
        "orders": {"late-orders", "orders", "orders-late"},
        "^orders": {"orders", "orders-late"},
        "orders$": {"late-orders", "orders"},
        "^orders$": {"orders"},
        "pay|late": {"late-orders", "orders-late", "payments"},
    }


def test_assigned_partitions_belong_to_no_membership_and_are_committed_all_the_same(broker: Broker) -> None:
    query = Engine(broker.bootstrap, assign='{"orders": [1, 3]}')
    query.run_until(lambda: len(query.seen) == 20)
    assert query.plan() is None
    wait_for(lambda: committed(broker) == {1: 10, 3: 10})
    assert broker.group("g").members == ()
    assert {p for p, _ in query.seen} == {1, 3}
    query.member.drain()
    assert query.member.report()["drained"]
    assert query.plan() is None
    query.stop()


def test_assigned_partitions_in_a_group_with_members_are_refused_with_the_reason(broker: Broker) -> None:
    member = Engine(broker.bootstrap)
    member.run_until(lambda: len(member.seen) == 40)
    before = broker.connections()
    query = Engine(broker.bootstrap, assign='{"orders": [1]}')
    with pytest.raises(HoldfastError, match="GROUP_HAS_MEMBERS"):
        query.run_until(lambda: False)
    query.stop()
    wait_for(lambda: broker.connections() <= before, "a refused commit does not keep it from ending")
    member.stop()


def test_available_now_reads_what_is_there_and_nothing_that_comes_later(broker: Broker) -> None:
    query = Engine(broker.bootstrap)
    query.member.stop_at_what_is_there()
    produce(broker, 5)
    while query.step(15):
        pass
    assert sorted(query.seen) == every(10)
    assert all(sum(end - start for start, end in batch.values()) <= 15 for batch in query.batches)
    query.stop()


def test_a_batch_waits_for_the_least_number_of_records_but_not_for_ever(broker: Broker) -> None:
    patient = Engine(broker.bootstrap, minOffsetsPerTrigger="41", maxTriggerDelay="1h")
    assert patient.plan(at_least=41) is None
    produce(broker, 1)
    wait_for(lambda: patient.plan(at_least=41) is not None)
    patient.stop()
    hasty = Engine(broker.bootstrap, kafka__group__id="h", minOffsetsPerTrigger="400", maxTriggerDelay="10ms")
    wait_for(lambda: hasty.plan(at_least=400) is not None)
    hasty.stop()
