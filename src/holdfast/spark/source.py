"""`format("holdfast")`: the data source that Spark sees."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from holdfast.spark.offsets import BatchOffset
from holdfast.spark.options import SourceOptions, parse

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.spark.member import QueryMember

COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
HEADERS = ", headers array<struct<key: string, value: binary>>"


class Slice(InputPartition):
    """One range for one task. A pure value: `read` needs nothing else."""

    def __init__(self, topic: str, partition: int, start: int, end: int) -> None:
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end


class HoldfastSource(DataSource):
    """Kafka topics, read as a member of a consumer group."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> str:
        headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return COLUMNS + (HEADERS if headers else "")

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return StreamReader(parse(dict(self.options)))


class StreamReader(DataSourceStreamReader):
    """Built more than once by Spark, so `__init__` does nothing; the first offset call joins the group."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._member: QueryMember | None = None

    # -- in the query's own process

    def _joined(self) -> QueryMember:
        if self._member is None:
            from holdfast.spark.member import QueryMember

            self._member = QueryMember(self._options)
            signal.signal(signal.SIGTERM, self._on_stop)
        return self._member

    def _on_stop(self, _signal: int, _frame: Any) -> None:
        """`query.stop()` sends SIGTERM, sometimes twice, and does not wait."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self._member is not None:
            self._member.leave()
        sys.exit(143)

    def initialOffset(self) -> dict[str, Any]:
        self._joined().wait_joined()
        return BatchOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        member = self._joined()
        done = BatchOffset.from_json(start)
        member.batch_done(done)
        member.serve()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return member.plan(done, most).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planned = BatchOffset.from_json(end)
        if self._member is None:  # after a restart: a batch that was planned and perhaps not finished is replayed
            planned = self._joined().still_ours(planned)
        return [Slice(r.partition.topic, r.partition.partition, r.start, r.end) for r in planned.as_ranges()]

    def commit(self, end: dict[str, Any]) -> None:
        """Comes too late and not always; what is done is learnt from the next `latestOffset`."""

    def stop(self) -> None:
        if self._member is not None:
            self._member.leave()

    # -- in an executor's worker, on a pickled copy

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_member": None}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from holdfast.spark.reading import read_slice

        assert isinstance(partition, Slice)
        return read_slice(self._options, partition.topic, partition.partition, partition.start, partition.end)
