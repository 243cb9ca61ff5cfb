"""Fetch answers in, `pyarrow.RecordBatch` out: the data path of `Consumer.consume_arrow` and of the Spark source.

    decoder = ArrowDecoder()
    position = decoder.feed(records, topic="orders", partition=0, lo=position, aborted=[])
    while (batch := decoder.take()) is not None:
        ...

Rules
- `feed` walks headers, verifies checksums and filters by header only; nothing that a broker sends makes it raise.
  `take` unpacks and decodes, as late as possible and with the GIL released. A bad batch raises in `take`, in its turn:
  the rows before it are handed out first, and its partition's position stays in front of it.
- Rows come out in the order in which they were fed. A Kafka batch may be split over several takes.
- Memory is bounded: one unpacking buffer of at most `Limits.max_bytes`, columns of `max_rows` and `max_bytes`, and what
  was fed and not yet taken (`buffered_bytes`), which the caller bounds by not feeding more.

One thread at a time. Nothing here knows sockets, groups or Spark.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.model import HoldfastError, TopicPartition
from holdfast.records import layout as k
from holdfast.records import native
from holdfast.records.batch import Unreadable, iter_headers, malformed_record, note_batch, verify_crc
from holdfast.records.columns import Columns, TopicColumn, schema
from holdfast.records.compression import LIMITS, ByteView, Limits, decompress_into
from holdfast.records.header import HEADER_BYTES, BatchHeader
from holdfast.records.slabs import Slabs
from holdfast.records.transactions import AbortedTransactions

NO_END = 2**63 - 1
MAX_ROWS = 65_536
"""A RecordBatch of 100-byte records is then 8 MB: large enough to hide its fixed cost, and small in memory."""
MAX_BYTES = 64 * 1024 * 1024
MOST_BYTES = 2**30
"""Arrow counts a column's bytes with 32 bits."""
_GROUP_BYTES = 256 * 1024
"""Batches are unpacked until this much is there, then decoded in one call: it fits the second-level cache."""
_GROUP_BATCHES = 64
_BATCH = struct.Struct(f"={k.B_FIELDS}q")
_KEEP_BYTES = 8 * 1024 * 1024
"""An unpacking buffer that a large batch has filled beyond this is released."""


@dataclass(slots=True)
class _Waiting:
    """One Kafka batch, fed and not yet fully taken."""

    partition: TopicPartition
    records: memoryview
    """The answer that it lies in: kept alive until its rows are copied."""
    address: int
    """Where the answer begins in memory."""
    header: BatchHeader | None
    lo: int
    hi: int
    next_offset: int
    """The partition's position once this batch is taken: after it, and after any following batches without rows for
    users."""
    error: HoldfastError | None = None
    """Found by `feed`: raised when its turn comes."""

    @property
    def size(self) -> int:
        return self.header.length if self.header is not None else 0


