"""What a producer may send, and the code it gets for anything else: the same that Kafka answers."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_batches import NOW, batch, headers, stored, with_header

from holdfast.broker.storage.batch import check_produced, stamp
from holdfast.broker.storage.errors import StorageError
from holdfast.model import ErrorCode
from holdfast.records.header import HEADER_BYTES, parse_header

GOOD = batch(records=3, body=b"three records", producer=7, epoch=1, sequence=12)
LEGACY = struct.pack(">qiIbb", 0, 30, 0, 1, 0) + bytes(24)
CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD

REFUSED = {
    "nothing": (b"", INVALID),
    "a few bytes": (GOOD[:16], INVALID),
    "half a header": (GOOD[:40], INVALID),
    "half a batch": (GOOD[:-1], INVALID),
    "two batches": (GOOD + GOOD, INVALID),
    "a batch and a rest": (GOOD + b"\0", INVALID),
    "a length below any record": (with_header(GOOD, length=13), CORRUPT),
    "a negative length": (with_header(GOOD, length=-1), CORRUPT),
    "a length below the header": (with_header(GOOD, length=40), CORRUPT),
    "magic 3": (with_header(GOOD, magic=3), CORRUPT),
    "magic 1": (with_header(GOOD, magic=1), INVALID),
    "a record of the old format": (LEGACY, INVALID),
    "a wrong checksum": (with_header(GOOD, crc=1), CORRUPT),
    "a changed byte": (GOOD[:-1] + b"!", CORRUPT),
    "a base offset": (with_header(GOOD, base_offset=4), INVALID),
    "compression 5": (with_header(GOOD, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "no records": (with_header(GOOD, record_count=0, last_offset_delta=-1), INVALID),
    "fewer offsets than records": (with_header(GOOD, last_offset_delta=1), INVALID),
    "more offsets than records": (with_header(GOOD, last_offset_delta=3), INVALID),
    "a negative count": (with_header(GOOD, record_count=-5, last_offset_delta=-6), INVALID),
    "a control batch": (with_header(GOOD, attributes=0x20), INVALID),
    "a transaction": (with_header(GOOD, attributes=0x10), INVALID),
    "a producer without sequence": (with_header(GOOD, base_sequence=-1), INVALID),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_malformed_data_is_refused_with_kafkas_code(case: str) -> None:
    data, expected = REFUSED[case]
    with pytest.raises(StorageError) as caught:
        check_produced(data, max_bytes=1000)
    assert caught.value.error == expected


def test_a_batch_over_the_limit_is_too_large_and_one_at_the_limit_is_not() -> None:
    assert check_produced(GOOD, max_bytes=len(GOOD)) == parse_header(GOOD)
    with pytest.raises(StorageError) as caught:
        check_produced(GOOD, max_bytes=len(GOOD) - 1)
    assert caught.value.error == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind: type) -> None:
    data = kind(GOOD)
    header = check_produced(data, max_bytes=1000)
    assert b"".join(stamp(data, header, offset=9, append_time=None)) == stored(GOOD, 9)


def test_the_last_sequence_wraps_at_the_end_of_31_bits() -> None:
    header = parse_header(batch(records=4, producer=1, epoch=0, sequence=2**31 - 2))
    assert header.last_sequence == 1


def test_stamping_the_append_time_gives_a_sound_batch() -> None:
    header = check_produced(GOOD, max_bytes=1000)
    data = b"".join(stamp(GOOD, header, offset=5, append_time=NOW + 9))
    (after,) = headers(data)
    assert (after.base_offset, after.max_timestamp, after.attributes) == (5, NOW + 9, 8)
    assert after._replace(base_offset=0, max_timestamp=NOW, attributes=0, crc=header.crc, leader_epoch=-1) == header
    assert data[HEADER_BYTES:] == GOOD[HEADER_BYTES:]


@given(st.binary(max_size=200))
def test_noise_is_refused_and_never_crashes(data: bytes) -> None:
    with pytest.raises(StorageError):
        check_produced(data, max_bytes=1000)


@given(st.integers(0, 8 * len(GOOD) - 1))
def test_a_flipped_bit_is_refused_unless_it_hits_what_the_broker_overwrites(bit: int) -> None:
    data = bytearray(GOOD)
    data[bit // 8] ^= 1 << (bit % 8)
    if 12 <= bit // 8 < 16:  # the leader epoch: the checksum does not cover it, and the broker sets its own
        header = check_produced(data, max_bytes=1000)
        assert b"".join(stamp(data, header, offset=0, append_time=None)) == stored(GOOD, 0)
    else:
        with pytest.raises(StorageError):
            check_produced(data, max_bytes=1000)
