"""A fast check of a whole batch: the compiled kernel goes through its records without writing any row.

Before the kernel writes a row it checks what `walk` checks. Asked for an empty range of offsets it writes none. That is
about fifty times as fast as `walk`, and does not hold the GIL. It says yes or no, and not why: after a no, `walk`
decides.
"""

from __future__ import annotations

import ctypes

from holdfast.records import layout as k
from holdfast.records.compression import ByteView
from holdfast.records.native import Decode

_BATCH, _CURSOR, _OUT = (ctypes.c_int64 * fields for fields in (k.B_FIELDS, k.C_FIELDS, k.O_FIELDS))


def is_sound(decode: Decode, count: int, base_timestamp: int, data: ByteView) -> bool:
    """Whether `data` holds exactly `count` records, each as long as it says, with offset deltas 0 to `count` - 1
    and a time of 64 bits.

    The kernel only requires deltas that rise and are at most `count` - 1; for `count` records that means 0 to
    `count` - 1.
    """
    if not data:
        return count == 0
    if memoryview(data).readonly:
        data = bytearray(data)  # ctypes gives the address of writable buffers only
    held = ctypes.c_char.from_buffer(data)
    start = ctypes.addressof(held)
    batch, cursor, out = _BATCH(), _CURSOR(), _OUT()
    batch[k.B_START], batch[k.B_END] = start, start + len(data)
    batch[k.B_COUNT], batch[k.B_LAST_DELTA] = count, count - 1
    batch[k.B_BASE_TIMESTAMP] = base_timestamp
    ended = decode(ctypes.addressof(batch), 1, ctypes.addressof(cursor), 0, 0, 0, ctypes.addressof(out))
    return ended == k.DONE
