"""Exactly once into a database: the offsets and the output in one transaction, in `foreachBatch`.

    def add(rows, connection, batch_id):
        totals = rows.groupBy("customer").sum("amount").collect()
        connection.cursor().executemany("insert into totals … on conflict … do update …", totals)

    orders.writeStream.foreachBatch(exactly_once(lambda: psycopg.connect(dsn), add, sink="totals")).start()

A table in the same database holds the next offset by sink and partition. Each batch first moves it to the batch's end,
by compare-and-set; then `add` runs; then all of it is committed. If another application has moved the offset (a zombie
was faster, or the batch is replayed), the batch starts again with the rows that are still new, or is dropped. The rule
is the file sink's: rows before the next offset are in, rows from it on are not.

The driver does the writing. `add` may collect a small result, or fill a staging table from the executors by Spark's
JDBC sink and move its rows inside the transaction. Any DB-API driver works; tested with psycopg 3 and sqlite3.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.exactly_once_origin import check_origins, checked_ranges
from holdfast.spark.offsets import Ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Write = Callable[["DataFrame", Any, int], None]

MAX_ATTEMPTS = 10
"""Each lost race means that another application wrote the same partitions. The group allows that only while partitions
move: a few times, never many."""

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


def exactly_once(
    connect: Callable[[], Any],
    write: Write,
    *,
    sink: str,
    table: str = "holdfast_ledger",
    by: Literal["rows", "batch"] = "rows",
    topic_column: str = "topic",
    partition_column: str = "partition",
    offset_column: str = "offset",
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that calls `write(rows, connection, batch_id)` and commits.

    `connect` opens a connection that is not in autocommit mode; it is closed after the batch. `sink` names the output:
    two outputs in one database need two names. `by="rows"` uses the rows' own topic, partition and offset, and passes
    on only rows that are new. `by="batch"` is for rows without these columns, such as the result of a streaming
    aggregation: the batch is applied or dropped as a whole. A batch without data is applied too, once for each query
    and batch id, because Spark closes windows in it.
    """
    check_sink_name(sink)
    if not _TABLE.fullmatch(table):
        raise HoldfastError("TABLE_NAME_INVALID", f"{table!r} is not a table name.", "Give table= a plain name.")
    if by not in ("rows", "batch"):
        raise HoldfastError("INVALID_OPTION", f"by is {by!r}.", 'Choose "rows" or "batch".')
    names = (topic_column, partition_column, offset_column)

    def by_rows(batch: DataFrame, batch_id: int) -> None:
        rows = batch.persist()  # computed once, used twice: for the ranges, and to be written
        try:
            ranges = ranges_of_rows(rows, names)

            def write_new(connection: Any, new: Mapping[TopicPartition, New]) -> None:
                left_out(sink, batch_id, ranges, new)
                write(only_new(rows, names, ranges, new), connection, batch_id)

            if ranges and not apply_once(connect, sink, table, ranges, write_new):
                left_out(sink, batch_id, ranges, {})
        finally:
            rows.unpersist()

    def by_batch(batch: DataFrame, batch_id: int) -> None:
        from holdfast.spark.batch_ranges import batch_ranges, query_of

        ranges, number = batch_ranges(batch), number_as_range(query_of(batch), batch_id)
        written = apply_once(
            connect,
            sink,
            table,
            {**ranges, **number},
            lambda connection, _: write(batch, connection, batch_id),
            choose=lambda _, positions: all_or_nothing(ranges, number, positions),
        )
        if not written:
            left_out(sink, batch_id, ranges, {})
            # Spark stores the batch's state only if the result is computed, even if it was written before.
            batch.write.format("noop").mode("overwrite").save()

    return by_rows if by == "rows" else by_batch


def check_sink_name(sink: str) -> None:
    if not sink:
        raise HoldfastError("SINK_NAME_MISSING", "The sink has no name.", "Give sink= a name of its own.")


def ledger_busy(sink: str) -> HoldfastError:
    return HoldfastError(
        "LEDGER_BUSY",
        f"{MAX_ATTEMPTS} times in a row another application wrote the same partitions of {sink!r}.",
        "See which applications write into this sink, and whether they are members of one group.",
    )


# -- what is new, by the ledger


@dataclass(frozen=True, slots=True)
class New:
    """The part of a range that is new, and the ledger's position when that was decided (None: it had no row)."""

    start: int
    end: int
    stood_at: int | None


Choose = Callable[[Ranges, Mapping[TopicPartition, int]], dict[TopicPartition, New]]
"""What is new of a batch's ranges, by the ledger's positions."""


