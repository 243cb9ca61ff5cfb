"""A sink as a whole: its settings, its schemas, its partitions, and the offset at which each of them ends."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.buckets import AT_START_S
from holdfast.spark.files.columns import Columns
from holdfast.spark.files.layout import FED_BY, LEDGER, README, SCHEMAS, SINK, is_partition, is_topic
from holdfast.spark.files.ledger import Content, Ledger
from holdfast.spark.files.store import Store, open_store

VERSION = 1

README_TEXT = """This is a sink of holdfast: Parquet files under data/, and a ledger of those that count.

Do not read the folder as it is (spark.read.parquet, read_parquet('**/*.parquet')): that takes files of unfinished
batches, and rows twice that compaction has written into larger files. Nor delete or move anything by hand. Instead:

    spark.read.format("holdfast-files").load(PATH)
    spark.read.parquet(*holdfast.spark.files.committed_files(PATH))
    holdfast pipeline files PATH        the files that count, for DuckDB and others
    holdfast pipeline show PATH         what is in it
    holdfast pipeline compact PATH, holdfast pipeline clean PATH
"""

READERS = 8
"""Partitions read in parallel, because reading waits for the disk or the network."""


def positions(
    path: str, topic: str | None = None, *, options: Mapping[str, str] | None = None
) -> dict[TopicPartition, int]:
    """The next offset that the sink at `path` lacks, by partition; partitions it has never seen are left out.

    A source that feeds the sink may start there, whatever the group's committed offsets are: rows before it are in and
    would be dropped. It is never too high, and too low only by rows that the job filters out. `options` are the sink's
    `holdfast.store.…` options.
    """
    store = open_store(path, options)
    found = [p for p in partitions_of(store) if topic is None or p.topic == topic]
    with ThreadPoolExecutor(READERS) as pool:
        tips = pool.map(lambda partition: Ledger(store, partition).tip(), found)
    return {partition: tip.end for partition, tip in zip(found, tips, strict=True) if tip.end is not None}


def committed_files(path: str, *, options: Mapping[str, str] | None = None) -> list[str]:
    """Full paths of the committed Parquet files, for readers that do not know the ledger: DuckDB, `spark.read.parquet`.

    The list is complete for the moment at which it is made. Files that compaction replaces stay in place until `clean`.
    """
    store = open_store(path, options)
    root = path.rstrip("/")
    return [f"{root}/{file.name}" for _, content in contents(store) for file in content.files]


def contents(store: Store) -> list[tuple[TopicPartition, Content]]:
    """What every partition holds, in the order of the partitions."""
    found = partitions_of(store)
    with ThreadPoolExecutor(READERS) as pool:
        return list(zip(found, pool.map(lambda p: Ledger(store, p).load(), found), strict=True))


def partitions_of(store: Store) -> list[TopicPartition]:
    return partitions_under(store, LEDGER)


def partitions_under(store: Store, *roots: str) -> list[TopicPartition]:
    """All partitions that have a folder `topic/number` under one of these."""
    found = {
        TopicPartition(topic, int(number))
        for root in roots
        for topic in store.names(root)
        if is_topic(topic)
        for number in store.names(f"{root}/{topic}")
        if is_partition(number)
    }
    return sorted(found)


def open_sink(store: Store, columns: Columns) -> None:
    """Create the sink if it is new; refuse other columns than those it was created with."""
    wanted = json.dumps({"v": VERSION, "columns": columns.options()}, sort_keys=True).encode()
    if store.read(SINK) is None:
        store.create(README, README_TEXT.encode())
        store.create(SINK, wanted)
    refuse_other_columns(store, columns)


def refuse_other_columns(store: Store, columns: Columns) -> None:
    made = sink_columns(store)
    if made != columns:
        raise HoldfastError(
            "SINK_COLUMNS_DIFFER",
            f"This sink goes by the columns {made.topic}, {made.partition} and {made.offset}.",
            "Write with the same topicColumn, partitionColumn and offsetColumn, or into another path.",
        )


def check_writable(path: str, options: Mapping[str, str], columns: Columns) -> None:
    """Refuse a path where rows with these columns can't be written, before anything runs."""
    store = open_store(path, options, patience_s=AT_START_S)
    store.prove()
    refuse_fed(store)
    if store.read(SINK) is not None:
        refuse_other_columns(store, columns)


def refuse_fed(store: Store) -> None:
    """Refuse plain rows where a stateful query delivers: each would take the other's offsets for its own."""
    if store.exists(FED_BY):
        raise HoldfastError(
            "SINK_SHARED",
            "A stateful query delivers its results into this sink.",
            "Write these rows to another path.",
        )


def sink_columns(store: Store) -> Columns:
    data = store.read(SINK)
    if data is None:
        raise HoldfastError("NOT_A_SINK", "There is no holdfast sink at this path.", "Check the path.")
    try:
        found = json.loads(data)
        if found["v"] != VERSION:
            raise ValueError(f"version {found['v']}")
        names = found["columns"]
        return Columns(topic=names["topicColumn"], partition=names["partitionColumn"], offset=names["offsetColumn"])
    except (KeyError, TypeError, ValueError) as error:
        raise HoldfastError(
            "SINK_UNREADABLE", f"{SINK} is not of version {VERSION} ({error}).", "Use the holdfast that wrote it."
        ) from error


# -- schemas


def schema_id(schema_json: str) -> str:
    """A schema's name, made from its content, so that equal schemas of all writers share one file."""
    return hashlib.sha256(schema_json.encode()).hexdigest()[:16]


def keep_schema(store: Store, schema_json: str) -> str:
    name = schema_id(schema_json)
    if not store.exists(f"{SCHEMAS}/{name}.json"):
        store.create(f"{SCHEMAS}/{name}.json", schema_json.encode())
    return name


def schemas(store: Store, names: Iterable[str]) -> dict[str, str]:
    """Schemas by their names, as Spark's JSON."""
    found = {}
    for name in sorted(set(names)):
        data = store.read(f"{SCHEMAS}/{name}.json")
        if data is None:
            what = f"The schema {name} is missing under {SCHEMAS}."
            raise HoldfastError("SCHEMA_MISSING", what, "Restore it from a backup.")
        found[name] = data.decode()
    return found
