"""Arrow's buffers for one `pyarrow.RecordBatch` of records, filled by `kernel` and then put together.

The columns, their order and their types are those of Spark's own Kafka source, which PySpark compares exactly. A record
without headers has null there and not an empty list: as in that source.

It must not know Kafka's record batches, only rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.records import layout as k
from holdfast.records.slabs import ALIGNMENT_BYTES, Slabs

Cursor = np.ndarray[Any, np.dtype[np.int64]]

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
_PLAIN: list[tuple[str, pa.DataType]] = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", pa.int32()),
]
SCHEMA = pa.schema(_PLAIN)
SCHEMA_WITH_HEADERS = pa.schema([*_PLAIN, ("headers", HEADERS_TYPE)])

_SLACK_BYTES = 4096
"""Added to every guess of a size, so that small batches don't grow row by row."""

_FIXED = ((k.O_OFFSETS, 8), (k.O_TIMESTAMPS, 8), (k.O_PARTITIONS, 4), (k.O_TIMESTAMP_TYPES, 4))
"""Columns of numbers, and how many bytes each takes."""
_PER_ROW = ((k.O_KEY_ENDS, k.O_KEY_VALID), (k.O_VALUE_ENDS, k.O_VALUE_VALID))
_PER_ROW_WITH_HEADERS = (*_PER_ROW, (k.O_HEADER_ENDS, k.O_HEADER_VALID))
"""Columns of varying size: where each row ends, and which are not null."""

_GROWING = (
    (k.O_KEYS, k.O_ROOM_KEYS, k.C_NEED_KEY_BYTES, k.C_KEY_BYTES),
    (k.O_VALUES, k.O_ROOM_VALUES, k.C_NEED_VALUE_BYTES, k.C_VALUE_BYTES),
    (k.O_HEADER_KEYS, k.O_ROOM_HEADER_KEYS, k.C_NEED_HEADER_KEY_BYTES, k.C_HEADER_KEY_BYTES),
    (k.O_HEADER_VALUES, k.O_ROOM_HEADER_VALUES, k.C_NEED_HEADER_VALUE_BYTES, k.C_HEADER_VALUE_BYTES),
)
"""Per column of bytes: its buffer, how much fits, how much the kernel needs, how much it holds."""


def schema(*, include_headers: bool) -> pa.Schema:
    """The columns of every batch."""
    return SCHEMA_WITH_HEADERS if include_headers else SCHEMA


