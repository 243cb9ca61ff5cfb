"""What an executor does: the ranges of one task into Arrow batches. A pure function of its input.

The next answer is on its way while the last one is decoded, and the first answers of the next ranges too; small ranges
share their Arrow batches. A range is read to its end, or an error says why not: a log may have been cut off since the
batch was planned, and an end that can't be reached must not be waited for.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from holdfast.fetch.planner import UNKNOWN
from holdfast.model import HoldfastError
from holdfast.net.config import client_config, unpack_limits
from holdfast.net.errors import BrokerError
from holdfast.net.reading import (
    PARTITION_BYTES,
    RANGE_RULES,
    EndCutOff,
    Fetching,
    OffsetOutOfRange,
    Pull,
    RangeReader,
    shared_reader,
)
from holdfast.records.arrow import ArrowDecoder, empty_batch
from holdfast.spark import loss
from holdfast.spark.options import SourceOptions
from holdfast.spark.planning import Piece

LANES = 4
"""Ranges whose first answers are on their way at once; each lane is a connection."""

HOLD_BYTES = 1024 * 1024
"""Fetched bytes are handed on from this much: a batch of Arrow has a fixed cost of about a millisecond in Spark."""

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
            end=self.end,
            rules=replace(
                RANGE_RULES,
                read_committed=options.read_committed,
                partition_bytes=int(options.kafka.get("max.partition.fetch.bytes", PARTITION_BYTES)),
            ),
            rack=_rack(options),
            lane=str(lane),
        )
        self._pull: Pull = reader.pull(self._fetching, self.position)

    def feed(self, decoder: ArrowDecoder) -> bool:
        """Take one answer over into the decoder, with the next one asked for. False if that led nowhere: then there is
        a batch in the decoder that can't be read."""
        before = self.position
        try:
            answer = self._pull.answer()
        except OffsetOutOfRange:
            self._skip()
            return True
        except EndCutOff:
            self._lost(loss.end_unreachable(self.partition, self.position, self.end))
            return True
        except BrokerError as error:
            if error.error not in UNKNOWN:
                raise
            self._lost(loss.topics_deleted([self.partition.topic]))
            return True
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
        if before < self.position < self.end:
            self._pull.ask(self.position)
        return self.position > before

    def _skip(self) -> None:
        """The log begins later now, or ends before: go on with what there is, if that is wanted."""
        first = self._reader.first_offset(self.partition)
        if first <= self.position:
            self._lost(loss.end_unreachable(self.partition, self.position, self.end))
            return
        self._tell(loss.records_deleted(self.partition, self.position, first))
        self.position = min(first, self.end)
        if self.position < self.end:
            self._pull.ask(self.position)

    def _lost(self, lost: HoldfastError) -> None:
        """There is nothing more of this range."""
        self._tell(lost)
        self.position = self.end

    def _tell(self, lost: HoldfastError) -> None:
        if self._options.fail_on_data_loss:
            raise lost
        warnings.warn(f"{lost.code}: {lost.what} failOnDataLoss is false, so the query goes on.", stacklevel=2)


def _rack(options: SourceOptions) -> str:
    """This executor's own: with `auto`, or from its environment, it is another one on another host."""
    if not ("client.rack" in options.kafka or "KAFKA_CLIENT_RACK" in os.environ):
        return ""
    from holdfast.client.config.rack import resolve

    return resolve(options.kafka, os.environ) or ""


def read_pieces(options: SourceOptions, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """Every record of these ranges, in order of each partition's offsets."""
    reader = shared_reader(client_config(options.kafka))
    decoder = ArrowDecoder(include_headers=options.include_headers, limits=unpack_limits(options.kafka))
    waiting, under_way = deque(enumerate(pieces)), deque[RangeRead]()
    yielded = False
    while waiting or under_way:
        while waiting and len(under_way) < LANES:
            number, piece = waiting.popleft()
            under_way.append(RangeRead(reader, options, piece, number % LANES))
        current = under_way[0]
        moved = current.position >= current.end or current.feed(decoder)
        if current.position >= current.end:
            under_way.popleft()
        if decoder.buffered_bytes >= HOLD_BYTES or not moved or not (waiting or under_way):
            for batch in decoder.drain():
                yielded = True
                yield batch
        if not moved:  # `drain` has raised for the batch that can't be read: it is the only reason not to move
            raise AssertionError(f"{current.partition} does not get beyond {current.position}")
    if not yielded:
        yield empty_batch(include_headers=options.include_headers)
