"""The inner loop of the Arrow path, written for numba: records in, Arrow's buffers out, no Python object per record.

Rules
- Memory is read and written by address: the batches of one call lie in different buffers, and numba counts references
  on every array that a loop touches (four times slower). Every number and every length is therefore checked against
  the end of its record before a byte is read: a hostile batch gives MALFORMED, never a stray read.
- Outputs have the sizes that the kernel is told. What does not fit ends the call with GROW and the sizes needed; the
  caller makes room and calls again. The cursor then stands at the record that did not fit.
- The rules for records are those of `batch`; a test compares the two on damaged batches.
- No allocation and no exception: `native` turns it into machine code that needs neither numba nor Python.

It must not know topics, pyarrow or compression. Only `native` imports it, and only to compile.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import types

from holdfast.records.layout import (
    B_APPEND_TIMESTAMP,
    B_BASE_OFFSET,
    B_BASE_TIMESTAMP,
    B_COUNT,
    B_END,
    B_FIELDS,
    B_HI,
    B_LAST_DELTA,
    B_LO,
    B_PARTITION,
    B_ROWS,
    B_START,
    B_TIMESTAMP_TYPE,
    C_AT,
    C_BATCH,
    C_DELTA,
    C_HEADER_KEY_BYTES,
    C_HEADER_KEYS_NOT_ASCII,
    C_HEADER_VALUE_BYTES,
    C_HEADER_VALUE_NULLS,
    C_HEADERS,
    C_KEY_BYTES,
    C_KEY_NULLS,
    C_NEED_HEADER_KEY_BYTES,
    C_NEED_HEADER_VALUE_BYTES,
    C_NEED_HEADERS,
    C_NEED_KEY_BYTES,
    C_NEED_VALUE_BYTES,
    C_RECORD,
    C_ROWS,
    C_ROWS_WITHOUT_HEADERS,
    C_VALUE_BYTES,
    C_VALUE_NULLS,
    DONE,
    GROW,
    MALFORMED,
    O_HEADER_ENDS,
    O_HEADER_KEY_ENDS,
    O_HEADER_KEYS,
    O_HEADER_VALID,
    O_HEADER_VALUE_ENDS,
    O_HEADER_VALUE_VALID,
    O_HEADER_VALUES,
    O_KEY_ENDS,
    O_KEY_VALID,
    O_KEYS,
    O_OFFSETS,
    O_PARTITIONS,
    O_ROOM_HEADER_KEYS,
    O_ROOM_HEADER_VALUES,
    O_ROOM_HEADERS,
    O_ROOM_KEYS,
    O_ROOM_VALUES,
    O_TIMESTAMP_TYPES,
    O_TIMESTAMPS,
    O_VALUE_ENDS,
    O_VALUE_VALID,
    O_VALUES,
    ROWS_FULL,
)
from holdfast.records.memory import (
    clear_bit,
    compiled,
    copy_bytes,
    get,
    load_byte,
    put,
    store_byte,
    store_int32,
    store_int64,
)

_INT64_MAX = 2**63 - 1
_MICROS_MAX = _INT64_MAX // 1000


# --- numbers ---


@compiled
def read_varint(at: int, end: int) -> tuple[int, int]:
    """A zigzag number of 32 bits and the address after it; address 0 if it is malformed or cut off."""
    if at >= end:
        return 0, 0
    byte = load_byte(at)
    value = byte & 0x7F
    shift = 7
    at += 1
    while byte >= 0x80:
        if at >= end or shift > 28:
            return 0, 0
        byte = load_byte(at)
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    if value > 0xFFFFFFFF:
        return 0, 0
    return (value >> 1) ^ -(value & 1), at


@compiled
def read_varlong(at: int, end: int) -> tuple[int, int]:
    """The same with 64 bits: at most ten bytes, the last of which holds one bit."""
    value = 0
    shift = 0
    while True:
        if at >= end or shift > 63:
            return 0, 0
        byte = load_byte(at)
        at += 1
        if shift == 63 and byte > 1:
            return 0, 0
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return ((value >> 1) & _INT64_MAX) ^ -(value & 1), at


@compiled
def micros(milliseconds: int) -> int:
    """Arrow and Spark count microseconds. What does not fit (nanoseconds from a producer, say) becomes the limit."""
    if milliseconds > _MICROS_MAX:
        return _INT64_MAX
    if milliseconds < -_MICROS_MAX:
        return -_INT64_MAX
    return milliseconds * 1000


# --- records ---


@compiled
def read_record(at: int, end: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Where the parts of a record lie: its end (0: malformed), timestamp and offset delta, key, value and headers.

    Address and size for key and value (size -1: null), address and number for headers, which are not looked at yet.
    """
    size, at = read_varint(at, end)
    if at == 0 or size < 1 or size > end - at:
        return 0, 0, 0, 0, 0, 0, 0, 0, 0
    stop = at + size
    timestamp_delta, at = read_varlong(at + 1, stop)  # after the attributes, which Kafka does not use yet
    if at == 0:
        return 0, 0, 0, 0, 0, 0, 0, 0, 0
    offset_delta, at = read_varint(at, stop)
    if at == 0:
        return 0, 0, 0, 0, 0, 0, 0, 0, 0
    key_size, key_at = read_varint(at, stop)
    if key_at == 0 or key_size < -1 or key_size > stop - key_at:
        return 0, 0, 0, 0, 0, 0, 0, 0, 0
    value_size, value_at = read_varint(key_at + max(key_size, 0), stop)
    if value_at == 0 or value_size < -1 or value_size > stop - value_at:
        return 0, 0, 0, 0, 0, 0, 0, 0, 0
    headers, headers_at = read_varint(value_at + max(value_size, 0), stop)
    if headers_at == 0 or headers < 0 or headers > (stop - headers_at) >> 1:  # an empty header has two bytes
        return 0, 0, 0, 0, 0, 0, 0, 0, 0
    return stop, timestamp_delta, offset_delta, key_at, key_size, value_at, value_size, headers_at, headers


