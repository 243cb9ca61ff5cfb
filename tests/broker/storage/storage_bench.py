"""One partition on a simulated disk, opened as often as one likes, and helpers to fill and read it."""

from __future__ import annotations

import pytest
from storage_batches import NOW, batch, headers, noise, split, stored
from storage_world import SimFiles

from holdfast.broker.storage.config import LogConfig
from holdfast.broker.storage.errors import Recovery, StorageError
from holdfast.broker.storage.log import Log
from holdfast.broker.storage.pool import FilePool
from holdfast.broker.storage.sync import FlushPolicy, Syncer
from holdfast.model import ErrorCode

SMALL = LogConfig(segment_bytes=1000)


class Clock:
    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Bench:
    def __init__(self, config: LogConfig | None = None, *, flush: FlushPolicy = FlushPolicy.OS) -> None:
        self.files = SimFiles()
        self.clock = Clock()
        self.config = config or LogConfig()
        self.flush = flush
        self.reports: list[Recovery] = []

    def open(self, *, steady: Clock | None = None) -> Log:
        return Log(
            topic="orders",
            partition=3,
            folder="topics/t/3",
            pool=FilePool(self.files),
            syncer=Syncer(self.files, policy=self.flush, steady=self.clock),
            clock=self.clock,
            steady=steady or self.clock,
            config=self.config,
            report=self.reports.append,
        )


def fill(log: Log, count: int, *, size: int = 100, start_time: int = NOW) -> list[bytes]:
    """Append `count` batches of two records, a millisecond apart; returns them as they should be stored."""
    kept = []
    for number in range(count):
        data = batch(records=2, body=noise(number, size), time=start_time + number)
        kept.append(stored(data, log.append(data).base_offset))
    return kept


def read_all(log: Log, max_bytes: int = 1 << 20) -> bytes:
    data, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, max_bytes)
        data += piece
        offset = headers(piece)[-1].last_offset + 1
    return data


def refused(log: Log, data: bytes) -> ErrorCode:
    """The code an append is refused with; a refused append changes nothing."""
    before = (log.log_end_offset, log.size)
    with pytest.raises(StorageError) as caught:
        log.append(data)
    assert (log.log_end_offset, log.size) == before
    return caught.value.error


def read_good(log: Log) -> tuple[list[bytes], list[int]]:
    """Read everything that can be read; returns the batches and the offsets refused as damaged."""
    good: list[bytes] = []
    bad: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            parts = split(log.read(offset, 400))
        except StorageError as error:
            assert error.error == ErrorCode.CORRUPT_MESSAGE
            bad.append(offset)
            offset += 1
            continue
        good += parts
        offset = int.from_bytes(parts[-1][:8], "big") + 2
    return good, bad
