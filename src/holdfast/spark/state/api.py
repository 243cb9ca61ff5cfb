"""`holdfast.spark.stateful(rows, …)`: aggregates, windows, sessions and distinct rows whose state follows the
partition.

    counts = stateful(orders, state="/data/state/counts").window(
        "event_time", size="10 minutes", watermark="5 minutes", by=["customer"], agg={"orders": "count"}
    )
    counts.start("/data/counts", checkpoint="/data/checkpoints/counts-1")

Rows are always grouped by topic and partition first. So all rows of one customer must be in one partition, as they are
if the customer is the record's key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from holdfast.model import HoldfastError, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.spark.state.aggregates import Asked
    from holdfast.spark.state.chain import Entry
    from holdfast.spark.state.delivering import Write
    from holdfast.spark.state.operators import Operator
    from holdfast.spark.state.task import TaskPlan, Work

ORIGIN = ("topic", "partition", "offset")


def stateful(
    rows: DataFrame, *, state: str, writer: str = "", standby: int = 0, options: Mapping[str, str] | None = None
) -> Stateful:
    """Operators on these rows that keep their state at the path `state`, which all applications of the group share.

    `rows` come from `format("holdfast")` and still have topic, partition and offset. `writer` is this application's
    name in the state's entries, for people. `standby`: how many other applications follow the state of each partition,
    to take it over quickly; load the stream with the same number as `kafka.holdfast.standby`. `options`:
    `holdfast.store.…`, for state and sink in an object store.
    """
    from holdfast.spark.files.columns import Columns, check_columns
    from holdfast.spark.files.schema import type_names
    from holdfast.spark.files.store_options import parse_store_options
    from holdfast.spark.state.standing_by import check_standby

    check_columns(Columns(), type_names(rows.schema))
    told = parse_store_options(options)
    _prove(_absolute(state), told)
    check_standby(rows, standby)
    return Stateful(rows, _absolute(state), writer, told, standby)


def _prove(path: str, options: Mapping[str, str]) -> None:
    """Refuse a place that can't hold a ledger before anything runs."""
    from holdfast.spark.files.buckets import AT_START_S
    from holdfast.spark.files.store import open_store

    open_store(path, options, patience_s=AT_START_S).prove()


def _absolute(path: str) -> str:
    """As a URI: workers run in other folders, and Spark may have another default file system."""
    return path if urlsplit(path).scheme else Path(path).resolve().as_uri()


