"""`doctor --follow`: each micro-batch adds events, examines the groups they are about, and rewrites those groups' rows.

A group is always examined from all of its kept events, so it does not matter in which order, how late or in how many
batches they came: the result is that of a single run over the same lines. Every step of a batch is idempotent.
"""

from __future__ import annotations

import heapq
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.doctor.changes import Change
from holdfast.doctor.events import FIELDS
from holdfast.doctor.tables import COLUMNS, FINDINGS, GROUPS, Row
from holdfast.spark.doctor.job import DRAWN, FINDINGS_TOLD, SHAPES_TOLD, Read, Summary
from holdfast.spark.doctor.kept import BUCKETS, CHANGED_DDL, NAMELESS, TOUCHED_DDL, Kept
from holdfast.spark.doctor.notebook import Notebook
from holdfast.spark.doctor.reading import READ

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIGGER = "1 second"
BATCHES_KEPT = "10"
"""Batches kept in the checkpoint. One is needed, and an offset of thousands of files takes half a megabyte."""

SWEEP_LEAST_S, SWEEP_MOST_S = 60.0, 3_600.0
"""Bounds for how often all groups are examined and old events dropped: a hundredth of the time events are kept."""

Tell = Callable[[list[Change], list[str]], None]
"""Takes changes, and new problems with files."""


class Follower:
    """One doctor. `tell` is called for every batch that changed something, on Spark's thread."""

    def __init__(
        self, spark: SparkSession, folder: Path, notebook: Notebook, *, keep_ms: float, only: str | None, tell: Tell
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._notebook = notebook
        self._keep_ms = keep_ms
        self._only = only
        self._tell = tell
        self._held: list[DataFrame] = []
        self._busy = threading.Lock()
        """Batches come on Spark's thread, sweeps on the caller's."""

    def start(self, rows: DataFrame, checkpoint: Path) -> StreamingQuery:
        self._spark.conf.set("spark.sql.streaming.minBatchesToRetain", BATCHES_KEPT)
        writer = rows.writeStream.foreachBatch(self.batch).option("checkpointLocation", str(checkpoint / "spark"))
        return writer.trigger(processingTime=TRIGGER).queryName("holdfast doctor").start()

    # -- a batch

    def batch(self, rows: DataFrame, number: int) -> None:
        """For `foreachBatch`."""
        with self._busy:
            self._batch(rows, number)

    def _batch(self, rows: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F

        state = self._notebook.state()
        if number <= state.batch:
            return  # the batch was completed, but Spark stopped before it had recorded that
        rows = rows.persist()
        self._held = [rows]
        try:
            told = [row.asDict() for row in rows.where(F.col("kind") == READ).collect()]
            wrong = len(state.problems)
            starts = state.add(number, told)
            with self._notebook.turn():
                kept = self._kept(starts)
                changes = self._examined(kept, self._stored(kept, rows, number))
                self._notebook.note(state)
        finally:
            self._let_go()
        problems = [f"{file} {what}." for file, what in state.problems[wrong:]]
        if told:
            self._tell(changes, problems)

    def sweep(self) -> None:
        """Drop events that are too old, and examine every group again: a crash may have left tables behind the events,
        and a newer holdfast may find more in them."""
        if not any((self._folder / "events").glob("*.parquet")):
            return
        with self._busy, self._notebook.turn():
            kept = self._kept({})
            each = self._spark.createDataFrame([(bucket,) for bucket in range(NAMELESS, BUCKETS)], "bucket INT")
            each.groupBy("bucket").applyInArrow(_task(kept.age), TOUCHED_DDL).count()
            self._named(kept)
            changes = self._examined(kept, None)
            self._let_go()
        if changes:
            self._tell(changes, [])

    def _kept(self, starts: Mapping[tuple[str, int], int]) -> Kept:
        return Kept(
            folder=str(self._folder), keep_ms=self._keep_ms, now_ms=time.time() * 1000, lines_before=starts,
            only=self._only,
        )  # fmt: skip

    def _stored(self, kept: Kept, rows: DataFrame, number: int) -> DataFrame:
        """Store the batch's events; returns the groups they change."""
        from pyspark.sql import functions as F

        events = rows.where(F.col("kind") != READ)
        if "origin" not in rows.columns:  # files: a repeated batch holds the same rows, so its number is a position
            events = events.withColumn("origin", F.lit(self._notebook.doctor))
            events = events.withColumn("position", F.lit(number).cast("long"))
        bucket = F.when(F.col("group") == "", F.lit(NAMELESS)).otherwise(F.crc32("group") % BUCKETS).cast("int")
        events = events.select(*FIELDS, "piece", "content", "origin", "position", bucket.alias("bucket"))
        touched = events.groupBy("bucket").applyInArrow(_task(kept.store), TOUCHED_DDL).persist()
        self._held.append(touched)
        touched.count()  # run it now: the next step reads the files it writes
        named = self._named(kept)
        return touched if named is None else touched.union(named)

    def _named(self, kept: Kept) -> DataFrame | None:
        if not Path(kept.folder, "events", "nameless.parquet").exists():
            return None
        one = self._spark.createDataFrame([(NAMELESS,)], "bucket INT")
        named = one.groupBy("bucket").applyInArrow(_task(kept.name), TOUCHED_DDL).persist()
        self._held.append(named)
        named.count()
        return named

    def _let_go(self) -> None:
        while self._held:
            self._held.pop().unpersist()

    def _examined(self, kept: Kept, touched: DataFrame | None) -> list[Change]:
        """Examine the touched groups; all groups if `touched` is None."""
        if touched is None:
            every: list[tuple[int, str | None]] = [(bucket, None) for bucket in range(BUCKETS)]
            touched = self._spark.createDataFrame(every, TOUCHED_DDL)
        changed = touched.groupBy("bucket").applyInArrow(_task(kept.examine), CHANGED_DDL).collect()
        found = [Change(**json.loads(row["change"])) for row in changed]
        return sorted(found, key=lambda one: (-one.cost, one.group, one.kind, one.culprit))

    # -- what the report shows

    def summary(self) -> Summary:
        """The costliest groups and findings; bounded, however much the tables hold."""
        whole, kept = self._notebook.all_states(), self._kept({})
        told = Summary(whole.files, whole.read["size"], read=Read(**whole.read))
        told.shapes = list(whole.shapes.items())[:SHAPES_TOLD]
        told.problems = whole.problems
        told.nameless = kept.nameless()
        told.groups_in_all, told.groups = _costliest(kept, GROUPS, "partition_seconds")
        told.findings_in_all, told.findings = _costliest(kept, FINDINGS, "cost_partition_seconds")
        return told

    def drawn(self, groups: Sequence[str]) -> dict[str, list[Row]]:
        kept = self._kept({})
        return {name: list(kept.read(name, groups[:DRAWN])) for name in COLUMNS}


def sweep_every_s(keep_ms: float) -> float:
    return min(SWEEP_MOST_S, max(SWEEP_LEAST_S, keep_ms / 100_000))


def _costliest(kept: Kept, table: str, column: str) -> tuple[int, list[Row]]:
    count = 0

    def counted() -> Any:
        nonlocal count
        for row in kept.read(table):
            count += 1
            yield row

    top = heapq.nsmallest(FINDINGS_TOLD, counted(), key=lambda row: (-(row[column] or 0.0), row["group"], str(row)))
    return count, top


def _task(run: Callable[[pa.Table], pa.Table]) -> Callable[[pa.Table], pa.Table]:
    """For `applyInArrow`, which counts the `self` of a bound method as an argument of its own."""

    def task(rows: pa.Table) -> pa.Table:
        return run(rows)

    return task