@compiled
def measure_headers(at: int, end: int, count: int) -> tuple[int, int, int]:
    """Check `count` headers; the address after them (0: malformed) and the bytes of their keys and values."""
    key_bytes = 0
    value_bytes = 0
    for _ in range(count):
        size, at = read_varint(at, end)
        if at == 0 or size < 0 or size > end - at:
            return 0, 0, 0
        key_bytes += size
        size, at = read_varint(at + size, end)
        if at == 0 or size < -1 or size > end - at:
            return 0, 0, 0
        if size > 0:
            value_bytes += size
            at += size
    return at, key_bytes, value_bytes


@compiled
def store_headers(at: int, end: int, count: int, cursor: int, out: int) -> None:
    """Copy headers that `measure_headers` has checked and for which there is room."""
    row = get(cursor, C_HEADERS)
    key_bytes = get(cursor, C_HEADER_KEY_BYTES)
    value_bytes = get(cursor, C_HEADER_VALUE_BYTES)
    keys, values = get(out, O_HEADER_KEYS), get(out, O_HEADER_VALUES)
    not_ascii = 0
    for _ in range(count):
        size, at = read_varint(at, end)
        for index in range(size):
            byte = load_byte(at + index)
            store_byte(keys + key_bytes + index, byte)
            not_ascii |= byte >> 7
        key_bytes += size
        size, at = read_varint(at + size, end)
        if size >= 0:
            copy_bytes(values + value_bytes, at, size)
            value_bytes += size
            at += size
        else:
            clear_bit(get(out, O_HEADER_VALUE_VALID), row)
            put(cursor, C_HEADER_VALUE_NULLS, get(cursor, C_HEADER_VALUE_NULLS) + 1)
        row += 1
        store_int32(get(out, O_HEADER_KEY_ENDS) + 4 * row, key_bytes)
        store_int32(get(out, O_HEADER_VALUE_ENDS) + 4 * row, value_bytes)
    put(cursor, C_HEADER_KEYS_NOT_ASCII, get(cursor, C_HEADER_KEYS_NOT_ASCII) | not_ascii)
    put(cursor, C_HEADERS, row)
    put(cursor, C_HEADER_KEY_BYTES, key_bytes)
    put(cursor, C_HEADER_VALUE_BYTES, value_bytes)


