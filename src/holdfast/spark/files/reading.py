"""Reading a sink in Spark: only the files that were committed when the query was planned.

A job's output may have changed over time. The sink's schema has the columns of all its files, in the order in which
they appeared; a column that a file lacks is null. One name with two types is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from holdfast.spark.files.ledger import FileRef
from holdfast.spark.files.schema import merged
from holdfast.spark.files.sink import contents, schemas, sink_columns
from holdfast.spark.files.store import Store
from holdfast.spark.internals import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

BYTES_PER_TASK = 128 * 1024 * 1024
"""As spark.sql.files.maxPartitionBytes."""
FILE_COST_BYTES = 4 * 1024 * 1024
"""As spark.sql.files.openCostInBytes: the cost of opening a file, in bytes that could be read in that time."""

BATCH_ROWS = 64 * 1024


def planned_files(store: Store) -> list[FileRef]:
    sink_columns(store)
    return [file for _, content in contents(store) for file in content.files]


def merged_schema(store: Store, files: Sequence[FileRef]) -> StructType:
    """The columns of all files."""
    names = list(dict.fromkeys(file.schema for file in files))
    found = schemas(store, names)
    read = [StructType.fromJson(json.loads(found[name])) for name in names]
    return merged(
        read, "Read with a schema of your own, leaving the column out, or write the new form to another path."
    )


def split_among_tasks(files: Sequence[FileRef]) -> list[list[FileRef]]:
    """The files, in order, grouped into tasks of about equal size."""
    found: list[list[FileRef]] = []
    room = 0
    for file in files:
        cost = file.bytes + FILE_COST_BYTES
        if not found or cost > room:
            found.append([])
            room = BYTES_PER_TASK
        found[-1].append(file)
        room -= cost
    return found


def read_files(store: Store, names: Sequence[str], schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of some files, with exactly the columns of `schema`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = arrow_schema(schema)
    for name in names:
        with store.open(name) as source:
            parquet = pq.ParquetFile(source)
            # Names as Spark takes them, in any case: a sink refuses two that differ in nothing else.
            known = {name.lower(): name for name in parquet.schema_arrow.names}
            there = [known[field.name.lower()] for field in wanted if field.name.lower() in known]
            for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=there):
                columns = [
                    batch.column(known[field.name.lower()]).cast(field.type)
                    if field.name.lower() in known
                    else pa.nulls(batch.num_rows, field.type)
                    for field in wanted
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=wanted)
