"""Flipped bits, lost sectors, full disks: detected, reported, and what is good is served."""

from __future__ import annotations

import random

import pytest
from storage_batches import batch, noise, split, stored
from storage_bench import SMALL, Bench, fill, read_all, read_good

from holdfast.broker.storage.config import LogConfig
from holdfast.broker.storage.errors import StorageError
from holdfast.model import ErrorCode

BATCH = 161


@pytest.mark.parametrize("closed", [False, True], ids=["after a crash", "after a clean close"])
def test_one_flipped_bit_anywhere_costs_at_most_the_batch_it_is_in(closed: bool) -> None:
    dice = random.Random(7)
    for _ in range(250):
        bench = Bench(SMALL)
        log = bench.open()
        kept = fill(log, 20)
        if closed:
            log.close()
        paths = bench.files.paths(".log")
        path = dice.choice(paths)
        bit = dice.randrange(8 * bench.files.size(path))
        bench.files.flip(path, bit)
        hit = paths.index(path) * 6 + bit // 8 // BATCH
        good, bad = read_good(bench.open())
        last = hit == 19 and not closed  # can't be told from a torn write, so it is cut
        assert good == kept[:hit] + kept[hit + 1 :]
        assert bad == ([] if last else [2 * hit, 2 * hit + 1])
        (report,) = bench.reports
        assert (report.topic, report.partition, report.file) == ("orders", 3, path)
        assert report.first_offset == 2 * hit
        assert report.position == (hit % 6) * BATCH
        assert (report.cut_bytes, report.damaged_bytes) == ((BATCH, 0) if last else (0, BATCH))


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True], ids=["after a crash", "after a clean close"])
def test_whatever_happens_to_the_files_only_what_was_appended_is_served_and_opening_never_fails(closed: bool) -> None:
    for seed in range(300):
        dice = random.Random(seed)
        bench = Bench(LogConfig(segment_bytes=dice.choice([1000, 9000, 100_000])))
        log = bench.open()
        kept = fill(log, 60, size=dice.choice([30, 100, 700]))
        if closed:
            log.close()
        for _ in range(dice.randrange(1, 5)):
            wreck(bench, dice)
        good, _ = read_good(bench.open())
        assert all(data in kept for data in good)
        assert good == sorted(good, key=lambda data: data[:8]), "in the order of their offsets"
        after = bench.open()
        end = after.append(batch(body=b"afterwards")).base_offset
        assert split(after.read(end, 1)) == [stored(batch(body=b"afterwards"), end)]


def wreck(bench: Bench, dice: random.Random) -> None:
    """Do something bad to one of the files."""
    path = dice.choice(sorted(bench.files.now))
    data = bench.files.now[path].now
    start = dice.randrange(len(data) + 1)
    stop = min(len(data), start + dice.choice([1, 4, 100, 3000]))
    match dice.choice(["flip", "zero", "noise", "cut", "drop", "repeat", "grow"]):
        case "flip" if data:
            bench.files.flip(path, dice.randrange(8 * len(data)))
        case "zero":
            data[start:stop] = bytes(stop - start)
        case "noise":
            data[start:stop] = dice.randbytes(stop - start)
        case "cut":
            del data[start:]
        case "drop":
            del data[start:stop]
        case "repeat":
            data[start:start] = data[start:stop]
        case _:
            data += dice.randbytes(50)


def test_the_refusal_tells_the_reader_where_to_go_on() -> None:
    bench = Bench()
    fill(bench.open(), 20)
    bench.files.flip(bench.files.paths(".log")[0], 8 * (3 * BATCH + 100))
    log = bench.open()
    with pytest.raises(StorageError, match="Continue from offset 8"):
        log.read(6, 1000)
    assert len(log.read(0, 10_000)) == 3 * BATCH, "what precedes is served up to the damage"
    assert "offsets 6 to 7 are unreadable" in str(bench.reports[0])


def test_a_large_read_after_a_clean_close_stops_before_damage_far_into_it() -> None:
    bench = Bench()
    log = bench.open()
    kept = fill(log, 300, size=1000)
    log.close()
    bench.files.flip(bench.files.paths(".log")[0], 8 * (200 * 1061 + 500))
    assert bench.open().read(0, 1 << 20) == b"".join(kept[:200])
    assert [report.first_offset for report in bench.reports] == [400]


def test_a_sector_of_zeros_over_several_batches_is_one_hole() -> None:
    bench = Bench()
    kept = fill(bench.open(), 40)
    (path,) = bench.files.paths(".log")
    bench.files.now[path].now[1024:2048] = bytes(1024)
    log = bench.open()
    good, bad = read_good(log)
    assert good == kept[:6] + kept[13:]
    assert bad == list(range(12, 26))
    assert len(bench.reports) == 1


