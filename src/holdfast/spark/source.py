"""`format("holdfast")`: the data source as Spark sees it. A thin shell: who we are in the group is `member`'s business.

Spark builds readers more than once: one serves the offset calls in a process of its own for the whole query, another is
built at planning, and `read` runs on pickled copies in executors. So `__init__` does nothing, an offset call joins, and
`read` is a pure function of its input.

An application's first batch takes seconds: Spark loads and compiles what it needs, the workers start, the sink opens.
A member that joined before would take partitions from others and keep them dark for as long. So if others are at work,
the first batch of a process is a rehearsal that reads nothing, and the member joins after it, when the trigger comes
round again. If nobody is, partitions are dark already: the query joins at once, and its first batch is a short one, so
that whoever comes next does not wait long for a share. Where there may be no second batch (a trigger that ends by
itself), the first is given (one that a crash left unfinished) or nothing is shared (`assign`), all of this is left out.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

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
    from holdfast.spark.siblings import Claimed

NAME = "holdfast"
COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
HEADERS = ", headers array<struct<key: string, value: binary>>"

NO_LIMIT = 2**62
"""Rows of a batch when no option limits them. Said in so many words, so that a question for "all there is" is known to
come from a trigger that ends by itself."""

FIRST_BATCH = 100_000
"""Most records of a lone query's first batch, unless minOffsetsPerTrigger asks for more. Reading them takes less time
than what else happens in a first batch."""

REHEARSED_TASKS = 2
"""Tasks of a rehearsal: workers start, and load what reading and writing need."""

STOPPED = 143
"""128 + SIGTERM: how a process ends that was asked to."""


class Slice(InputPartition):
    """The ranges of one task. A pure value: `read` needs nothing else."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = list(pieces)


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


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query."""

    _reached = False
    """Whether a broker has answered; only the query's own process asks."""

    def __init__(self, given: dict[str, str]) -> None:
        self._given = given
        self._member: QueryMember | None = None
        self._stopping = False
        self._rehearsed = False
        self._claimed: Claimed | None = None
        self._replayed: BatchOffset | None = None
        self._asked = False
        """Whether this life has been asked for a batch. What comes before that was planned in the last one."""

    @cached_property
    def _options(self) -> SourceOptions:
        """Read at the first question: what is raised while a reader is made, PySpark buries under another."""
        options = parse(self._given, streaming=True)
        if not options.assigned and not options.sharing.plan_known:
            raise plan_not_seen(options.group)
        return options

    # -- in the query's own process

    def _joined(self) -> QueryMember:
        if self._member is None:
            self._reach()
            from holdfast.spark.member import QueryMember
            from holdfast.spark.siblings import Claimed

            signal.signal(signal.SIGTERM, self._on_stop)
            self._claimed = Claimed(self._options.claim)
            self._claimed.stake()
            self._member = QueryMember(self._options)
            self._member.open_door()
        return self._member

    def _others_would_wait(self, before: BatchOffset) -> bool:
        """Whether partitions that we take go dark by it. Not if a static member comes back: what it takes has waited
        for it, and its session runs out meanwhile."""
        from holdfast.spark.company import others_at_work

        comes_back = before.number > 0 and "group.instance.id" in self._options.kafka
        return not comes_back and others_at_work(self._options)

    def _reach(self) -> None:
        """Tell soon, and not after the patience of a query that runs, if no broker answers at the start."""
        if not self._reached:
            from holdfast.spark.checking import check_reachable

            check_reachable(self._options.kafka)
            self._reached = True

    def _on_stop(self, _signal: int, _frame: Any) -> None:
        """`query.stop()` sends SIGTERM, sometimes twice within milliseconds, and does not wait.

        The interrupted thread may hold a lock that the member needs, so another one leaves.
        """
        if not self._stopping:
            self._stopping = True
            threading.Thread(target=self._depart, name="holdfast-departs").start()

    def _depart(self) -> None:
        try:
            self.stop()
        finally:
            os._exit(STOPPED)  # the main thread may be waiting for Spark, which is not going to say anything more

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
        before = BatchOffset.from_json(start)
        # Trigger.Once asks for all there is, whatever the options say.
        ends = isinstance(limit, ReadAllAvailable)
        first = self._member is None and not self._rehearsed and not ends and not self._options.assigned
        if first:
            self._reach()
        if first and self._others_would_wait(before):
            self._rehearsed = True
            return before.rehearsal().to_json()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) and limit.max_rows < NO_LIMIT else None
        least = None if ends else self._options.min_offsets
        if first and least is None:
            most = min(most or FIRST_BATCH, FIRST_BATCH)
        member = self._joined()
        self._asked = True
        planned = member.next_batch(before.done(), most, at_least=least, last=ends)
        if planned is None and not before.topics:
            planned = member.keep_place(before.done())
        # Spark compares texts: "nothing new" is what it gave us, untouched.
        return start if planned is None else planned.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._member is None else self._member.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planned = BatchOffset.from_json(end)
        if not planned.ranges:
            self._rehearsed = True
            return [Slice([]) for _ in range(REHEARSED_TASKS)]
        if not self._asked:  # after a restart: a batch that was planned and perhaps not finished comes again
            self._asked = True
            self._replayed = self._joined().replay(BatchOffset.from_json(start).done(), planned)
        if self._replayed is not None and self._replayed.number == planned.number:
            planned = self._replayed  # for each of its scans: a frame that is used twice has two
        options = self._options
        slices = tasks(
            planned.ranges, at_least=options.min_partitions, at_most_records=options.max_records_per_partition
        )
        return [Slice(pieces) for pieces in slices]

    def commit(self, end: dict[str, Any]) -> None:
        """Comes too late and not always: what is done is learnt from the next `latestOffset`."""

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
    """One read of what is there, by nobody's group."""

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
