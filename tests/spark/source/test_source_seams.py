"""Where the parts of the source meet: faults that a hostile reader found between them. Each opens with its symptom."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import confluent_kafka as ck
import pytest
from source_engine import Checkpoint, Engine, committed, produce, source_options

from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.spark.batch import ranges
from holdfast.spark.checking import check_at_load
from holdfast.spark.files.folders import folder_name
from holdfast.spark.options import parse
from holdfast.spark.plans import KEEPS_STATE
from holdfast.spark.source import StreamReader
from holdfast.testing import Broker
from holdfast.wire.api import Api

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=1)
        produce(running, 5, partitions=1)
        yield running


def orders_are(code: ErrorCode) -> Any:
    """Metadata in which the topic has this error."""

    def changed(body: Mapping[str, Any]) -> dict[str, Any]:
        topics = [
            {**one, "error_code": code, "partitions": []} if one["name"] == "orders" else one for one in body["topics"]
        ]
        return {**body, "topics": topics}

    return changed


def test_a_topic_without_a_leader_for_a_moment_is_not_one_that_does_not_exist(broker: Broker) -> None:
    """Symptom: one LEADER_NOT_AVAILABLE, and a batch by pattern left the topic out without a word, a query died of
    UNKNOWN_TOPIC, and one with `latest` took the topic for a new one and read all of it. Rule: ask again."""
    broker.topics.create("orders-eu", partitions=1)
    broker.faults.change(Api.METADATA, orders_are(ErrorCode.LEADER_NOT_AVAILABLE), times=2)
    by_pattern = parse(source_options(broker.bootstrap, subscribePattern="orders.*"), streaming=False)
    assert {p.topic for p in ranges(by_pattern)} == {"orders", "orders-eu"}
    query = Engine(broker.bootstrap, subscribePattern="orders.*", startingOffsets="latest")
    query.member.join()
    broker.faults.change(Api.METADATA, orders_are(ErrorCode.LEADER_NOT_AVAILABLE), times=2)
    assert query.plan() is None
    produce(broker, 2, partitions=1)
    query.run_until(lambda: len(query.seen) == 2)
    query.stop()


def test_a_topic_that_may_not_be_seen_is_told_as_that(broker: Broker) -> None:
    broker.faults.change(Api.METADATA, orders_are(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(HoldfastError, match="TOPIC_AUTHORIZATION_FAILED"):
        ranges(parse(source_options(broker.bootstrap), streaming=False))


@pytest.mark.parametrize("to", [0, 3])
def test_offsets_that_an_operator_has_set_count_also_where_the_last_batch_began(broker: Broker, to: int) -> None:
    """Symptom: a group set back to just where the query's last batch began read nothing again: that batch was taken
    for done and not told. Our own commits carry a note, and an operator's do not."""
    checkpoint = Checkpoint()
    query = Engine(broker.bootstrap, checkpoint)
    query.run_until(lambda: len(query.seen) == 5)
    query.plan()
    query.stop()
    operator = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    operator.commit(offsets=[ck.TopicPartition("orders", 0, to)], asynchronous=False)
    operator.close()
    again = Engine(broker.bootstrap, checkpoint)
    again.run_until(lambda: len(again.seen) == 5 - to)
    again.stop()


def test_a_batch_that_is_done_again_is_cut_to_what_is_ours_under_available_now_too(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: after a restart with AvailableNow an unfinished batch was read whole, also what another member had done
    since. Cause: Spark prepares that trigger first, which makes the member, and a reader with a member was taken for
    one that had been asked already."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    killed = Engine(broker.bootstrap)
    assert killed.plan_something().ranges == {ORDERS: (0, 5)}
    killed.stop()
    other = Engine(broker.bootstrap)
    other.run_until(lambda: len(other.seen) == 5)
    other.step()
    other.stop()
    assert committed(broker, partitions=1) == {0: 5}
    reader = StreamReader(source_options(broker.bootstrap, kafka__holdfast__stateful="none"))
    reader.prepareForTriggerAvailableNow()
    start, end = (json.loads(text) for text in killed.checkpoint.planned[:2])
    slices: Any = reader.partitions(start, end)
    assert [piece for one in slices for piece in one.pieces] == []
    reader.stop()


def test_flags_of_a_pattern_stay_at_its_front() -> None:
    base = {"kafka.bootstrap.servers": "h:1", "kafka.group.id": "g"}
    (pattern,) = parse({**base, "subscribePattern": "(?i)ORDERS.*"}, streaming=True).topics
    import re

    assert re.search(pattern, "eu-orders-1")
    with pytest.raises(HoldfastError, match="subscribePattern is not a regular expression"):
        parse({**base, "subscribePattern": "(orders"}, streaming=True)


def test_a_stream_without_a_group_hears_of_its_group_and_not_of_a_batch() -> None:
    """Symptom: a job fresh from Spark's own source, with startingOffsets=latest and no group yet, was told at .load()
    that a batch would be empty."""
    check_at_load({"kafka.bootstrap.servers": "h:1", "subscribe": "orders", "startingOffsets": "latest"})
    with pytest.raises(HoldfastError, match=r"kafka\.interceptor\.classes has no effect"):
        check_at_load({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.interceptor.classes": "x"})


def test_operators_that_spark_makes_an_aggregation_of_keep_state() -> None:
    assert {"Except", "Intersect"} <= KEEPS_STATE


def test_folders_have_the_values_of_every_alphabet_and_names_that_fit() -> None:
    """Symptom: one record with thirty Japanese characters ended the query with a bare OSError at every restart, because
    each byte became three characters."""
    assert folder_name({"city": "東京" * 15}) == "city=" + "東京" * 15
    assert folder_name({"city": "a/b=c%"}) == "city=a%2Fb%3Dc%25"
    with pytest.raises(HoldfastError, match="SINK_FOLDER_TOO_LONG"):
        folder_name({"city": "x" * 251})


@pytest.mark.parametrize("answered", [True, False])
def test_a_query_that_could_not_leave_is_left_for(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, answered: bool
) -> None:
    """Symptom: a query was stopped while its coordinator did not answer, and its partitions waited for the session
    timeout. Cause: its watchdog was sent to rest all the same; a consumer's leaves for it then. Rule: how a close ends
    is the same for all (`group.session.closing`)."""
    ends: list[bool] = []

    class Watching:
        def inform(self, *_given: Any, **_named: Any) -> None:
            pass

        def dismiss(self, *, clean: bool = True) -> None:
            ends.append(clean)

    monkeypatch.setattr("holdfast.spark.member.watched", lambda _config: Watching())
    query = Engine(broker.bootstrap, kafka__holdfast__watchdog="true")
    query.run_until(lambda: len(query.seen) == 5)
    if not answered:
        monkeypatch.setattr("holdfast.spark.member.LEAVE_LIMIT_S", 0.2)
        broker.faults.delay(Api.LEAVE_GROUP, ms=60_000)

    query.stop()

    assert ends == [answered]
    broker.faults.clear()
