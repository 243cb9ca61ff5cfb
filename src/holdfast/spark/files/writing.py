"""What a task does: it writes its rows into one Parquet file per partition and folder. They are durable, but not yet
part of the sink.

Rows that are already in the ledger are left out here, which saves a replayed batch most of its work. That no row gets
in twice is ensured later, by the ledger, when the driver commits. Memory is bounded by `BUFFER_BYTES` and one batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.columns import Columns
from holdfast.spark.files.folders import MAX_FOLDERS, split_by_values
from holdfast.spark.files.layout import checked_topic, new_data_name
from holdfast.spark.files.ledger import FileRef, Ledger
from holdfast.spark.files.parquet import ROW_GROUP_ROWS, from_offset, offsets_of, parquet_writer
from holdfast.spark.files.store import Store

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

BUFFER_BYTES = 64 * 1024 * 1024
"""Rows buffered for whole row groups, over all partitions of one task. Python workers have little memory to spare."""


@dataclass(frozen=True, slots=True)
class Written:
    """One file of one task, not in the ledger yet; or a count of rows that were left out."""

    partition: TopicPartition
    file: FileRef | None
    dropped: int = 0
    """Rows that the task left out because the ledger has them. Reported together with those the driver drops."""


def write_rows(
    store: Store,
    batches: Iterable[pa.RecordBatch],
    *,
    columns: Columns,
    schema_id: str,
    compression: str = "snappy",
    partition_by: Sequence[str] = (),
) -> list[Written]:
    """Write all rows. On an error all files are removed, as far as possible."""
    task = _Task(store, columns, schema_id, compression, partition_by)
    try:
        for batch in batches:
            task.take(batch)
        return task.finish()
    except BaseException:
        task.give_up()
        raise


def split(batch: pa.RecordBatch, columns: Columns) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """A batch's rows by partition, in the order of the partitions."""
    import pyarrow as pa
    import pyarrow.compute as pc

    topics, numbers = batch.column(columns.topic), batch.column(columns.partition)
    for name in (columns.topic, columns.partition, columns.offset):
        if batch.column(name).null_count:
            raise HoldfastError(
                "SINK_NEEDS_ORIGIN",
                f"A row has no {name}.",
                "Every row must say where it came from; outer joins and aggregations lose that.",
            )
    pairs = pa.table({"topic": topics, "partition": numbers}).group_by(["topic", "partition"]).aggregate([])
    found: list[tuple[Any, Any]] = sorted(zip(pairs["topic"].to_pylist(), pairs["partition"].to_pylist(), strict=True))
    equal: Any = pc.equal  # its stubs allow no plain values
    for topic, number in found:
        if number < 0:
            raise HoldfastError(
                "SINK_NEEDS_ORIGIN",
                f"A row's {columns.partition} is {number}, which is no partition.",
                "Let the rows keep the columns topic, partition and offset as the source gives them.",
            )
        partition = TopicPartition(checked_topic(topic), number)
        if len(found) == 1:
            yield partition, batch
        else:
            yield partition, batch.filter(pc.and_(equal(topics, topic), equal(numbers, number)))


class _Task:
    """The open files of one task."""

    def __init__(
        self, store: Store, columns: Columns, schema_id: str, compression: str, partition_by: Sequence[str]
    ) -> None:
        self._store = store
        self._columns = columns
        self._schema_id = schema_id
        self._compression = compression
        self._partition_by = partition_by
        self._outputs: dict[tuple[TopicPartition, str], _Output] = {}
        self._written_up_to: dict[TopicPartition, int] = {}
        self._dropped: dict[TopicPartition, int] = {}

    def take(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        for partition, rows in split(batch, self._columns):
            new = self._not_in_ledger(partition, rows)
            if new.num_rows < rows.num_rows:
                self._dropped[partition] = self._dropped.get(partition, 0) + rows.num_rows - new.num_rows
            for folder, part in split_by_values(new, self._partition_by) if new.num_rows else ():
                self._output(partition, folder).take(part, *offsets_of(part, self._columns.offset))
        while sum(output.buffered for output in self._outputs.values()) > BUFFER_BYTES:
            max(self._outputs.values(), key=lambda output: output.buffered).flush()

    def finish(self) -> list[Written]:
        written = [Written(where[0], output.close()) for where, output in sorted(self._outputs.items())]
        return written + [Written(partition, None, count) for partition, count in sorted(self._dropped.items())]

    def give_up(self) -> None:
        for output in self._outputs.values():
            output.give_up()

    def _not_in_ledger(self, partition: TopicPartition, rows: pa.RecordBatch) -> pa.RecordBatch:
        end = self._written_up_to.get(partition)
        if end is None:
            end = self._written_up_to[partition] = Ledger(self._store, partition).tip().end or 0
        if not end or offsets_of(rows, self._columns.offset)[0] >= end:
            return rows
        return from_offset(rows, self._columns.offset, end)

    def _output(self, partition: TopicPartition, folder: str) -> _Output:
        where = (partition, folder)
        if where not in self._outputs:
            if len({known for _, known in self._outputs}) >= MAX_FOLDERS and folder:
                raise HoldfastError(
                    "SINK_TOO_MANY_FOLDERS",
                    f"One task's rows belong into more than {MAX_FOLDERS} folders: partitionBy names columns with many "
                    "values.",
                    "Each batch makes a file in each of them. Choose columns with few values, a day or a country.",
                )
            name = new_data_name(partition, folder)
            self._outputs[where] = _Output(self._store, name, self._schema_id, self._compression)
        return self._outputs[where]


@dataclass(slots=True)
class _Output:
    """One file being written."""

    store: Store
    name: str
    schema_id: str
    compression: str
    rows: int = 0
    first: int = -1
    last: int = -1
    buffered: int = 0
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _waiting_rows: int = 0
    _stack: ExitStack = field(default_factory=ExitStack)
    _file: IO[bytes] | None = None
    _writer: pq.ParquetWriter | None = None

    def take(self, rows: pa.RecordBatch, first: int, last: int) -> None:
        self.first = first if self.first < 0 else min(self.first, first)
        self.last = max(self.last, last)
        self.rows += rows.num_rows
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self.buffered += rows.nbytes
        if self._waiting_rows >= ROW_GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa

        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting)
        if self._writer is None:
            self._file = self._stack.enter_context(self.store.writing(self.name))
            self._writer = parquet_writer(self._file, table.schema, self.compression)
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self._waiting, self._waiting_rows, self.buffered = [], 0, 0

    def close(self) -> FileRef:
        self.flush()
        assert self._writer is not None
        assert self._file is not None
        self._writer.close()
        size = self._file.tell()
        self._stack.close()
        return FileRef(
            name=self.name, rows=self.rows, bytes=size, first=self.first, last=self.last, schema=self.schema_id
        )

    def give_up(self) -> None:
        """Close the unfinished file without making it visible, and without hiding the error that led here."""
        unfinished = self._stack.pop_all()
        with contextlib.suppress(Exception):
            unfinished.__exit__(_GivenUp, _GivenUp(), None)
        with contextlib.suppress(OSError):
            self.store.remove(self.name)


class _GivenUp(Exception):
    """Makes `store.writing` drop the file."""
