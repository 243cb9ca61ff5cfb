"""The codecs: both snappy forms, all LZ4 frames, and bombs that never get to explode."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
from functools import cache

import cramjam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records_world import CODECS, NOW, decode, plain

from holdfast.model import HoldfastError
from holdfast.net.config import unpack_limits
from holdfast.records.arrow import ArrowDecoder
from holdfast.records.batch import Record
from holdfast.records.compression import LIMITS, Codec, Limits, compress, decompress, decompress_into
from holdfast.records.encode import encode_batch, with_crc

PACKED = [codec for codec in CODECS if codec]
MIB = 1024 * 1024


@settings(deadline=None)
@given(
    data=st.binary(max_size=200) | st.integers(0, 200_000).map(lambda size: os.urandom(100) * (size // 100)),
    codec=st.sampled_from(CODECS),
)
def test_what_is_packed_unpacks_to_the_same(data: bytes, codec: Codec) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 300_000])
def test_incompressible_data_of_every_size_round_trips(codec: Codec, size: int) -> None:
    data = os.urandom(size)
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    assert decompress(codec, memoryview(packed)) == data


def test_snappy_comes_raw_from_librdkafka_and_framed_from_java() -> None:
    data = b"order " * 20_000
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    framed = compress(Codec.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\x00")
    assert decompress(Codec.SNAPPY, framed) == data


def test_lz4_frames_of_other_shapes_are_read_by_the_library() -> None:
    """Linked blocks, a content size, checksums, several frames: not what Java writes, but what others may."""
    data = b"order " * 50_000
    linked = bytes(cramjam.lz4.compress(data))
    assert not linked[4] & 0b10_0000, "this frame should have linked blocks"
    assert decompress(Codec.LZ4, linked) == data
    assert decompress(Codec.LZ4, compress(Codec.LZ4, data) * 2) == data * 2


def test_lz4_blocks_with_checksums_and_a_content_size_are_read_in_place() -> None:
    """A frame as other encoders write it: per-block and content checksums, and the content's size up front."""
    block = b"stored as it is"
    for flags, size, sums in ((0x68, struct.pack("<Q", len(block)), b""), (0x70, b"", bytes(4)), (0x64, b"", b"")):
        frame = b"\x04\x22\x4d\x18" + bytes([flags, 0x40]) + size + b"\0"
        frame += struct.pack("<I", len(block) | 0x80000000) + block + sums + bytes(4)
        frame += bytes(4) if flags & 0b100 else b""
        assert decompress(Codec.LZ4, frame) == block


