"""What an executor does: one range of one partition into Arrow batches. A pure function of its input."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from holdfast.model import TopicPartition
from holdfast.net.config import client_config
from holdfast.net.reading import OutOfRange, shared_reader
from holdfast.records.arrow import ArrowDecoder, empty_batch
from holdfast.spark.options import SourceOptions


def read_slice(options: SourceOptions, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
    reader = shared_reader(client_config(options.kafka))
    where = TopicPartition(topic, partition)
    decoder = ArrowDecoder(include_headers=options.include_headers)
    pull = reader.pull(where, start, read_committed=options.read_committed, rack=options.kafka.get("client.rack", ""))
    position = start
    while position < end:
        try:
            answer = pull.answer()
        except OutOfRange:
            if options.fail_on_data_loss:
                raise
            break
        for part in answer.records:
            assert isinstance(part, bytes | bytearray | memoryview)
            position = decoder.feed(
                part, topic=topic, partition=partition, lo=position, hi=end, aborted=answer.aborted or ()
            )
        if position < end:
            pull.ask(position)
        yield from decoder.drain()
    yield from decoder.drain()
    if position == start:
        yield empty_batch(include_headers=options.include_headers)
