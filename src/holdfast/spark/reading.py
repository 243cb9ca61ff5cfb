"""What an executor does: the ranges of one task into Arrow batches. A pure function of its input.

The next answer is on its way while the last one is decoded, and the first answers of the next ranges too; small ranges
share their Arrow batches. A range is read to its end, or an error says why not: a log may have been cut off since the
batch was planned, and an end that can't be reached must not be waited for.
"""

from __future__ import annotations

import gc
import os
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence

import pyarrow as pa

from holdfast.model import ErrorCode, HoldfastError
from holdfast.net.config import client_config
from holdfast.net.errors import BrokerError
from holdfast.net.reading import PARTITION_BYTES, Fetching, OutOfRange, Pull, RangeReader, shared_reader
from holdfast.records.arrow import ArrowDecoder, empty_batch
from holdfast.spark import loss
from holdfast.spark.options import SourceOptions
from holdfast.spark.planning import Piece
from holdfast.wire.fetch import FetchedPartition

LANES = 4
"""Ranges whose first answers are on their way at once; each lane is a connection."""

HOLD_BYTES = 1024 * 1024
"""Fetched bytes are handed on from this much: a batch of Arrow has a fixed cost of about a millisecond in Spark."""

STALL_S = 10.0
"""How long a range that gets nothing more is asked for: a new leader knows within seconds how far its log reaches, and
a throttled broker answers empty for a second or so."""

# Spark's worker collects garbage after every task: 14–41 ms over everything that is imported. What is here when this
# module is first imported stays for good, so it is taken out of the collector's sight.
gc.freeze()


class RangeRead:
    """One range of one partition on its way."""

    def __init__(self, reader: RangeReader, options: SourceOptions, piece: Piece, lane: int) -> None:
        self.partition, self.position, self.end = piece
        self._options = options
        self._reader = reader
        self._fetching = Fetching(
            partition=self.partition,
            read_committed=options.read_committed,
            rack=_rack(options),
            max_bytes=int(options.kafka.get("max.partition.fetch.bytes", PARTITION_BYTES)),
            lane=str(lane),
        )
        self._pull: Pull = reader.pull(self._fetching, self.position)
        self._moved_at = time.monotonic()

    def feed(self, decoder: ArrowDecoder) -> None:
        """Take one answer over into the decoder, with the next one asked for."""
        before = self.position
        try:
            answer = self._pull.answer()
        except OutOfRange:
            self._skip()
            return
        except BrokerError as error:
            if error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._tell(loss.topics_deleted([self.partition.topic]))
            self.position = self.end
            return
        topic, number = self.partition
        for part in answer.records:
            assert isinstance(part, bytes | bytearray | memoryview)
            self.position = decoder.feed(
                part,
                topic=topic,
                partition=number,
                lo=self.position,
                hi=self.end,
                aborted=(answer.aborted or ()) if self._options.read_committed else None,
            )
        if self.position > before:
            self._moved_at = time.monotonic()
        elif time.monotonic() - self._moved_at > STALL_S:
            self._give_up(answer)
        if self.position < self.end:
            self._pull.ask(self.position)

    def _skip(self) -> None:
        """The log begins later now, or ends before: go on with what there is, if that is wanted."""
        first = self._reader.first_offset(self.partition)
        if first <= self.position:
            self._tell(loss.end_unreachable(self.partition, self.position, self.end))
            self.position = self.end
            return
        self._tell(loss.records_deleted(self.partition, self.position, first))
        self.position = min(first, self.end)
        if self.position < self.end:
            self._pull.ask(self.position)

    def _give_up(self, answer: FetchedPartition) -> None:
        """Nothing more comes. Where the log goes beyond the end, it was compacted away before it; else it is lost."""
        reach = answer.last_stable_offset if self._options.read_committed else answer.high_watermark
        if reach < self.end:
            self._tell(loss.end_unreachable(self.partition, self.position, self.end))
        self.position = self.end

    def _tell(self, lost: HoldfastError) -> None:
        if self._options.fail_on_data_loss:
            raise lost
        warnings.warn(f"{lost.code}: {lost.what} failOnDataLoss is false, so the query goes on.", stacklevel=2)


def _rack(options: SourceOptions) -> str:
    """This executor's own: with `auto`, or from its environment, it is another one on another host."""
    if not ("client.rack" in options.kafka or "KAFKA_CLIENT_RACK" in os.environ):
        return ""
    from holdfast.client.rack import resolve

    return resolve(options.kafka, os.environ) or ""


def read_pieces(options: SourceOptions, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """Every record of these ranges, in order of each partition's offsets."""
    reader = shared_reader(client_config(options.kafka))
    decoder = ArrowDecoder(include_headers=options.include_headers)
    waiting, under_way = deque(enumerate(pieces)), deque[RangeRead]()
    yielded = False
    while waiting or under_way:
        while waiting and len(under_way) < LANES:
            number, piece = waiting.popleft()
            under_way.append(RangeRead(reader, options, piece, number % LANES))
        current = under_way[0]
        if current.position < current.end:
            current.feed(decoder)
        if current.position >= current.end:
            under_way.popleft()
        if decoder.buffered_bytes >= HOLD_BYTES or not (waiting or under_way):
            for batch in decoder.drain():
                yielded = True
                yield batch
    if not yielded:
        yield empty_batch(include_headers=options.include_headers)
