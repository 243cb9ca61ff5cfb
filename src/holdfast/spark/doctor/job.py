"""The job: pieces to events, events to groups, groups to tables. Everything but the summaries stays on executors.

events      one row per event, with its line number in the whole file, and its group even if the line did not say it
tables      what `holdfast.doctor.tables` makes of each group, as (table, row in JSON); cached, because it is used often
summary     what the driver gets: groups, findings, how much was read, and what was not understood
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.doctor.events import FIELDS, Event
from holdfast.doctor.tables import COLUMNS, FINDINGS, GROUPS, Row, examined
from holdfast.spark.doctor.pieces import Pieces
from holdfast.spark.doctor.reading import DDL, READ, READ_COLUMNS, read_pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINDINGS_TOLD, SHAPES_TOLD, PROBLEMS_TOLD, DRAWN = 2_000, 20, 50, 8
"""The most that the driver gets, the costliest first. The Parquet tables have everything."""

_COLUMNS: list[pa.Field[Any]] = [
    pa.field("group", pa.string()),
    pa.field("table", pa.string()),
    pa.field("cost", pa.float64()),
    pa.field("row", pa.string()),
]
TABLES = pa.schema(_COLUMNS)
TABLES_DDL = "`group` STRING, `table` STRING, `cost` DOUBLE, `row` STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """How much was read. `known` counts the lines that were understood, whether or not they hold an event; `newer`
    counts trace lines of a newer version than ours; `size` is in bytes after decompression."""

    lines: int = 0
    known: int = 0
    newer: int = 0
    size: int = 0


@dataclass(slots=True)
class Summary:
    """What the driver gets."""

    files: int
    size: int
    read: Read = Read()
    groups_in_all: int = 0
    findings_in_all: int = 0
    groups: list[Row] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    shapes: list[tuple[str, int]] = field(default_factory=list)
    """Lines about groups that were not understood, by shape."""
    problems: list[tuple[str, str]] = field(default_factory=list)
    """(file, what is wrong with it)"""
    nameless: int = 0
    """Events that no name connects with a group."""


class Job:
    """One examination. `close` releases what was cached."""

    def __init__(self, spark: SparkSession, pieces: Pieces, *, only: str | None = None) -> None:
        self._spark = spark
        self._pieces = pieces
        self._only = only
        self._read = self._reading().persist()

    def close(self) -> None:
        self._tables.unpersist()
        self._read.unpersist()

    # -- what is computed

    def _reading(self) -> DataFrame:
        given = self._spark.createDataFrame(self._pieces.table)
        return given.repartition(self._pieces.tasks, "task").mapInArrow(read_pieces, DDL)

    def events(self) -> DataFrame:
        """Events with their group and the number of their line in the whole file."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        events = self._read.where(F.col("kind") != READ)
        if not any(self._pieces.table["piece"].to_pylist()):  # no file was cut, so line numbers are right already
            return self._named(events.drop("piece"))
        cut = self._read.where(F.col("kind") == READ).select("file", "piece", "number")
        before = Window.partitionBy("file").orderBy("piece").rowsBetween(Window.unboundedPreceding, -1)
        starts = cut.select("file", "piece", F.sum("number").over(before).cast("long").alias("before"))
        starts = starts.where("piece > 0")  # a first piece needs no correction, and most files have only that
        numbered = events.join(F.broadcast(starts), ["file", "piece"], "left").withColumn(
            "line", F.col("line") + F.coalesce("before", F.lit(0))
        )
        return self._named(numbered.drop("before", "piece"))

    def _named(self, events: DataFrame) -> DataFrame:
        """The rule of `holdfast.doctor.naming`: a name that appears in one group only belongs to that group."""
        from pyspark.sql import functions as F

        if not self._sums[3]:  # every line says its group: the two joins are not needed
            return events.select(*FIELDS)
        said, not_said = events.where("`group` != ''"), events.where("`group` = ''")
        names = said.select(F.explode(F.array("member", "client")).alias("name"), "group").where("name != ''")
        sure = names.groupBy("name").agg(F.min("group").alias("g"), F.max("group").alias("h")).where("g = h")
        sure = sure.select("name", "g")
        by_member = sure.select(F.col("name").alias("member"), F.col("g").alias("by_member"))
        by_client = sure.select(F.col("name").alias("client"), F.col("g").alias("by_client"))
        found = not_said.join(by_member, "member", "left").join(by_client, "client", "left")
        found = found.withColumn("group", F.coalesce("by_member", "by_client", F.lit("")))
        return said.select(*FIELDS).union(found.select(*FIELDS))

    @cached_property
    def _tables(self) -> DataFrame:
        events, only = self.events(), self._only
        events = events.where("`group` != ''") if only is None else events.where(events["group"] == only)
        return events.groupBy("group").applyInArrow(_examine, TABLES_DDL).persist()

    # -- what the driver gets

    def summary(self) -> Summary:
        """Takes two Spark jobs, and two more if something was wrong or not understood."""
        from pyspark.sql import functions as F

        told = Summary(self._pieces.files, self._pieces.size)
        told.read, wrong, shapes, nameless = self._sums
        read = self._read.where(F.col("kind") == READ)
        if wrong:
            bad = read.where("said != ''").select("file", "said").dropDuplicates(["file"]).orderBy("file")
            told.problems = [(row[0], row[1]) for row in bad.limit(PROBLEMS_TOLD).collect()]
        if shapes:
            each = F.explode(F.from_json("partitions", "MAP<STRING,BIGINT>")).alias("shape", "times")
            counted = read.select(each).groupBy("shape").agg(F.sum("times").alias("times"))
            top = counted.orderBy(F.desc("times"), "shape").limit(SHAPES_TOLD)
            told.shapes = [(row[0], int(row[1])) for row in top.collect()]
        if nameless:
            told.nameless = int(self.events().where("`group` = ''").count())
        self._costliest(told)
        return told

    @cached_property
    def _sums(self) -> tuple[Read, int, int, int]:
        """What was read; how many pieces have a problem, and unknown lines; how many events do not say their group."""
        from pyspark.sql import functions as F

        is_read = F.col("kind") == READ
        sums = self._read.agg(
            *(F.sum(F.when(is_read, F.col(name)).otherwise(0)) for name in READ_COLUMNS.values()),
            F.count(F.when(is_read & (F.col("said") != ""), 1)),
            F.count(F.when(is_read & (F.col("partitions") != "{}"), 1)),
            F.count(F.when(~is_read & (F.col("group") == ""), 1)),
        ).first()
        assert sums is not None
        read = Read(**{name: int(sums[place] or 0) for place, name in enumerate(READ_COLUMNS)})
        wrong, strange, nameless = (int(count) for count in sums[len(READ_COLUMNS) :])
        return read, wrong, strange, nameless

    def _costliest(self, told: Summary) -> None:
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        by_cost = Window.partitionBy("table").orderBy(F.desc("cost"), "group", "row")
        rows = self._tables.where(F.col("table").isin(GROUPS, FINDINGS)).select(
            "table", "row", F.row_number().over(by_cost).alias("place"), F.count("*").over(Window.partitionBy("table"))
        )
        for table, row, _, in_all in rows.where(f"place <= {FINDINGS_TOLD}").orderBy("place").collect():
            if table == GROUPS:
                told.groups_in_all = in_all
                told.groups.append(json.loads(row))
            else:
                told.findings_in_all = in_all
                told.findings.append(json.loads(row))

    def drawn(self, groups: list[str]) -> dict[str, list[Row]]:
        """All tables of a few groups, for the page."""
        from pyspark.sql import functions as F

        found: dict[str, list[Row]] = {}
        rows = self._tables.where(F.col("group").isin(groups[:DRAWN])).select("table", "row")
        for table, row in rows.collect():
            found.setdefault(table, []).append(json.loads(row))
        return found

    def write(self, folder: Path | str) -> None:
        """All tables as Parquet, a folder each, and the events."""
        from pyspark.sql import functions as F

        for table, columns in COLUMNS.items():
            rows = self._tables.where(F.col("table") == table)
            shaped = rows.select(F.from_json("row", columns).alias("r")).select("r.*")
            shaped.write.mode("overwrite").parquet(f"{folder}/{table}")
        self.events().write.mode("overwrite").parquet(f"{folder}/events")


def _examine(table: pa.Table) -> pa.Table:
    """For `applyInArrow`: one group's events to the rows of its tables."""
    events = [Event(**row) for row in _rows(table)]
    group = events[0].group
    made: list[tuple[str, str, float, str]] = []
    for name, row in examined(group, events):
        cost = row.get("cost_partition_seconds", row.get("partition_seconds")) or 0.0
        made.append((group, name, float(cost), json.dumps(row, ensure_ascii=False)))
    columns = list(zip(*made, strict=True))
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, TABLES, strict=True)], schema=TABLES)


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.select(list(FIELDS)).to_batches(max_chunksize=20_000):
        yield from batch.to_pylist()
