"""Finding offsets by time, down to the record inside a batch."""

from __future__ import annotations

import random
from typing import Any

import pytest
from storage_batches import NOW, batch, with_header
from storage_bench import Bench

from holdfast.broker.storage import segment
from holdfast.broker.storage.config import LogConfig
from holdfast.broker.storage.times import TimedOffset
from holdfast.records.batch import Record
from holdfast.records.compression import Codec
from holdfast.records.encode import encode_batch
from holdfast.records.header import BatchHeader, parse_header


def produced(times: list[int], *, codec: int = Codec.NONE) -> bytes:
    return encode_batch([Record(n, time, b"k", b"v" * 50) for n, time in enumerate(times)], codec=codec)


@pytest.mark.parametrize("reopen", ["no", "killed", "closed"])
@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_the_first_record_at_or_after_a_time_is_found_whatever_the_order(codec: Codec, reopen: str) -> None:
    dice = random.Random(int(codec))
    bench = Bench(LogConfig(segment_bytes=4000))
    log = bench.open()
    times: list[int] = []
    for number in range(60):
        batch_times = [NOW - 5000 + 50 * number + dice.randrange(-400, 400) for _ in range(dice.randrange(1, 9))]
        log.append(produced(batch_times, codec=codec))
        times += batch_times
    if reopen == "closed":
        log.close()
    if reopen != "no":
        log = bench.open()
    for wanted in range(min(times) - 2, max(times) + 3, 7):
        expected = next((TimedOffset(offset, time) for offset, time in enumerate(times) if time >= wanted), None)
        assert log.offset_for_time(wanted) == expected
    greatest = max(times)
    assert log.offset_of_max_time() == TimedOffset(times.index(greatest), greatest)


def test_an_empty_log_has_no_times() -> None:
    log = Bench().open()
    assert log.offset_for_time(0) is None
    assert log.offset_of_max_time() is None


def test_deleted_records_are_not_found() -> None:
    log = Bench().open()
    log.append(produced([NOW + n for n in range(10)]))
    log.append(produced([NOW + 10 + n for n in range(10)]))
    log.delete_records(4)
    assert log.offset_for_time(NOW) == TimedOffset(4, NOW + 4)
    log.delete_records(15)
    assert log.offset_for_time(NOW) == TimedOffset(15, NOW + 15)


def test_with_append_time_a_batch_has_one_time_and_nothing_is_decoded() -> None:
    bench = Bench(LogConfig(append_time=True))
    log = bench.open()
    for number in range(5):
        bench.clock.now = NOW + 10 * number
        log.append(batch(records=3, body=b"not records at all", time=5))
    assert log.offset_for_time(NOW + 11) == TimedOffset(6, NOW + 20)
    assert log.offset_of_max_time() == TimedOffset(12, NOW + 40)


def test_a_batch_that_can_not_be_decoded_answers_with_its_start() -> None:
    log = Bench().open()
    log.append(batch(records=3, body=b"not records at all", time=NOW))
    assert log.offset_for_time(NOW - 5) == TimedOffset(0, NOW)


def test_a_header_that_promises_a_later_time_than_its_records_hold_is_passed_over() -> None:
    """A producer may lie in the header; the search goes on behind such a batch."""
    log = Bench().open()
    log.append(with_header(produced([NOW, NOW + 1]), max_timestamp=NOW + 500))
    log.append(produced([NOW + 100, NOW + 300]))
    assert log.offset_for_time(NOW + 200) == TimedOffset(3, NOW + 300)
    assert log.offset_for_time(NOW + 400) is None


@pytest.mark.parametrize("deleted", [True, False], ids=["behind a deleted part", "for what only a header promises"])
def test_a_long_search_makes_way_for_others(deleted: bool) -> None:
    """Symptom: one ListOffsets by time held up every client for up to four seconds. Cause: batches before the log's
    start, or behind one whose header promises too late a time, were looked at one by one without a pause; a segment
    has up to a million of one record. Invariant: a search looks at no more headers than take a millisecond or so
    between two pauses, and at none that lies far before the start."""
    log = Bench().open()
    log.append(with_header(produced([NOW]), max_timestamp=NOW + 10))
    for _ in range(5_000):
        log.append(produced([NOW]))
    if deleted:
        log.delete_records(5_000)
    looked = 0

    def counting(*where: Any) -> BatchHeader:
        nonlocal looked
        looked += 1
        return parse_header(*where)

    most, value = 0, None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "parse_header", counting)
        search = log.search_time(NOW if deleted else NOW + 5)
        while True:
            looked = 0
            try:
                look = search.send(value)
            except StopIteration as end:
                found = end.value
                break
            finally:
                most = max(most, looked)
            value = None if look is None else look()
    assert found == (TimedOffset(5_000, NOW) if deleted else None)
    assert most <= 1_001