@pytest.mark.parametrize("records", [10, 1_000_000], ids=["few", "a million equal ones in a few bytes"])
def test_the_last_batch_behind_a_lost_sector_is_kept_however_many_records_were_lost(records: int) -> None:
    """Symptom: a batch of many equal records was lost with its sector, and the good one behind it was cut off as a torn
    tail. Cause: so many offsets in so few bytes were held to be impossible, by a bound on compression that a broker
    does not have.
    """
    bench = Bench(LogConfig())
    log = bench.open()
    first, dense, last = batch(body=b"first"), batch(records=records, body=noise(1, 100)), batch(body=b"last")
    for data in (first, dense, last):
        log.append(data)
    (path,) = bench.files.paths(".log")
    bench.files.now[path].now[len(first) : len(first) + len(dense)] = bytes(len(dense))
    again = bench.open()
    assert again.log_end_offset == records + 2
    assert split(again.read(records + 1, 1_000)) == [stored(last, records + 1)]
    (report,) = bench.reports
    assert (report.cut_bytes, report.damaged_bytes, report.next_offset) == (0, len(dense), records + 1)


def test_after_damage_was_found_the_log_still_grows_and_reopens() -> None:
    bench = Bench(SMALL)
    kept = fill(bench.open(), 20)
    bench.files.flip(bench.files.paths(".log")[-1], 8 * 50)
    log = bench.open()
    more = fill(log, 10)
    log.close()
    good, bad = read_good(bench.open())
    assert good == kept[:18] + kept[19:] + more
    assert bad == [36, 37]


def test_a_segment_that_vanished_is_a_hole_between_its_neighbours() -> None:
    bench = Bench(SMALL)
    log = bench.open()
    kept = fill(log, 30)
    log.close()
    bench.files.unlink(bench.files.paths(".log")[2])
    good, bad = read_good(bench.open())
    assert good == kept[:12] + kept[18:]
    assert bad == list(range(24, 36))


def test_a_torn_tail_is_cut_with_one_message_and_the_log_goes_on_there() -> None:
    for cut in range(1, BATCH):
        bench = Bench()
        kept = fill(bench.open(), 3)
        (path,) = bench.files.paths(".log")
        del bench.files.now[path].now[-cut:]
        log = bench.open()
        assert log.log_end_offset == 4
        (report,) = bench.reports
        assert (report.cut_bytes, report.position) == (BATCH - cut, 2 * BATCH)
        assert str(report).startswith(f"orders-3: cut a torn tail of {BATCH - cut} bytes")
        assert log.append(batch(body=b"new")).base_offset == 4
        again = bench.open()
        assert read_all(again) == kept[0] + kept[1] + stored(batch(body=b"new"), 4)
        assert len(bench.reports) == 1


def test_a_batch_inside_a_torn_batch_is_not_taken_for_one() -> None:
    """Symptom: after a crash the log ended with a batch that nobody had produced to it. Cause: a record that carried a
    log segment as its value was torn, and the search for good data behind damage found the batch inside the value.
    Invariant: behind what looks like an interrupted write only the very next offset counts.
    """
    bench = Bench()
    log = bench.open()
    fill(log, 2)
    inner = stored(batch(records=2, body=b"inner"), 500)
    log.append(batch(records=2, body=b"before" + inner + noise(1, 400)))
    (path,) = bench.files.paths(".log")
    del bench.files.now[path].now[-100:]
    assert bench.open().log_end_offset == 4
    assert [report.damaged_bytes for report in bench.reports] == [0]


def test_a_full_disk_refuses_the_append_whole_and_works_again_when_there_is_room() -> None:
    for room in range(0, 2 * BATCH, 7):
        bench = Bench(SMALL)
        log = bench.open()
        kept = fill(log, 5)
        data = batch(records=2, body=noise(99, 100), producer=4, epoch=0, sequence=0)
        bench.files.room = room
        while room >= BATCH:
            kept.append(stored(data, log.append(data).base_offset))
            data = batch(records=2, body=noise(99, 100), producer=4, epoch=0, sequence=2)
            room -= BATCH
        with pytest.raises(StorageError) as caught:
            for _ in range(3):
                log.append(data)
        assert caught.value.error == ErrorCode.KAFKA_STORAGE_ERROR
        assert "Free some space" in str(caught.value)
        assert read_all(log) == b"".join(kept), "reading goes on meanwhile"
        bench.files.room = None
        kept.append(stored(data, log.append(data).base_offset))
        assert read_all(log) == read_all(bench.open()) == b"".join(kept)
        assert bench.reports == []


def test_a_read_error_of_the_disk_is_a_storage_error() -> None:
    bench = Bench()
    log = bench.open()
    fill(log, 3)
    (path,) = bench.files.paths(".log")
    bench.files.now[path].now[:] = b""
    with pytest.raises(StorageError) as caught:
        log.read(0, 1000)
    assert caught.value.error == ErrorCode.KAFKA_STORAGE_ERROR
