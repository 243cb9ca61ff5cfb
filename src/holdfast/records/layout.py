"""What `arrow` and the compiled `kernel` tell each other: arrays of int64, and which entry means what.

Numbers only, so that reading Arrow batches does not need numba once the kernel's machine code is there.
"""

from __future__ import annotations

# What a call of the kernel returns.
DONE, ROWS_FULL, GROW, MALFORMED = range(4)

# A Kafka batch, one row each: where its unpacked records lie, and what its header says.
(
    B_START,
    B_END,
    B_COUNT,
    B_BASE_OFFSET,
    B_LAST_DELTA,
    B_BASE_TIMESTAMP,
    B_APPEND_TIMESTAMP,
    B_TIMESTAMP_TYPE,
    B_PARTITION,
    B_LO,
    B_HI,
    B_ROWS,  # written by the kernel: how many rows it took from this batch
    B_FIELDS,
) = range(13)

# The cursor: where the next record is read, and how far each output is filled.
(
    C_BATCH,
    C_AT,  # address of the next record; 0: at the batch's beginning
    C_RECORD,
    C_DELTA,  # the last offset delta seen
    C_ROWS,
    C_KEY_BYTES,
    C_VALUE_BYTES,
    C_KEY_NULLS,
    C_VALUE_NULLS,
    C_ROWS_WITHOUT_HEADERS,
    C_HEADERS,
    C_HEADER_KEY_BYTES,
    C_HEADER_VALUE_BYTES,
    C_HEADER_VALUE_NULLS,
    C_HEADER_KEYS_NOT_ASCII,
    C_NEED_KEY_BYTES,  # with GROW: what the next record needs
    C_NEED_VALUE_BYTES,
    C_NEED_HEADERS,
    C_NEED_HEADER_KEY_BYTES,
    C_NEED_HEADER_VALUE_BYTES,
    C_FIELDS,
) = range(21)

# The output: addresses of Arrow's buffers, and how much those that hold bytes or headers have room for. `ENDS` are
# int32, a 0 and then where each row's bytes end; `VALID` are bitmaps, all bits set at first.
(
    O_OFFSETS,
    O_TIMESTAMPS,
    O_PARTITIONS,
    O_TIMESTAMP_TYPES,
    O_KEY_ENDS,
    O_KEYS,
    O_KEY_VALID,
    O_VALUE_ENDS,
    O_VALUES,
    O_VALUE_VALID,
    O_HEADER_ENDS,
    O_HEADER_VALID,
    O_HEADER_KEY_ENDS,
    O_HEADER_KEYS,
    O_HEADER_VALUE_ENDS,
    O_HEADER_VALUES,
    O_HEADER_VALUE_VALID,
    O_ROOM_KEYS,
    O_ROOM_VALUES,
    O_ROOM_HEADERS,
    O_ROOM_HEADER_KEYS,
    O_ROOM_HEADER_VALUES,
    O_FIELDS,
) = range(23)
