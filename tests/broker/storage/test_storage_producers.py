"""Idempotent producers: a retry gets the first answer, a gap is refused, across restarts too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from storage_batches import NOW, batch, noise
from storage_bench import Bench, refused

from holdfast.broker.storage.config import LogConfig
from holdfast.broker.storage.log import Log
from holdfast.broker.storage.producers import MAX_PRODUCERS, PRODUCER_EXPIRY_MS, Producers
from holdfast.model import ErrorCode
from holdfast.records.header import parse_header

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def sent(sequence: int, *, producer: int = 5, epoch: int = 0, records: int = 2, time: int = NOW) -> bytes:
    body = noise(sequence, 200)
    return batch(records=records, body=body, producer=producer, epoch=epoch, sequence=sequence, time=time)


def killed(bench: Bench, log: Log) -> Log:
    return bench.open()


def closed(bench: Bench, log: Log) -> Log:
    log.close()
    return bench.open()


def without_indexes(bench: Bench, log: Log) -> Log:
    log.close()
    for path in bench.files.paths(".index"):
        bench.files.unlink(path)
    return bench.open()


def running(bench: Bench, log: Log) -> Log:
    return log


LIVES = pytest.mark.parametrize("then", [running, killed, closed, without_indexes])
Then = Callable[[Bench, Log], Log]


@LIVES
def test_a_retry_of_one_of_the_last_five_batches_gets_the_first_answer(then: Then) -> None:
    bench = Bench(LogConfig(segment_bytes=600))
    log = bench.open()
    first = [log.append(sent(2 * number)) for number in range(8)]
    log = then(bench, log)
    for number in range(3, 8):
        again = log.append(sent(2 * number))
        assert again == first[number]._replace(duplicate=True)
    assert log.log_end_offset == 16
    assert refused(log, sent(4)) == OUT_OF_ORDER, "older than the five remembered"
    assert log.append(sent(16)).base_offset == 16


@LIVES
def test_a_gap_is_refused_and_the_missing_batch_is_then_taken(then: Then) -> None:
    bench = Bench()
    log = bench.open()
    log.append(sent(0))
    log = then(bench, log)
    assert refused(log, sent(4)) == OUT_OF_ORDER
    assert refused(log, sent(0, records=3)) == OUT_OF_ORDER, "the same start with another end is not a retry"
    assert log.append(sent(2)).base_offset == 2
    assert log.append(sent(4)).base_offset == 4


@LIVES
def test_a_new_epoch_starts_at_zero_and_fences_the_old_one(then: Then) -> None:
    bench = Bench()
    log = bench.open()
    log.append(sent(0))
    log = then(bench, log)
    assert refused(log, sent(2, epoch=1)) == OUT_OF_ORDER
    assert log.append(sent(0, epoch=1)).base_offset == 2
    assert refused(log, sent(2, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.append(sent(2, epoch=1)).base_offset == 4


def test_sequences_wrap_around() -> None:
    log = Bench().open()
    last = 2**31 - 2
    assert log.append(sent(last)).base_offset == 0, "an unknown producer may start anywhere"
    assert log.append(sent(0)).base_offset == 2
    assert log.append(sent(last)).duplicate


def test_producers_do_not_disturb_each_other() -> None:
    log = Bench().open()
    for sequence in (0, 2, 4):
        for producer in (1, 2, 3):
            log.append(sent(sequence, producer=producer))
    assert log.log_end_offset == 18
    assert log.append(sent(4, producer=1)).base_offset == 12


def test_a_batch_the_disk_refused_is_new_when_it_comes_again() -> None:
    bench = Bench()
    log = bench.open()
    log.append(sent(0))
    bench.files.room = 10
    assert refused(log, sent(2)) == ErrorCode.KAFKA_STORAGE_ERROR
    bench.files.room = None
    answer = log.append(sent(2))
    assert (answer.base_offset, answer.duplicate) == (2, False)


def test_a_silent_producer_is_forgotten_after_a_day() -> None:
    bench = Bench()
    log = bench.open()
    log.append(sent(0))
    bench.clock.now += PRODUCER_EXPIRY_MS + 1
    log.append(sent(0, producer=6, time=bench.clock.now))
    log.apply_retention()
    assert log.append(sent(10)).base_offset == 4, "known no more, so it may start anywhere"
    assert refused(log, sent(10, producer=6)) == OUT_OF_ORDER


def test_the_number_of_producers_remembered_is_bounded_and_the_silent_ones_go_first() -> None:
    producers = Producers()
    producers.record(parse_header(sent(0, producer=1)), 0, NOW)
    for producer in range(2, MAX_PRODUCERS + 2):
        producers.record(parse_header(sent(0, producer=producer)), 0, NOW)
        if producer == 1000:
            producers.record(parse_header(sent(2, producer=2)), 0, NOW)
    assert len(producers) == MAX_PRODUCERS
    assert producers.check(parse_header(sent(0, producer=1))) is None
    assert producers.check(parse_header(sent(2, producer=2))) is not None


def test_state_survives_a_dump_and_a_load() -> None:
    producers = Producers()
    for producer in range(20):
        for sequence in range(0, 2 * producer, 2):
            producers.record(parse_header(sent(sequence, producer=producer)), 100 + sequence, NOW)
    other = Producers()
    other.load(producers.dump())
    assert other.dump() == producers.dump()
    assert len(other) == 19