@dataclass(frozen=True, slots=True)
class Stateful:
    """The operators on the rows."""

    rows: DataFrame
    state: str
    writer: str
    options: Mapping[str, str]
    """The store's. They may hold secrets, which their repr hides."""
    standby: int = 0

    def _given(self) -> pa.Schema:
        from holdfast.spark.internals import arrow_schema

        return arrow_schema(self.rows.schema)

    def window(
        self,
        time: str,
        *,
        size: str,
        watermark: str,
        agg: Asked,
        by: Sequence[str] = (),
        slide: str | None = None,
        mode: Literal["append", "update"] = "append",
    ) -> StatefulRows:
        """Aggregates by key and window of event time; `slide` makes windows overlap.

        `append`: a window is output once, when the partition's watermark has passed its end. `update`: each batch
        outputs the windows it has changed.
        """
        from holdfast.spark.state.aggregates import parse_aggregates
        from holdfast.spark.state.times import duration_us
        from holdfast.spark.state.windows import Windows

        size_us = duration_us(size, "size")
        slide_us = size_us if slide is None else duration_us(slide, "slide")
        if slide_us > size_us:
            raise HoldfastError("INVALID_DURATION", f"slide is {slide!r}, longer than size.", "Rows would be left out.")
        if mode not in ("append", "update"):
            raise HoldfastError("INVALID_OPTION", f"mode is {mode!r}.", 'Choose "append" or "update".')
        given = self._given()
        operator = Windows(
            time=time,
            size_us=size_us,
            slide_us=slide_us,
            delay_us=duration_us(watermark, "watermark", least=0),
            by=tuple(by),
            aggregates=parse_aggregates(agg, given),
            append=mode == "append",
        )
        return self._checked(operator, given, by, time)

    def aggregate(self, *, by: Sequence[str], agg: Asked) -> StatefulRows:
        """Aggregates by key, kept for ever: each batch outputs the keys it has changed."""
        from holdfast.spark.state.aggregates import parse_aggregates
        from holdfast.spark.state.windows import Totals

        given = self._given()
        return self._checked(Totals(by=tuple(by), aggregates=parse_aggregates(agg, given)), given, by, None)

    def sessions(self, time: str, *, gap: str, watermark: str, agg: Asked, by: Sequence[str]) -> StatefulRows:
        """Aggregates by key and session; a session is output once, when the watermark has passed its end."""
        from holdfast.spark.state.aggregates import parse_aggregates
        from holdfast.spark.state.sessions import Sessions
        from holdfast.spark.state.times import duration_us

        given = self._given()
        operator = Sessions(
            time=time,
            gap_us=duration_us(gap, "gap"),
            delay_us=duration_us(watermark, "watermark", least=0),
            by=tuple(by),
            aggregates=parse_aggregates(agg, given),
        )
        return self._checked(operator, given, by, time)

    def drop_duplicates(
        self, by: Sequence[str], *, time: str | None = None, watermark: str | None = None
    ) -> StatefulRows:
        """The first row of each key: within the watermark's delay, or for ever if there is no `time`."""
        from holdfast.spark.state.distinct import Distinct
        from holdfast.spark.state.times import duration_us

        if (time is None) != (watermark is None) or not by:
            raise HoldfastError(
                "INVALID_OPTION",
                "drop_duplicates needs key columns, and time and watermark together or neither.",
                'Write drop_duplicates(["id"], time="event_time", watermark="1 hour").',
            )
        delay = 0 if watermark is None else duration_us(watermark, "watermark")
        return self._checked(Distinct(by=tuple(by), time=time, delay_us=delay), self._given(), by, time)

    def apply(self, operator: Operator) -> StatefulRows:
        """An operator of your own: see docs/stateful.md."""
        from holdfast.spark.state.operators import check_free, check_keys, check_names

        given = self._given()
        check_names(operator.columns or (), given)
        layout = operator.layout(given)
        check_keys([name for name in layout.identity if name in given.names], given)
        if not operator.keeps_offsets:
            check_free(operator.output(given).names)
        return StatefulRows(self, operator)

    def _checked(self, operator: Operator, given: pa.Schema, by: Sequence[str], time: str | None) -> StatefulRows:
        from holdfast.spark.state.operators import check_free, check_keys, check_names
        from holdfast.spark.state.times import check_time_type

        if isinstance(by, str):
            raise HoldfastError("INVALID_OPTION", f"by is the text {by!r}.", "Give a list of column names.")
        check_keys(by, given)
        if time is not None:
            check_names([time], given)
            check_time_type(time, given.field(time).type)
        if not operator.keeps_offsets:
            check_free(operator.output(given).names)
        return StatefulRows(self, operator)


@dataclass(frozen=True, slots=True)
class StatefulRows:
    """The result of an operator, to be written to a sink.

    A sink is the path of a `holdfast-files` sink, which gets each row once; or a function `write(rows, batch_id)` as
    for foreachBatch, which may get the same rows again after a crash. `exactly_once(…)` makes one that applies them
    once.
    """

    source: Stateful
    operator: Operator

    def start(
        self, sink: str | Write, *, checkpoint: str, name: str | None = None, trigger: dict[str, Any] | None = None
    ) -> StreamingQuery:
        """Start the query. `trigger` as Spark's: {"processingTime": "1 second"}, {"availableNow": True}."""
        writer = self.source.rows.writeStream.option("checkpointLocation", checkpoint)
        if name is not None:
            writer = writer.queryName(name)
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.foreachBatch(self.each_batch(sink)).start()

    def each_batch(self, sink: str | Write) -> Callable[[DataFrame, int], None]:
        """A function for `foreachBatch`, for a query that you start yourself."""
        if isinstance(sink, str):
            _prove(_absolute(sink), self.source.options)
        return partial(_process, self, sink)

    @property
    def _columns(self) -> list[str]:
        wanted = self.operator.columns
        names = self.source.rows.columns if wanted is None else [*ORIGIN, *wanted]
        return list(dict.fromkeys(names))

    def write_batch(self, sink: str | Write, batch_id: int) -> None:
        """Inside `foreachBatch`: `stateful(rows, …).window(…).write_batch(sink, batch_id)`."""
        _process(self, sink, self.source.rows, batch_id)


