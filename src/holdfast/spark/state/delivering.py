"""Delivers a batch's output from its entries to a sink. After a crash it is delivered again, always the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.batch_ranges import delivering
from holdfast.spark.files.columns import Columns
from holdfast.spark.files.layout import FED_BY
from holdfast.spark.files.ledger import Addition, FileRef, Ledger
from holdfast.spark.files.sink import keep_schema, open_sink
from holdfast.spark.files.store import LocalStore, Store, open_store
from holdfast.spark.state.batch import AT_ONCE
from holdfast.spark.state.chain import Entry
from holdfast.spark.state.opening import identity_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Write = Callable[["DataFrame", int], None]

_PLAIN = re.compile(r"[A-Za-z0-9/._=+-]*")
"""Paths that mean the same to Spark as to us."""

FED: set[tuple[str, str]] = set()
"""Sinks and states that this process has found to belong together."""


def belong_together(sink: Store, state: Store) -> None:
    """Refuse a sink that gets its results from another state. The ledger goes by offsets, so of two states that deliver
    into one sink each would lose what the other delivered first, without a word. It is also how an application learns
    that its path of the state is not the others': an empty folder where something should have been mounted."""
    where = (str(getattr(sink, "root", id(sink))), str(getattr(state, "root", id(state))))
    if where in FED:
        return
    ours = json.dumps({"v": 1, "state": identity_of(state)}).encode()
    if sink.read(FED_BY) is None:
        sink.create(FED_BY, ours)  # or another application just has
    if sink.read(FED_BY) != ours:
        raise HoldfastError(
            "SINK_SHARED",
            f"The sink at {where[0]} gets its results from another state than the one at {where[1]}.",
            "Give each stateful query a sink of its own. If this is the same query, its state is elsewhere: see that "
            "the path is mounted, and that all applications name the same. If that state was given up, begin with a "
            f"new sink too, or remove {FED_BY} from this one.",
        )
    FED.add(where)


def into_files(store: Store, entries: Mapping[TopicPartition, Sequence[Entry]], schema_json: str, writer: str) -> None:
    """Deliver to a `holdfast-files` sink: the files that the tasks have written there are added to its ledger, once,
    by their offsets."""
    with_output = {p: [file for entry in found for file in entry.output] for p, found in sorted(entries.items())}
    with_output = {partition: files for partition, files in with_output.items() if files}
    if not with_output:
        return
    open_sink(store, Columns())
    keep_schema(store, schema_json)

    def add(partition: TopicPartition) -> None:
        files = with_output[partition]
        Ledger(store, partition).append(lambda end: _lacking(store, partition, files, end), writer=writer)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(add, with_output))


def _lacking(store: Store, partition: TopicPartition, files: Sequence[FileRef], end: int | None) -> Addition | None:
    """The files after the ledger's end. Those before it were delivered by whichever application did the batch first."""
    lacking = [file for file in files if end is None or file.last >= end]
    if not lacking:
        return None
    if end is not None and lacking[0].first < end:
        raise HoldfastError(
            "SINK_SHARED",
            f"The sink has rows of {partition} up to {end} that are not from this state: another query writes into it.",
            "Give each stateful query a sink of its own.",
        )
    for file in lacking:
        if not store.touch(file.name):
            raise HoldfastError(
                "DATA_FILE_MISSING",
                f"{file.name} was written by a batch, is not in the sink's ledger yet, and is gone.",
                "Run `holdfast pipeline clean` on the sink with an --older-than longer than the longest outage. What "
                "that file held is lost to the sink: restore it from a backup, or start with new state and sink.",
            )
    return Addition(min(file.first for file in lacking), max(file.last for file in lacking) + 1, tuple(lacking))


def into_function(
    spark: SparkSession,
    root: str,
    options: Mapping[str, str],
    entries: Mapping[TopicPartition, Sequence[Entry]],
    schema_json: str,
    write: Write,
    batch_id: int,
) -> None:
    """Deliver to a user's function, as for foreachBatch: the rows of all entries in one frame."""
    from pyspark.sql.types import StructType

    names = [file.name for _, found in sorted(entries.items()) for entry in found for file in entry.output]
    schema = StructType.fromJson(json.loads(schema_json))
    if not names:
        return
    store = open_store(root, options)
    if isinstance(store, LocalStore) and _PLAIN.fullmatch(str(store.root)):
        rows = spark.read.schema(schema).parquet(*(f"file://{store.root}/{name}" for name in names))
    else:  # Spark may not know this file system, or not have our credentials; and it takes [ and * for patterns
        rows = spark.createDataFrame([(name,) for name in names], "name string").mapInArrow(
            partial(read_named, root, options, schema), schema
        )
    reached = {p: (found[0].start, found[-1].end) for p, found in sorted(entries.items()) if found}
    with delivering(reached):
        write(rows, batch_id)


def read_named(
    root: str, options: Mapping[str, str], schema: StructType, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """On an executor: the rows of the files whose names are in the batches."""
    from holdfast.spark.files.reading import read_files

    names = [str(name) for batch in batches for name in batch.column("name").to_pylist()]
    return read_files(open_store(root, options), names, schema)
