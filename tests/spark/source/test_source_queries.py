"""What a query may not do as a member, found by its plan at its start; and queries of one application in one group."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from source_engine import Engine, produce

import holdfast.spark
from holdfast.model import HoldfastError
from holdfast.spark import guard
from holdfast.testing import Broker

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

LIMIT_S = 150.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.topics.create("orders", partitions=4)
        yield running


def options(bootstrap: str, **more: str) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": bootstrap, "kafka.group.id": "g", "subscribe": "orders"}
    given |= {"startingOffsets": "earliest", "kafka.heartbeat.interval.ms": "300"}
    given |= {key.replace("__", "."): value for key, value in more.items()}
    return {key: value for key, value in given.items() if value}


def rows(spark: Any, bootstrap: str = "127.0.0.1:1", **more: str) -> Any:
    return spark.readStream.format("holdfast").options(**options(bootstrap, **more)).load()


def start(frame: Any, folder: Path, write: Callable[[Any, int], None], mode: str = "append") -> Any:
    writer = frame.writeStream.foreachBatch(write).outputMode(mode)
    return writer.option("checkpointLocation", str(folder)).start()


def wait(holds: Callable[[], bool], *queries: Any) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        told = [(query.lastProgress, str(query.exception())) for query in queries]
        assert time.monotonic() < deadline, told
        assert not any(query.exception() for query in queries), told
        time.sleep(0.05)


def failure(query: Any) -> str:
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(int(LIMIT_S))
    return str(raised.value)


def nothing(*_: Any) -> None: ...


def stateful_frames(spark: Any, **more: str) -> dict[str, Any]:
    """Every way to keep state that PySpark has."""
    from pyspark.sql import functions as f
    from pyspark.sql.streaming import StatefulProcessor

    class Nothing(StatefulProcessor):
        def init(self, handle: Any) -> None: ...
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            return iter(())

        def close(self) -> None: ...

    plain = rows(spark, **more)
    late = plain.withWatermark("timestamp", "1 minute")
    other = rows(spark, **more | {"kafka__group__id": "h"}).withWatermark("timestamp", "1 minute")
    plain.createOrReplaceTempView("orders_view")
    by_topic = plain.groupBy("topic")
    same = f.expr("a.key = b.key and a.timestamp = b.timestamp")
    return {
        "aggregation": by_topic.count(),
        "in SQL over a view": spark.sql("select topic, count(*) from orders_view group by topic"),
        "windows": late.groupBy(f.window("timestamp", "1 minute")).count(),
        "sessions": late.groupBy(f.session_window("timestamp", "1 minute"), "key").count(),
        "duplicates": plain.dropDuplicates(["key"]),
        "duplicates within a watermark": late.dropDuplicatesWithinWatermark(["key"]),
        "distinct": plain.select("key").distinct(),
        "two streams joined": late.alias("a").join(other.alias("b"), same),
        "two streams joined, outer": late.alias("a").join(other.alias("b"), same, "left_outer"),
        "mapGroups": by_topic.applyInPandasWithState(nothing, "a int", "b int", "append", "NoTimeout"),
        "transformWithState in pandas": by_topic.transformWithStateInPandas(Nothing(), "a int", "append", "None"),
        "transformWithState": by_topic.transformWithState(Nothing(), "a int", "append", "None"),
        "limit": plain.limit(3),
        "deep inside": plain.dropDuplicates(["key"]).union(plain).select("key").where("key is not null"),
    }


def stateless_frames(spark: Any) -> dict[str, Any]:
    plain = rows(spark)
    counted = spark.range(3).groupBy("id").count()
    return {
        "a projection": plain.select("key").where("key is not null"),
        "united with itself": plain.union(plain),
        "joined with a table that is aggregated": plain.join(counted, counted.id == plain.partition),
        "mapInPandas": plain.mapInPandas(lambda frames: frames, plain.schema),
        "a watermark alone": plain.withWatermark("timestamp", "1 minute"),
        "exploded": plain.selectExpr("explode(array(1, 2))", "topic"),
        "repartitioned": plain.repartition(3),
    }


def test_a_query_that_keeps_state_is_refused_when_it_starts(spark: Any, tmp_path: Path) -> None:
    """Symptom: after each handover windows were missing or split, and duplicates let through, without a word. Cause:
    state does not move with the partition. Rule: the plan is looked at, and such a query does not start as a member."""
    for name, frame in stateful_frames(spark).items():
        with pytest.raises(HoldfastError, match="STATEFUL_IN_A_GROUP") as raised:
            start(frame, tmp_path / "never", nothing)
        assert "kafka.holdfast.stateful=alone" in raised.value.do, name
    with pytest.raises(HoldfastError, match="STATEFUL_IN_A_GROUP"):
        stateful_frames(spark)["aggregation"].writeStream.toTable("never")
    assert not (tmp_path / "never").exists()


def test_what_keeps_no_state_and_what_shares_with_nobody_may_start(spark: Any) -> None:
    by_hand = {"assign": '{"orders": [0, 1]}', "subscribe": ""}
    frames = list(stateless_frames(spark).values())
    frames += list(stateful_frames(spark, kafka__holdfast__stateful="alone").values())
    frames += list(stateful_frames(spark, **by_hand).values())
    for frame in frames:
        guard.check(frame)
    guard.check(spark.readStream.format("rate").load().groupBy("value").count())
    with pytest.raises(HoldfastError, match="STATEFUL_IN_A_GROUP"):
        guard.check(stateful_frames(spark, kafka__holdfast__stateful="none")["windows"])


def test_two_loads_of_one_topic_in_one_query_are_refused_in_one_group(spark: Any) -> None:
    """Each would be a member and get a part: a union lacks nothing then, but every row is there once and not twice."""
    with pytest.raises(HoldfastError, match="GROUP_SHARED"):
        guard.check(rows(spark).union(rows(spark, maxOffsetsPerTrigger="5")))
    guard.check(rows(spark).union(rows(spark, kafka__group__id="h")))
    guard.check(rows(spark).union(rows(spark, subscribe="payments")))
    shared = {"kafka__holdfast__share": "true"}
    guard.check(rows(spark, **shared).union(rows(spark, maxOffsetsPerTrigger="5", **shared)))
    alone = rows(spark, kafka__holdfast__stateful="alone")
    with pytest.raises(HoldfastError, match="GROUP_SHARED"):
        guard.check(alone.alias("a").join(alone.alias("b"), "key"))


def test_a_program_that_never_looks_at_its_plan_is_asked_to(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """Only the driver's Python sees plans. Where it does not know of us, the reader sees that nobody has looked."""
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

    plain_format: Any = inspect.unwrap(DataStreamReader.format)
    reader = plain_format(spark.readStream, "holdfast").options(**options(broker.bootstrap))
    writer = reader.load().groupBy("topic").count().writeStream.format("noop").outputMode("update")
    plain_start: Any = inspect.unwrap(DataStreamWriter.start)
    query = plain_start(writer.option("checkpointLocation", str(tmp_path)))
    text = failure(query)
    assert "PLAN_NOT_SEEN" in text
    assert "import holdfast.spark" in text


