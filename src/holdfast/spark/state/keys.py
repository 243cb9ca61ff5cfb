"""Keys as numbers: a stable 64-bit hash by which state is sorted and found, and exact codes by which keys are compared.

The hash is written into files, so it must never change. Collisions are allowed, because the real keys are compared
afterwards. Everything is vectorised; no Python object is made for a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.model import HoldfastError

Hashes = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.int64]

BLOCK_BYTES = 1 << 18
"""Text is hashed in blocks of this size; the powers for one block are cached."""

_BASE = 0x9E3779B97F4A7C15
"""Must be odd, so that it has an inverse modulo 2**64."""
_MASK = (1 << 64) - 1
_NULL = np.uint64(0xA0761D6478BD642F)
_powers: dict[int, tuple[Hashes, Hashes]] = {}


def check_key_type(name: str, kind: pa.DataType) -> None:
    """Refuse types without a unique form: two floats or two maps may be equal and have different bytes."""
    types: Any = pa.types
    good: tuple[Any, ...] = (
        types.is_string,
        types.is_large_string,
        types.is_binary,
        types.is_large_binary,
        types.is_integer,
    )
    good += (types.is_boolean, types.is_date, types.is_timestamp, types.is_decimal)
    if not any(is_it(kind) for is_it in good):
        raise HoldfastError(
            "STATE_KEY_TYPE",
            f"The key column {name!r} is of type {kind}, by which rows can't be told apart reliably.",
            "Use texts, bytes, whole numbers, decimals, booleans, dates and timestamps as keys; cast it first.",
        )


def flat(column: Any) -> Any:
    """A column as one array, even if it is chunked."""
    if isinstance(column, pa.ChunkedArray):
        made: Any = column.combine_chunks()
        return pa.concat_arrays(made.chunks) if isinstance(made, pa.ChunkedArray) else made
    return column


def picked(rows: npt.NDArray[Any]) -> Any:
    """Row numbers, or a mask, as an Arrow array."""
    return pa.array(rows)


def hash_of(table: pa.Table, columns: Sequence[str]) -> Hashes:
    """One hash per row, over these columns."""
    found = np.zeros(table.num_rows, np.uint64)
    for name in columns:
        found = _mixed(found * np.uint64(31) + _hash_column(flat(table[name])))
    return found


def codes_of(columns: Sequence[Any], rows: int) -> Codes:
    """One number per row: equal exactly for equal values."""
    codes = np.zeros(rows, np.int64)
    for number, column in enumerate(columns):
        encoded: Any = flat(pc.dictionary_encode(flat(column), null_encoding="encode"))
        values = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if number:
            _, codes = np.unique(codes, return_inverse=True)
            codes = codes.astype(np.int64) * max(1, len(encoded.dictionary)) + values
        else:
            codes = values
    return codes


def _mixed(x: Hashes) -> Hashes:
    """Every bit of the input affects every bit of the result (the finaliser of splitmix64)."""
    x = x + np.uint64(_BASE)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _hash_column(column: Any) -> Hashes:
    types: Any = pa.types
    if types.is_decimal(column.type):
        column = column.cast(pa.string())
    if types.is_string(column.type) or types.is_binary(column.type):
        column = column.cast(pa.binary()).cast(pa.large_binary())
    elif types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    found = _hash_bytes(column) if types.is_large_binary(column.type) else _hash_numbers(column)
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return found


def _hash_numbers(column: Any) -> Hashes:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    whole = column.cast(pa.int64()).fill_null(0)
    return _mixed(np.asarray(whole.to_numpy(zero_copy_only=False), np.int64).view(np.uint64))


def _hash_bytes(column: Any) -> Hashes:
    """A polynomial over each text's bytes, from differences of running sums, without a loop over rows or bytes."""
    _, offset_buffer, data_buffer = column.buffers()
    count = len(column)
    marks = np.frombuffer(offset_buffer, np.int64)[column.offset : column.offset + count + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    found = np.empty(count, np.uint64)
    row = 0
    while row < count:
        last = max(row + 1, int(np.searchsorted(marks, marks[row] + BLOCK_BYTES, side="right")) - 1)
        found[row:last] = _hash_block(data[marks[row] : marks[last]], marks[row : last + 1] - marks[row])
        row = last
    return _mixed(found + (marks[1:] - marks[:-1]).astype(np.uint64))


def _hash_block(data: npt.NDArray[np.uint8], marks: npt.NDArray[np.int64]) -> Hashes:
    powers, inverses = _powers_up_to(len(data))
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum((data.astype(np.uint64) + np.uint64(1)) * powers[: len(data)], out=sums[1:])
    found: Hashes = (sums[marks[1:]] - sums[marks[:-1]]) * inverses[marks[:-1]]
    return found


def _powers_up_to(size: int) -> tuple[Hashes, Hashes]:
    """Powers of the base and of its inverse, modulo 2**64."""
    wanted = BLOCK_BYTES if size <= BLOCK_BYTES else size
    if wanted not in _powers:
        made = []
        for base in (_BASE, pow(_BASE, -1, _MASK + 1)):
            line = np.full(wanted + 1, np.uint64(base))
            line[0] = 1
            made.append(np.cumprod(line, dtype=np.uint64))
        if wanted > BLOCK_BYTES:
            return made[0], made[1]  # a single text this large is rare: not cached
        _powers[wanted] = (made[0], made[1])
    return _powers[wanted]