def still_new(ranges: Ranges, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, New]:
    """The part of each range from the ledger's position on; ranges that are already in are left out."""
    found: dict[TopicPartition, New] = {}
    for partition, (start, end) in sorted(ranges.items()):
        stood_at = positions.get(partition)
        if stood_at is None or stood_at < end:
            found[partition] = New(start if stood_at is None else max(start, stood_at), end, stood_at)
    return found


def number_as_range(query: str, batch_id: int) -> Ranges:
    """The batch's own number as a range of the ledger, for batches without data. No topic can have such a name."""
    return {TopicPartition(f"query/{query}", -1): (batch_id, batch_id + 1)}


def all_or_nothing(
    ranges: Ranges, number: Ranges, positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, New]:
    """What a batch that can't be split moves in the ledger: all of its ranges, or nothing. `number`: its own number.

    If it reads something, its ranges decide whether it is new. If it reads nothing, its number decides: it still has to
    be applied once, because Spark closes windows in such a batch.
    """
    new, counted = still_new(ranges, positions), still_new(number, positions)
    if not (new if ranges else counted):
        return {}
    taken = {p: positions[p] for p, (start, _) in sorted(ranges.items()) if p not in new or new[p].start != start}
    if taken:
        raise partly_written(taken, new)
    return {**new, **counted}


def partly_written(taken: Mapping[TopicPartition, int], new: Mapping[TopicPartition, New]) -> HoldfastError:
    """`taken`: where the ledger stands in the partitions of which it has something."""
    there = ", ".join(f"{partition} before {position}" for partition, position in taken.items())
    lacking = ", ".join(f"{partition} [{part.start}, {part.end})" for partition, part in sorted(new.items()))
    commands = " and ".join(
        f"`holdfast groups reset-offsets GROUP --topic {partition.topic}:{partition.partition} --to-offset {position} "
        "--execute`"
        for partition, position in taken.items()
    )
    return HoldfastError(
        "BATCH_PARTLY_WRITTEN",
        f"The sink has a part of this batch, written in other batches: {there}. It lacks {lacking}; nothing was "
        "written now.",
        "Start the query again: it leaves out what others have written and told the group, and does the rest. If it "
        f"ends in the same way, the group was not told: stop all its applications, run {commands}, and start them "
        "again. A query that keeps state (an aggregation by Spark) needs all rows: give it an output and a "
        'sink="…" of its own.',
    )


def left_out(sink: str, batch_id: int, ranges: Ranges, new: Mapping[TopicPartition, New]) -> None:
    """Tell which rows of a batch are not written, because the ledger has their offsets. After a crash that is as it
    should be. In a job that was not restarted, two outputs have one name."""
    known = [
        f"{partition} before {new[partition].start if partition in new else end}"
        for partition, (start, end) in sorted(ranges.items())
        if partition not in new or new[partition].start > start
    ]
    if known:
        print(  # noqa: T201 - the driver's standard error
            f"{sink} batch {batch_id}: rows of {', '.join(known)} were written already and are left out.",
            file=sys.stderr,
        )


# -- the ledger table


def apply_once(
    connect: Callable[[], Any],
    sink: str,
    table: str,
    ranges: Ranges,
    work: Callable[[Any, Mapping[TopicPartition, New]], None],
    *,
    choose: Choose = still_new,
) -> bool:
    """Move the ledger over the ranges and do the work in one transaction; False if there is nothing new."""
    connection = connect()
    try:
        ledger = LedgerTable(connection, table, sink)
        ledger.create()
        for attempt in range(1, MAX_ATTEMPTS + 1):
            new = choose(ranges, ledger.positions(ranges))
            if not new:
                connection.rollback()
                return False
            if ledger.advance(new, patient=attempt < MAX_ATTEMPTS):
                work(connection, new)
                connection.commit()
                return True
            connection.rollback()
        raise ledger_busy(sink)
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.close()


