"""Clocks that go back, starts that outlive what they refer to, descriptors that run out."""

from __future__ import annotations

import random
from typing import Any

import pytest
from storage_batches import NOW, batch, noise, split, stored
from storage_bench import Bench, Clock, fill, read_all, read_good
from storage_world import SimFiles

from holdfast.broker.storage import pool
from holdfast.broker.storage.config import LogConfig
from holdfast.broker.storage.store import Store
from holdfast.broker.storage.sync import FlushPolicy

HOUR = 3_600_000


class Clocks:
    """The time of day, which can be set, and the time that passes."""

    def __init__(self) -> None:
        self.wall, self.steady = Clock(), Clock(0)

    def pass_by(self, ms: int) -> None:
        self.wall.now += ms
        self.steady.now += ms

    def store(self, files: SimFiles, flush: FlushPolicy = FlushPolicy.OS, **options: Any) -> Store:
        return Store(None, files=files, clock=self.wall, steady=self.steady, flush=flush, **options)


def test_an_interval_s_syncs_go_on_when_the_clock_is_set_back() -> None:
    """Symptom: after the clock was set back by an hour, nothing was synced for an hour. Cause: the next sync was due at
    a time of day.
    """
    files, clocks = SimFiles(), Clocks()
    store = clocks.store(files, FlushPolicy.INTERVAL, flush_interval_ms=100)
    store.create_topic("orders", 1)
    clocks.wall.now -= HOUR
    store.log("orders", 0).append(batch(time=clocks.wall.now))
    clocks.pass_by(100)
    before = files.syncs
    store.tick()
    assert files.syncs > before
    after = files.after_power_cut(random.Random(1))
    assert clocks.store(after).log("orders", 0).log_end_offset == 1


def test_retention_goes_on_when_the_clock_is_set_back() -> None:
    """Symptom: after the clock was set back by a day, a full disk was not freed for a day. Cause: the next check was
    due at a time of day.
    """
    files, clocks = SimFiles(), Clocks()
    store = clocks.store(files, retention_check_ms=1000)
    store.create_topic("orders", 1, configs={"retention.bytes": "0", "segment.bytes": "4096"})
    clocks.wall.now -= 24 * HOUR
    for number in range(20):
        store.log("orders", 0).append(batch(body=noise(number, 1000), time=clocks.wall.now))
    clocks.pass_by(1000)
    store.tick()
    assert store.log("orders", 0).log_start_offset > 0


def test_segments_are_closed_by_their_age_when_the_clock_is_set_back() -> None:
    bench = Bench(LogConfig(segment_ms=1000))
    steady = Clock(0)
    log = bench.open(steady=steady)
    log.append(batch())
    bench.clock.now -= HOUR
    steady.now += 1000
    log.append(batch(time=bench.clock.now))
    assert len(bench.files.paths(".log")) == 2


def test_records_from_before_the_clock_was_set_back_grow_old_by_the_time_that_passes() -> None:
    """Their timestamps lie in the future now: by them alone they would stay for as long as the clock was set back."""
    bench = Bench(LogConfig(retention_ms=1000, segment_bytes=1000))
    steady = Clock(0)
    log = bench.open(steady=steady)
    fill(log, 20)
    bench.clock.now -= 100 * 24 * HOUR
    assert log.apply_retention() == 0
    bench.clock.now, steady.now = bench.clock.now + 1001, 1001
    assert log.apply_retention() > 0
    assert log.log_start_offset == log.log_end_offset


def test_records_of_the_future_that_a_topic_allows_are_kept_by_their_timestamps() -> None:
    bench = Bench(LogConfig(retention_ms=1000, segment_bytes=1000, timestamp_after_max_ms=2**62))
    steady = Clock(0)
    log = bench.open(steady=steady)
    fill(log, 20, start_time=NOW + 24 * HOUR)
    bench.clock.now, steady.now = bench.clock.now + HOUR, HOUR
    assert log.apply_retention() == 0


# DeleteRecords


@pytest.mark.parametrize("left", [0, 3, 6])
def test_records_appended_after_a_crash_are_never_before_the_start(left: int) -> None:
    """Symptom: records were acknowledged, and gone after the next restart. Cause: DeleteRecords had moved the start to
    the end of the log; a crash of the machine took the log's tail and left the start; so what was appended next got
    offsets before it. Invariant: a log goes on at its start at the earliest.
    """
    bench = Bench()
    log = bench.open()
    fill(log, 6)
    log.delete_records(-1)
    (path,) = bench.files.paths(".log")
    del bench.files.now[path].now[left * 161 :]
    log = bench.open()
    assert (log.log_start_offset, log.log_end_offset) == (12, 12)
    kept = fill(log, 3)
    again = bench.open()
    assert (again.log_start_offset, again.log_end_offset) == (12, 18)
    assert read_all(again) == b"".join(kept)


