"""Memory for Arrow batches, reused once the batch that was in it is gone.

A batch of 65,536 records takes about 9 MB. Fresh memory costs a page fault every 4 KB, 0.25 µs on bare metal and up to
10 µs on a busy virtual machine, which is more than decoding takes; and Arrow's own pool gives memory back to the system
after 10 ms. So the last few blocks are kept. A block is free once the view that was handed out has been collected:
every array of the batch keeps the view alive.

It must not know what the memory is for.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pyarrow as pa

ALIGNMENT_BYTES = 64
"""What Arrow recommends for every buffer: a cache line, and the widest vector."""
_SMALL_BYTES = 256 * 1024
"""Below this Arrow's pool is as good, and a kept batch of a few rows must not hold a large block."""
_KEPT = 4
"""One being filled, one being read, and two for a reader that keeps earlier batches. More would rarely be used."""


class Slabs:
    """Hands out buffers, and keeps the last few blocks behind them."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Any, weakref.ref[Any]]] = []

    @property
    def kept_bytes(self) -> int:
        """How much memory it holds, in use or not."""
        return sum(block.size for block, _ in self._blocks)

    def take(self, size: int) -> pa.Buffer:
        """A writable buffer of at least `size` bytes, its content undefined, aligned as Arrow recommends."""
        if size < _SMALL_BYTES:
            return pa.allocate_buffer(size)
        block = self._free_block(size + ALIGNMENT_BYTES)
        view = block[:]
        self._blocks.append((block, weakref.ref(view)))
        del self._blocks[:-_KEPT]
        buffer = pa.py_buffer(view)
        return buffer.slice(-buffer.address % ALIGNMENT_BYTES)

    def _free_block(self, size: int) -> Any:
        """A block at most twice as large as needed. It leaves the list; `take` adds it again as the newest."""
        for index, (block, user) in enumerate(self._blocks):
            if user() is None and size <= block.size <= 2 * size:
                del self._blocks[index]
                return block
        return np.empty(size + size // 4, np.uint8)  # the next batch may be a little larger
