"""The log against a list: whatever is appended, read, deleted, closed, killed or torn, they agree."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from storage_batches import batch, noise, split, stored
from storage_bench import Bench

from holdfast.broker.storage.config import LogConfig
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.log import Log
from holdfast.model import ErrorCode


class LogAgainstList(RuleBasedStateMachine):
    """`kept` holds (base offset, next offset, bytes, time) of every batch that must still be there."""

    bench: Bench
    log: Log

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[int, int, bytes, int]] = []
        self.start = 0
        self.end = 0
        self.seed = 0
        self.sequence = 0

    @initialize(segment=st.sampled_from([300, 1000, 9000]), retention=st.sampled_from([-1, 3000]))
    def begin(self, segment: int, retention: int) -> None:
        self.bench = Bench(LogConfig(segment_bytes=segment, retention_bytes=retention, retention_ms=1000))
        self.log = self.bench.open()

    def produce(self, records: int, size: int, sequence: int) -> bytes:
        self.seed += 1
        body = noise(self.seed, size)
        return batch(records=records, body=body, time=self.bench.clock.now, producer=1, epoch=0, sequence=sequence)

    @rule(records=st.integers(1, 5), size=st.integers(0, 400))
    def append(self, records: int, size: int) -> None:
        data = self.produce(records, size, self.sequence)
        assert self.log.append(data).base_offset == self.end
        assert self.log.append(data).duplicate
        self.kept.append((self.end, self.end + records, stored(data, self.end), self.bench.clock.now))
        self.end += records
        self.sequence += records

    @rule(room=st.integers(0, 200))
    def append_to_a_full_disk(self, room: int) -> None:
        self.bench.files.room = room
        with pytest.raises(StorageError) as caught:
            self.log.append(self.produce(1, 300, self.sequence))
        assert caught.value.error == ErrorCode.KAFKA_STORAGE_ERROR
        self.bench.files.room = None

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        target = self.start + int((self.end - self.start) * part)
        assert self.log.delete_records(target) == max(target, self.start)
        self.start = max(target, self.start)

    @rule(later=st.integers(0, 700))
    def time_passes(self, later: int) -> None:
        self.bench.clock.now += later

    @rule()
    def retention(self) -> None:
        before = self.start
        self.log.apply_retention()
        self.start = self.log.log_start_offset
        assert before <= self.start <= self.end
        gone = [time for _, after, _, time in self.kept if before < after <= self.start]
        if self.bench.config.retention_bytes < 0:
            assert all(time < self.bench.clock.now - 1000 for time in gone)
        elif self.start < self.end and any(time >= self.bench.clock.now - 1000 for time in gone):
            assert self.log.size >= self.bench.config.retention_bytes

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.log = self.bench.open()

    @rule()
    def kill_and_open(self) -> None:
        self.bench.files = self.bench.files.after_kill()
        self.log = self.bench.open()

    @rule(torn=st.integers(1, 200))
    def die_in_the_middle_of_a_write(self, torn: int) -> None:
        self.bench.files = self.bench.files.after_kill()
        paths = self.bench.files.paths(".log")
        if paths:
            data = stored(self.produce(1, 300, self.sequence), self.end)
            self.bench.files.now[paths[-1]].now += data[:torn]
        self.log = self.bench.open()
        if paths:
            assert self.bench.reports.pop().cut_bytes == torn

    @rule(at=st.floats(0, 1), limit=st.integers(0, 3000))
    def read(self, at: float, limit: int) -> None:
        offset = self.start + int((self.end - self.start) * at)
        expected = [data for _, after, data, _ in self.kept if after > offset]
        found = list(split(self.log.read(offset, limit)))
        assert found == expected[: len(found)]
        assert bool(found) == bool(expected)
        assert len(found) <= 1 or sum(map(len, found)) <= limit

    @invariant()
    def ends_agree_and_nothing_is_reported(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
            assert self.bench.reports == []

    @rule()
    def read_everything(self) -> None:
        offset = self.start
        found: list[bytes] = []
        while offset < self.end:
            parts = split(self.log.read(offset, 5000))
            found += parts
            offset = next(after for _, after, data, _ in self.kept if data == parts[-1])
        assert found == [data for _, after, data, _ in self.kept if after > self.start]


LogAgainstList.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLogAgainstList = LogAgainstList.TestCase
