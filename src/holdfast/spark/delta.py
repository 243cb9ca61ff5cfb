"""Exactly once into a Delta table: the offsets and the rows in one commit of the table, in `foreachBatch`.

    orders.writeStream.foreachBatch(exactly_once_delta("/tables/orders", sink="orders")).start()

A Delta table keeps a version number for each application that names itself (`txnAppId` and `txnVersion` of Delta's
writer). Here each partition is such an application, and its number is the next offset. The writer's options set only
one number in a commit, and drop the batch if the number is not larger. Applications that cut the same records into
different batches need more: all numbers of a batch in one commit, which fails if another application has changed one of
them since it was read. The table's transactions can do that, through Delta's Java classes. Checked with Delta 4.4.0 on
Spark 4.2.0.

The rule is that of the other sinks: rows before the next offset are in, rows from it on are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.exactly_once import (
    MAX_ATTEMPTS,
    check_sink_name,
    ledger_busy,
    left_out,
    only_new,
    ranges_of_rows,
    still_new,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OVERTAKEN = "io.delta.exceptions.ConcurrentTransactionException"
"""Another application has changed a number since we read it."""
FORGETS = "delta.setTransactionRetentionDuration"


def exactly_once_delta(
    path: str,
    *,
    sink: str,
    topic_column: str = "topic",
    partition_column: str = "partition",
    offset_column: str = "offset",
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that appends each row once to the Delta table at `path`, which is made if need be.

    Rows must have columns for their topic, partition and offset. `sink` names the output: one group writes under one
    name. Meanwhile the table may be read, optimised and vacuumed, and others may write into it.
    """
    check_sink_name(sink)
    names = (topic_column, partition_column, offset_column)

    def process(batch: DataFrame, batch_id: int) -> None:
        rows = batch.persist()  # computed once, used twice: for the ranges, and to be written
        try:
            ranges = ranges_of_rows(rows, names)
            if not ranges:
                return
            table = Table(batch.sparkSession, path)
            table.make(rows)
            for _ in range(MAX_ATTEMPTS):
                transaction = table.begin()
                numbers = {p: int(transaction.txnVersion(application(sink, p))) for p in ranges}
                new = still_new(ranges, {p: number for p, number in numbers.items() if number >= 0})
                if not new:
                    left_out(sink, batch_id, ranges, new)
                    return
                moved = {application(sink, p): part.end for p, part in new.items()}
                if table.commit(transaction, only_new(rows, names, ranges, new), moved, f"{sink} batch {batch_id}"):
                    left_out(sink, batch_id, ranges, new)
                    return
        finally:
            rows.unpersist()
        raise ledger_busy(sink)

    return process


def application(sink: str, partition: TopicPartition) -> str:
    """A partition's `txnAppId` in the table."""
    return f"holdfast/{sink}/{partition}"


class Table:
    """A Delta table, used through the driver's JVM."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session, self._path = session, path
        jvm: Any = getattr(session, "_jvm", None)
        self._jvm = jvm
        try:
            self._delta = jvm.org.apache.spark.sql.delta
            self._log_of: Any = self._delta.DeltaLog.forTable
        except (AttributeError, TypeError):
            self._log_of = None
        if not callable(self._log_of) or type(self._log_of).__name__ == "JavaPackage":
            raise HoldfastError(
                "DELTA_MISSING",
                "This Spark session has no Delta Lake, or none whose driver runs here (Spark Connect).",
                "Start it with spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0 and Delta's two settings, "
                "spark.sql.extensions and spark.sql.catalog.spark_catalog.",
            )

    def make(self, rows: DataFrame) -> None:
        """Create the table with the columns of these rows, or check that it has exactly these."""
        if not self._jvm.io.delta.tables.DeltaTable.isDeltaTable(self._session._jsparkSession, self._path):
            # If two applications create it at once, Delta refuses one, unless both want the same columns.
            rows.limit(0).write.format("delta").mode("append").save(self._path)
        there = self._session.read.format("delta").load(self._path).schema
        here = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
        wanted = {field.name: field.dataType.simpleString() for field in there.fields}
        if here != wanted:
            differ = sorted(name for name in here.keys() | wanted.keys() if here.get(name) != wanted.get(name))
            raise HoldfastError(
                "SCHEMA_CONFLICT",
                f"The Delta table at {self._path} and the rows differ in {', '.join(differ)}.",
                "Select the table's columns in their types, or change the table (ALTER TABLE) first.",
            )

    def begin(self) -> Any:
        """A transaction on the table as it is now."""
        transaction = self._log_of(self._session._jsparkSession, self._path).startTransaction()
        if transaction.metadata().configuration().contains(FORGETS):
            raise HoldfastError(
                "DELTA_FORGETS",
                f"The Delta table at {self._path} has {FORGETS}: it forgets offsets, and rows would be written again.",
                f"ALTER TABLE … UNSET TBLPROPERTIES ('{FORGETS}').",
            )
        return transaction

    def commit(self, transaction: Any, rows: DataFrame, moved: Mapping[str, int], told: str) -> bool:
        """Commit the rows and the numbers together; False if another application has changed one of the numbers."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it publishes no types

        jvm, nothing = self._jvm, self._jvm.scala.Option.empty()
        convert = jvm.scala.jdk.javaapi.CollectionConverters
        actions = jvm.java.util.ArrayList()
        actions.addAll(convert.asJava(transaction.writeFiles(rows._jdf)))
        for name, end in sorted(moved.items()):
            actions.add(self._delta.actions.SetTransaction(name, end, nothing))
        mode = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
        operation = getattr(self._delta, "DeltaOperations$StreamingUpdate")(mode, told, 0, nothing)
        try:
            transaction.commit(convert.asScala(actions).toSeq(), operation)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() != OVERTAKEN:
                raise
            return False
        return True
