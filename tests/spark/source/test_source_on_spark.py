"""The source on Spark itself: registration, schema, two queries in a group, drain, stop, triggers, batch reads."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from source_engine import committed, every, produce

import holdfast.spark
from holdfast.model import HoldfastError
from holdfast.testing import Broker

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
"""PySpark itself warns about what is no business of ours."""

LIMIT_S = 150.0
"""For anything that is waited for. Spark starts processes; on a busy machine each takes seconds."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=4)
        yield running


class Query:
    """One streaming query with a sink that keeps what it got, keyed by batch: what Spark replays replaces itself."""

    def __init__(self, spark: Any, broker: Broker, folder: Path, *, trigger: dict[str, Any], **options: str) -> None:
        self.batches: dict[int, list[tuple[int, int]]] = {}
        reader = spark.readStream.format("holdfast").options(**options_for(broker, **options))
        writer = reader.load().writeStream.foreachBatch(self._take).option("checkpointLocation", str(folder))
        self.query = (writer.trigger(**trigger) if trigger else writer).start()

    def _take(self, frame: Any, number: int) -> None:
        self.batches[number] = [(row.partition, row.offset) for row in frame.select("partition", "offset").collect()]

    @property
    def seen(self) -> list[tuple[int, int]]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]


def options_for(broker: Broker, **options: str) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.group.id": "g", "subscribe": "orders"}
    given |= {"startingOffsets": "earliest", "kafka.heartbeat.interval.ms": "300"}
    return given | {key.replace("__", "."): value for key, value in options.items()}


def wait(holds: Callable[[], bool], *queries: Query) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        told = [(len(q.seen), q.query.lastProgress, str(q.query.exception())) for q in queries]
        assert time.monotonic() < deadline, told
        assert not any(q.query.exception() for q in queries), told
        time.sleep(0.05)


def ended(query: Query) -> None:
    assert query.query.awaitTermination(int(LIMIT_S)), query.query.lastProgress
    assert query.query.exception() is None


