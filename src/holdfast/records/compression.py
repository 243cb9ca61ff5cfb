"""The four codecs of Kafka, both ways, and never more output than a bound allows.

A compressed batch comes from anybody who may write to the topic. Its claimed sizes are never trusted: every codec
writes into a buffer that we have sized by `Limits`, and stops with an error at its end. Verify the batch's checksum
first; the checksums inside an LZ4 frame are then redundant, and the fast path doesn't compute them.

This module must not know record batches: bytes in, bytes out.
"""

from __future__ import annotations

import mmap
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Any

import cramjam

from holdfast.model import HoldfastError

ByteView = bytes | bytearray | memoryview


class Codec(IntEnum):
    """The numbers are Kafka's: the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one batch may unpack to. The compression ratio is not limited: a batch of equal records has 1,000 to 1,
    and is as valid as any other."""

    max_bytes: int = 64 * 1024 * 1024
    """64 times Kafka's default limit for a request; also what a reader may have to hold for one batch. The embedded
    broker takes no larger ones."""


LIMITS = Limits()


def decompress(codec: int, data: ByteView, *, limits: Limits = LIMITS) -> bytes:
    """Unpack one batch's records section."""
    if codec == Codec.NONE:
        return bytes(data)
    view = room_for(limits)
    return bytes(view[: decompress_into(codec, data, view)])


def room_for(limits: Limits) -> memoryview:
    """A buffer for the largest batch. Mapped, so that only the pages written to cost memory and time: a bytearray of
    64 MiB would be cleared first."""
    return memoryview(mmap.mmap(-1, limits.max_bytes))


def decompress_into(codec: int, data: ByteView, out: Any) -> int:
    """Unpack into a writable buffer (numpy array or memoryview) of at most `Limits.max_bytes`; returns the length."""
    unpack = _UNPACKERS.get(codec)
    if unpack is None:
        raise HoldfastError(
            "UNKNOWN_COMPRESSION",
            f"A batch is compressed with codec {codec}, which Kafka does not define.",
            "Look for a faulty producer; codecs are 0 to 4 (none, gzip, snappy, lz4, zstd).",
        )
    try:
        return unpack(data, out)
    except cramjam.DecompressionError as error:
        text = str(error)
        if any(sign in text for sign in _NO_ROOM):
            raise _too_large(codec, len(data), len(out)) from error
        raise _corrupt(codec, text) from error


FEW_PIECES = 64
"""Most blocks or members that clients use for a megabyte: Java's have 32 or 64 KiB, and gzip has one."""


def has_many_pieces(codec: int, data: ByteView) -> bool:
    """Whether it is compressed in so many pieces that their number, and not their size, decides how long unpacking
    takes: 100,000 empty blocks are half a megabyte, unpack to nothing, and take half a second."""
    if codec == Codec.GZIP:
        return bytes(data).count(_GZIP_MEMBER) > FEW_PIECES
    if codec == Codec.SNAPPY:
        return sum(1 for _ in islice(_xerial_blocks(data), FEW_PIECES + 1)) > FEW_PIECES
    if codec == Codec.LZ4:
        plain = _lz4_blocks(data, most=FEW_PIECES)
        return plain is not None and len(plain[0]) > FEW_PIECES
    return False  # zstd's blocks are read by machine code


def compress(codec: int, data: ByteView) -> bytes:
    """Pack one batch's records section in the form that Java's clients write and every client reads."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == Codec.SNAPPY:
        return _pack_snappy(data)
    if codec == Codec.LZ4:
        return _pack_lz4(data)
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=3))  # Kafka's default level
    raise HoldfastError("UNKNOWN_COMPRESSION", f"Codec {codec} does not exist.", "Use 0 to 4.")


_NO_ROOM = ("failed to write whole buffer", "is smaller than required")
"""How cramjam says that the output did not fit: its stream codecs, and snappy."""


def _too_large(codec: int, packed: int, bound: int) -> HoldfastError:
    return HoldfastError(
        "DECOMPRESSION_TOO_LARGE",
        f"A batch of {packed} bytes ({Codec(codec).name.lower()}) unpacks to more than {bound}.",
        "Raise holdfast.max.batch.bytes if intended; else skip the batch, and have its producer send smaller ones.",
    )


def _corrupt(codec: int, found: str) -> HoldfastError:
    return HoldfastError(
        "CORRUPT_COMPRESSION",
        f"A batch's {Codec(codec).name.lower()} data can't be unpacked: {found}.",
        "Its checksum is right, so its producer wrote it that way: skip the batch and check the producer.",
    )


_GZIP_MEMBER = b"\x1f\x8b\x08"


def _unpack_gzip(data: ByteView, out: Any) -> int:
    return int(cramjam.gzip.decompress_into(data, out))


def _unpack_zstd(data: ByteView, out: Any) -> int:
    # The library refuses windows above 128 MiB by itself, whatever the frame claims.
    return int(cramjam.zstd.decompress_into(data, out))


# --- snappy: raw (librdkafka), or in xerial's frame (Java) ---

_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_BE32 = struct.Struct(">i")


def _unpack_snappy(data: ByteView, out: Any) -> int:
    unpack = cramjam.snappy.decompress_raw_into
    if bytes(data[:8]) != _XERIAL[:8]:
        return int(unpack(data, out))
    written = 0
    for at, size in _xerial_blocks(data):
        if size < 0 or size > len(data) - at:
            raise _corrupt(Codec.SNAPPY, "a block reaches beyond the end")
        written += int(unpack(data[at : at + size], out[written:]))
    return written


def _xerial_blocks(data: ByteView) -> Iterator[tuple[int, int]]:
    """Where the blocks of a frame lie, and how long they say they are; the last one may not be whole."""
    at, end = len(_XERIAL), len(data)
    if bytes(data[:8]) != _XERIAL[:8]:
        return
    while at < end:
        size = _BE32.unpack_from(data, at)[0] if at + 4 <= end else -1
        yield at + 4, size
        at += 4 + max(size, 0)


def _pack_snappy(data: ByteView) -> bytes:
    view, parts = memoryview(data), [_XERIAL]
    for at in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (_BE32.pack(len(block)), block)
    return b"".join(parts)


# --- LZ4 frames. Reading the frame here and its blocks with LZ4's block function is 3 to 4 times as fast as the
# --- streaming decoder; what we don't read here (linked blocks, dictionaries, several frames) goes to that decoder.

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HEADER = _LZ4_MAGIC + b"\x60\x40\x82"
"""Version 1, independent blocks of at most 64 KiB, no checksums: what Java writes. 0x82 is the header's own."""
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_END = bytes(4)
_LZ4_STORED = 0x80000000
_LE32 = struct.Struct("<I")


