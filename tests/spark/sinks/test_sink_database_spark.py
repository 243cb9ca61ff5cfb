"""`exactly_once` in foreachBatch of a real query: rows, and the result of a streaming aggregation."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from postgres_server import Postgres
from sink_queries import run_query

from holdfast.cli.main import main
from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark import exactly_once
from holdfast.spark.exactly_once import apply_once
from holdfast.testing.broker import Broker
from kept import KEPT
from patience import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def produce(broker: Broker, values: list[str], partitions: int = 2) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, value in enumerate(values):
        producer.produce("orders", value.encode(), partition=number % partitions)
    producer.flush()


BY_HAND = {"assign": '{"orders": [0, 1]}'}
"""A query that keeps state shares with nobody."""


def stream(spark: SparkSession, broker: Broker, group: str, wanted: dict[str, str] | None = None) -> DataFrame:
    return (
        spark.readStream.format("holdfast")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("kafka.group.id", group)
        .options(**(wanted or {"subscribe": "orders"}))
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("topic", "partition", "offset", "timestamp", "cast(value as string) customer")
    )


def run_until(rows: DataFrame, write: Any, checkpoint: Path, mode: str, holds: Callable[[], bool]) -> None:
    writer = rows.writeStream.foreachBatch(write).outputMode(mode)
    run_query(writer.option("checkpointLocation", str(checkpoint)).start, holds)


def test_totals_by_customer_count_each_order_once_although_it_is_read_by_two_groups(
    spark: SparkSession, holdfast_broker: Broker
) -> None:
    """The second group reads everything again. What the first has added is not added a second time."""
    holdfast_broker.topics.create("orders", partitions=2)
    produce(holdfast_broker, ["ann"] * 6 + ["bob"] * 4)
    with Postgres() as server:
        with psycopg.connect(server.dsn) as connection:
            connection.execute("create table totals (customer text primary key, orders bigint)")

        def add(rows: DataFrame, connection: psycopg.Connection[Any], batch_id: int) -> None:
            totals = rows.groupBy("customer").count().collect()
            with connection.cursor() as cursor:
                cursor.executemany(
                    "insert into totals values (%s, %s) "
                    "on conflict (customer) do update set orders = totals.orders + excluded.orders",
                    [tuple(row) for row in totals],
                )

        def totals() -> dict[str, int]:
            with psycopg.connect(server.dsn) as connection:
                return dict(connection.execute("select customer, orders from totals").fetchall())

        write = exactly_once(lambda: psycopg.connect(server.dsn), add, sink="totals")
        folder = server.folder.with_suffix(".checkpoints")
        run_until(
            stream(spark, holdfast_broker, "one"), write, folder / "1", "append", lambda: totals().get("bob") == 4
        )
        produce(holdfast_broker, ["bob", "cid"])
        run_until(stream(spark, holdfast_broker, "two"), write, folder / "2", "append", lambda: "cid" in totals())
        assert totals() == {"ann": 6, "bob": 5, "cid": 1}


def test_the_result_of_a_streaming_aggregation_is_written_with_its_ranges(
    spark: SparkSession, holdfast_broker: Broker, tmp_path: Path
) -> None:
    """A batch that was written, but of which Spark does not know, is replayed after a restart and dropped.

    The group does not know of it either: it is told when Spark asks for the next one. Dropping it must still let
    Spark keep its state: a later batch counts on from there.
    """
    holdfast_broker.topics.create("orders", partitions=2)
    produce(holdfast_broker, ["ann"] * 6 + ["bob"] * 4)
    database = tmp_path / "db"
    with sqlite3.connect(database) as connection:
        connection.execute("create table counts (batch integer, customer text, orders integer)")
    connection.close()

    def add(rows: DataFrame, connection: sqlite3.Connection, batch_id: int) -> None:
        found = [(batch_id, row["customer"], row["count"]) for row in rows.collect()]
        connection.executemany("insert into counts values (?, ?, ?)", found)

    def counts() -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(database)
        found = connection.execute("select customer, orders from counts order by rowid").fetchall()
        connection.close()
        return found

    counted = stream(spark, holdfast_broker, "g", BY_HAND).groupBy("customer").count()
    write = exactly_once(lambda: sqlite3.connect(database), add, sink="counts", by="batch")
    run_until(counted, write, tmp_path / "cp", "update", lambda: len(counts()) == 2)
    assert sorted(counts()) == [("ann", 6), ("bob", 4)]
    for entry in (tmp_path / "cp" / "commits").iterdir():  # Spark forgets that it has done the batch
        entry.unlink()
    admin = AdminClient({"bootstrap.servers": holdfast_broker.bootstrap})
    admin.delete_consumer_groups(["g"])["g"].result(PATIENCE_S)
    again = stream(spark, holdfast_broker, "g", BY_HAND).groupBy("customer").count()
    produce(holdfast_broker, ["bob", "bob"])
    run_until(again, write, tmp_path / "cp", "update", lambda: len(counts()) == 3)
    assert sorted(counts()) == [("ann", 6), ("bob", 4), ("bob", 6)]


def test_windows_that_a_watermark_closes_are_all_written(
    spark: SparkSession, holdfast_broker: Broker, tmp_path: Path
) -> None:
    """Symptom: of 10 windows with 1,000 events none was written, and their state was gone. Cause: Spark closes windows
    in a batch that reads nothing, when the one before has moved the watermark; such a batch was dropped."""
    from pyspark.sql import functions as f

    holdfast_broker.topics.create("orders", partitions=2, configs=KEPT)
    producer = Producer({"bootstrap.servers": holdfast_broker.bootstrap})
    for number in range(1_000):
        producer.produce("orders", b"ann", partition=number % 2, timestamp=1_000_000_000_000 + number * 100)
    producer.produce("orders", b"late", partition=0, timestamp=1_000_000_900_000)
    producer.flush()
    database = tmp_path / "db"
    with sqlite3.connect(database) as connection:
        connection.execute("create table windows (start integer, events integer)")
    connection.close()

    def add(rows: DataFrame, connection: sqlite3.Connection, batch_id: int) -> None:
        found = [(int(row.window.start.timestamp()), row["count"]) for row in rows.collect()]
        connection.executemany("insert into windows values (?, ?)", found)

    def windows() -> tuple[int, int]:
        connection = sqlite3.connect(database)
        (found,) = connection.execute("select count(*), coalesce(sum(events), 0) from windows").fetchall()
        connection.close()
        return found  # type: ignore[no-any-return]

    events = stream(spark, holdfast_broker, "g", BY_HAND).withWatermark("timestamp", "1 second")
    counted = events.groupBy(f.window("timestamp", "10 seconds")).count()
    write = exactly_once(lambda: sqlite3.connect(database), add, sink="windows", by="batch")

    def both_batches_are_done() -> bool:
        """The one that reads, and the one that closes: Spark's own log of what is done."""
        return (tmp_path / "cp" / "commits" / "1").exists()

    run_until(counted, write, tmp_path / "cp", "append", both_batches_are_done)
    assert windows() == (10, 1_000)