class ArrowDecoder:
    """Collects rows over partitions and Fetch answers, and hands them out as RecordBatches of bounded size."""

    def __init__(
        self,
        *,
        include_headers: bool = False,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        limits: Limits = LIMITS,
        check_crcs: bool = True,
    ) -> None:
        self._include_headers = include_headers
        self._check_crcs = check_crcs
        self._max_rows = max_rows
        self._max_bytes = min(max_bytes, MOST_BYTES)
        self._limits = limits
        self._queue: deque[_Waiting] = deque()
        self._newest: dict[TopicPartition, _Waiting] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._buffered_bytes = 0
        self._buffered_rows = 0
        self._staged: list[_Waiting] = []
        self._batches = np.zeros((_GROUP_BATCHES, k.B_FIELDS), np.int64)
        self._batch_rows = self._batches.data.cast("B")
        self._cursor = np.zeros(k.C_FIELDS, np.int64)
        self._renew_scratch()
        self._unpacked = 0
        self._slabs = Slabs()
        self._topics = TopicColumn()
        self._bytes_per_row = (16.0, 128.0)

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch: that of Spark's Kafka source."""
        return schema(include_headers=self._include_headers)

    @property
    def buffered_bytes(self) -> int:
        """Bytes fed and not yet taken, as they came (compressed)."""
        return self._buffered_bytes

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Per partition the offset after the last row handed out, and after rows that were filtered out next."""
        return dict(sorted(self._positions.items()))

    def marks(self) -> dict[TopicPartition, int]:
        """The same without order, for who asks before every batch."""
        return dict(self._positions)

    def position(self, partition: TopicPartition) -> int | None:
        """The same for one partition; None while nothing is known of it."""
        return self._positions.get(partition)

    def waits(self, topic: str, partition: int) -> bool:
        """Whether something fed for this partition has not been taken yet: then it need not be fetched."""
        return TopicPartition(topic, partition) in self._newest

    def feed(
        self,
        records: ByteView,
        *,
        topic: str,
        partition: int,
        lo: int,
        hi: int = NO_END,
        aborted: Iterable[tuple[int, int]] | None = None,
    ) -> int:
        """Take over the records of one partition of a Fetch answer; returns the offset to fetch next.

        Rows with `lo <= offset < hi` will come out. `aborted` is the answer's list of aborted transactions as (producer
        id, first offset), whose records are left out; without it everything is read (read_uncommitted).
        The bytes are not copied: they must stay as they are until they are taken.
        """
        where = TopicPartition(topic, partition)
        newest = self._newest.get(where)
        if newest is not None and newest.error is not None:
            return lo  # nothing may come out after a bad batch, so nothing is kept: `take` raises first
        view = memoryview(records).cast("B")
        address = np.frombuffer(view, np.uint8).ctypes.data if view else 0
        self._advance(where, lo)
        position = lo
        dropped = AbortedTransactions(aborted or ())
        try:
            for header in iter_headers(view):
                if header.base_offset >= hi:
                    position = hi
                    self._advance(where, hi)
                    break
                if self._check_crcs:
                    verify_crc(view, header)
                filtered = note_batch(view, header, dropped)
                if header.next_offset <= lo:
                    continue
                position = min(header.next_offset, hi)
                if filtered or header.record_count == 0:
                    self._advance(where, position)
                else:
                    self._append(_Waiting(where, view, address, header, lo, hi, position))
                if position >= hi:
                    break  # damage beyond the range does not concern this reader
        except HoldfastError as error:
            self._append(_Waiting(where, view, address, None, lo, hi, position, error))
        return position

    def take(
        self, *, max_rows: int | None = None, max_bytes: int | None = None, include_headers: bool | None = None
    ) -> pa.RecordBatch | None:
        """The next rows, at most `max_rows`; None when there are none left.

        `max_bytes` counts keys, values and headers. At least one row comes, however large. `include_headers` is for
        this batch and those after it.
        """
        if include_headers is not None:
            self._include_headers = include_headers
        max_rows = self._max_rows if max_rows is None else max_rows
        max_bytes = self._max_bytes if max_bytes is None else min(max_bytes, MOST_BYTES)
        cursor, columns = self._cursor, None
        cursor[k.C_ROWS : k.C_FIELDS] = 0
        runs: list[tuple[str, int]] = []
        while cursor[k.C_ROWS] < max_rows:
            if not self._staged and not self._stage(may_raise=cursor[k.C_ROWS] == 0):
                break
            if columns is None:
                columns = self._new_columns(max_rows)
            status = self._decode(columns, max_rows, max_bytes)
            self._note_progress(runs)
            if status == k.GROW:
                columns.grow(cursor)
            elif status == k.ROWS_FULL:
                break
            elif status == k.MALFORMED:
                self._reject_staged()
        rows = int(cursor[k.C_ROWS])
        if columns is None or rows == 0:
            return None
        self._bytes_per_row = (float(cursor[k.C_KEY_BYTES]) / rows, float(cursor[k.C_VALUE_BYTES]) / rows)
        return columns.finish(cursor, self._topics.build(runs))

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Everything that was fed."""
        while (batch := self.take()) is not None:
            yield batch

    def discard(self, topic: str, partition: int) -> None:
        """Forget what was fed for a partition and not yet taken, and its position: it was revoked, paused or sought."""
        where = TopicPartition(topic, partition)
        self._unstage()
        kept = [waiting for waiting in self._queue if waiting.partition != where]
        self._queue = deque(kept)
        self._buffered_bytes = sum(waiting.size for waiting in kept)
        self._buffered_rows = sum(waiting.header.record_count for waiting in kept if waiting.header is not None)
        self._newest.pop(where, None)
        self._positions.pop(where, None)

    # --- what waits ---

    def _append(self, waiting: _Waiting) -> None:
        self._queue.append(waiting)
        self._newest[waiting.partition] = waiting
        self._buffered_bytes += waiting.size
        self._buffered_rows += waiting.header.record_count if waiting.header is not None else 0

    def _advance(self, where: TopicPartition, offset: int) -> None:
        """Move the position on to `offset` once everything queued has been taken: there are no rows for users
        between."""
        newest = self._newest.get(where)
        if newest is None:
            self._positions[where] = max(offset, self._positions.get(where, offset))
        else:
            newest.next_offset = max(offset, newest.next_offset)

    def _finish(self, waiting: _Waiting) -> None:
        self._positions[waiting.partition] = waiting.next_offset
        if self._newest.get(waiting.partition) is waiting:
            del self._newest[waiting.partition]
        self._buffered_bytes -= waiting.size
        self._buffered_rows -= waiting.header.record_count if waiting.header is not None else 0

    # --- what is unpacked ---

    def _stage(self, *, may_raise: bool) -> bool:
        """Unpack the next batches. False when there are none, or when rows must be handed out before an error."""
        while self._queue and self._unpacked < _GROUP_BYTES and len(self._staged) < _GROUP_BATCHES:
            waiting = self._queue[0]
            if waiting.header is not None and waiting.error is None:
                try:
                    self._unpack(waiting, waiting.header)
                except HoldfastError as error:
                    waiting.error = error
            if waiting.error is not None:
                if self._staged or not may_raise:
                    break
                self._fail(waiting)
            self._staged.append(self._queue.popleft())
        self._cursor[k.C_BATCH] = self._cursor[k.C_AT] = 0
        return bool(self._staged)

    def _unpack(self, waiting: _Waiting, header: BatchHeader) -> None:
        """Make a row for the kernel. Uncompressed records are read in place."""
        begin = header.start + HEADER_BYTES
        codec = header.codec
        if codec == 0:
            start, size = waiting.address + begin, header.end - begin
        else:
            unpacked = self._unpacked
            room = self._scratch[unpacked : unpacked + self._limits.max_bytes]
            size = decompress_into(codec, waiting.records[begin : header.end], room)
            start = self._scratch_address + unpacked
            self._unpacked = unpacked + size
        _BATCH.pack_into(
            self._batch_rows,
            _BATCH.size * len(self._staged),
            start,
            start + size,
            header.record_count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            header.timestamp_type,
            waiting.partition.partition,
            waiting.lo,
            waiting.hi,
            0,
        )

    def _decode(self, columns: Columns, max_rows: int, max_bytes: int) -> int:
        self._batches[: len(self._staged), k.B_ROWS] = 0
        return native.decode()(
            self._batches.ctypes.data,
            len(self._staged),
            self._cursor.ctypes.data,
            self._include_headers,
            max_rows,
            max_bytes,
            columns.out.ctypes.data,
        )

    def _note_progress(self, runs: list[tuple[str, int]]) -> None:
        """Positions and topics of the rows that the kernel has just written; batches that are done are released."""
        done, staged = int(self._cursor[k.C_BATCH]), self._staged
        for waiting, rows in zip(staged[: done + 1], self._batches[: done + 1, k.B_ROWS].tolist(), strict=False):
            if rows:
                runs.append((waiting.partition.topic, rows))
        for waiting in staged[:done]:
            self._finish(waiting)
        self._batches[: len(staged) - done] = self._batches[done : len(staged)]
        del staged[:done]
        self._cursor[k.C_BATCH] = 0
        if not staged:
            self._unstage()
        elif self._cursor[k.C_AT] and self._cursor[k.C_RECORD]:
            header = staged[0].header
            assert header is not None
            behind = header.base_offset + int(self._cursor[k.C_DELTA]) + 1
            self._positions[staged[0].partition] = min(max(behind, staged[0].lo), staged[0].hi)

    def _unstage(self) -> None:
        """Put what is unpacked and not done back into the queue; rows already handed out won't come again."""
        if self._staged and self._cursor[k.C_AT]:
            first = self._staged[0]
            first.lo = max(first.lo, self._positions.get(first.partition, first.lo))
        self._queue.extendleft(reversed(self._staged))
        self._staged.clear()
        self._cursor[k.C_BATCH] = self._cursor[k.C_AT] = 0
        if self._unpacked > _KEEP_BYTES:
            self._renew_scratch()
        self._unpacked = 0

    def _reject_staged(self) -> None:
        """The kernel could not read the batch at the cursor: it raises in its turn, after the rows before it."""
        bad = self._staged[0]
        assert bad.header is not None
        self._unstage()
        bad.error = malformed_record(bad.header.base_offset, "a record's lengths or offsets contradict each other")

    def _fail(self, waiting: _Waiting) -> None:
        """Raise, and forget the rest of that partition: what follows the bad batch must not come without it."""
        assert waiting.error is not None
        where, position = waiting.partition, self._positions.get(waiting.partition, waiting.lo)
        self.discard(where.topic, where.partition)
        self._positions[where] = position
        error = waiting.error
        raise Unreadable(error, where, position) from error

    def _renew_scratch(self) -> None:
        """Room for a group and one batch of the largest size. Only what is written to takes real memory."""
        self._scratch = np.empty(self._limits.max_bytes + _GROUP_BYTES, np.uint8)
        self._scratch_address = self._scratch.ctypes.data

    def _new_columns(self, max_rows: int) -> Columns:
        # The counts in headers are claims: they only ever make the columns smaller than max_rows.
        rows = max(1, min(max_rows, self._buffered_rows))
        return Columns(
            rows, include_headers=self._include_headers, bytes_per_row=self._bytes_per_row, slabs=self._slabs
        )


def empty_batch(*, include_headers: bool = False) -> pa.RecordBatch:
    """A batch without rows, for a caller that must return one."""
    wanted = schema(include_headers=include_headers)
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in wanted], schema=wanted)


def warm_up() -> None:
    """Load the kernel ahead of the first batch: milliseconds, or some seconds once per machine to compile it."""
    native.decode()
