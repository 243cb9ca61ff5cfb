"""Damaged and hostile batches: found by the checksum or refused by both readers alike, never read beyond their end."""

from __future__ import annotations

import ctypes
import mmap
import random
import struct
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records_world import CODECS, NOW, decode, plain, record_lists, rows

from holdfast.model import HoldfastError, TopicPartition
from holdfast.records.arrow import ArrowDecoder
from holdfast.records.batch import Header, Record, iter_records
from holdfast.records.compression import Codec
from holdfast.records.encode import Producer, encode_batch, encode_marker, with_crc
from holdfast.records.header import HEADER_BYTES

COUNT_AT, LAST_DELTA_AT = 57, 23


def taken(decoder: ArrowDecoder) -> pa.RecordBatch:
    """The next rows, of which there must be some."""
    batch = decoder.take()
    assert batch is not None
    return batch


def outcome(read: Callable[[bytes], list[Record]], batch: bytes) -> list[Record] | str:
    try:
        return read(batch)
    except HoldfastError as error:
        return error.code


def both_agree(batch: bytes) -> None:
    """The compiled reader and the plain one give the same rows, or both refuse with the same code."""
    assert outcome(decode, batch) == outcome(lambda data: list(iter_records(data)), batch)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(records=record_lists(max_size=6), data=st.data())
