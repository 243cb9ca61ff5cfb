"""What a task does: it runs its partitions' rows through the operator and writes state and output into files. The
result is an entry for each partition.

Nothing counts yet when a task is done: the driver appends the entries. A task that runs twice writes its files twice,
and only one set gets into an entry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.columns import Columns
from holdfast.spark.files.layout import new_data_name
from holdfast.spark.files.ledger import FileRef
from holdfast.spark.files.parquet import parquet_writer
from holdfast.spark.files.store import Store, open_store
from holdfast.spark.files.store_options import StoreOptions
from holdfast.spark.files.writing import split
from holdfast.spark.state.chain import Chain, Entry, encode
from holdfast.spark.state.keys import flat, picked
from holdfast.spark.state.operators import Operator, last_rows
from holdfast.spark.state.storing import lay_down, view_of

STEP_ROWS = 250_000
"""Rows of one step. A batch may not fit into memory; a step does."""

ORIGIN: list[pa.Field[Any]] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
]
ANSWER = "topic string, partition int, entry string"
ANSWER_SCHEMA = pa.schema([*ORIGIN[:2], pa.field("entry", pa.string())])


@dataclass(frozen=True, slots=True)
class Work:
    """One partition's part of a batch: from the end of its chain up to an offset."""

    tip: Entry
    end: int


def output_schema(operator: Operator, given: pa.Schema) -> pa.Schema:
    """With topic, partition and offset. Results that are not source rows get the last offset of their batch."""
    made = operator.output(given)
    return made if operator.keeps_offsets else pa.schema([*ORIGIN, *made])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """What a task needs; pickled to executors."""

    state: str
    sink: str | None
    """The path of a `holdfast-files` sink for the output; None: output goes into the state's outbox."""
    schema_id: str
    operator: Operator
    given: pa.Schema
    ranges: Mapping[TopicPartition, tuple[int, int]]
    """Everything the batch reads."""
    work: Mapping[TopicPartition, Work]
    """The part that is not done yet."""
    told: str
    writer: str
    options: Mapping[str, str] = field(default_factory=StoreOptions)
    """Store options, for state and sink."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: dict[TopicPartition, _Part] = {}
        try:
            self._take(batches, parts)
            entries = [part.finish() for _, part in sorted(parts.items())]
        except BaseException:
            for part in parts.values():
                part.give_up()
            raise
        columns: list[Any] = [
            pa.array([partition.topic for partition in sorted(parts)], pa.string()),
            pa.array([partition.partition for partition in sorted(parts)], pa.int32()),
            pa.array([encode(entry).decode() for entry in entries], pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=ANSWER_SCHEMA)

    def _take(self, batches: Iterable[pa.RecordBatch], parts: dict[TopicPartition, _Part]) -> None:
        for batch in batches:
            for partition, rows in split(batch, Columns()) if batch.num_rows else ():
                self._check(partition, rows)
                if partition in self.work:
                    if partition not in parts:
                        parts[partition] = _Part(self, partition)
                    parts[partition].take(rows)

    def _check(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Refuse rows outside the batch's ranges: they would be lost or counted twice."""
        offsets = flat(rows.column("offset")).to_numpy()
        start, end = self.ranges.get(partition, (0, 0))
        if offsets.min() < start or offsets.max() >= end:
            raise HoldfastError(
                "STATE_ROWS_UNKNOWN",
                f"{self.told} has rows of {partition} from {offsets.min()} to {offsets.max()}, "
                f"and reads [{start}, {end}).",
                "Leave topic, partition and offset as the source gives them. If you did, report this with the query's "
                "plan.",
            )