@compiled
def reserve_headers(count: int, key_bytes: int, value_bytes: int, cursor: int, out: int) -> tuple[int, bool]:
    """Note in the cursor what the header columns need with these headers; that many bytes, and if they must grow."""
    rows = get(cursor, C_HEADERS) + count
    keys = get(cursor, C_HEADER_KEY_BYTES) + key_bytes
    values = get(cursor, C_HEADER_VALUE_BYTES) + value_bytes
    put(cursor, C_NEED_HEADERS, rows)
    put(cursor, C_NEED_HEADER_KEY_BYTES, keys)
    put(cursor, C_NEED_HEADER_VALUE_BYTES, values)
    grow = rows > get(out, O_ROOM_HEADERS)
    grow |= keys > get(out, O_ROOM_HEADER_KEYS)
    grow |= values > get(out, O_ROOM_HEADER_VALUES)
    return keys + values, grow


@compiled
def store_row_headers(at: int, end: int, count: int, row: int, cursor: int, out: int) -> None:
    """The headers of one row, for which there is room."""
    if count > 0:
        store_headers(at, end, count, cursor, out)
    else:  # Spark's own source gives null and not an empty list
        clear_bit(get(out, O_HEADER_VALID), row)
        put(cursor, C_ROWS_WITHOUT_HEADERS, get(cursor, C_ROWS_WITHOUT_HEADERS) + 1)
    store_int32(get(out, O_HEADER_ENDS) + 4 * row + 4, get(cursor, C_HEADERS))


@compiled
def store_bytes(at: int, size: int, target: int, valid: int, row: int) -> int:
    """Copy a key or a value, or mark the row as null (size -1). Returns the number of nulls: 0 or 1."""
    if size > 0:
        copy_bytes(target, at, size)
    elif size < 0:
        clear_bit(valid, row)
        return 1
    return 0


@compiled
def store_batch_columns(batch: int, first_row: int, row: int, out: int) -> None:
    """Fill the columns that have one value for the whole batch, and count the batch's rows."""
    for index in range(first_row, row):
        store_int32(get(out, O_PARTITIONS) + 4 * index, get(batch, B_PARTITION))
        store_int32(get(out, O_TIMESTAMP_TYPES) + 4 * index, get(batch, B_TIMESTAMP_TYPE))
    put(batch, B_ROWS, get(batch, B_ROWS) + row - first_row)


@compiled
def move_cursor(cursor: int, at: int, record: int, delta: int, row: int) -> None:
    put(cursor, C_AT, at)
    put(cursor, C_RECORD, record)
    put(cursor, C_DELTA, delta)
    put(cursor, C_ROWS, row)


@compiled
def count_bytes(cursor: int, key_bytes: int, value_bytes: int, key_nulls: int, value_nulls: int) -> None:
    put(cursor, C_KEY_BYTES, key_bytes)
    put(cursor, C_VALUE_BYTES, value_bytes)
    put(cursor, C_KEY_NULLS, key_nulls)
    put(cursor, C_VALUE_NULLS, value_nulls)


