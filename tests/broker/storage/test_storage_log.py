"""The partition log as its callers see it."""

from __future__ import annotations

import contextlib
import random

import pytest
from storage_batches import NOW, batch, headers, noise, split, stored
from storage_bench import SMALL, Bench, fill, read_all, refused
from storage_world import Crash

from holdfast.broker.storage.config import LogConfig
from holdfast.broker.storage.errors import StorageError
from holdfast.broker.storage.sync import FlushPolicy
from holdfast.model import ErrorCode
from holdfast.records.header import LOG_APPEND_TIME


def test_offsets_rise_by_the_records_in_each_batch_and_batches_come_back_as_they_were_stored() -> None:
    log = Bench().open()
    assert (log.log_start_offset, log.log_end_offset, log.read(0, 1000)) == (0, 0, b"")
    first, second = batch(records=3, body=b"one"), batch(records=2, body=b"two")
    assert log.append(first).base_offset == 0
    appended = log.append(second)
    assert (appended.base_offset, appended.last_offset, appended.log_append_time) == (3, 4, -1)
    assert log.high_watermark == log.log_end_offset == 5
    assert log.read(0, 1 << 20) == stored(first, 0) + stored(second, 3)


@pytest.mark.parametrize("reopen", [False, True])
def test_a_read_starts_with_the_batch_that_holds_the_offset_and_ends_on_a_boundary(reopen: bool) -> None:
    bench = Bench(SMALL)
    log = bench.open()
    kept = fill(log, 40)
    if reopen:
        log.close()
        log = bench.open()
    assert read_all(log) == b"".join(kept)
    for offset in range(80):
        for limit in (0, 1, 161, 400, 10_000):
            parts = split(log.read(offset, limit))
            first = offset // 2
            assert list(parts) == kept[first : first + len(parts)]
            assert len(parts) == 1 or sum(map(len, parts)) <= limit
            assert parts, "the first batch comes even if it is larger than the limit"


def test_without_the_promise_of_one_batch_a_small_limit_gets_nothing() -> None:
    log = Bench().open()
    kept = fill(log, 3)
    assert log.read(0, len(kept[0]) - 1, min_one_batch=False) == b""
    assert log.read(0, len(kept[0]), min_one_batch=False) == kept[0]


def test_a_slice_names_the_piece_of_the_file_that_read_would_return() -> None:
    log = Bench(SMALL).open()
    fill(log, 30)
    for offset in range(0, 60, 7):
        piece = log.slice(offset, 500)
        assert piece is not None
        assert piece.count == len(piece.read())
        assert piece.read() == log.read(offset, 500)
    assert log.slice(60, 500) is None


@pytest.mark.parametrize("offset", [-1, 21, 1 << 40])
def test_an_offset_outside_the_log_is_out_of_range(offset: int) -> None:
    log = Bench().open()
    fill(log, 10)
    with pytest.raises(StorageError) as caught:
        log.read(offset, 100)
    assert caught.value.error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_full_segment_is_closed_and_another_begun() -> None:
    bench = Bench(SMALL)
    log = bench.open()
    fill(log, 40)
    sizes = [bench.files.size(path) for path in bench.files.paths(".log")]
    assert len(sizes) == 7
    assert max(sizes) <= 1000
    assert log.size == sum(sizes) == 40 * 161


def test_an_old_segment_is_closed_and_another_begun() -> None:
    bench = Bench(LogConfig(segment_ms=1000))
    log = bench.open()
    fill(log, 2)
    bench.clock.now += 999
    fill(log, 1)
    assert len(bench.files.paths(".log")) == 1
    bench.clock.now += 1
    fill(log, 1)
    assert len(bench.files.paths(".log")) == 2


@pytest.mark.parametrize("closed", [False, True])
def test_a_reopened_log_goes_on_in_its_last_segment(closed: bool) -> None:
    """Symptom: every restart left another small segment. Cause: a segment of unknown age counted as very old."""
    bench = Bench()
    for _ in range(3):
        log = bench.open()
        fill(log, 2)
        if closed:
            log.close()
    assert len(bench.files.paths(".log")) == 1


def test_append_time_replaces_the_senders_and_the_checksum_still_holds() -> None:
    bench = Bench(LogConfig(append_time=True))
    log = bench.open()
    bench.clock.now = NOW + 5
    assert log.append(batch(records=2, time=1, body=b"payload")).log_append_time == NOW + 5
    (header,) = headers(log.read(0, 1000))
    assert header.max_timestamp == NOW + 5
    assert header.base_timestamp == 1
    assert header.attributes & LOG_APPEND_TIME
    assert log.read(0, 1000).endswith(b"payload")


def test_a_claim_of_append_time_is_taken_out_or_refused_as_in_kafka() -> None:
    """A reader would take the batch's greatest time for that of every record."""
    log = Bench().open()
    log.append(batch(records=2, time=NOW, body=b"payload", attributes=LOG_APPEND_TIME))
    (header,) = headers(log.read(0, 1000))
    assert not header.attributes & LOG_APPEND_TIME
    assert header.max_timestamp == NOW
    assert log.read(0, 1000).endswith(b"payload")

    kept = Bench(LogConfig(append_time=True)).open()
    assert refused(kept, batch(attributes=LOG_APPEND_TIME)) == ErrorCode.INVALID_TIMESTAMP


def test_a_batch_that_comes_from_the_far_future_is_refused() -> None:
    log = Bench().open()
    assert refused(log, batch(time=NOW + 3_600_001)) == ErrorCode.INVALID_TIMESTAMP
    assert log.append(batch(time=NOW + 3_600_000)).base_offset == 0


