"""`format("holdfast")`: the data source as Spark sees it. A thin shell; `member` does the work in the group.

Spark builds several readers: one serves the offset calls in its own process for the whole query, another is built at
planning, and `read` runs on pickled copies in executors. So `__init__` does nothing, the first offset call joins, and
`read` is a pure function of its input.

An application's first batch takes seconds: Spark loads and compiles code, the workers start, the sink opens. If the
member had joined before, partitions taken from others would stand still for that time. So if the group has members, the
first batch of a process is a rehearsal that reads nothing, and the member joins after it, at the next trigger. If the
group has none, its partitions stand still anyway: the query joins at once, and its first batch is short, so that the
next member does not wait long for its partitions. There is no rehearsal if there may be no second batch (a trigger that
ends by itself), if the first batch is already planned (a crash left it unfinished), or if nothing is shared (`assign`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from holdfast.model import HoldfastError
from holdfast.spark.internals import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
    needs,
)
from holdfast.spark.offsets import BatchOffset
from holdfast.spark.options import SourceOptions, parse, wants_headers
from holdfast.spark.planning import Piece, tasks
from holdfast.spark.sharing import plan_not_seen

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.spark.member import QueryMember
    from holdfast.spark.sharing import Claim
    from holdfast.spark.siblings import Claimed

NAME = "holdfast"
COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
HEADERS = ", headers array<struct<key: string, value: binary>>"

NO_LIMIT = 2**62
"""Rows of a batch if no option limits them. An explicit number, so that ReadAllAvailable can only come from a trigger
that ends by itself."""

FIRST_BATCH = 100_000
"""The most records in the first batch of a query that is alone in its group, unless minOffsetsPerTrigger is set.
Reading them takes less time than everything else in a first batch."""

REHEARSED_TASKS = 2
"""Tasks of a rehearsal: workers start and load the code for reading and writing."""

STOPPED = 143
"""128 + SIGTERM: the usual exit code of a process that was asked to end."""


class Slice(InputPartition):
    """The ranges of one task. A pure value: `read` needs nothing else."""

    def __init__(self, pieces: Sequence[Piece], topic_ids: Mapping[str, str] | None = None) -> None:
        """`topic_ids`: by topic, where brokers tell it. State goes by it (`batch_ranges`)."""
        self.pieces = list(pieces)
        topics = sorted({partition.topic for partition, _, _ in self.pieces} & (topic_ids or {}).keys())
        self.topic_ids = {topic: topic_ids[topic] for topic in topics} if topic_ids else {}


class HoldfastSource(DataSource):
    """Kafka topics, read as a member of a consumer group; or read once, as a batch."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        from holdfast.spark.checking import check_at_load

        check_at_load(self.options)
        return COLUMNS + (HEADERS if wants_headers(self.options) else "")

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        needs((4, 2), 'A stream on format("holdfast")', "read batches of it")
        return StreamReader(dict(self.options))

    def reader(self, schema: Any) -> DataSourceReader:
        return BatchReader(parse(self.options, streaming=False))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        raise reads_only()

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        raise reads_only()


