"""`holdfast-files` as Spark sees it: a streaming sink, a batch sink, and a batch source."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from holdfast.model import HoldfastError
from holdfast.spark.files.buckets import AT_START_S
from holdfast.spark.files.columns import Columns, check_columns
from holdfast.spark.files.folders import check_partition_by, may_hold
from holdfast.spark.files.options import check_options, parse_writing
from holdfast.spark.files.schema import check_types, type_names
from holdfast.spark.files.sink import refuse_fed
from holdfast.spark.files.store import Store, open_store
from holdfast.spark.files.store_options import StoreOptions, parse_store_options
from holdfast.spark.internals import StreamArrowWriter, filters_are_passed, needs

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.spark.files.writing import Written


@dataclass(slots=True)
class TaskWrote(WriterCommitMessage):
    """What one task tells the driver."""

    written: list[Written]


class FilesOfTask(InputPartition):
    """The files that one task reads."""

    def __init__(self, names: list[str]) -> None:
        self.names = names


class FilesSource(DataSource):
    """Parquet files with a ledger."""

    @classmethod
    def name(cls) -> str:
        return "holdfast-files"

    def schema(self) -> StructType:
        from holdfast.spark.files.reading import merged_schema, planned_files

        place = self._place()
        store = place.planning()
        files = planned_files(store)
        if not files:
            raise HoldfastError(
                "SINK_EMPTY",
                f"Nothing is committed at {place.path} yet.",
                "Wait for the first batch, or give a schema.",
            )
        return merged_schema(store, files)

    def reader(self, schema: StructType) -> DataSourceReader:
        # PySpark refuses a reader with `pushFilters` if the session does not push any.
        return PruningReader(self._place(), schema) if filters_are_passed() else FilesReader(self._place(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        needs((4, 1), 'A stream into format("holdfast-files")', "write it in foreachBatch, where it is a batch job")
        return StreamFilesWriter(self._write_plan(schema, overwrite))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchFilesWriter(self._write_plan(schema, overwrite))

    def _place(self) -> Place:
        check_options(self.options)
        path = self.options.get("path")
        if not path:
            raise HoldfastError("SINK_PATH_MISSING", "No path was given.", "Give one: .start(path) or .load(path).")
        return Place(str(path), parse_store_options(self.options))

    def _write_plan(self, schema: StructType, overwrite: bool) -> WritePlan:
        if overwrite:
            raise HoldfastError(
                "SINK_APPENDS_ONLY", "A ledger only grows; it can't be overwritten.", "Use append mode, or a new path."
            )
        told, types = parse_writing(self.options), type_names(schema)
        check_columns(told.columns, types)
        check_partition_by(told.partition_by, types)
        place = self._place()
        store = place.planning()
        store.prove()
        refuse_fed(store)
        check_types(store, schema)  # refuse before anything runs
        return WritePlan(
            place=place,
            columns=told.columns,
            schema_json=schema.json(),
            compression=told.compression,
            writer=told.writer,
            partition_by=told.partition_by,
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sink is, for the driver and the tasks; pickled to both."""

    path: str
    options: StoreOptions

    def planning(self) -> Store:
        return open_store(self.path, self.options, patience_s=AT_START_S)

    def running(self) -> Store:
        """For a query that is planned, so the store has been tried out."""
        return open_store(self.path, self.options, proven=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """What tasks and the driver need; pickled to both."""

    place: Place
    columns: Columns
    schema_json: str
    compression: str
    writer: str
    """This application's name in the ledger, for people."""
    partition_by: tuple[str, ...] = ()

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskWrote:
        """On an executor."""
        from holdfast.spark.files.sink import schema_id
        from holdfast.spark.files.writing import write_rows

        return TaskWrote(
            write_rows(
                self.place.running(),
                batches,
                columns=self.columns,
                schema_id=schema_id(self.schema_json),
                compression=self.compression,
                partition_by=self.partition_by,
            )
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
        """On the driver, when every task has written."""
        from holdfast.spark.files.committing import commit_files
        from holdfast.spark.files.sink import keep_schema, open_sink

        store = self.place.running()
        open_sink(store, self.columns)
        check_types(store, StructType.fromJson(json.loads(self.schema_json)))  # another writer may have been faster
        keep_schema(store, self.schema_json)
        what = f"{self.writer} {what}".strip()
        done = commit_files(store, _written(messages), columns=self.columns, writer=what)
        if done.dropped_rows:
            print(  # noqa: T201 - a worker's standard error is Spark's log
                f"holdfast-files: {what}: {done.dropped_rows} rows were in the ledger already and are not added again.",
                file=sys.stderr,
            )


class StreamFilesWriter(StreamArrowWriter):  # type: ignore[misc]  # it depends on the version
    """One query's output."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._plan.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._plan.commit(messages, f"batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Deletes nothing. Spark also calls it when a commit failed half-way, or was interrupted and may still be
        running: a file of this batch may be in the ledger already, or soon. `clean` removes what is not."""


class BatchFilesWriter(DataSourceArrowWriter):
    """One batch job's output: the same ledger, so running a job twice adds nothing."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._plan.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._plan.commit(messages, "batch job")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Deletes nothing, as above."""


class FilesReader(DataSourceReader):
    """Reads the files that are committed when the query is planned."""

    def __init__(self, place: Place, schema: StructType) -> None:
        self._place = place
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        from holdfast.spark.files.reading import planned_files, split_among_tasks

        wanted = [file for file in planned_files(self._place.planning()) if self._wants(file.name)]
        found = [FilesOfTask([file.name for file in files]) for files in split_among_tasks(wanted)]
        return found or [FilesOfTask([])]  # for an empty list Spark would make a partition of its own class

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from holdfast.spark.files.reading import read_files

        assert isinstance(partition, FilesOfTask)
        return read_files(self._place.running(), partition.names, self._schema)

    def _wants(self, name: str) -> bool:
        return True


class PruningReader(FilesReader):
    """Skips files in which, by their folders, no row is wanted."""

    _filters: tuple[Any, ...] = ()

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Returns all of them: Spark still filters the rows, we only skip files."""
        self._filters = tuple(filters)
        return filters

    def _wants(self, name: str) -> bool:
        return may_hold(name, self._filters, type_names(self._schema))


def _written(messages: Sequence[Any]) -> list[Written]:
    return [one for message in messages if isinstance(message, TaskWrote) for one in message.written]