def test_after_a_clean_close_nothing_is_scanned_on_opening() -> None:
    bench = Bench(SMALL)
    log = bench.open()
    kept = fill(log, 400)
    log.close()
    bench.files.reads = 0
    again = bench.open()
    others = len(bench.files.paths(".log")) - 1
    assert bench.files.reads <= 3 + others, "the last index, one header to compare it with, the others' first bytes"
    assert again.log_end_offset == 800
    assert read_all(again) == b"".join(kept)
    assert bench.reports == []


def test_a_log_without_its_indexes_is_rebuilt_from_the_batches() -> None:
    bench = Bench(SMALL)
    log = bench.open()
    kept = fill(log, 40)
    log.close()
    for path in bench.files.paths(".index"):
        bench.files.unlink(path)
    again = bench.open()
    assert (again.log_start_offset, again.log_end_offset) == (0, 80)
    assert read_all(again) == b"".join(kept)
    assert bench.reports == []


def test_a_damaged_index_is_not_believed() -> None:
    bench = Bench(LogConfig(segment_bytes=100_000))
    log = bench.open()
    kept = fill(log, 300, size=700)
    log.close()
    paths = bench.files.paths(".index")
    assert len(paths) > 1
    for number, path in enumerate(paths):
        bench.files.flip(path, (8 * bench.files.size(path) * number) // len(paths))
    again = bench.open()
    assert read_all(again) == b"".join(kept)
    assert bench.reports == []


def test_an_index_of_a_longer_life_of_the_file_is_not_believed_even_after_the_log_grew_past_it() -> None:
    """The log lost its tail in a crash, was cut, and grew again: the old index would point into the middle of batches.
    Here the new batches are longer at first and shorter then, so that the old index looks right at its last entry.
    """
    bench = Bench()
    log = bench.open()
    fill(log, 101, size=1000)
    log.close()
    (path,) = bench.files.paths(".log")
    bench.files.now[path].now[4 * 1061 + 10 :] = b""
    short = bench.open()
    assert short.log_end_offset == 8
    for number in range(100):
        short.append(batch(records=2, body=noise(number, 1100 if number < 48 else 900)))
    again = bench.open()
    assert again.log_end_offset == 208
    for number in range(100):
        data = batch(records=2, body=noise(number, 1100 if number < 48 else 900))
        assert again.read(8 + 2 * number, 1) == stored(data, 8 + 2 * number)


def test_deleted_records_stay_deleted_and_their_segments_go() -> None:
    bench = Bench(SMALL)
    log = bench.open()
    kept = fill(log, 40)
    assert log.delete_records(31) == 31
    assert len(bench.files.paths(".log")) == 5
    with pytest.raises(StorageError):
        log.read(30, 1000)
    assert split(log.read(31, 200))[0] == kept[15], "the batch that holds 31 also holds 30: batches are served whole"
    for each in (log, bench.open()):
        assert (each.log_start_offset, each.log_end_offset) == (31, 80)
        assert each.delete_records(5) == 31, "the start never goes back"
        with pytest.raises(StorageError) as caught:
            each.delete_records(81)
        assert caught.value.error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert bench.open().delete_records(-1) == 80
    assert bench.open().read(80, 1000) == b""
    assert bench.open().append(batch()).base_offset == 80


def test_retention_by_size_keeps_at_least_that_much() -> None:
    bench = Bench(LogConfig(segment_bytes=1000, retention_bytes=2500))
    log = bench.open()
    fill(log, 40)
    assert log.apply_retention() == 4
    assert 2500 <= log.size < 3500
    assert log.log_start_offset == headers(log.read(log.log_start_offset, 1))[0].base_offset == 48
    assert bench.open().log_start_offset == 48
    assert log.apply_retention() == 0


def test_retention_by_time_removes_whole_segments_and_in_the_end_all_of_them() -> None:
    bench = Bench(LogConfig(segment_bytes=1000, retention_ms=1000))
    log = bench.open()
    fill(log, 40)
    bench.clock.now = NOW + 1000 + 15
    assert log.apply_retention() == 2, "those whose newest record is more than a second old"
    assert log.log_start_offset == 24
    bench.clock.now = NOW + 10_000
    assert log.apply_retention() == 5
    for each in (log, bench.open()):
        assert (each.log_start_offset, each.log_end_offset) == (80, 80)
        assert each.read(80, 1000) == b""
    assert log.append(batch()).base_offset == 80


def test_a_power_cut_while_retention_removes_everything_never_sets_the_offsets_back() -> None:
    """Symptom: after a power cut a topic began at offset 0 again and consumers read nothing. Cause: the last data was
    removed before the empty segment that carries the log end had reached the disk.
    """
    for crash_at in range(30):
        bench = Bench(LogConfig(segment_bytes=1000, retention_ms=1000), flush=FlushPolicy.ALWAYS)
        log = bench.open()
        fill(log, 12)
        bench.clock.now += 10_000
        bench.files.crash_at = len(bench.files.steps) + crash_at
        with contextlib.suppress(Crash):
            log.apply_retention()
        for seed in range(5):
            bench.files, before = bench.files.after_power_cut(random.Random(seed)), bench.files
            assert bench.open().log_end_offset == 24
            bench.files = before


def test_retention_can_be_switched_off() -> None:
    bench = Bench(LogConfig(segment_bytes=1000, retention_ms=-1))
    log = bench.open()
    fill(log, 40)
    bench.clock.now = NOW + 10**12
    assert log.apply_retention() == 0


def test_a_segment_in_flight_stays_readable_when_retention_removes_it() -> None:
    bench = Bench(LogConfig(segment_bytes=1000, retention_ms=1000))
    log = bench.open()
    kept = fill(log, 12)
    piece = log.slice(0, 400)
    assert piece is not None
    bench.clock.now = NOW + 10_000
    log.apply_retention()
    assert piece.read() == kept[0] + kept[1]
