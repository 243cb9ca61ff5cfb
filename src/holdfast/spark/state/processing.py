"""What `foreachBatch` does with a batch of a stateful query: opens the state, runs tasks, delivers the output."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.batch_ranges import ranges_and_topics, stays_in_place
from holdfast.spark.files.schema import check_types
from holdfast.spark.files.sink import schema_id
from holdfast.spark.files.store import Store, open_store
from holdfast.spark.internals import arrow_schema, spark_schema
from holdfast.spark.state.batch import Batch
from holdfast.spark.state.chain import Entry, decode
from holdfast.spark.state.delivering import Write, belong_together, into_files, into_function
from holdfast.spark.state.opening import open_state
from holdfast.spark.state.standing_by import follow
from holdfast.spark.state.task import ANSWER, ORIGIN, TaskPlan, output_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.spark.state.api import StatefulRows


def process(what: StatefulRows, sink: str | Write, batch: DataFrame, batch_id: int) -> None:
    """`sink`: the absolute path of a `holdfast-files` sink, or a function as for foreachBatch."""
    rows = batch.select(*what.columns)
    given, operator, source = arrow_schema(rows.schema), what.operator, what.source
    told = f"{source.writer} batch {batch_id}".strip()
    store = _opened(what, given, first=batch_id == 0, told=told)
    made = spark_schema(output_schema(operator, given))
    path = sink if isinstance(sink, str) else None
    if path is not None:
        belong_together(open_store(path, source.options), store)
        check_types(open_store(path, source.options), made)

    ranges, topic_ids = ranges_and_topics(batch)
    if source.standby:
        follow(batch, source.state, source.options, operator.layout(given), source.standby, rehearses=not ranges)
    plan = TaskPlan(
        state=source.state,
        sink=path,
        schema_id=schema_id(made.json()),
        operator=operator,
        given=given,
        ranges=ranges,
        work={},
        told=told,
        writer=source.writer,
        options=source.options,
    )
    if not ranges:
        run_tasks(batch, rows, plan)  # a rehearsal: workers start and load code
        return
    one = Batch(store, ranges, told, topic_ids, now_us=time.time_ns() // 1_000)
    entries = one.work(lambda work: run_tasks(batch, rows, replace(plan, work=work)))
    if isinstance(sink, str):
        into_files(open_store(sink, source.options), entries, made.json(), told)
    else:
        into_function(batch.sparkSession, source.state, source.options, entries, made.json(), sink, batch_id)
    one.tidy()


def _opened(what: StatefulRows, given: pa.Schema, *, first: bool, told: str) -> Store:
    store = open_store(what.source.state, what.source.options)
    columns = ", ".join(f"{field.name} {field.type}" for field in what.operator.layout(given).schema)
    open_state(store, operator=what.operator.signature, columns=columns, first=first, told=told)
    return store


def run_tasks(batch: DataFrame, rows: DataFrame, plan: TaskPlan) -> Mapping[TopicPartition, Entry]:
    """Run the plan with each partition's rows in one task, ordered by offset; sorted again if the job moved them."""
    if not stays_in_place(batch):
        origin = [field.name for field in ORIGIN]
        rows = rows.repartition(max(1, len(plan.work)), "topic", "partition").sortWithinPartitions(*origin)

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
