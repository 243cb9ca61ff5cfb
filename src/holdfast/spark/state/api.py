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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from holdfast.model import HoldfastError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.spark.state.aggregates import Asked
    from holdfast.spark.state.delivering import Write
    from holdfast.spark.state.operators import Operator

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
        return lambda batch, batch_id: self._process(sink, batch, batch_id)

    @property
    def columns(self) -> list[str]:
        """The columns of the rows that tasks get."""
        wanted = self.operator.columns
        names = self.source.rows.columns if wanted is None else [*ORIGIN, *wanted]
        return list(dict.fromkeys(names))

    def write_batch(self, sink: str | Write, batch_id: int) -> None:
        """Inside `foreachBatch`: `stateful(rows, …).window(…).write_batch(sink, batch_id)`."""
        self._process(sink, self.source.rows, batch_id)

    def _process(self, sink: str | Write, batch: DataFrame, batch_id: int) -> None:
        from holdfast.spark.state.processing import process

        process(self, _absolute(sink) if isinstance(sink, str) else sink, batch, batch_id)
