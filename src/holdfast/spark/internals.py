"""What depends on PySpark's version or on its internals, except for query plans (`plans`, `batch_ranges`). Checked on
PySpark 4.0.1, 4.1.1 and 4.2.0.

Internals are used so that with another version a convenience may be missing, but no result is wrong. What a version
lacks has a stand-in, and `needs` raises where it is really needed:

    4.2   a streaming source learns where a batch begins and how large it may be; without that it can't be a member
    4.1   a streaming sink may get Arrow batches; filters reach a reader
    4.0   batches: reading topics, writing and reading `holdfast-files`; and `exactly_once` on any stream
"""

from __future__ import annotations

import functools
import json
import sys
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import datasource

from holdfast.model import HoldfastError
from holdfast.spark.explaining import ours_in

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

VERSION = tuple(int(number) for number in pyspark.__version__.split(".")[:2])

FILES = "holdfast-files"
PARTITION_BY = "partitionBy"
"""Our option that carries a streaming writer's `partitionBy`."""

PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"
"""The worker that pushes filters to a reader. Spark starts it only with spark.sql.python.filterPushdown.enabled."""

if VERSION >= (4, 2):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:  # only the names, for imports: on older versions no streaming reader is made

    class ReadLimit:  # type: ignore[no-redef]
        pass

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        pass

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        pass

    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        pass

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass


StreamArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)

__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "needs",
    "spark_schema",
]


def arrow_schema(schema: StructType) -> pa.Schema:
    """Spark's schema as Arrow's, with times in UTC. Versions before 4.2 always use UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    make: Any = to_arrow_schema
    return make(schema, timezone="UTC") if VERSION >= (4, 2) else make(schema)  # type: ignore[no-any-return]


def spark_schema(schema: pa.Schema) -> StructType:
    """Arrow's schema as Spark's."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # Else a time without a zone would become one in UTC.
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def needs(version: tuple[int, int], what: str, instead: str, *, have: tuple[int, ...] = VERSION) -> None:
    """Raise if this PySpark is older than that."""
    if have < version:
        wanted, found = (".".join(map(str, numbers)) for numbers in (version, have))
        raise HoldfastError(
            "SPARK_TOO_OLD", f"{what} needs PySpark {wanted}, and this is {found}.", f"Upgrade PySpark, or {instead}."
        )


def filters_are_passed() -> bool:
    """Whether this process is the worker PUSHING. Everywhere else PySpark refuses a reader that has `pushFilters`."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return PUSHING in sys.modules or getattr(main, "name", "") == PUSHING


def ours_first() -> None:
    """Make the text of Spark's errors begin with our code and message, if they contain one.

    PySpark shows such an error as a long Java trace. May be called any number of times.
    """
    from pyspark.errors.exceptions.captured import CapturedException

    captured: Any = CapturedException
    if getattr(captured, "_holdfast_first", False):
        return
    plain = captured.__str__

    def told(self: Any) -> str:
        text = str(plain(self))
        ours = ours_in(text)
        return f"{ours}\n\n{text}" if ours else text

    captured.__str__ = told
    captured._holdfast_first = True


def pass_on_partition_by() -> None:
    """Pass a streaming writer's `partitionBy` on to our sink.

    Spark silently drops it for every DataSource V2 sink. So three methods of the writer are wrapped to remember it, and
    `start` passes it on as an option if the sink is ours. May be called any number of times.
    """
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    writer: Any = DataStreamWriter
    if getattr(writer, "_holdfast_notes", False):
        return
    plain_format, plain_partition_by, plain_start = writer.format, writer.partitionBy, writer.start

    def noted_format(self: Any, source: str) -> Any:
        self._holdfast_format = source
        return plain_format(self, source)

    def noted_partition_by(self: Any, *cols: Any) -> Any:
        self._holdfast_columns = list(cols[0] if len(cols) == 1 and isinstance(cols[0], list | tuple) else cols)
        return plain_partition_by(self, *cols)

    def noted_start(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> Any:
        if format is not None:
            self.format(format)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        columns = getattr(self, "_holdfast_columns", None)
        if columns and getattr(self, "_holdfast_format", "").lower() == FILES:
            self.option(PARTITION_BY, json.dumps(columns))
        return plain_start(self, path=path, outputMode=outputMode, queryName=queryName, **options)

    for name, method, plain in (
        ("format", noted_format, plain_format),
        ("partitionBy", noted_partition_by, plain_partition_by),
        ("start", noted_start, plain_start),
    ):
        setattr(writer, name, functools.wraps(plain)(method))
    writer._holdfast_notes = True