def reads_only() -> HoldfastError:
    return HoldfastError(
        "SOURCE_READS_ONLY",
        'format("holdfast") reads topics, and does not write into them.',
        'Write into a topic with Spark\'s own format("kafka"), or rows into files with format("holdfast-files").',
    )


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query."""

    _cluster: str | None = None
    """The cluster's id, once a broker has answered. Only the query's own process asks."""

    def __init__(self, given: dict[str, str]) -> None:
        self._given = given
        self._member: QueryMember | None = None
        self._claimed: Claimed | None = None
        self._stopping = False
        self._rehearsed = False
        """Whether this process has had a batch that reads nothing."""
        self._asked = False
        """Whether Spark has asked this process for a batch. A batch that comes before was planned by the last one."""
        self._replayed: BatchOffset | None = None
        """What is still ours of that earlier batch."""

    @cached_property
    def _options(self) -> SourceOptions:
        """Read at the first call, because PySpark hides an error that is raised in a reader's constructor."""
        options = parse(self._given, streaming=True)
        if not options.assigned and not options.sharing.plan_known:
            raise plan_not_seen(options.group)
        return options

    # -- in the query's own process

    def _joined(self) -> QueryMember:
        if self._member is None:
            self.reach()
            from holdfast.spark.member import QueryMember
            from holdfast.spark.siblings import Claimed

            signal.signal(signal.SIGTERM, self._on_stop)
            self._claimed = Claimed(self.claim())
            self._claimed.stake()
            self._member = QueryMember(self._options)
            self._member.open_door()
        return self._member

    def claim(self) -> Claim:
        return replace(self._options.claim, cluster=self._cluster or "")

    def _others_would_wait(self, last: BatchOffset) -> bool:
        """Whether joining now would stop partitions that others work on. Not if we are a returning static member: its
        partitions have waited for it, and its session is running out."""
        from holdfast.spark.group_members import others_at_work

        comes_back = last.number > 0 and "group.instance.id" in self._options.kafka
        return not comes_back and others_at_work(self._options)

    def reach(self) -> None:
        """Fail soon if no broker answers at the start. A running query would wait much longer."""
        if self._cluster is None:
            from holdfast.spark.checking import check_reachable

            self._cluster = check_reachable(self._options.kafka)

    def _on_stop(self, _signal: int, _frame: Any) -> None:
        """`query.stop()` sends SIGTERM, sometimes twice within milliseconds, and does not wait.

        The interrupted thread may hold a lock that the member needs, so another thread leaves the group.
        """
        if not self._stopping:
            self._stopping = True
            threading.Thread(target=self._depart, name="holdfast-departs").start()

    def _depart(self) -> None:
        try:
            self.stop()
        finally:
            os._exit(STOPPED)  # the main thread may wait for Spark, which sends nothing more

    def initialOffset(self) -> dict[str, Any]:
        return BatchOffset().to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._joined().stop_at_what_is_there()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadMaxRows(NO_LIMIT)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        last = BatchOffset.from_json(start)
        once = isinstance(limit, ReadAllAvailable)  # Trigger.Once asks for everything, whatever the options say
        cold = self._member is None and not self._rehearsed and not once and not self._options.assigned
        if cold:
            self.reach()
            if self._others_would_wait(last):
                self._rehearsed = True
                return last.rehearsal().to_json()
        most, least = self._bounds(limit, once=once, cold=cold)
        member, done = self._joined(), last.without_rehearsal()
        self._asked = True
        planned = member.next_batch(done, most, at_least=least, last=once)
        if planned is None and not last.topics:
            planned = member.keep_place(done)
        # Spark compares texts, so "nothing new" must be exactly what Spark gave us.
        return start if planned is None else planned.to_json()

    def _bounds(self, limit: ReadLimit, *, once: bool, cold: bool) -> tuple[int | None, int | None]:
        """The most and the least records of the next batch; None: no bound. `cold`: nothing has warmed Spark up."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) and limit.max_rows < NO_LIMIT else None
        least = None if once else self._options.min_offsets
        if cold and least is None:
            most = min(most or FIRST_BATCH, FIRST_BATCH)
        return most, least

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._member is None else self._member.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planned = BatchOffset.from_json(end)
        if not planned.ranges:  # any batch that reads nothing warms Spark up, also one that a crash left unfinished
            self._rehearsed = True
            return [Slice([]) for _ in range(REHEARSED_TASKS)]
        if not self._asked:  # after a restart Spark repeats a batch that was planned and perhaps not finished
            self._asked = True
            self._replayed = self._joined().replay(BatchOffset.from_json(start).without_rehearsal(), planned)
        if self._replayed is not None and self._replayed.number == planned.number:
            planned = self._replayed  # for each of its scans: a frame that is used twice in a query has two
        options = self._options
        slices = tasks(
            planned.ranges, at_least=options.min_partitions, at_most_records=options.max_records_per_partition
        )
        topic_ids = {name: seen.topic_id for name, seen in planned.topics.items() if seen.topic_id}
        return [Slice(pieces, topic_ids) for pieces in slices]

    def commit(self, end: dict[str, Any]) -> None:
        """Not used: Spark calls it late and not always. The next `latestOffset` tells what is done."""

    def stop(self) -> None:
        if self._claimed is not None:
            self._claimed.release()
        if self._member is not None:
            self._member.leave()

    # -- in an executor's worker, on a pickled copy

    def __getstate__(self) -> dict[str, Any]:
        fresh = StreamReader(self._given)
        return fresh.__dict__

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class BatchReader(DataSourceReader):
    """One batch read, without a group."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        from holdfast.spark.batch import ranges

        options = self._options
        slices = tasks(
            ranges(options), at_least=options.min_partitions, at_most_records=options.max_records_per_partition
        )
        return [Slice(pieces) for pieces in slices] or [Slice([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from holdfast.spark.reading import read_pieces

    assert isinstance(partition, Slice)
    return read_pieces(options, partition.pieces)