def test_several_gzip_members_are_one_stream() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_kafka_does_not_define_are_refused(codec: int) -> None:
    with pytest.raises(HoldfastError, match="UNKNOWN_COMPRESSION"):
        decompress(codec, b"")
    with pytest.raises(HoldfastError, match="UNKNOWN_COMPRESSION"):
        compress(codec, b"")


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("times", [3, 300], ids=["one block", "several"])
def test_damaged_data_is_an_error_of_ours(codec: Codec, times: int) -> None:
    packed = compress(codec, os.urandom(300) * times)
    for size in range(0, len(packed), max(1, len(packed) // 50)):
        _unpacks_or_is_refused(codec, packed[:size])
    for at in range(0, len(packed), max(1, len(packed) // 200)):
        changed = bytearray(packed)
        changed[at] ^= 0xFF
        _unpacks_or_is_refused(codec, bytes(changed))


@settings(deadline=None)
@given(codec=st.sampled_from(PACKED), data=st.binary(max_size=100), prefix=st.booleans())
def test_random_data_is_an_error_of_ours(codec: Codec, data: bytes, prefix: bool) -> None:
    _unpacks_or_is_refused(codec, compress(codec, b"x")[:12] + data if prefix else data)


def _unpacks_or_is_refused(codec: Codec, data: bytes) -> None:
    try:
        decompress(codec, data)
    except HoldfastError as error:
        assert error.code in {"CORRUPT_COMPRESSION", "DECOMPRESSION_TOO_LARGE"}


# --- bombs ---


@cache
def bomb(codec: Codec, size: int) -> bytes:
    """Zeros. Gzip's quickest level makes 225 : 1 of them."""
    if codec == Codec.GZIP:
        return gzip.compress(bytes(size), 1)
    return compress(codec, bytes(size))


@pytest.mark.parametrize("codec", PACKED)
def test_what_unpacks_to_more_than_64_mib_is_refused(codec: Codec) -> None:
    packed = bomb(codec, 65 * MIB)
    with pytest.raises(HoldfastError, match="DECOMPRESSION_TOO_LARGE"):
        decompress(codec, packed)


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("size", [MIB, 40 * MIB])
def test_what_fits_is_never_refused_however_well_it_packs(codec: Codec, size: int) -> None:
    """Symptom: 4,000 equal lines of JSON in one batch stopped our own readers for good, while every other client read
    them. Cause: what unpacked to more than 200 times its size was taken for a bomb. Rule: a bomb is what does not fit;
    the memory that a batch may take is the same however small it was.
    """
    assert decompress(codec, bomb(codec, size)) == bytes(size)


@pytest.mark.parametrize("codec", PACKED)
def test_output_that_fits_exactly_is_taken_and_one_byte_less_is_not(codec: Codec) -> None:
    data = b"order 1 of many " * 10_000
    packed = compress(codec, data)
    out = np.zeros(len(data), np.uint8)
    assert decompress_into(codec, packed, out) == len(data)
    assert out.tobytes() == data
    with pytest.raises(HoldfastError, match="DECOMPRESSION_TOO_LARGE"):
        decompress_into(codec, packed, out[:-1])


def test_sizes_that_are_only_claimed_take_no_memory() -> None:
    """Snappy and zstd say up front how large they will be. Believing them would allocate what a few bytes ask for."""
    huge_snappy = b"\xff\xff\xff\xff\x0f" + b"\x00x"
    framed = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(huge_snappy)) + huge_snappy
    huge_zstd = struct.pack("<IBQ", 0xFD2FB528, 0b1110_0000, 2**50) + b"\x01\x00\x00"
    wide_zstd = struct.pack("<IBB", 0xFD2FB528, 0, 0xF8) + b"\x01\x00\x00"  # a window of 2 TiB
    tracemalloc.start()
    try:
        for codec, data in ((2, huge_snappy), (2, framed), (4, huge_zstd), (4, wide_zstd)):
            _is_refused(codec, data)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


def _is_refused(codec: int, data: bytes) -> None:
    with pytest.raises(HoldfastError, match=r"DECOMPRESSION_TOO_LARGE|CORRUPT_COMPRESSION"):
        decompress(codec, data, limits=Limits(max_bytes=MIB))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4])
def test_a_bomb_in_a_batch_is_refused_where_it_stands(codec: Codec) -> None:
    template = bytearray(encode_batch(plain(1), codec=codec)[:61])
    packed = bomb(codec, 70 * MIB)
    struct.pack_into(">i", template, 8, 49 + len(packed))
    with pytest.raises(HoldfastError, match=r"DECOMPRESSION_TOO_LARGE.*t-0 at offset 0"):
        decode(with_crc(bytes(template) + packed))


def test_the_checksum_comes_before_unpacking() -> None:
    damaged = bytearray(encode_batch(plain(1), codec=Codec.ZSTD)[:61] + bomb(Codec.ZSTD, 70 * MIB))
    struct.pack_into(">i", damaged, 8, len(damaged) - 12)
    with pytest.raises(HoldfastError, match="CORRUPT_BATCH"):
        decode(bytes(damaged))


def test_a_reader_takes_a_batch_that_packs_a_thousand_to_one() -> None:
    large = [Record(0, NOW, None, bytes(5 * MIB))]
    encoded = encode_batch(large, codec=Codec.ZSTD)
    assert len(encoded) * 1_000 < 5 * MIB
    assert decode(encoded)
    decoder = ArrowDecoder(limits=Limits(max_bytes=4 * MIB))
    decoder.feed(encoded, topic="t", partition=0, lo=0)
    with pytest.raises(HoldfastError, match="DECOMPRESSION_TOO_LARGE"):
        decoder.take()


def test_the_limit_can_be_raised() -> None:
    """Symptom: a batch that unpacks to more than 64 MiB stopped a reader for good. Rule: who means it can raise it."""
    encoded = encode_batch([Record(0, NOW, None, bytes(65 * MIB))], codec=Codec.ZSTD)
    decoder = ArrowDecoder(limits=unpack_limits({"holdfast.max.batch.bytes": "70000000"}))
    decoder.feed(encoded, topic="t", partition=0, lo=0)
    batch = decoder.take()
    assert batch is not None
    assert len(batch.column("value")[0].as_py()) == 65 * MIB
    assert unpack_limits({}) == LIMITS
    for wrong in ("0", "-1", "many", "1e6", str(2**31), True):
        with pytest.raises(HoldfastError, match=r"CONFIG_INVALID: holdfast\.max\.batch\.bytes"):
            unpack_limits({"holdfast.max.batch.bytes": wrong})


def test_the_limit_is_the_documented_one() -> None:
    assert LIMITS.max_bytes == 64 * MIB
