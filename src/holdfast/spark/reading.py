"""What an executor does: it reads the ranges of one task into Arrow batches. A pure function of its input.

While one answer is decoded, the next one and the first answers of the next ranges are already requested. Small ranges
share their Arrow batches. A range is read to its end, or an error says why not: a log may have been truncated since the
batch was planned, and then its end must not be waited for.
"""

from __future__ import annotations

import gc
import os
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
"""Ranges that are read in parallel; each lane is a connection."""

HOLD_BYTES = 1024 * 1024
"""Fetched bytes are collected up to this size: each Arrow batch costs Spark about a millisecond."""

# Spark's worker collects garbage after every task, which takes 14–41 ms for everything that is imported. Objects that
# exist when this module is first imported live for good, so the collector need not look at them.
gc.freeze()


class RangeRead:
    """One range of one partition while it is read."""

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
        """Put one answer into the decoder and request the next one. False if there was no progress: then the decoder
        holds a batch that can't be read."""
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
        """The log begins later now, or ends earlier: continue with what there is, unless data loss is an error."""
        first = self._reader.first_offset(self.partition)
        if first <= self.position:
            self._lost(loss.end_unreachable(self.partition, self.position, self.end))
            return
        self._tell(loss.records_deleted(self.partition, self.position, first))
        self.position = min(first, self.end)
        if self.position < self.end:
            self._pull.ask(self.position)

    def _lost(self, lost: HoldfastError) -> None:
        """Nothing more of this range can be read."""
        self._tell(lost)
        self.position = self.end

    def _tell(self, lost: HoldfastError) -> None:
        loss.tell(lost, fails=self._options.fail_on_data_loss)


def _rack(options: SourceOptions) -> str:
    """This executor's own rack: `auto` and the environment give another one on another host."""
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
        if not moved:  # can't happen: `drain` raises for the unreadable batch, the only reason for no progress
            raise AssertionError(f"{current.partition} does not get beyond {current.position}")
    if not yielded:
        yield empty_batch(include_headers=options.include_headers)