def test_the_second_query_of_an_application_in_one_group_is_refused(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """Symptom: an archive and an aggregate on one DataFrame got 1,009 and 1,991 of 3,000 rows. Cause: two members of
    one group share. Rule: one application does so only if it says so. And `report` and `drain` of a query without a
    source of ours acted on another query's reader."""
    produce(broker, 10)
    seen: list[int] = []

    def keep(frame: Any, _number: int) -> None:
        seen.extend(row.offset for row in frame.select("offset").collect())

    frame = rows(spark, broker.bootstrap)
    first = start(frame, tmp_path / "first", keep)
    wait(lambda: len(seen) == 40, first)
    second = start(frame, tmp_path / "second", nothing)
    stranger = spark.readStream.format("rate").load().writeStream.format("noop").start()
    for act in (holdfast.spark.report, holdfast.spark.drain):
        with pytest.raises(HoldfastError, match="NO_HOLDFAST_SOURCE"):
            act(stranger)
    stranger.stop()
    assert "GROUP_SHARED" in failure(second)
    produce(broker, 5)
    wait(lambda: len(seen) == 60, first)
    assert len(broker.group("g").members) == 1
    first.stop()
    again = start(frame, tmp_path / "first", keep)  # at once: its former reader is on its way out
    produce(broker, 5)
    wait(lambda: len(seen) == 80, again)
    again.stop()


def test_state_in_a_group_of_one_ends_when_somebody_joins(spark: Any, broker: Broker, tmp_path: Path) -> None:
    produce(broker, 10)
    counts: dict[str, int] = {}

    def keep(frame: Any, _number: int) -> None:
        counts.update({row.topic: row["count"] for row in frame.collect()})

    frame = rows(spark, broker.bootstrap, kafka__holdfast__stateful="alone").groupBy("topic").count()
    query = start(frame, tmp_path, keep, "update")
    wait(lambda: counts == {"orders": 40}, query)
    query.stop()
    produce(broker, 5)
    again = start(frame, tmp_path, keep, "update")
    wait(lambda: counts == {"orders": 60}, again)
    other = Engine(broker.bootstrap)
    try:
        assert "NOT_ALONE" in failure(again)
    finally:
        other.stop()