@compiled
def append_rows(batch: int, cursor: int, with_headers: int, max_rows: int, max_bytes: int, out: int) -> int:
    """Append one batch's rows, or those that fit. If malformed, only the cursor's header fields may have moved."""
    at, record, delta_before = get(cursor, C_AT), get(cursor, C_RECORD), get(cursor, C_DELTA)
    if at == 0:
        at, record, delta_before = get(batch, B_START), 0, -1
    first_row = row = get(cursor, C_ROWS)
    key_bytes, value_bytes = get(cursor, C_KEY_BYTES), get(cursor, C_VALUE_BYTES)
    key_nulls, value_nulls = get(cursor, C_KEY_NULLS), get(cursor, C_VALUE_NULLS)
    end, count, last_delta = get(batch, B_END), get(batch, B_COUNT), get(batch, B_LAST_DELTA)
    base_offset, base_timestamp = get(batch, B_BASE_OFFSET), get(batch, B_BASE_TIMESTAMP)
    append_micros, append_time = micros(get(batch, B_APPEND_TIMESTAMP)), get(batch, B_TIMESTAMP_TYPE)
    lo, hi = get(batch, B_LO), get(batch, B_HI)
    keys, key_ends, room_keys = get(out, O_KEYS), get(out, O_KEY_ENDS), get(out, O_ROOM_KEYS)
    values, value_ends, room_values = get(out, O_VALUES), get(out, O_VALUE_ENDS), get(out, O_ROOM_VALUES)
    status = DONE
    while record < count:
        parts = read_record(at, end)
        stop, timestamp_delta, delta, key_at, key_size, value_at, value_size, headers_at, headers = parts
        timestamp = base_timestamp + timestamp_delta
        overflown = (base_timestamp ^ timestamp) & (timestamp_delta ^ timestamp) < 0
        headers_end, header_key_bytes, header_value_bytes = measure_headers(headers_at, stop, headers)
        if stop == 0 or headers_end != stop or delta <= delta_before or delta > last_delta or overflown:
            return MALFORMED
        if lo <= base_offset + delta < hi:
            need_keys, need_values = key_bytes + max(key_size, 0), value_bytes + max(value_size, 0)
            need_bytes, grow = need_keys + need_values, need_keys > room_keys or need_values > room_values
            if with_headers:
                header_bytes, headers_grow = reserve_headers(headers, header_key_bytes, header_value_bytes, cursor, out)
                need_bytes, grow = need_bytes + header_bytes, grow or headers_grow
            if row >= max_rows or (row > 0 and need_bytes > max_bytes):
                status = ROWS_FULL
                break
            if grow:
                put(cursor, C_NEED_KEY_BYTES, need_keys)
                put(cursor, C_NEED_VALUE_BYTES, need_values)
                status = GROW
                break
            key_nulls += store_bytes(key_at, key_size, keys + key_bytes, get(out, O_KEY_VALID), row)
            value_nulls += store_bytes(value_at, value_size, values + value_bytes, get(out, O_VALUE_VALID), row)
            store_int64(get(out, O_OFFSETS) + 8 * row, base_offset + delta)
            store_int64(get(out, O_TIMESTAMPS) + 8 * row, append_micros if append_time else micros(timestamp))
            if with_headers:
                store_row_headers(headers_at, stop, headers, row, cursor, out)
            row, key_bytes, value_bytes = row + 1, need_keys, need_values
            store_int32(key_ends + 4 * row, key_bytes)
            store_int32(value_ends + 4 * row, value_bytes)
        at, delta_before, record = stop, delta, record + 1
    if status == DONE and at != end:
        return MALFORMED
    store_batch_columns(batch, first_row, row, out)
    move_cursor(cursor, at, record, delta_before, row)
    count_bytes(cursor, key_bytes, value_bytes, key_nulls, value_nulls)
    return status


@compiled
def decode_batch(batch: int, cursor: int, with_headers: int, max_rows: int, max_bytes: int, out: int) -> int:
    """Append one batch's rows, or those that fit. If it is malformed, the cursor stays as it was before the call."""
    rows_without_headers, headers = get(cursor, C_ROWS_WITHOUT_HEADERS), get(cursor, C_HEADERS)
    key_bytes, value_bytes = get(cursor, C_HEADER_KEY_BYTES), get(cursor, C_HEADER_VALUE_BYTES)
    value_nulls = get(cursor, C_HEADER_VALUE_NULLS)
    status = append_rows(batch, cursor, with_headers, max_rows, max_bytes, out)
    if status == MALFORMED:
        put(cursor, C_ROWS_WITHOUT_HEADERS, rows_without_headers)
        put(cursor, C_HEADERS, headers)
        put(cursor, C_HEADER_KEY_BYTES, key_bytes)
        put(cursor, C_HEADER_VALUE_BYTES, value_bytes)
        put(cursor, C_HEADER_VALUE_NULLS, value_nulls)
    return status


def decode(batches: int, count: int, cursor: int, with_headers: int, max_rows: int, max_bytes: int, out: int) -> int:
    """Append rows from the cursor on until the batches end (DONE), a limit or a column is full, or one is malformed."""
    while get(cursor, C_BATCH) < count:
        batch = batches + 8 * B_FIELDS * get(cursor, C_BATCH)
        status = decode_batch(batch, cursor, with_headers, max_rows, max_bytes, out)
        if status != DONE:
            return status
        put(cursor, C_BATCH, get(cursor, C_BATCH) + 1)
        put(cursor, C_AT, 0)
    return DONE


def to_llvm() -> tuple[str, str]:
    """`decode` as LLVM assembly for the C calling convention, and its name there."""
    compiler: Any = numba.cfunc(types.int64(*[types.int64] * 7), error_model="numpy")
    function = compiler(decode)
    return function.inspect_llvm(), function.native_name
