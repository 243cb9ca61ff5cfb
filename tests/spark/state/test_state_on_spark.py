"""Stateful operators on a real Spark, one application: beside Spark's own batch, into other sinks, in other plans."""

from __future__ import annotations

import sqlite3
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as f
from pyspark.sql.types import TimestampNTZType
from state_events import Events, parsed, produce

import holdfast.spark
from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files import committed_files
from holdfast.spark.files.store import LocalStore
from holdfast.spark.state.chain import Chain
from holdfast.testing.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

AGG: dict[str, Any] = {"n": "count", "s": ("sum", "n"), "mean": ("avg", "n")}
FAR = "3650 days"
"""A delay behind which nothing is late, so that a batch of Spark's finds the same."""


def stream(spark: SparkSession, broker: Broker, group: str, **more: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.group.id": group, "subscribe": "orders"}
    return parsed(spark.readStream.format("holdfast").options(**options, startingOffsets="earliest", **more).load())


def everything(rows: Any, sink: Any, folder: Path, name: str) -> None:
    query = rows.start(sink, checkpoint=str(folder / f"checkpoint-{name}"), trigger={"availableNow": True})
    assert query.awaitTermination(180)


def rows_in(sink: Path) -> list[dict[str, Any]]:
    return [row for file in committed_files(str(sink)) for row in pq.read_table(file).to_pylist()]


def test_results_are_those_of_sparks_own_batch(spark: SparkSession, holdfast_broker: Broker, tmp_path: Path) -> None:
    """Sliding windows in update mode and sessions; small batches; once with the rows moved between tasks by the job."""
    holdfast_broker.topics.create("orders", partitions=3)
    events = Events(3, seed=5)
    produce(holdfast_broker.bootstrap, "orders", events.make(600))
    given = spark.createDataFrame(
        [(e.partition, e.key, e.at, e.n) for e in events.made], "partition int, k string, t long, n int"
    )
    given = given.selectExpr("partition", "k", "timestamp_micros(t) t", "n").persist()
    sums = (f.count("*").alias("n"), f.sum("n").alias("s"), f.avg("n").alias("mean"))

    moved = stream(spark, holdfast_broker, "windows", maxOffsetsPerTrigger="200").repartition(4)
    windows = holdfast.spark.stateful(moved, state=str(tmp_path / "state-w")).window(
        "t", size="10 seconds", slide="4 seconds", watermark=FAR, by=["k"], agg=AGG, mode="update"
    )
    everything(windows, str(tmp_path / "windows"), tmp_path, "w")
    last: dict[Any, Any] = {}
    for row in sorted(rows_in(tmp_path / "windows"), key=lambda row: row["offset"]):
        last[row["k"], row["window"]["start"].timestamp()] = (row["n"], row["s"], row["mean"])
    wanted = (
        given.groupBy(f.window("t", "10 seconds", "4 seconds"), "k")
        .agg(*sums)
        .selectExpr("k", "unix_micros(window.start) t", "n", "s", "mean")
    )
    assert last == {(row.k, row.t / 1e6): (row.n, row.s, row.mean) for row in wanted.collect()}

    sessions = holdfast.spark.stateful(
        stream(spark, holdfast_broker, "sessions", maxOffsetsPerTrigger="200"), state=str(tmp_path / "state-s")
    ).sessions("t", gap="3 seconds", watermark="2000 seconds", by=["k"], agg=AGG)
    # One record of the far future in each partition closes everything.
    from state_events import Event

    produce(holdfast_broker.bootstrap, "orders", [Event(p, "end", 2_000_000_000_000_000, 0, "end") for p in range(3)])
    everything(sessions, str(tmp_path / "sessions"), tmp_path, "s")
    found = sorted(
        (
            row["k"],
            row["session_window"]["start"].timestamp(),
            row["session_window"]["end"].timestamp(),
            row["n"],
            row["s"],
        )
        for row in rows_in(tmp_path / "sessions")
    )
    own = (
        given.groupBy(f.session_window("t", "3 seconds").alias("w"), "k")
        .agg(*sums)
        .selectExpr("k", "unix_micros(w.start) a", "unix_micros(w.end) b", "n", "s")
    )
    assert found == sorted((row.k, row.a / 1e6, row.b / 1e6, row.n, row.s) for row in own.collect())


def test_a_database_takes_results_once_although_they_are_delivered_again(
    spark: SparkSession, holdfast_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies behind the state's entry, and again behind the sink's commit: rows come again, and are known."""
    holdfast_broker.topics.create("orders", partitions=2)
    events = Events(2, seed=6)
    produce(holdfast_broker.bootstrap, "orders", events.make(300))
    database = tmp_path / "rows.db"
    with sqlite3.connect(database) as connection:
        connection.execute("create table ids (id text)")

    def add(rows: DataFrame, connection: Any, _batch_id: int) -> None:
        connection.executemany("insert into ids values (?)", [(row.id,) for row in rows.collect()])

    once = holdfast.spark.exactly_once(lambda: sqlite3.connect(database), add, sink="ids")
    died: list[str] = []

    def deadly(rows: DataFrame, batch_id: int) -> None:
        if not died:
            died.append("before")
            raise RuntimeError("killed before the sink")
        once(rows, batch_id)
        if len(died) == 1:
            died.append("behind")
            raise RuntimeError("killed behind the sink")

    def run() -> None:
        rows = stream(spark, holdfast_broker, "g", maxOffsetsPerTrigger="100")
        distinct = holdfast.spark.stateful(rows, state=str(tmp_path / "state"))
        everything(distinct.drop_duplicates(["id"], time="t", watermark="5 seconds"), deadly, tmp_path, "d")

    for _ in range(2):
        with pytest.raises(Exception, match="killed"):
            run()
    run()
    with sqlite3.connect(database) as connection:
        found = sorted(row[0] for row in connection.execute("select id from ids"))
    assert found == events.distinct()
    assert died == ["before", "behind"]
    tip = Chain(LocalStore(tmp_path / "state"), TopicPartition("orders", 0)).tip()
    assert tip is not None and tip.topic_id


def test_rows_that_the_job_moves_in_foreach_batch_are_put_in_order(
    spark: SparkSession, holdfast_broker: Broker, tmp_path: Path
) -> None:
    """Symptom: STATE_ROWS_MIXED for a job that joins or repartitions inside foreachBatch, and what the error advises
    changed nothing. Cause: only the stream's own plan was looked at. Rule: so is what the job made of the batch."""
    holdfast_broker.topics.create("orders", partitions=2)
    events = Events(2, seed=8)
    produce(holdfast_broker.bootstrap, "orders", events.make(300))

    def write(rows: DataFrame, batch_id: int) -> None:
        rows.persist()
        for name, made in (("moved", rows.repartition(3)), ("kept", rows)):
            distinct = holdfast.spark.stateful(made, state=str(tmp_path / f"state-{name}"))
            distinct.drop_duplicates(["id"], time="t", watermark="5 seconds").write_batch(
                str(tmp_path / name), batch_id
            )
        rows.unpersist()

    rows = stream(spark, holdfast_broker, "g", maxOffsetsPerTrigger="100")
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(180)
    for name in ("moved", "kept"):
        assert sorted(row["id"] for row in rows_in(tmp_path / name)) == events.distinct(), name


def test_a_state_may_lie_anywhere_and_a_time_without_a_zone_stays_one(
    spark: SparkSession, holdfast_broker: Broker, tmp_path: Path
) -> None:
    """Symptoms: with a function as the sink and a state at `/data/my state`, each batch failed with PATH_NOT_FOUND. And
    a column of the type timestamp_ntz came out as a timestamp in UTC, hours off in other time zones. Causes: Spark
    takes a URI's %20 as it stands, and [ for a pattern; Arrow's time without a zone became Spark's time with one."""
    holdfast_broker.topics.create("orders", partitions=2)
    events = Events(2, seed=9)
    produce(holdfast_broker.bootstrap, "orders", events.make(100))
    rows = stream(spark, holdfast_broker, "g").withColumn("local", f.col("t").cast("timestamp_ntz"))
    found: list[tuple[str, Any, Any]] = []

    def collect(rows: DataFrame, _batch_id: int) -> None:
        assert rows.schema["local"].dataType.typeName() == "timestamp_ntz"
        found.extend((row.id, row.local, row.t) for row in rows.collect())

    odd = holdfast.spark.stateful(rows, state=str(tmp_path / "my state [1] é")).drop_duplicates(["id"])
    everything(odd, collect, tmp_path, "odd")
    assert sorted(name for name, _, _ in found) == sorted({event.id for event in events.made})
    assert all(local == at.astimezone(UTC).replace(tzinfo=None) for _, local, at in found)
    plain = stream(spark, holdfast_broker, "h").withColumn("local", f.col("t").cast("timestamp_ntz"))
    kept = holdfast.spark.stateful(plain, state=str(tmp_path / "state")).drop_duplicates(["id"])
    everything(kept, str(tmp_path / "sink"), tmp_path, "plain")
    assert (
        spark.read.format("holdfast-files").load(str(tmp_path / "sink")).schema["local"].dataType == TimestampNTZType()
    )


def test_what_can_not_be_right_is_refused_before_it_starts(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([], "topic string, partition int, offset long, k string, t timestamp, x double")
    on = holdfast.spark.stateful(rows, state=str(tmp_path))
    with pytest.raises(HoldfastError, match="SINK_NEEDS_ORIGIN"):
        holdfast.spark.stateful(rows.drop("offset"), state=str(tmp_path))
    with pytest.raises(HoldfastError, match="STORE_UNSUPPORTED"):
        holdfast.spark.stateful(rows, state="ftp://host/state")
    refused: list[tuple[str, Any]] = [
        ("STATE_NO_COLUMN", lambda: on.aggregate(by=["nobody"], agg={"n": "count"})),
        ("STATE_NO_COLUMN", lambda: on.aggregate(by=["k"], agg={"n": ("sum", "nobody")})),
        ("STATE_KEY_TYPE", lambda: on.aggregate(by=["x"], agg={"n": "count"})),
        ("STATE_AGGREGATE_UNKNOWN", lambda: on.aggregate(by=["k"], agg={"n": ("median", "x")})),
        ("STATE_AGGREGATE_UNKNOWN", lambda: on.aggregate(by=["k"], agg={"n": ("sum", "t")})),
        ("STATE_NO_AGGREGATE", lambda: on.aggregate(by=["k"], agg={})),
        ("STATE_NAME_TAKEN", lambda: on.aggregate(by=["k"], agg={"k": "count"})),
        ("STATE_NAME_TAKEN", lambda: on.aggregate(by=["partition"], agg={"n": "count"})),
        ("STATE_TIME_TYPE", lambda: on.window("k", size="1 minute", watermark="1 minute", agg={"n": "count"})),
        (
            "INVALID_DURATION",
            lambda: on.window("t", size="1 hour", slide="2 hours", watermark="1 minute", agg={"n": "count"}),
        ),
        (
            "INVALID_OPTION",
            lambda: on.window(
                "t",
                size="1 hour",
                watermark="0 seconds",
                agg={"n": "count"},
                mode="complete",  # type: ignore[arg-type]  # there is no such mode
            ),
        ),
        ("INVALID_OPTION", lambda: on.drop_duplicates(["k"], time="t")),
        ("INVALID_OPTION", lambda: on.drop_duplicates("k")),
    ]
    for code, ask in refused:
        with pytest.raises(HoldfastError, match=code):
            ask()
