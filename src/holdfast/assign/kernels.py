"""Hot loops that run as plain Python for small groups and compiled for large ones: the very same functions.

A group of a few members must not wait a second for a compiler to load, and a group of two thousand must not wait
minutes for an interpreter. So every hot loop of `holdfast.assign` is a plain function over flat arrays, wrapped in a
`Kernel`; each call states its work, and above `COMPILE_ABOVE` the function is compiled with numba, cached on disk.

Rules for such a function: it takes arrays, bytes and numbers only, calls nothing of ours, treats a column as a list of
numbers, and reads big-endian bytes by shifting (on `bytes`, Python and numba agree on that). Nothing here imports numba
before it is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

COMPILE_ABOVE = 1_000_000
"""Elementary steps. Interpreted, one takes a fifth of a microsecond: 0.2 s together, less than numba needs to load."""

COMPILE_ABOVE_ONCE_LOADED = 50_000
"""Once a process has paid for numba, every kernel of 10 ms or more is worth it: loading a cached one takes 30."""


class Kernel:
    """One hot loop: interpreted below `COMPILE_ABOVE` steps, compiled above."""

    __slots__ = ("_compiled", "_function")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any, work: int) -> Any:
        """Run it. `work` is the number of elementary steps that the caller expects."""
        if work <= (COMPILE_ABOVE_ONCE_LOADED if "numba" in sys.modules else COMPILE_ABOVE):
            return self._interpreted(arguments)
        if self._compiled is None:
            self._compiled = _compile(self._function)
        raw = (bytes, bytearray)
        return self._compiled(*(np.frombuffer(a, np.uint8) if isinstance(a, raw) else a for a in arguments))

    def _interpreted(self, arguments: tuple[Any, ...]) -> Any:
        """Columns go in as lists, which Python reads four times as fast as arrays, and what was written comes back."""
        flat = [isinstance(a, np.ndarray) and a.ndim == 1 for a in arguments]
        given = [a.tolist() if listed else a for a, listed in zip(arguments, flat, strict=True)]
        result = self._function(*given)
        for array, after, listed in zip(arguments, given, flat, strict=True):
            if listed:
                array[:] = after
        return result


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled, and kept on disk where there is a place to write; in a read-only home each process compiles anew."""
    import numba

    try:
        compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        compiled = numba.njit(nogil=True)(function)
    return compiled
