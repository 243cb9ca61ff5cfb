"""Helpers for Parquet and Arrow that writing, committing and compacting share."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROW_GROUP_ROWS = 128 * 1024

COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")


def parquet_writer(target: IO[bytes], schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    import pyarrow.parquet as pq

    name = cast("Literal['snappy', 'zstd', 'lz4', 'gzip', 'none']", compression)
    return pq.ParquetWriter(target, schema, compression=name)


def compression_of(file: pq.ParquetFile) -> str:
    """As `parquet_writer` takes it. Our files have at least one row group and the same compression throughout."""
    found = str(file.metadata.row_group(0).column(0).compression).lower()
    return "none" if found == "uncompressed" else found


def from_offset(rows: pa.RecordBatch, column: str, offset: int) -> pa.RecordBatch:
    """The rows with this offset or a later one."""
    import pyarrow.compute as pc

    compare: Any = pc.greater_equal  # its stubs allow no plain number
    return rows.filter(compare(rows.column(column), offset))


def offsets_of(rows: pa.RecordBatch, column: str) -> tuple[int, int]:
    """The lowest and the highest offset."""
    import pyarrow.compute as pc

    found: Any = pc.min_max(rows.column(column))
    return found["min"].as_py(), found["max"].as_py()