def test_mutilated_records_get_the_same_answer_from_both_readers(records: list[Record], data: st.DataObject) -> None:
    """The checksum is made right again, so that the readers see what was changed."""
    batch = bytearray(encode_batch(records))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
        batch[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    both_agree(with_crc(bytes(batch)))


@settings(max_examples=150, deadline=None)
@given(section=st.binary(max_size=60), count=st.integers(0, 5), last_delta=st.integers(0, 5))
def test_random_bytes_get_the_same_answer_from_both_readers(section: bytes, count: int, last_delta: int) -> None:
    empty = encode_batch([], base_offset=3, last_offset=3 + last_delta)
    batch = bytearray(empty + section)
    struct.pack_into(">i", batch, COUNT_AT, count)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    if count:  # a batch that claims no records is passed over by its header
        both_agree(with_crc(bytes(batch)))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(records=record_lists(max_size=6), data=st.data())
def test_a_header_that_lies_gets_the_same_answer_from_both_readers(records: list[Record], data: st.DataObject) -> None:
    batch = bytearray(encode_batch(records))
    count = data.draw(st.integers(-2, 10) | st.just(2**31 - 1))
    struct.pack_into(">i", batch, LAST_DELTA_AT, data.draw(st.integers(-1, 30_000)))
    struct.pack_into(">i", batch, COUNT_AT, count)
    if count:
        both_agree(with_crc(bytes(batch)))


@pytest.mark.slow
def test_many_mutations_of_a_full_batch_never_take_the_process_down() -> None:
    """Headers, nulls, long numbers and all: every byte is changed to every value that begins something else."""
    records = [
        Record(i, NOW - i, b"k" * i, None if i % 2 else b"v" * 70, (Header("h", b"x"),) * (i % 3)) for i in range(5)
    ]
    batch = encode_batch(records)
    for at in range(HEADER_BYTES, len(batch)):
        for value in (0, 1, 0x7F, 0x80, 0xFE, 0xFF):
            changed = bytearray(batch)
            changed[at] = value
            both_agree(with_crc(bytes(changed)))


# --- the end of memory ---


@pytest.fixture
def before_a_wall() -> Callable[[bytes], memoryview]:
    """Puts bytes directly in front of a page that can't be read: reading one byte too far ends the process."""
    libc = ctypes.CDLL(None, use_errno=True)
    kept: list[mmap.mmap] = []

    def place(data: bytes) -> memoryview:
        room = -(-len(data) // mmap.PAGESIZE) * mmap.PAGESIZE
        area = mmap.mmap(-1, room + mmap.PAGESIZE)
        kept.append(area)
        wall = ctypes.addressof(ctypes.c_char.from_buffer(area)) + room
        assert libc.mprotect(ctypes.c_void_p(wall), mmap.PAGESIZE, 0) == 0, ctypes.get_errno()
        view = memoryview(area)[room - len(data) : room]
        view[:] = data
        return view

    return place


def test_nothing_is_read_behind_the_end_of_a_batch(before_a_wall: Callable[[bytes], memoryview]) -> None:
    rng = random.Random(429)
    records = [Record(i, NOW + 1000 * i, b"k%d" % i, b"v" * 100, (Header("key", b"value"),)) for i in range(40)]
    batch = encode_batch(records)
    cases = [batch]
    for _ in range(400):
        changed = bytearray(batch)
        for at in rng.sample(range(HEADER_BYTES, len(batch)), 3):
            changed[at] = rng.choice([0x7F, 0x80, 0xFF, rng.randrange(256)])
        cases.append(with_crc(bytes(changed)))
        cases.append(_cut(batch, rng.randrange(HEADER_BYTES, len(batch))))
    good = 0
    for case in cases:
        decoder = ArrowDecoder(include_headers=True)
        decoder.feed(before_a_wall(case), topic="t", partition=0, lo=0)
        try:
            good += sum(batch.num_rows for batch in decoder.drain())
        except HoldfastError as error:
            assert error.code == "MALFORMED_RECORD"
    assert good >= len(records)


def _cut(batch: bytes, size: int) -> bytes:
    """A batch whose records end in the middle, with a length and a checksum that agree."""
    cut = bytearray(batch[:size])
    struct.pack_into(">i", cut, 8, size - 12)
    return with_crc(bytes(cut))


# --- the checksum ---


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_bit_behind_the_checksum_is_found(codec: Codec) -> None:
    batch = encode_batch(plain(3), codec=codec)
    rng = random.Random(codec)
    for at in range(17, len(batch)):
        flipped = bytearray(batch)
        flipped[at] ^= 1 << rng.randrange(8)
        assert outcome(decode, bytes(flipped)) == "CORRUPT_BATCH"
        assert outcome(lambda data: list(iter_records(data)), bytes(flipped)) == "CORRUPT_BATCH"


def test_a_damaged_marker_is_not_believed() -> None:
    marker = bytearray(encode_marker(offset=2, timestamp=NOW, producer=Producer(producer_id=1), commit=True))
    marker[-8] ^= 1
    with pytest.raises(HoldfastError, match="CORRUPT_BATCH"):
        decode(bytes(marker), aborted=[])


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_length_that_can_t_be_is_damage_and_not_the_end(length: int) -> None:
    batch = bytearray(encode_batch(plain(1)))
    struct.pack_into(">i", batch, 8, length)
    assert outcome(decode, bytes(batch)) == "CORRUPT_BATCH"


# --- where the error comes ---


def bad_batch(kind: str, offset: int) -> bytes:
    batch = bytearray(encode_batch(plain(5, offset=offset), codec=Codec.LZ4 if kind == "unpack" else Codec.NONE))
    if kind == "crc":
        batch[-1] ^= 1
        return bytes(batch)
    batch[HEADER_BYTES if kind == "unpack" else -1] ^= 0xFF
    return with_crc(bytes(batch))


CODES = {"crc": "CORRUPT_BATCH", "unpack": "CORRUPT_COMPRESSION", "record": "MALFORMED_RECORD"}


@pytest.mark.parametrize("kind", sorted(CODES))
def test_rows_before_a_bad_batch_come_first_and_the_position_stays_before_it(kind: str) -> None:
    """Symptom: records lost behind an error. Cause: the position had moved over them. Now the error waits its turn."""
    decoder = ArrowDecoder()
    answer = encode_batch(plain(5)) + bad_batch(kind, 5) + encode_batch(plain(5, offset=10))
    decoder.feed(answer, topic="t", partition=0, lo=0)
    decoder.feed(encode_batch(plain(2)), topic="t", partition=1, lo=0)
    assert [record.offset for record in rows([taken(decoder)])] == [0, 1, 2, 3, 4]
    with pytest.raises(HoldfastError, match=r"t-0 at offset 5") as found:
        decoder.take()
    assert found.value.code == CODES[kind]
    assert decoder.positions[TopicPartition("t", 0)] == 5
    # The other partition goes on, and this one can be read again once somebody has decided what to do.
    assert [record.offset for record in rows(decoder.drain())] == [0, 1]
    decoder.discard("t", 0)
    decoder.feed(encode_batch(plain(5, offset=10)), topic="t", partition=0, lo=10)
    assert [record.offset for record in rows(decoder.drain())] == [10, 11, 12, 13, 14]


def test_a_bad_batch_read_in_small_steps_raises_at_its_own_place() -> None:
    decoder = ArrowDecoder()
    decoder.feed(encode_batch(plain(5)) + bad_batch("record", 5), topic="t", partition=0, lo=0)
    seen = []
    with pytest.raises(HoldfastError, match="MALFORMED_RECORD"):
        while (batch := decoder.take(max_rows=2)) is not None:
            seen += [record.offset for record in rows([batch])]
    assert seen[:5] == [0, 1, 2, 3, 4]
    assert decoder.positions[TopicPartition("t", 0)] == seen[-1] + 1


def test_a_bad_batch_of_headers_leaves_no_trace_in_the_rows_before_it() -> None:
    good = [Record(i, NOW, b"k", b"v", (Header("é", b"x"), Header("b", None))) for i in range(3)]
    bad = bytearray(encode_batch([record._replace(offset=record.offset + 3) for record in good]))
    bad[-1] ^= 0xFF
    decoder = ArrowDecoder(include_headers=True)
    decoder.feed(encode_batch(good) + with_crc(bytes(bad)), topic="t", partition=0, lo=0)
    assert rows([taken(decoder)]) == good
    with pytest.raises(HoldfastError, match="MALFORMED_RECORD"):
        decoder.take()


@pytest.mark.parametrize("headers", [(), (Header("é", None),)], ids=["without headers", "with"])
def test_what_a_bad_batch_had_of_headers_is_not_counted(headers: tuple[Header, ...]) -> None:
    """Symptom: Arrow refused the good rows, "null count exceeds array length". Cause: the kernel took back a bad
    batch's rows but not its count of null headers. A malformed batch leaves every count as it was."""
    good = [Record(0, NOW, b"k", b"v", headers)]
    bad = bytearray(encode_batch([Record(i, NOW, b"k", b"v", headers) for i in (1, 2, 3)]))
    struct.pack_into(">i", bad, COUNT_AT, 4)
    decoder = ArrowDecoder(include_headers=True)
    decoder.feed(encode_batch(good) + with_crc(bytes(bad)), topic="t", partition=0, lo=0)
    batch = taken(decoder)
    assert rows([batch]) == good
    assert batch.column("headers").null_count == (0 if headers else 1)


def test_nothing_is_kept_behind_a_bad_batch() -> None:
    """Symptom: hundreds of megabytes in an executor whose range began with a damaged batch. Cause: the batch was
    fetched and fed again and again, and every answer waited behind the first one's error. Rule: until that error is
    taken, more of the same partition is not kept; other partitions are."""
    batch = bytearray(encode_batch(plain(1)))
    batch[-1] ^= 1
    decoder, last = ArrowDecoder(), bytearray()
    for _ in range(3):
        last = bytearray(batch)
        assert decoder.feed(last, topic="t", partition=0, lo=0) == 0
    last.clear()  # raises if somebody still has a view of it
    assert decoder.feed(encode_batch(plain(2)), topic="u", partition=0, lo=0) == 2
    with pytest.raises(HoldfastError, match="CORRUPT_BATCH: t-0"):
        decoder.take()
    assert decoder.feed(bytes(encode_batch(plain(1))), topic="t", partition=0, lo=0) == 1


def test_what_is_damaged_behind_a_range_does_not_concern_it() -> None:
    decoder = ArrowDecoder()
    assert decoder.feed(encode_batch(plain(2)) + bytes(100), topic="t", partition=0, lo=0, hi=2) == 2
    taken = decoder.take()
    assert taken is not None
    assert taken.num_rows == 2
    assert decoder.take() is None
