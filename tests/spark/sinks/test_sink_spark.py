"""`format("holdfast-files")` in Spark: streaming queries into it, batch jobs into it, and reading it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from sink_queries import run_query

from holdfast.model import TopicPartition
from holdfast.spark.files import committed_files, positions
from holdfast.spark.files.store import LocalStore
from holdfast.spark.files.upkeep import clean, compact
from holdfast.testing.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def produce(broker: Broker, partitions: int, each: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for number in range(each):
        for partition in range(partitions):
            producer.produce("orders", f"{partition}-{number}".encode(), partition=partition)
    producer.flush()


def stream(spark: SparkSession, broker: Broker, group: str) -> DataFrame:
    return (
        spark.readStream.format("holdfast")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("kafka.group.id", group)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )


def run_until(rows: DataFrame, path: Path, checkpoint: Path, wanted: dict[int, int]) -> None:
    """Run a query until the sink has these positions, then stop it."""
    writer = rows.writeStream.format("holdfast-files").option("checkpointLocation", str(checkpoint))
    goal = {TopicPartition("orders", partition): end for partition, end in wanted.items()}
    run_query(lambda: writer.start(str(path)), lambda: positions(str(path)) == goal)


def values(spark: SparkSession, path: Path) -> list[str]:
    rows = spark.read.format("holdfast-files").load(str(path)).select("value").collect()
    return sorted(bytes(row.value).decode() for row in rows)


def expected(partitions: int, each: int) -> list[str]:
    return sorted(f"{partition}-{number}" for partition in range(partitions) for number in range(each))


def test_a_query_fills_the_sink_and_a_second_one_without_its_checkpoint_adds_nothing(
    spark: SparkSession, holdfast_broker: Broker, tmp_path: Path
) -> None:
    """Another group and no checkpoint read everything again: the ledger takes each row once all the same."""
    holdfast_broker.topics.create("orders", partitions=3)
    produce(holdfast_broker, 3, 40)
    path = tmp_path / "sink"
    run_until(stream(spark, holdfast_broker, "a"), path, tmp_path / "a", {0: 40, 1: 40, 2: 40})
    assert values(spark, path) == expected(3, 40)
    produce(holdfast_broker, 3, 1)
    run_until(stream(spark, holdfast_broker, "b"), path, tmp_path / "b", {0: 41, 1: 41, 2: 41})
    assert values(spark, path) == sorted(expected(3, 40) + expected(3, 1))
    store = LocalStore(path)
    compact(store)
    clean(store, now=1e12, grace_s=0)
    assert values(spark, path) == sorted(expected(3, 40) + expected(3, 1))


def test_a_batch_job_run_twice_adds_nothing_the_second_time(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(100).selectExpr("'orders' topic", "cast(id % 4 as int) partition", "id div 4 offset", "id")
    for _ in range(2):
        rows.write.format("holdfast-files").mode("append").save(str(tmp_path / "sink"))
    found = spark.read.format("holdfast-files").load(str(tmp_path / "sink"))
    assert sorted(row.id for row in found.collect()) == list(range(100))


def test_columns_that_came_later_are_null_in_older_files(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "sink")
    for number, extra in enumerate(("1 as old", "2 as old", "3 as old, timestamp'2026-01-02 03:04:05' as since")):
        rows = spark.sql(f"select 'orders' topic, 0 partition, cast({number} as bigint) offset, {extra}")
        rows.write.format("holdfast-files").mode("append").save(path)
    found = spark.read.format("holdfast-files").load(path).orderBy("offset")
    assert found.columns == ["topic", "partition", "offset", "old", "since"]
    assert [(row.old, row.since is None) for row in found.collect()] == [(1, True), (2, True), (3, False)]
    assert found.where("since = timestamp'2026-01-02 03:04:05'").count() == 1


def test_partition_by_makes_folders_and_a_filter_reads_only_some_of_them(
    spark: SparkSession, holdfast_broker: Broker, tmp_path: Path
) -> None:
    """Symptom: `.partitionBy("part")` on a stream was ignored. Cause: Spark drops it for sinks of its newer kind."""
    holdfast_broker.topics.create("orders", partitions=2)
    produce(holdfast_broker, 2, 10)
    path, goal = tmp_path / "sink", {TopicPartition("orders", p): 10 for p in range(2)}
    rows = stream(spark, holdfast_broker, "a").selectExpr("*", "concat('p', partition, '-', offset % 2) part")
    writer = rows.writeStream.format("holdfast-files").option("checkpointLocation", str(tmp_path / "c"))
    run_query(lambda: writer.partitionBy("part").start(str(path)), lambda: positions(str(path)) == goal)
    folders = {Path(name).parent.name for name in committed_files(str(path))}
    assert folders == {"part=p0-0", "part=p0-1", "part=p1-0", "part=p1-1"}
    for name in committed_files(str(path)):  # what a filter spares need not even be there
        if "part=p1" in name:
            Path(name).unlink()

    def count(where: str) -> int:
        return spark.read.format("holdfast-files").load(str(path)).where(where).count()

    try:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        assert count("part = 'p0-1'") == 5
        assert count("part in ('p0-0', 'p0-1') and offset > 3") == 6
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    with pytest.raises(Exception, match="No such file"):  # without the setting all are read, which is right, and slower
        count("part = 'p0-1'")


def test_batch_jobs_partition_by_an_option_and_a_changed_type_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "sink")
    rows = spark.range(10).selectExpr("'orders' topic", "0 partition", "id offset", "id % 2 = 0 even", "id amount")
    rows.write.format("holdfast-files").mode("append").option("partitionBy", "even").save(path)
    assert {Path(name).parent.name for name in committed_files(path)} == {"even=true", "even=false"}
    assert spark.read.format("holdfast-files").load(path).where("even").count() == 5
    later = rows.selectExpr("topic", "partition", "offset + 10 as offset", "string(amount) as amount")
    with pytest.raises(Exception, match=r"SCHEMA_CONFLICT.*amount bigint.*amount string"):
        later.write.format("holdfast-files").mode("append").save(path)
    assert spark.read.format("holdfast-files").load(path).count() == 10


@pytest.mark.parametrize(
    ("columns", "options", "code"),
    [
        ("'orders' topic, 0 partition, 1 value", {}, "SINK_NEEDS_ORIGIN"),
        ("'orders' topic, 0 partition, 1L position", {"offsetColumn": "offset"}, "SINK_NEEDS_ORIGIN"),
        ("'orders' topic, 0 partition, 1L offset", {"compression": "brotli9"}, "INVALID_OPTION"),
        ("'orders' topic, 0 partition, 1L offset", {"partitionBy": "day"}, "INVALID_OPTION"),
        ("'../etc' topic, 0 partition, 1L offset", {}, "NOT_A_TOPIC"),
    ],
)
def test_what_can_not_be_written_is_refused_in_words(
    spark: SparkSession, tmp_path: Path, columns: str, options: dict[str, Any], code: str
) -> None:
    rows = spark.sql(f"select {columns}")
    with pytest.raises(Exception, match=code):
        rows.write.format("holdfast-files").mode("append").options(**options).save(str(tmp_path / "sink"))
    assert positions(str(tmp_path / "sink")) == {}


def test_a_path_without_a_sink_and_a_sink_without_rows_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="NOT_A_SINK"):
        spark.read.format("holdfast-files").load(str(tmp_path / "nothing"))
    rows = spark.sql("select 'orders' topic, 0 partition, 1L offset").where("offset > 1")
    rows.write.format("holdfast-files").mode("append").save(str(tmp_path / "empty"))
    with pytest.raises(Exception, match="SINK_EMPTY"):
        spark.read.format("holdfast-files").load(str(tmp_path / "empty"))
    found = spark.read.format("holdfast-files").schema("topic string, offset long").load(str(tmp_path / "empty"))
    assert found.collect() == []


def test_a_sink_is_never_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("select 'orders' topic, 0 partition, 1L offset")
    with pytest.raises(Exception, match="SINK_APPENDS_ONLY"):
        rows.write.format("holdfast-files").mode("overwrite").save(str(tmp_path / "sink"))
