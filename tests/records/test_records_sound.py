"""The compiled look at a batch says yes to what walking through it finds sound, and to nothing else."""

from __future__ import annotations

import random
import struct

import pytest

from holdfast.model import HoldfastError
from holdfast.records import native
from holdfast.records.batch import Header, Record, iter_headers
from holdfast.records.compression import Codec
from holdfast.records.encode import encode_batch
from holdfast.records.sound import is_sound
from holdfast.records.walk import Walk, section_of, unpack


def records(count: int, sizes: tuple[int, ...] = (0, 1, 60, 70, 9_000)) -> list[Record]:
    rng = random.Random(count)

    def some() -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.choice(sizes))

    return [
        Record(
            offset=number,
            timestamp=rng.choice([0, 5, 90, 100_000, 2**62]),
            key=some(),
            value=some(),
            headers=tuple(Header(f"h{index}", some()) for index in range(rng.choice([0, 0, 1, 70]))),
        )
        for number in range(count)
    ]


def walked(data: bytes) -> bool:
    header = next(iter_headers(data))
    going = Walk(header, unpack(header.codec, section_of(data, header)))
    try:
        while not going.check():
            pass
    except HoldfastError:
        return False
    return True


def quick(data: bytes, *, count: int | None = None) -> bool:
    header = next(iter_headers(data))
    section = unpack(header.codec, section_of(data, header))
    return is_sound(native.decode(), header.record_count if count is None else count, header.base_timestamp, section)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 2, 200, 20_000])
def test_a_good_batch_is_sound_and_with_any_other_count_it_is_not(codec: Codec, count: int) -> None:
    data = encode_batch(records(count, (0, 1, 60) if count > 200 else (0, 70, 9_000)), codec=codec)
    assert quick(data)
    for false in (0, -1, count - 1, count + 1, 2**31 - 1):
        assert not quick(data, count=false)


def test_a_mutilated_batch_is_sound_where_walking_finds_it_so() -> None:
    """Two that judge alike: a broker that has its machine code must not take what it would refuse without, and refuses
    nothing either that it took before."""
    rng = random.Random(17)
    good = encode_batch(records(12, (0, 1)))
    found = {True: 0, False: 0}
    for _ in range(6_000):
        data = bytearray(good)
        for _ in range(rng.choice([1, 1, 2])):
            data[rng.randrange(61, len(data))] = rng.choice([0, 1, 2, 127, 128, 255, rng.randrange(256)])
        expected = walked(bytes(data))
        assert quick(bytes(data)) == expected, bytes(data).hex()
        found[expected] += 1
    assert min(found.values()) > 100


def test_a_batch_that_ends_anywhere_else_is_not_sound() -> None:
    section = bytes(section_of(data := encode_batch(records(20, (0, 1))), next(iter_headers(data))))
    decode = native.decode()
    assert is_sound(decode, 20, 0, section)
    assert not is_sound(decode, 20, 0, section + b"\0")
    assert not any(is_sound(decode, 20, 0, section[:end]) for end in range(len(section)))


def test_a_time_that_leaves_64_bits_is_not_sound() -> None:
    """Symptom: a batch whose times ran over was stored, and every reader of ours refused it for ever."""
    far = [Record(offset=number, timestamp=number * (2**62 - 1), key=None, value=b"") for number in range(3)]
    data = bytearray(encode_batch(far))
    assert quick(bytes(data))
    assert walked(bytes(data))
    struct.pack_into(">q", data, 27, 2)
    assert not quick(bytes(data))
    assert not walked(bytes(data))
    struct.pack_into(">q", data, 27, 2**63 - 1)
    assert not quick(bytes(data))
    assert not walked(bytes(data))


@pytest.mark.parametrize("base", [2**62, 2**62 + 1, 2**63 - 1, 2**63 - 6, -(2**62) - 1, -(2**63)])
@pytest.mark.parametrize("deltas", [(0, 0, 0), (0, 5, 0), (0, 0, -1), (2**62, 0, 0), (0, -(2**62), 0)])
def test_a_batch_may_begin_at_any_time_of_64_bits(base: int, deltas: tuple[int, ...]) -> None:
    """Symptom: a batch that began further than 2**62 ms from 1970 was refused by a young broker, and taken by one that
    had its machine code. Rule: both refuse what leaves 64 bits, which no reader could read, and nothing else.
    """
    data = bytearray(encode_batch([Record(number, delta, None, b"") for number, delta in enumerate(deltas)]))
    first = struct.unpack_from(">q", data, 27)[0]
    struct.pack_into(">q", data, 27, base)
    fits = all(-(2**63) <= base + delta - first < 2**63 for delta in deltas)
    assert quick(bytes(data)) == walked(bytes(data)) == fits