class Columns:
    """Room for `rows` rows. The bytes of keys and values are guessed, and grow if need be."""

    def __init__(
        self, rows: int, *, include_headers: bool, bytes_per_row: tuple[float, float], slabs: Slabs | None = None
    ) -> None:
        self.out = np.zeros(k.O_FIELDS, np.int64)
        self._include_headers = include_headers
        self._buffers: dict[int, Any] = {}
        sizes = {field: rows * width for field, width in _FIXED}
        fields = _PER_ROW_WITH_HEADERS if include_headers else _PER_ROW
        for ends, valid in fields:
            sizes[ends], sizes[valid] = 4 * (rows + 1), (rows + 7) // 8
        for (data, room, _, _), each in zip(_GROWING, (*bytes_per_row, 0, 0), strict=True):
            sizes[data] = self.out[room] = int(rows * each * 1.1) + _SLACK_BYTES
        self._carve(sizes, slabs or Slabs())
        for ends, valid in fields:
            ctypes.memset(self._buffers[ends].address, 0, 4)
            ctypes.memset(self._buffers[valid].address, 0xFF, sizes[valid])
        if include_headers:
            self._make_header_rows(_SLACK_BYTES // 8, used=0)

    def _carve(self, sizes: dict[int, int], slabs: Slabs) -> None:
        """One block for all columns."""
        whole = slabs.take(sum(size + ALIGNMENT_BYTES for size in sizes.values()))
        at = 0
        for field, size in sizes.items():
            self._put(field, whole.slice(at, size))
            at += -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    def grow(self, cursor: Cursor) -> None:
        """Make room for the record at which the kernel stopped: at least twice as much as there was."""
        for data, room, need, used in _GROWING:
            if cursor[need] > self.out[room]:
                old = self._buffers[data]
                self._put_data(data, room, max(2 * old.size, int(cursor[need]) + _SLACK_BYTES))
                _copy(old, self._buffers[data], int(cursor[used]))
        if cursor[k.C_NEED_HEADERS] > self.out[k.O_ROOM_HEADERS]:
            rows = max(2 * int(self.out[k.O_ROOM_HEADERS]), int(cursor[k.C_NEED_HEADERS]))
            self._make_header_rows(rows, used=int(cursor[k.C_HEADERS]))

    def finish(self, cursor: Cursor, topic: pa.Array[Any]) -> pa.RecordBatch:
        """The rows that the kernel has written. The buffers now belong to the batch: make new columns for the next."""
        rows = int(cursor[k.C_ROWS])
        key_fields = (k.O_KEY_VALID, k.O_KEY_ENDS, k.O_KEYS)
        value_fields = (k.O_VALUE_VALID, k.O_VALUE_ENDS, k.O_VALUES)
        arrays = [
            self._bytes(pa.binary(), rows, key_fields, int(cursor[k.C_KEY_NULLS]), int(cursor[k.C_KEY_BYTES])),
            self._bytes(pa.binary(), rows, value_fields, int(cursor[k.C_VALUE_NULLS]), int(cursor[k.C_VALUE_BYTES])),
            topic,
            self._numbers(pa.int32(), rows, k.O_PARTITIONS, 4),
            self._numbers(pa.int64(), rows, k.O_OFFSETS, 8),
            self._numbers(pa.timestamp("us", tz="UTC"), rows, k.O_TIMESTAMPS, 8),
            self._numbers(pa.int32(), rows, k.O_TIMESTAMP_TYPES, 4),
        ]
        if self._include_headers:
            arrays.append(self._headers(rows, cursor))
        return pa.RecordBatch.from_arrays(arrays, schema=schema(include_headers=self._include_headers))

    def _headers(self, rows: int, cursor: Cursor) -> pa.Array[Any]:
        count = int(cursor[k.C_HEADERS])
        key_fields = (-1, k.O_HEADER_KEY_ENDS, k.O_HEADER_KEYS)
        keys = self._bytes(pa.string(), count, key_fields, 0, int(cursor[k.C_HEADER_KEY_BYTES]))
        if cursor[k.C_HEADER_KEYS_NOT_ASCII]:
            keys = _as_utf8(keys)
        value_fields = (k.O_HEADER_VALUE_VALID, k.O_HEADER_VALUE_ENDS, k.O_HEADER_VALUES)
        nulls = int(cursor[k.C_HEADER_VALUE_NULLS])
        values = self._bytes(pa.binary(), count, value_fields, nulls, int(cursor[k.C_HEADER_VALUE_BYTES]))
        pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
        without = int(cursor[k.C_ROWS_WITHOUT_HEADERS])
        valid = self._buffers[k.O_HEADER_VALID].slice(0, (rows + 7) // 8) if without else None
        ends = self._buffers[k.O_HEADER_ENDS].slice(0, 4 * (rows + 1))
        return pa.Array.from_buffers(HEADERS_TYPE, rows, [valid, ends], without, children=[pairs])

    def _bytes(
        self, kind: pa.DataType, rows: int, fields: tuple[int, int, int], nulls: int, size: int
    ) -> pa.Array[Any]:
        valid, ends, data = fields
        bitmap = self._buffers[valid].slice(0, (rows + 7) // 8) if nulls else None
        parts = [bitmap, self._buffers[ends].slice(0, 4 * (rows + 1)), self._buffers[data].slice(0, size)]
        return pa.Array.from_buffers(kind, rows, parts, nulls)

    def _numbers(self, kind: pa.DataType, rows: int, field: int, width: int) -> pa.Array[Any]:
        return pa.Array.from_buffers(kind, rows, [None, self._buffers[field].slice(0, rows * width)], 0)

    def _make_header_rows(self, rows: int, *, used: int) -> None:
        for field in (k.O_HEADER_KEY_ENDS, k.O_HEADER_VALUE_ENDS):
            old, new = self._buffers.get(field), _ends(rows)
            if old is not None:
                _copy(old, new, 4 * (used + 1))
            self._put(field, new)
        old, new = self._buffers.get(k.O_HEADER_VALUE_VALID), _all_valid(rows)
        if old is not None:
            _copy(old, new, old.size)
        self._put(k.O_HEADER_VALUE_VALID, new)
        self.out[k.O_ROOM_HEADERS] = rows

    def _put_data(self, field: int, room: int, size: int) -> None:
        self._put(field, pa.allocate_buffer(size))
        self.out[room] = size

    def _put(self, field: int, buffer: pa.Buffer) -> None:
        self._buffers[field] = buffer
        self.out[field] = buffer.address


class TopicColumn:
    """The topic's name, once per row. It is kept from batch to batch: most batches have one topic only."""

    def __init__(self) -> None:
        self._name = ""
        self._column = _repeat([("", 0)])

    def build(self, runs: Sequence[tuple[str, int]]) -> pa.Array[Any]:
        """`runs`: each topic, and how many consecutive rows it has."""
        names = {name for name, _ in runs}
        rows = sum(count for _, count in runs)
        if len(names) == 1:
            (name,) = names
            if name != self._name or len(self._column) < rows:
                self._name, self._column = name, _repeat([(name, rows)])
            return self._column.slice(0, rows)
        return _repeat(runs)


def _repeat(runs: Sequence[tuple[str, int]]) -> pa.Array[Any]:
    encoded = [(name.encode(), count) for name, count in runs]
    sizes = np.repeat(np.array([len(name) for name, _ in encoded], np.int32), [count for _, count in encoded])
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    data = b"".join(name * count for name, count in encoded)
    return pa.Array.from_buffers(pa.string(), len(sizes), [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(data)], 0)


def row_numbers(numbers: Sequence[int]) -> pa.Array[Any]:
    """The same as `pa.array(numbers)`, which first imports pandas if it is installed: half a second, in the middle of a
    handover."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(np.array(numbers, np.int64).tobytes())])


def _as_utf8(keys: pa.Array[Any]) -> pa.Array[Any]:
    """Kafka does not check that header keys are UTF-8. Like Java, replace what is not."""
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        raw = pa.Array.from_buffers(pa.binary(), len(keys), keys.buffers(), 0)
        return pa.array([bytes(key or b"").decode("utf-8", "replace") for key in raw.to_pylist()], pa.string())
    return keys


def _ends(rows: int) -> pa.Buffer:
    buffer = pa.allocate_buffer(4 * (rows + 1))
    ctypes.memset(buffer.address, 0, 4)
    return buffer


def _all_valid(rows: int) -> pa.Buffer:
    buffer = pa.allocate_buffer((rows + 7) // 8)
    ctypes.memset(buffer.address, 0xFF, buffer.size)
    return buffer


def _copy(source: pa.Buffer, target: pa.Buffer, size: int) -> None:
    ctypes.memmove(target.address, source.address, size)