class LedgerTable:
    """The next offset by sink and partition, in the user's own database."""

    def __init__(self, connection: Any, table: str, sink: str) -> None:
        self._connection = connection
        self._table = table
        self._sink = sink
        self._mark = _placeholder(connection)
        if _commits_by_itself(connection):
            raise HoldfastError(
                "CONNECTION_AUTOCOMMITS",
                "The connection commits every statement by itself, so offsets and output would not be one transaction.",
                "Open it with autocommit off (sqlite3: leave isolation_level alone).",
            )

    def create(self) -> None:
        """Create the table if it is missing. Another application may create it at the same moment."""
        if self._is_there():
            return
        try:
            self._connection.cursor().execute(
                f"create table if not exists {self._table} (sink varchar(200) not null, topic varchar(249) not null, "
                "partition_id integer not null, next_offset bigint not null, primary key (sink, topic, partition_id))"
            )
            self._connection.commit()
        except Exception:
            # PostgreSQL may refuse one of two creations at the same moment, even with "if not exists".
            self._connection.rollback()
            if not self._is_there():
                raise

    def _is_there(self) -> bool:
        try:
            self._connection.cursor().execute(f"select 1 from {self._table} where 1 = 0")  # noqa: S608 - name is checked
        except Exception:  # noqa: BLE001 - drivers have exceptions of their own, and any means: not usable as it is
            return False
        finally:
            self._connection.rollback()
        return True

    def positions(self, partitions: Sequence[TopicPartition] | Ranges) -> dict[TopicPartition, int]:
        cursor = self._connection.cursor()
        cursor.execute(
            f"select topic, partition_id, next_offset from {self._table} where sink = {self._mark}",  # noqa: S608 - checked
            (self._sink,),
        )
        found = {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in cursor.fetchall()}
        return {partition: found[partition] for partition in sorted(partitions) if partition in found}

    def advance(self, new: Mapping[TopicPartition, New], *, patient: bool) -> bool:
        """Compare and set every partition, in sorted order, so that two writers never deadlock."""
        try:
            return all(self._advance_one(partition, part) for partition, part in sorted(new.items()))
        except Exception:
            # Another writer inserted the row, or the transaction could not be serialised: try again.
            if not patient:
                raise
            return False

    def _advance_one(self, partition: TopicPartition, part: New) -> bool:
        cursor, mark = self._connection.cursor(), self._mark
        if part.stood_at is None:
            cursor.execute(
                f"insert into {self._table} (sink, topic, partition_id, next_offset) "  # noqa: S608 - name is checked
                f"values ({mark}, {mark}, {mark}, {mark})",
                (self._sink, partition.topic, partition.partition, part.end),
            )
            return True
        cursor.execute(
            f"update {self._table} set next_offset = {mark} where sink = {mark} and topic = {mark} "  # noqa: S608 - checked
            f"and partition_id = {mark} and next_offset = {mark}",
            (part.end, self._sink, partition.topic, partition.partition, part.stood_at),
        )
        return bool(cursor.rowcount == 1)


def _placeholder(connection: Any) -> str:
    module = sys.modules.get(type(connection).__module__.split(".")[0])
    style = getattr(module, "paramstyle", None)
    if style not in _PLACEHOLDERS:
        raise HoldfastError(
            "DRIVER_UNKNOWN",
            f"{type(connection).__module__} writes its parameters as {style!r}.",
            f"Use a DB-API driver with paramstyle {', '.join(sorted(_PLACEHOLDERS))}.",
        )
    return _PLACEHOLDERS[str(style)]


def _commits_by_itself(connection: Any) -> bool:
    if type(connection).__module__ == "sqlite3" and getattr(connection, "autocommit", -1) == -1:
        return connection.isolation_level is None  # sqlite3 before it had `autocommit`
    return getattr(connection, "autocommit", False) is True


# -- ranges and rows


def ranges_of_rows(rows: DataFrame, names: tuple[str, str, str]) -> dict[TopicPartition, tuple[int, int]]:
    """Partition -> [first offset, last offset + 1) of the batch's rows. Rows that don't say where they came from are
    refused: the ledger could neither recognise them later nor leave others in their place."""
    from pyspark.sql import functions as f

    from holdfast.spark.batch_ranges import origins
    from holdfast.spark.files.columns import Columns, check_columns

    topic, partition, offset = names
    columns = Columns(topic=topic, partition=partition, offset=offset)
    check_columns(columns, {field.name: field.dataType.typeName() for field in rows.schema.fields})
    no_offset = f.max(f.col(offset).isNull())
    found = rows.groupBy(topic, partition).agg(f.min(offset), f.max(offset), no_offset).collect()
    ranges = checked_ranges([tuple(one) for one in found], columns)
    check_origins(ranges, origins(rows) if ranges else None)
    return ranges


def only_new(
    rows: DataFrame, names: tuple[str, str, str], ranges: Ranges, new: Mapping[TopicPartition, New]
) -> DataFrame:
    """The rows that are not in the ledger yet. Nearly always that is all of them, and no filter is needed."""
    from functools import reduce

    from pyspark.sql import functions as f

    if all(partition in new and new[partition].start == start for partition, (start, _) in ranges.items()):
        return rows
    topic, partition, offset = names
    kept = [
        (f.col(topic) == p.topic) & (f.col(partition) == p.partition) & (f.col(offset) >= part.start)
        for p, part in sorted(new.items())
    ]
    return rows.where(reduce(lambda left, right: left | right, kept))
