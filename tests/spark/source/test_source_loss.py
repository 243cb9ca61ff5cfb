"""Records that are gone before they were read: an error that says what to do, or a warning and on with the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from source_engine import Engine, committed, every, produce

from holdfast.model import ErrorCode, HoldfastError, TopicPartition
from holdfast.spark import commits, reading
from holdfast.testing import Broker
from holdfast.wire.api import Api
from patience import PATIENCE_S, wait_for

GO_ON = {"failOnDataLoss": "false"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=4)
        produce(running, 10)
        yield running


def admin(broker: Broker) -> Any:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def delete_records(broker: Broker, before: int) -> None:
    client = admin(broker)
    for future in client.delete_records([ck.TopicPartition("orders", 0, before)]).values():
        future.result(PATIENCE_S)


def delete_topic(broker: Broker) -> None:
    client = admin(broker)
    for future in client.delete_topics(["orders"]).values():
        future.result(PATIENCE_S)


def test_records_deleted_before_they_were_read_are_an_error_that_says_what_to_do(broker: Broker) -> None:
    query = Engine(broker.bootstrap)
    planned = query.plan()
    assert planned is not None
    delete_records(broker, 4)
    with pytest.raises(HoldfastError, match=r"RECORDS_DELETED: orders-0 begins at 4 .*failOnDataLoss=false"):
        query.read(planned)
    query.stop()


def test_without_them_the_rest_is_read_and_a_warning_tells(broker: Broker) -> None:
    query = Engine(broker.bootstrap, **GO_ON)
    planned = query.plan()
    assert planned is not None
    delete_records(broker, 4)
    with pytest.warns(UserWarning, match="RECORDS_DELETED"):
        query.sink(planned)
    assert sorted(query.seen) == every(10)[4:]
    query.stop()


def recreate(broker: Broker) -> None:
    delete_topic(broker)
    broker.topics.create("orders", partitions=4)
    produce(broker, 3)


def test_a_log_that_ends_before_the_query_is_an_error(broker: Broker) -> None:
    query = Engine(broker.bootstrap)
    query.run_until(lambda: len(query.seen) == 40)
    recreate(broker)
    with pytest.raises(HoldfastError, match="OFFSETS_REGRESSED"):
        query.run_until(lambda: False)
    query.stop()


def test_a_log_that_ends_before_the_query_is_read_from_its_beginning_if_loss_is_no_error(broker: Broker) -> None:
    query = Engine(broker.bootstrap, **GO_ON)
    query.run_until(lambda: len(query.seen) == 40)
    recreate(broker)
    with pytest.warns(UserWarning, match="OFFSETS_REGRESSED"):
        query.run_until(lambda: len(query.seen) == 52)
    query.stop()


@pytest.mark.slow
def test_a_deleted_topic_is_an_error(broker: Broker) -> None:
    query = Engine(broker.bootstrap)
    query.run_until(lambda: len(query.seen) == 40)
    delete_topic(broker)
    with pytest.raises(HoldfastError, match="TOPIC_DELETED"):
        query.run_until(lambda: False)
    query.stop()


def test_a_deleted_topic_is_left_alone_until_it_is_back_if_loss_is_no_error(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a topic that was deleted and made anew within some minutes was never read again, and its lag stood at 0.
    Cause: the query asked for it again only when its assignment changed, and nobody in the group had noticed. Rule: the
    query looks itself whether a topic is back."""
    monkeypatch.setattr("holdfast.spark.supply.RENEW_EVERY_S", 0.05)
    broker.topics.create("payments", partitions=1)
    produce(broker, 2, topic="payments", partitions=1)
    query = Engine(broker.bootstrap, subscribe="orders,payments", **GO_ON)
    query.run_until(lambda: len(query.seen) == 42)
    delete_topic(broker)
    produce(broker, 3, topic="payments", partitions=1)
    with pytest.warns(UserWarning, match="TOPIC_DELETED"):
        query.run_until(lambda: len(query.seen) == 45)
    query.seen.clear()
    broker.topics.create("orders", partitions=4)
    produce(broker, 2)
    with pytest.warns(UserWarning, match="TOPIC_RECREATED"):
        query.run_until(lambda: len(query.seen) == 8)
    assert sorted(query.seen) == every(2)
    query.stop()


