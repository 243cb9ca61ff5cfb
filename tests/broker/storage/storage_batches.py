"""Record batches for the storage tests, made with the project's own encoder, or as headers around noise."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

from crc32c import crc32c

from holdfast.records.header import CRC_FROM, HEADER, HEADER_BYTES, BatchHeader, parse_header

NOW = 1_700_000_000_000


def batch(
    *,
    records: int = 1,
    body: bytes = b"x" * 20,
    time: int = NOW,
    producer: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    base_offset: int = 0,
) -> bytes:
    """One batch as a client sends it. The body is noise: the log must not care."""
    length = HEADER_BYTES - 12 + len(body)
    fields = (attributes, records - 1, time, time, producer, epoch, sequence, records)
    covered = struct.pack(">hiqqqhii", *fields) + body
    return struct.pack(">qiibI", base_offset, length, -1, 2, crc32c(covered)) + covered


def with_header(data: bytes, **changes: int) -> bytes:
    """The same batch with other header fields and a checksum that matches them."""
    header = parse_header(data)._replace(**changes)
    changed = bytearray(HEADER.pack(*header[:-1]) + data[HEADER_BYTES:])
    struct.pack_into(">I", changed, 17, changes.get("crc", crc32c(bytes(changed[CRC_FROM:]))))
    return bytes(changed)


def headers(data: bytes) -> list[BatchHeader]:
    """The headers of several whole batches in a row, each with a sound checksum."""
    found, position = [], 0
    while position < len(data):
        header = parse_header(data, position)
        assert crc32c(data[position + CRC_FROM : position + header.size]) == header.crc
        found.append(header)
        position += header.size
    assert position == len(data)
    return found


def stored(data: bytes, offset: int) -> bytes:
    """How the log keeps a batch that came as `data` and got `offset`."""
    return struct.pack(">qiib", offset, len(data) - 12, 0, 2) + data[17:]


def noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def split(data: bytes) -> Sequence[bytes]:
    """Several batches in a row, one by one."""
    parts, position = [], 0
    while position < len(data):
        size = parse_header(data, position).size
        parts.append(data[position : position + size])
        position += size
    return parts
