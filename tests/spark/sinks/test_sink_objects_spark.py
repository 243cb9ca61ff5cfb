"""A sink and a state in an object store, written and read by Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from places import Place
from sink_queries import run_query

import holdfast.spark
from holdfast.model import TopicPartition
from holdfast.spark.files.upkeep import clean, compact
from holdfast.testing.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def produce(broker: Broker, start: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(start, end):
        for partition in range(2):
            producer.produce("orders", str(number).encode(), f"k{number % 3}".encode(), partition=partition)
    producer.flush()


def stream(spark: SparkSession, broker: Broker, group: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.group.id": group, "subscribe": "orders"}
    rows = spark.readStream.format("holdfast").options(**options, startingOffsets="earliest").load()
    return rows.selectExpr("topic", "partition", "offset", "string(key) k", "bigint(string(value)) n")


def forget_last_batch(checkpoint: Path) -> None:
    """As after a crash between the sink's commit and Spark's: the batch is done again with the same ranges."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def spark_is_through(checkpoint: Path) -> bool:
    """Spark notes a batch as done after the sink has committed it. A query stopped in between has nothing to forget."""
    done = {path.name for path in (checkpoint / "commits").glob("[0-9]*")}
    return all(path.name in done for path in (checkpoint / "offsets").glob("[0-9]*"))


def ends(end: int) -> dict[TopicPartition, int]:
    return {TopicPartition("orders", partition): end for partition in range(2)}


def test_a_bucket_holds_a_sink_and_a_state_through_a_restart_with_a_replayed_batch(
    spark: SparkSession, holdfast_broker: Broker, bucket: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    holdfast_broker.topics.create("orders", partitions=2)
    produce(holdfast_broker, 0, 30)
    check_sink(spark, holdfast_broker, bucket / "rows", tmp_path)
    check_state(spark, holdfast_broker, bucket, tmp_path)
    told = capfd.readouterr()
    assert not any(secret in told.out + told.err for secret in secrets(bucket))


def secrets(place: Place) -> list[str]:
    """What its options have to hide. Only the key of the Google place, which is none, has no secret."""
    return [value for name, value in place.options.items() if name.endswith(("secret_access_key", "account_key"))]


def check_sink(spark: SparkSession, broker: Broker, place: Place, folder: Path) -> None:
    checkpoint = folder / "rows"

    def run(end: int) -> None:
        writer = stream(spark, broker, "rows").writeStream.format("holdfast-files").options(**place.options)
        writer = writer.option("partitionBy", "k").option("checkpointLocation", str(checkpoint))
        goal = ends(end)
        run_query(lambda: writer.start(place.path), lambda: place.positions() == goal and spark_is_through(checkpoint))

    run(30)
    forget_last_batch(checkpoint)
    produce(broker, 30, 40)
    run(40)
    assert {name.split("/")[3] for name in place.files()} == {"k=k0", "k=k1", "k=k2"}
    for upkeep in (lambda: None, lambda: compact(place.store), lambda: clean(place.store, now=1e12, grace_s=0)):
        upkeep()
        rows = spark.read.format("holdfast-files").options(**place.options).load(place.path)
        assert rows.selectExpr("count(*)", "sum(n)", "count(distinct partition, offset)").first() == (80, 1560, 80)
        assert rows.where("k = 'k1'").count() == 26
        assert not any(secret in rows._jdf.queryExecution().toString() for secret in secrets(place))


def check_state(spark: SparkSession, broker: Broker, place: Place, folder: Path) -> None:
    """Results of a state in the bucket go to a sink there, and to a function, which is given the rows by Spark."""
    taken: Counter[str] = Counter()

    def take(rows: DataFrame, _batch_id: int) -> None:
        for row in rows.collect():
            taken[row.k] = max(taken[row.k], row.n)

    def run(sink: Any, name: str) -> None:
        options: dict[str, Any] = {"state": f"{place.path}/state-{name}", "options": place.options}
        rows = holdfast.spark.stateful(stream(spark, broker, name), **options)
        counts = rows.aggregate(by=["k"], agg={"n": "count"})
        query = counts.start(sink, checkpoint=str(folder / name), trigger={"availableNow": True})
        assert query.awaitTermination(180)

    run(f"{place.path}/counts", "counts")
    forget_last_batch(folder / "counts")
    run(f"{place.path}/counts", "counts")
    rows = spark.read.format("holdfast-files").options(**place.options).load(f"{place.path}/counts")
    found = Counter(
        {
            row.k: row.n
            for row in rows.groupBy("k", "partition")
            .max("n")
            .groupBy("k")
            .sum()
            .selectExpr("k", "`sum(max(n))` n")
            .collect()
        }
    )
    assert found == {"k0": 28, "k1": 26, "k2": 26}
    run(take, "function")
    assert taken == {"k0": 14, "k1": 13, "k2": 13}
