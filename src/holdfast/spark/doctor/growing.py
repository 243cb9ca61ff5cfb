"""Growing files as a streaming source: `format("holdfast-doctor-files")`. Spark's own file source takes only whole new
files.

The offset is how far each file was read (`growth`). What was added between two offsets is cut into pieces as in a
single run; executors open the files themselves and hand over events. Only the doctor uses it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from holdfast.doctor.events import Event
from holdfast.doctor.scanning import Scanned
from holdfast.model import HoldfastError
from holdfast.spark.doctor.growth import PACKED, WHY, Growth, from_json, looked, to_json
from holdfast.spark.doctor.pieces import Found, found_under, pieces_of
from holdfast.spark.doctor.reading import BATCH_EVENTS, DDL, Piece, as_batch, events_of, read_row
from holdfast.spark.internals import ReadLimit, needs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "holdfast-doctor-files"
COLUMNS = f"{DDL}, `content` STRING"
"""`content` identifies a file's content (`Followed.key`); lines are counted by it."""


def growing(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    spark.dataSource.register(GrowingFiles)
    return spark.readStream.format(NAME).option("paths", json.dumps(list(paths))).load()


class Added(InputPartition):
    """What one task reads, and the files that are not read, with the reason."""

    def __init__(self, pieces: Sequence[dict[str, Any]], notices: Sequence[tuple[str, str]] = ()) -> None:
        self.pieces = list(pieces)
        self.notices = list(notices)


class GrowingFiles(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        needs((4, 2), "holdfast doctor --follow", "run it without --follow, again and again")
        return Growing(json.loads(self.options["paths"]))


class Growing(DataSourceStreamReader):
    """One query. Files are listed in Spark's own Python process on the driver's machine; `read` runs on executors."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths
        self._told: dict[str, Any] | None = None
        self._known: Growth = {}
        """The offset, and also since when files are gone, which alone must not cause a batch."""

    def initialOffset(self) -> dict[str, Any]:
        return to_json({})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        offset = from_json(start)
        before = self._known if self._told == start else offset
        self._known = looked(before, files_there(self._paths), time.time() * 1000, first=not offset)
        self._told = to_json(self._known) if any(added(offset, self._known)) else start
        return self._told

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        after = from_json(end)
        grown, left = added(from_json(start), after)
        tasks: dict[int, list[dict[str, Any]]] = {}
        if grown:
            keys = {identity: one.key for identity, one in after.items()}
            for row in pieces_of(iter(grown)).table.to_pylist():
                piece = {**row, "content": keys[row["identity"]]}
                tasks.setdefault(piece.pop("task"), []).append(piece)
        slices = [Added(pieces) for pieces in tasks.values()]
        return [*slices, Added([], left)] if left or not slices else slices

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Added)
        return batches_of(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the offsets are Spark's."""


def files_there(paths: Sequence[str]) -> Iterator[Found]:
    """A path may be missing for a moment, as in a rotation; that is no error here."""
    for path in paths:
        try:
            yield from found_under([path])
        except HoldfastError as error:
            if error.code != "DOCTOR_NO_SUCH_PATH":
                raise


def added(before: Growth, after: Growth) -> tuple[list[Found], list[tuple[str, str]]]:
    """What there is to read between two offsets, and the files that are newly left unread, with the reason."""
    read = dict[str, int]()
    for one in before.values():
        read[one.key] = max(one.position, read.get(one.key, 0))
    grown, left = list[Found](), list[tuple[str, str]]()
    for identity, one in after.items():
        if one.left in WHY:
            if identity not in before or before[identity].left != one.left:
                left.append((one.path, WHY[one.left]))
        elif one.position > (start := read.get(one.key, 0)) and not one.copy_of:
            whole = one.left == PACKED
            grown.append(Found(one.path, one.position, one.written_ms, identity, start, whole))
    return grown, left


def batches_of(partition: Added) -> Iterator[pa.RecordBatch]:
    for fields in partition.pieces:
        content = fields["content"]
        piece = Piece(**{key: value for key, value in fields.items() if key != "content"})
        waiting: list[tuple[Event, int]] = []
        for event in events_of(piece):
            waiting.append((event, piece.piece))
            if len(waiting) >= BATCH_EVENTS:
                yield with_content(as_batch(waiting), content)
                waiting = []
        yield with_content(as_batch(waiting), content)
    for path, why in partition.notices:
        yield with_content(as_batch([(read_row(Scanned(), file=path, problem=why), 0)]), "")


def with_content(batch: pa.RecordBatch, content: str) -> pa.RecordBatch:
    return batch.append_column("content", pa.array([content] * batch.num_rows, pa.string()))