def _process(what: StatefulRows, sink: str | Write, batch: DataFrame, batch_id: int) -> None:
    from holdfast.spark.batch_ranges import batch_ranges
    from holdfast.spark.files.schema import check_types
    from holdfast.spark.files.sink import schema_id
    from holdfast.spark.files.store import open_store
    from holdfast.spark.internals import arrow_schema, spark_schema
    from holdfast.spark.state.batch import Batch
    from holdfast.spark.state.delivering import belong_together, into_files, into_function
    from holdfast.spark.state.opening import open_state
    from holdfast.spark.state.standing_by import follow
    from holdfast.spark.state.task import TaskPlan, output_schema

    rows = batch.select(*what._columns)
    given, operator, source = arrow_schema(rows.schema), what.operator, what.source
    store, told = open_store(source.state, source.options), f"{source.writer} batch {batch_id}".strip()
    open_state(
        store,
        operator=operator.signature,
        columns=", ".join(f"{field.name} {field.type}" for field in operator.layout(given).schema),
        first=batch_id == 0,
        told=told,
    )
    made = spark_schema(output_schema(operator, given))
    path = _absolute(sink) if isinstance(sink, str) else None
    if path is not None:
        belong_together(open_store(path, source.options), store)
        check_types(open_store(path, source.options), made)

    ranges = batch_ranges(batch)
    if source.standby:
        follow(batch, source.state, source.options, operator.layout(given), source.standby, rehearses=not ranges)

    def job(work: dict[TopicPartition, Work]) -> dict[TopicPartition, Entry]:
        return run_tasks(
            batch,
            rows,
            TaskPlan(
                state=source.state,
                sink=path,
                schema_id=schema_id(made.json()),
                operator=operator,
                given=given,
                ranges=ranges,
                work=work,
                told=told,
                writer=source.writer,
                options=source.options,
            ),
        )

    if not ranges:
        job({})  # a rehearsal: workers start and load code
        return
    one = Batch(store, ranges, told)
    entries = one.work(job)  # type: ignore[arg-type]  # a mapping is a dict here
    if path is not None:
        into_files(open_store(path, source.options), entries, made.json(), told)
    else:
        assert callable(sink)
        into_function(batch.sparkSession, source.state, source.options, entries, made.json(), sink, batch_id)
    one.tidy()


def run_tasks(batch: DataFrame, rows: DataFrame, plan: TaskPlan) -> dict[TopicPartition, Entry]:
    """Run the plan with each partition's rows in one task, ordered by offset; sorted again if the job moved them."""
    from holdfast.spark.batch_ranges import stays_in_place
    from holdfast.spark.state.chain import decode
    from holdfast.spark.state.task import ANSWER

    if not stays_in_place(batch):
        rows = rows.repartition(max(1, len(plan.work)), "topic", "partition").sortWithinPartitions(*ORIGIN)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return plan(batches)

    found: dict[TopicPartition, Entry] = {}
    for topic, number, entry in rows.mapInArrow(task, ANSWER).collect():
        partition = TopicPartition(topic, number)
        if partition in found:
            raise HoldfastError(
                "STATE_ROWS_MIXED",
                f"Rows of {partition} were in two tasks.",
                "Report this with the query's plan. Until then put .repartition(…) before stateful().",
            )
        found[partition] = decode(entry.encode())
    return found