@pytest.mark.slow
def test_an_end_that_can_not_be_reached_is_not_waited_for(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a task ran for ever. Cause: the log was cut off after the batch was planned, and a fetch at its end
    answers nothing, without an error. Invariant: a range is read to its end, or an error says why not."""
    monkeypatch.setattr(reading, "RANGE_RULES", replace(reading.RANGE_RULES, cut_off_s=0.2))
    where = TopicPartition("orders", 0)
    query = Engine(broker.bootstrap)
    with pytest.raises(HoldfastError, match=r"END_UNREACHABLE: orders-0 has nothing after 10, .* up to 12"):
        list(reading.read_pieces(query.options, [(where, 8, 12)]))
    calm = Engine(broker.bootstrap, **GO_ON)
    with pytest.warns(UserWarning, match="END_UNREACHABLE"):
        batches = list(reading.read_pieces(calm.options, [(where, 8, 12)]))
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == [8, 9]
    query.stop()
    calm.stop()


def test_a_leader_that_moves_in_the_middle_of_a_read_is_found_again(broker: Broker) -> None:
    query = Engine(broker.bootstrap, kafka__max__partition__fetch__bytes="60")
    planned = query.plan()
    assert planned is not None
    broker.faults.error(Api.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=3)
    broker.faults.disconnect(Api.FETCH, times=2)
    query.sink(planned)
    assert sorted(query.seen) == every(10)
    query.stop()


def test_a_record_larger_than_the_fetch_size_comes_whole(broker: Broker) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("orders", b"x" * 900_000, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    query = Engine(broker.bootstrap, kafka__max__partition__fetch__bytes="1000")
    planned = query.plan()
    assert planned is not None
    rows = query.read(planned)
    assert max(len(row["value"]) for row in rows) == 900_000
    assert len(rows) == 41
    query.stop()


def test_headers_nulls_and_timestamps_come_as_sparks_own_source_gives_them(broker: Broker) -> None:
    broker.topics.create("rich", partitions=1)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd"})
    producer.produce("rich", None, key=b"k", headers=[("a", b"1"), ("a", None)], timestamp=1_700_000_000_123)
    producer.produce("rich", b"v", key=None)
    assert producer.flush(PATIENCE_S) == 0
    query = Engine(broker.bootstrap, subscribe="rich", includeHeaders="true")
    planned = query.plan()
    assert planned is not None
    first, second = query.read(planned)
    assert (first["key"], first["value"], first["timestampType"]) == (b"k", None, 0)
    assert first["timestamp"].timestamp() == 1_700_000_000.123
    assert first["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert (second["key"], second["value"], second["headers"]) == (None, b"v", None)
    query.stop()


def test_a_coordinator_that_does_not_answer_holds_up_no_batch_for_long(broker: Broker) -> None:
    query = Engine(broker.bootstrap)
    assert query.step() == 40
    broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.COORDINATOR_NOT_AVAILABLE, times=3)
    assert query.plan() is None
    produce(broker, 1)
    query.run_until(lambda: len(query.seen) == 44)
    wait_for(lambda: query.plan() is None and committed(broker) == dict.fromkeys(range(4), 11))
    query.stop()


def test_commits_that_fail_for_long_are_told(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Symptom: batches took five seconds each, lag tools saw no progress, and nothing said why: each commit was
    refused (offset.metadata.max.bytes on the broker, too few replicas of the offsets' topic). Rule: what lasts is told,
    once."""
    monkeypatch.setattr(commits, "COMMIT_LIMIT_S", 0.2)
    query = Engine(broker.bootstrap)
    assert query.step() == 40
    refused = broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    query.run_until(lambda: "could not commit its offsets" in caplog.text)
    assert "OFFSET_METADATA_TOO_LARGE" in caplog.text
    assert "committed its offsets again" not in caplog.text
    refused.clear()
    query.run_until(lambda: "has committed its offsets again" in caplog.text)
    assert caplog.text.count("could not commit its offsets") == 1
    query.stop()


def stable_at_7(body: Any) -> Any:
    """An answer to read_committed while a transaction is open since offset 7."""

    def stable(partition: Any) -> Any:
        return {**partition, "offset": min(partition["offset"], 7)}

    return {**body, "topics": [{**t, "partitions": [stable(p) for p in t["partitions"]]} for t in body["topics"]]}


def test_a_position_above_the_last_stable_offset_is_waited_at(broker: Broker) -> None:
    """Symptom: with read_committed a query read a topic again from its beginning. Cause: its group stood behind the
    start of an open transaction, left by a member that reads uncommitted records, and the last stable offset was taken
    for the log's end. Rule: only the log's end says that a log was cut off."""
    first = Engine(broker.bootstrap)
    first.run_until(lambda: len(first.seen) == 40)
    assert first.plan() is None
    first.stop()
    careful = {"kafka__isolation__level": "read_committed"}
    opened = broker.faults.change(Api.LIST_OFFSETS, stable_at_7, when=lambda asked: asked.body.isolation_level == 1)
    query = Engine(broker.bootstrap, **careful)
    assert query.plan() is None
    assert query.plan() is None
    opened.clear()
    produce(broker, 1)
    query.run_until(lambda: len(query.seen) == 4)
    assert sorted(query.seen) == [(n, 10) for n in range(4)]
    query.stop()