class _Part:
    """One partition in a task."""

    def __init__(self, plan: TaskPlan, partition: TopicPartition) -> None:
        self._plan, self._partition = plan, partition
        self._work = plan.work[partition]
        self._store = open_store(plan.state, plan.options)
        self._chain = Chain(self._store, partition, plan.told)
        self._view = view_of(self._store, self._work.tip, plan.operator.layout(plan.given), self._chain)
        self._watermark, self._late = self._work.tip.watermark, self._work.tip.late
        self._waiting: list[pa.RecordBatch] = []
        self._rows, self._last = 0, -1
        sink = self._store if plan.sink is None else open_store(plan.sink, plan.options)
        name = self._chain.new_output_name() if plan.sink is None else new_data_name(partition)
        self._output = _Output(sink, name, output_schema(plan.operator, plan.given), plan.schema_id)
        self._held: list[pa.Table] = []

    def take(self, rows: pa.RecordBatch) -> None:
        offsets = flat(rows.column("offset")).to_numpy()
        if offsets[0] < self._last or np.any(offsets[1:] < offsets[:-1]):
            raise HoldfastError(
                "STATE_ROWS_MIXED",
                f"Rows of {self._partition} came out of the order of their offsets.",
                "Report this with the query's plan. Until then put .repartition(…) before stateful(): rows are then "
                "sorted.",
            )
        self._last = int(offsets[-1])
        if offsets[0] < self._work.tip.end:  # already in the state
            rows = rows.filter(picked(offsets >= self._work.tip.end))
        self._waiting.append(rows)
        self._rows += rows.num_rows
        if self._rows >= STEP_ROWS:
            self._step()

    def finish(self) -> Entry:
        if self._rows:
            self._step()
        names = self._plan.operator.supersedes
        if self._held and names is not None:
            self._write(last_rows(pa.concat_tables(self._held), names))
        runs = lay_down(self._store, self._chain, self._work.tip, self._view)
        made = replace(self._work.tip.next(self._work.end), runs=runs, watermark=self._watermark, late=self._late)
        return replace(made, output=self._output.close(), writer=self._plan.writer)

    def give_up(self) -> None:
        self._output.give_up()

    def _step(self) -> None:
        rows = pa.Table.from_batches(self._waiting).cast(self._plan.given)
        self._waiting, self._rows = [], 0
        done = self._plan.operator.step(self._view, rows, self._watermark)
        self._watermark, self._late = done.watermark, self._late + done.late
        if self._plan.operator.supersedes is None:
            self._write(done.output)
        else:
            self._held.append(done.output)

    def _write(self, rows: pa.Table) -> None:
        if not self._plan.operator.keeps_offsets:
            count = rows.num_rows
            values: list[Any] = [self._partition.topic, self._partition.partition, self._work.end - 1]
            origin = [pa.repeat(pa.scalar(value, one.type), count) for value, one in zip(values, ORIGIN, strict=True)]
            rows = pa.Table.from_arrays([*origin, *rows.columns], schema=self._output.schema)
        self._output.write(rows)


@dataclass(slots=True)
class _Output:
    """One file of results, created when there is something to write."""

    store: Store
    name: str
    schema: pa.Schema
    schema_id: str
    _first: int = -1
    _last: int = -1
    _rows: int = 0
    _writer: Any = None
    _file: Any = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def write(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        if self._writer is None:
            self._file = self._stack.enter_context(self.store.writing(self.name))
            self._writer = parquet_writer(self._file, self.schema, "snappy")
        self._writer.write_table(rows)
        offsets = flat(rows["offset"]).to_numpy()
        self._first = int(offsets.min()) if self._first < 0 else min(self._first, int(offsets.min()))
        self._last = max(self._last, int(offsets.max()))
        self._rows += rows.num_rows

    def give_up(self) -> None:
        """Drop the unfinished file: a worker lives on, and a full disk is one reason to be here."""
        if self._writer is not None:
            with contextlib.suppress(Exception):
                self._writer.close()
        with contextlib.suppress(Exception):
            self._stack.__exit__(_GivenUp, _GivenUp(), None)

    def close(self) -> tuple[FileRef, ...]:
        if self._writer is None:
            return ()
        self._writer.close()
        size = self._file.tell()
        self._stack.close()
        return (
            FileRef(
                name=self.name,
                rows=self._rows,
                bytes=size,
                first=self._first,
                last=self._last,
                schema=self.schema_id,
            ),
        )


class _GivenUp(Exception):
    """Makes `store.writing` drop the file."""