def test_a_start_without_any_segment_is_where_the_log_begins() -> None:
    bench = Bench()
    log = bench.open()
    fill(log, 6)
    log.delete_records(7)
    (path,) = bench.files.paths(".log")
    bench.files.unlink(path)
    log = bench.open()
    assert log.append(batch()).base_offset == 7
    assert read_all(bench.open()) == stored(batch(), 7)


def test_a_deletion_is_done_although_the_old_files_can_not_be_removed_yet() -> None:
    """Answered with an error, and done all the same: that is neither all nor nothing."""
    bench = Bench(LogConfig(segment_bytes=1000))
    log = bench.open()
    fill(log, 20)
    bench.files.refuse_to_unlink = True
    assert log.delete_records(30) == 30
    bench.files.refuse_to_unlink = False
    many = len(bench.files.paths(".log"))
    log.apply_retention()
    assert len(bench.files.paths(".log")) < many
    assert bench.open().log_start_offset == 30


# Descriptors


def test_a_pool_that_meets_the_system_s_limit_gets_by_with_fewer_files() -> None:
    """Symptom: with few file descriptors left, appends were refused although others' handles lay idle in the pool."""
    files, clock = SimFiles(), Clock()
    store = Store(None, files=files, clock=clock, steady=clock, max_open_files=512)
    store.create_topic("orders", 60)
    store.journal("groups").append([(b"k", b"v")])
    files.descriptors = 20
    for turn in range(2):
        for partition in range(60):
            assert store.log("orders", partition).append(batch()).base_offset == turn
    store.journal("groups").compact()
    assert len(files.open_files) <= 20
    assert all(len(split(store.log("orders", number).read(0, 1000))) == 2 for number in range(60))
    store.close()


def test_a_sync_finds_a_descriptor_for_itself() -> None:
    """Under --flush always a sync opens its file; refused, it would be a failed fsync, and the file were broken."""
    files, clock = SimFiles(), Clock()
    store = Store(None, files=files, clock=clock, steady=clock, max_open_files=512, flush=FlushPolicy.ALWAYS)
    store.create_topic("orders", 60)
    files.descriptors = 12
    for partition in range(60):
        assert store.log("orders", partition).append(batch()).base_offset == 0


def test_the_pool_is_sized_by_what_the_process_may_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool.resource, "getrlimit", lambda which: (64, 64))
    assert pool.open_files_allowed() == 32
    monkeypatch.setattr(pool.resource, "getrlimit", lambda which: (1 << 20, 1 << 20))
    assert pool.open_files_allowed() == pool.MAX_OPEN_FILES
    monkeypatch.setattr(pool.resource, "getrlimit", lambda which: (pool.resource.RLIM_INFINITY, 0))
    assert pool.open_files_allowed() == pool.MAX_OPEN_FILES


# Damage in the middle


@pytest.mark.parametrize("closed", [False, True], ids=["after a crash", "after a clean close"])
@pytest.mark.parametrize("what", ["gone", "cut between batches", "cut in a batch"])
def test_a_segment_in_the_middle_that_lacks_something_is_told_when_the_log_is_opened(what: str, closed: bool) -> None:
    """Symptom: a segment in the middle was lost, and nobody was told until somebody read there; and then only the
    reader. Cause: only the last segment was looked at.
    """
    bench = Bench(LogConfig(segment_bytes=1000))
    log = bench.open()
    fill(log, 30)
    if closed:
        log.close()
    path = bench.files.paths(".log")[2]
    if what == "gone":
        bench.files.unlink(path)
    else:
        del bench.files.now[path].now[2 * 161 + (0 if what == "cut between batches" else 50) :]
    log = bench.open()
    (report,) = bench.reports
    assert (report.first_offset, report.next_offset) == ((24, 36) if what == "gone" else (28, 36))
    assert f"offsets {report.first_offset} to 35 are unreadable" in str(report)
    assert len(read_good(log)[0]) == (24 if what == "gone" else 26)
    assert len(bench.reports) == 1, "once"