def test_rows_that_are_left_out_are_told(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Symptom: of two outputs under one name, or two groups, one got nothing, without a word. After a crash the same is
    as it should be, so it is told and no error."""
    written: list[list[int]] = []

    def write(rows: DataFrame, _connection: Any, _batch_id: int) -> None:
        written.append(sorted(row.offset for row in rows.collect()))

    sink = exactly_once(lambda: sqlite3.connect(tmp_path / "rows.db"), write, sink="shop")

    def batch(*offsets: int) -> DataFrame:
        return spark.createDataFrame([("orders", 0, at) for at in offsets], "topic string, partition int, offset long")

    sink(batch(0, 1, 2), 7)
    assert capsys.readouterr().err == ""
    sink(batch(2, 3), 8)
    assert capsys.readouterr().err == (
        "shop batch 8: rows of orders-0 before 3 were written already and are left out.\n"
    )
    sink(batch(0, 1), 9)
    assert "shop batch 9: rows of orders-0 before 2 were written already" in capsys.readouterr().err
    assert written == [[0, 1, 2], [3]]


def test_a_batch_that_is_partly_written_gets_in_as_its_error_says(
    spark: SparkSession, holdfast_broker: Broker, tmp_path: Path
) -> None:
    """Another application has written the first two records of orders-0, and died before it told the group. A restart
    alone ends in the same way, for ever; with the command that the error names, each record is in once."""
    from pyspark.errors import StreamingQueryException

    holdfast_broker.topics.create("orders", partitions=2, configs=KEPT)
    produce(holdfast_broker, ["ann"] * 8)
    database = tmp_path / "db"
    with sqlite3.connect(database) as connection:
        connection.execute("create table done (partition_id integer, offset_id integer)")
    connection.close()

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(database)

    def add(rows: DataFrame, connection: sqlite3.Connection, _batch_id: int) -> None:
        connection.executemany(
            "insert into done values (?, ?)", [(row.partition, row.offset) for row in rows.collect()]
        )

    def done() -> list[tuple[int, int]]:
        connection = connect()
        found = connection.execute("select * from done order by 1, 2").fetchall()
        connection.close()
        return found

    apply_once(
        connect, "s", "holdfast_ledger", {TopicPartition("orders", 0): (0, 2)},
        lambda connection, _: connection.executemany("insert into done values (?, ?)", [(0, 0), (0, 1)]),
    )  # fmt: skip
    sink = exactly_once(connect, add, sink="s", by="batch")
    rows = stream(spark, holdfast_broker, "g")

    def run() -> None:
        run_until(rows, sink, tmp_path / "cp", "append", lambda: len(done()) == 8)

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="BATCH_PARTLY_WRITTEN") as raised:
            run()
    assert done() == [(0, 0), (0, 1)]
    (command,) = set(re.findall("run `holdfast (.*?)`", str(raised.value)))
    with pytest.raises(SystemExit) as ended:
        main([*command.replace("GROUP", "g").split(), "--bootstrap-server", holdfast_broker.bootstrap])
    assert ended.value.code in (0, None)
    run()
    assert done() == [(partition, offset) for partition in range(2) for offset in range(4)]


@pytest.mark.parametrize(
    ("row", "types", "code"),
    [
        (("orders", 0, None), "topic string, partition int, offset long", "SINK_NEEDS_ORIGIN: A row has no offset"),
        ((None, 0, 1), "topic string, partition int, offset long", "SINK_NEEDS_ORIGIN: A row has no topic"),
        (("orders", 0, 1.5), "topic string, partition int, offset double", "SINK_NEEDS_ORIGIN: The column 'offset'"),
        (("orders", "0", 1), "topic string, partition string, offset long", "SINK_NEEDS_ORIGIN: The column 'part"),
    ],
)
def test_rows_that_do_not_say_where_they_came_from_are_refused(
    spark: SparkSession, tmp_path: Path, row: tuple[Any, ...], types: str, code: str
) -> None:
    written: list[Any] = []
    sink = exactly_once(lambda: sqlite3.connect(tmp_path / "db"), lambda *batch: written.append(batch), sink="shop")
    good = () if "double" in types or "string, offset" in types else (("orders", 0, 7),)
    with pytest.raises(HoldfastError, match=code):
        sink(spark.createDataFrame([row, *good], types), 1)
    assert written == []


def test_offsets_that_a_job_has_computed_end_the_query(
    spark: SparkSession, holdfast_broker: Broker, tmp_path: Path
) -> None:
    """Symptom: the ledger stood at 1,000,004, and the next million rows were left out."""
    from pyspark.errors import StreamingQueryException

    holdfast_broker.topics.create("orders", partitions=2, configs=KEPT)
    produce(holdfast_broker, ["ann"] * 8)
    written: list[int] = []

    def write(rows: DataFrame, _connection: Any, _batch_id: int) -> None:
        written.append(rows.count())

    sink = exactly_once(lambda: sqlite3.connect(tmp_path / "db"), write, sink="shop")
    rows = stream(spark, holdfast_broker, "g")
    with pytest.raises(StreamingQueryException, match=r"ROWS_NOT_OF_BATCH.*orders-0 .*this batch read \[0, 4\)"):
        run_until(
            rows.selectExpr("topic", "partition", "offset + 1000000 as offset"),
            sink,
            tmp_path / "a",
            "append",
            lambda: bool(written),
        )
    run_until(rows, sink, tmp_path / "b", "append", lambda: bool(written))
    assert written == [8]


def test_ranges_that_can_not_be_known_are_an_error_and_not_a_guess(spark: SparkSession, tmp_path: Path) -> None:
    from holdfast.spark.batch_ranges import batch_ranges

    with pytest.raises(HoldfastError, match="BATCH_RANGES_UNKNOWN"):
        batch_ranges(spark.range(3))
