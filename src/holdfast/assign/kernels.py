"""Hot loops that run as plain Python for small groups and compiled for large ones: the very same functions.

A group of a few members must not wait a second for a compiler to load, and a group of two thousand must not wait
minutes for an interpreter. So every hot loop of `holdfast.assign` is a plain function over flat arrays, wrapped in a
`Kernel`; each call states its work, and above `COMPILE_ABOVE` the function is compiled with numba, cached on disk.

Rules for such a function: it takes arrays, bytes and numbers only, calls nothing of ours, treats a column as a list of
numbers, and reads big-endian bytes by shifting (on `bytes`, Python and numba agree on that). Nothing here imports numba
before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

COMPILE_ABOVE = 1_000_000
"""Elementary steps. Interpreted, one takes a fifth of a microsecond: 0.2 s together, less than numba needs to load."""

COMPILE_TOO_ABOVE = 50_000
"""Once a process has compiled one of our kernels it leads a large group, and the others of 10 ms or more follow."""


class Kernel:
    """One hot loop: interpreted below `COMPILE_ABOVE` steps, compiled above."""

    __slots__ = ("_compiled", "_function")

    limit = COMPILE_ABOVE
    """The same for all kernels; lowered when the first of them is compiled."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._compiled: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        return self._function.__name__

    @property
    def compiled(self) -> bool:
        return self._compiled is not None

    def __call__(self, *arguments: Any, work: int) -> Any:
        """Run it. `work` is the number of elementary steps that the caller expects."""
        if work <= Kernel.limit:
            return self._interpreted(arguments)
        if self._compiled is None:
            self._compiled = _compile(self._function)
            Kernel.limit = min(Kernel.limit, COMPILE_TOO_ABOVE)
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


@contextmanager
def compiling() -> Iterator[None]:
    """Within it everything is compiled, however small: to fill numba's cache ahead of time, and to test."""
    before = Kernel.limit
    Kernel.limit = -1
    try:
        yield
    finally:
        Kernel.limit = before


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled, and cached on disk if that is possible; in a read-only home each process compiles again."""
    import numba

    try:
        compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        compiled = numba.njit(nogil=True)(function)
    return compiled