def test_two_queries_share_a_topic_one_drains_and_one_is_stopped(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """Nothing is registered by hand: PySpark finds the source by the name of its module."""
    produce(broker, 100)
    first = Query(spark, broker, tmp_path / "first", trigger={}, kafka__holdfast__share="true")
    wait(lambda: len(first.seen) == 400, first)
    second = Query(spark, broker, tmp_path / "second", trigger={}, kafka__holdfast__share="true")
    wait(lambda: len(broker.group("g").members) == 2 and broker.group("g").state == "Stable", first, second)

    def owned() -> list[int]:
        (one,), (two,) = holdfast.spark.report(first.query), holdfast.spark.report(second.query)
        return sorted(one["owned"].get("orders", []) + two["owned"].get("orders", []))

    produce(broker, 10)
    wait(lambda: len(first.seen) + len(second.seen) == 440, first, second)
    assert owned() == [0, 1, 2, 3]
    assert second.seen, "the second query had its share"
    progress = json.loads(second.query.lastProgress["sources"][0]["latestOffset"])
    assert (progress["group"], len(progress["owned"]["orders"])) == ("g", 2)
    produce(broker, 10)
    holdfast.spark.drain(second.query)
    assert len(broker.group("g").members) == 1
    assert not second.query.isActive
    produce(broker, 10)
    wait(lambda: len(first.seen) + len(second.seen) >= 520, first)
    assert sorted(first.seen + second.seen) == every(130)
    wait(lambda: committed(broker) == dict.fromkeys(range(4), 130), first)
    first.query.stop()
    wait(lambda: not broker.group("g").members)


def test_a_stopped_query_leaves_the_group_and_goes_on_from_its_checkpoint(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    """SIGTERM comes twice within milliseconds and nobody waits; the session timeout is 45 s, so a test that waited for
    it would not end."""
    produce(broker, 20)
    first = Query(spark, broker, tmp_path, trigger={})
    wait(lambda: len(first.seen) == 80, first)
    first.query.stop()
    wait(lambda: not broker.group("g").members)
    produce(broker, 20)
    again = Query(spark, broker, tmp_path, trigger={})
    again.batches |= first.batches
    wait(lambda: len(again.seen) == 160, again)
    assert sorted(again.seen) == every(40)
    again.query.stop()


def test_the_watchdog_speaks_for_a_reader_that_is_killed(spark: Any, broker: Broker, tmp_path: Path) -> None:
    produce(broker, 20)
    killed = Query(spark, broker, tmp_path, trigger={})
    wait(lambda: len(killed.seen) == 80, killed)
    (report,) = holdfast.spark.report(killed.query)
    os.kill(report["reader"], signal.SIGKILL)
    deadline = time.monotonic() + LIMIT_S
    while broker.group("g").members and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not broker.group("g").members
    produce(broker, 20)
    again = Query(spark, broker, tmp_path, trigger={})
    again.batches |= killed.batches
    wait(lambda: len(again.seen) == 160, again)
    assert sorted(again.seen) == every(40)
    again.query.stop()


def test_available_now_reads_what_is_there_in_bounded_batches_and_commits_the_last_one_too(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    produce(broker, 25)
    trigger = {"availableNow": True}
    query = Query(spark, broker, tmp_path, trigger=trigger, maxOffsetsPerTrigger="40")
    ended(query)
    assert sorted(query.seen) == every(25)
    assert [len(rows) for _, rows in sorted(query.batches.items())] == [40, 40, 20]
    assert committed(broker) == dict.fromkeys(range(4), 25)
    produce(broker, 5)
    again = Query(spark, broker, tmp_path, trigger=trigger)
    ended(again)
    assert sorted(query.seen + again.seen) == every(30)


def test_once_ignores_the_limit_and_its_commit_is_made_up_for_at_the_next_start(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    produce(broker, 25)
    query = Query(spark, broker, tmp_path, trigger={"once": True}, maxOffsetsPerTrigger="40")
    ended(query)
    assert sorted(query.seen) == every(25)
    produce(broker, 5)
    again = Query(spark, broker, tmp_path, trigger={"once": True})
    ended(again)
    assert sorted(query.seen + again.seen) == every(30)
    assert committed(broker) == dict.fromkeys(range(4), 25)


def test_processing_time_and_the_schema_of_sparks_own_source(spark: Any, broker: Broker, tmp_path: Path) -> None:
    frame = spark.readStream.format("holdfast").options(**options_for(broker, includeHeaders="true")).load()
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema.fields] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    produce(broker, 3)
    query = Query(spark, broker, tmp_path, trigger={"processingTime": "100 milliseconds"})
    wait(lambda: len(query.seen) == 12, query)
    query.query.stop()


def test_a_batch_read_takes_what_lies_between_its_offsets(spark: Any, broker: Broker) -> None:
    produce(broker, 20)

    def rows(**options: str) -> list[tuple[int, int]]:
        given = options_for(broker, **options)
        given.pop("kafka.group.id")
        given.pop("kafka.heartbeat.interval.ms")
        frame = spark.read.format("holdfast").options(**given).load()
        return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())

    assert rows() == every(20)
    ends = json.dumps({"orders": {"0": 5, "1": -1, "2": 0, "3": 7}})
    starts = json.dumps({"orders": {"0": 3, "1": 18, "2": -2, "3": 7}})
    assert rows(startingOffsets=starts, endingOffsets=ends) == [(0, 3), (0, 4), (1, 18), (1, 19)]
    assert rows(minPartitions="6") == every(20)
    assert len(rows(maxRecordsPerPartition="5")) == 80


def test_a_wrong_option_is_told_when_the_frame_is_loaded_and_our_sentence_comes_first(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    from pyspark.errors import AnalysisException, StreamingQueryException

    from holdfast.spark import explain

    with pytest.raises(AnalysisException) as raised:
        spark.readStream.format("holdfast").options(
            **{"kafka.bootstrap.servers": "h:1", "maxOfsetsPerTrigger": 1}
        ).load()
    assert str(raised.value).splitlines()[0] == explain(raised.value)
    assert explain(raised.value).startswith("INVALID_OPTION: option maxofsetspertrigger is not")
    told = (StreamingQueryException, HoldfastError)
    with pytest.raises(told, match=r"^INVALID_OPTION: option kafka\.group\.id is missing") as ended:
        Query(spark, broker, tmp_path, trigger={}, **{"kafka.group.id": ""}).query.awaitTermination(int(LIMIT_S))
    assert "UnboundLocalError" not in str(ended.value), "PySpark's own mishap when a reader can't be made"
