"""Walking through a batch agrees with decoding it, on good batches and on mutilated ones."""

from __future__ import annotations

import random

import pytest

from holdfast.model import HoldfastError
from holdfast.records.batch import Header, Record, batch_records, iter_headers
from holdfast.records.compression import Codec
from holdfast.records.encode import encode_batch
from holdfast.records.walk import Walk, section_of, unpack


def records(count: int, *, seed: int = 7, sizes: tuple[int, ...] = (0, 1, 60, 70, 9_000)) -> list[Record]:
    rng = random.Random(seed)

    def some() -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.choice(sizes))

    return [
        Record(
            offset=number,
            timestamp=1_000 + rng.choice([0, 5, 90, 100_000, -700, 2**62]),
            key=some(),
            value=some(),
            headers=tuple(Header(f"h{index}", some()) for index in range(rng.choice([0, 0, 1, len(sizes) * 14]))),
        )
        for number in range(count)
    ]


def walk(data: bytes, *, piece: int = 3) -> bool:
    header = next(iter_headers(data))
    going = Walk(header, unpack(header.codec, section_of(data, header)))
    while not going.check(piece):
        pass
    return True


def decodes(data: bytes) -> bool:
    """By the plain decoder; offsets must rise by one, which it does not ask for."""
    try:
        header = next(iter_headers(data))
        found = list(batch_records(data, header))
    except HoldfastError:
        return False
    return [record.offset - header.base_offset for record in found] == list(range(len(found)))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_is_walked_to_its_end_in_pieces(codec: Codec) -> None:
    assert walk(encode_batch(records(200), codec=codec))
    assert walk(encode_batch(records(200), codec=codec), piece=1_000)


def test_a_mutilated_batch_is_refused_where_the_decoder_refuses_it() -> None:
    rng = random.Random(11)
    good = encode_batch(records(12, sizes=(0, 1)))
    wrong = 0
    for _ in range(3_000):
        data = bytearray(good)
        for _ in range(rng.choice([1, 1, 2])):
            data[rng.randrange(61, len(data))] = rng.choice([0, 1, 2, 127, 128, 255, rng.randrange(256)])
        expected = decodes(bytes(data))
        try:
            found = walk(bytes(data))
        except HoldfastError:
            found = False
        assert found == expected, bytes(data).hex()
        wrong += not expected
    assert wrong > 100


@pytest.mark.parametrize("codec", list(Codec))
def test_a_time_is_found_as_by_reading_everything(codec: Codec) -> None:
    content = records(100)
    data = encode_batch(content, codec=codec)
    header = next(iter_headers(data))
    for timestamp in (0, 1_000, 1_005, 1_006, 90_000, 101_000, 101_001):
        for least in (0, 40):
            expected = next((each for each in content if each.timestamp >= timestamp and each.offset >= least), None)
            going = Walk(header, unpack(header.codec, section_of(data, header)))
            while not going.find(timestamp, least, 7):
                pass
            found = (going.found_offset, going.found_time)
            assert found == ((-1, -1) if expected is None else (expected.offset, expected.timestamp))
