"""Log lines shipped to a Kafka topic, read as a member of a group. A record's value is one line or several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.doctor.events import Event
from holdfast.doctor.scanning import Scanned, scan
from holdfast.spark.doctor.reading import DDL, as_batch, read_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = f"{DDL}, `content` STRING, `origin` STRING, `position` BIGINT"
GROUP = "holdfast-doctor-{topic}"
"""The consumer group that doctors of a topic share."""

KEY_CHARS = 200


def shipped(spark: SparkSession, settings: Mapping[str, str], topic: str, group: str) -> DataFrame:
    """The topic's lines as events. `settings` are Kafka's keys."""
    reader = spark.readStream.format("holdfast").option("subscribe", topic).option("startingOffsets", "earliest")
    for key, value in {**settings, "group.id": group}.items():
        reader = reader.option(f"kafka.{key}", str(value))
    wanted = reader.load().selectExpr("key", "value", "topic", "partition", "offset", "unix_millis(timestamp) AS at_ms")
    return wanted.mapInArrow(read_records, COLUMNS)


def read_records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the events of each batch of records, and a READ row."""
    for batch in batches:
        found: list[tuple[Event, str, int]] = []
        read, size = Scanned(), 0
        for row in batch.to_pylist():
            origin, value = f"{row['topic']}-{row['partition']}", bytes(row["value"] or b"")
            size += len(value)
            one = scan(value, file=_file(origin, row["key"]), last_ms=float(row["at_ms"]))
            for event in one.events:
                event.line = row["offset"]
                found.append((event, origin, row["offset"]))
            one.events = []
            read.add(one)
        if batch.num_rows:
            # A batch may mix partitions; the last one stands for them where lines were too long.
            told = read_row(read, file=origin if read.too_long else "", size=size)
            found.append((told, "", 0))
            yield _as_batch(found)


def _file(origin: str, key: bytes | None) -> str:
    """The name by which clocks are corrected: records with one key come from one writer, with one clock."""
    text = bytes(key or b"").decode("utf-8", "replace")[:KEY_CHARS]
    return f"{origin}/{text}" if text else origin


def _as_batch(found: list[tuple[Event, str, int]]) -> pa.RecordBatch:
    batch = as_batch([(event, 0) for event, _, _ in found])
    batch = batch.append_column("content", pa.array([""] * len(found), pa.string()))
    batch = batch.append_column("origin", pa.array([origin for _, origin, _ in found], pa.string()))
    return batch.append_column("position", pa.array([offset for _, _, offset in found], pa.int64()))