def _unpack_lz4(data: ByteView, out: Any) -> int:
    # Most batches that Java writes are one block. Reading those here saves a third of their time.
    size = _LE32.unpack_from(data, 7)[0] if len(data) > 15 and data[:7] == _LZ4_HEADER else 0
    if size and size == len(data) - 15 and data[-4:] == _LZ4_END and len(out) >= _LZ4_BLOCK_BYTES:
        return _unpack_lz4_one(data, out)
    simple = _lz4_blocks(data)
    if simple is None:  # linked blocks, a dictionary or several frames: not what Kafka's clients write
        return int(cramjam.lz4.decompress_into(data, out))
    blocks, block_bytes = simple
    written, bound = 0, len(out)
    for at, size, stored in blocks:
        room = min(block_bytes, bound - written)
        target = out[written : written + room]
        try:
            if stored:
                written += _copy_stored(data[at : at + size], target)
            else:  # the length must be named: without it the function takes the first bytes for a size
                written += _unpack_lz4_block(data[at : at + size], target, output_len=room)
        except cramjam.DecompressionError as error:
            if room < block_bytes:
                raise _too_large(Codec.LZ4, len(data), bound) from error
            raise _corrupt(Codec.LZ4, "a block is damaged") from error
    return written


def _unpack_lz4_one(data: ByteView, out: Any) -> int:
    try:
        return _unpack_lz4_block(data[11:-4], out[:_LZ4_BLOCK_BYTES], output_len=_LZ4_BLOCK_BYTES)
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.LZ4, "a block is damaged") from error


_unpack_lz4_block: Callable[..., int] = cramjam.lz4.decompress_block_into


def _copy_stored(block: ByteView, target: Any) -> int:
    if len(block) > len(target):
        raise cramjam.DecompressionError("a stored block is too long")
    memoryview(target)[: len(block)] = memoryview(block)
    return len(block)


def _lz4_blocks(data: ByteView, *, most: int = sys.maxsize) -> tuple[list[tuple[int, int, bool]], int] | None:
    """Where the blocks of a plain frame lie, and how long one may become. None: not plain, or not whole.

    Stops after `most` + 1 blocks.
    """
    end = len(data)
    if end < 11 or bytes(data[:4]) != _LZ4_MAGIC:
        return None
    flags, size_code = data[4], data[5] >> 4
    plain = flags & 0b1110_0011 == 0b0110_0000 and 4 <= size_code <= 7
    if not plain:
        return None
    at = 15 if flags & 0b1000 else 7
    between = 4 if flags & 0b1_0000 else 0
    blocks: list[tuple[int, int, bool]] = []
    block_bytes = 1 << (8 + 2 * size_code)
    while at + 4 <= end:
        if len(blocks) > most:
            return blocks, block_bytes
        size = _LE32.unpack_from(data, at)[0]
        at += 4
        if size == 0:
            at += 4 if flags & 0b100 else 0
            return (blocks, block_bytes) if at == end else None
        blocks.append((at, size & ~_LZ4_STORED, size >= _LZ4_STORED))
        at += (size & ~_LZ4_STORED) + between
    return None


def _pack_lz4(data: ByteView) -> bytes:
    view, parts = memoryview(data), [_LZ4_HEADER]
    for at in range(0, len(view), _LZ4_BLOCK_BYTES):
        piece = view[at : at + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(piece, store_size=False))
        if len(block) < len(piece):
            parts += (_LE32.pack(len(block)), block)
        else:
            parts += (_LE32.pack(len(piece) | _LZ4_STORED), bytes(piece))
    parts.append(_LZ4_END)
    return b"".join(parts)


_UNPACKERS: dict[int, Callable[[ByteView, Any], int]] = {
    Codec.GZIP: _unpack_gzip,
    Codec.SNAPPY: _unpack_snappy,
    Codec.LZ4: _unpack_lz4,
    Codec.ZSTD: _unpack_zstd,
}
