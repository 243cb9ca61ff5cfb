"""Memory by address, for functions that numba compiles: the building blocks of `kernel`.

Nothing here knows what lies where, or checks it: the caller has compared every address with the end of its buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_F = TypeVar("_F", bound=Callable[..., Any])


def compiled(function: _F) -> _F:
    """How every function of the kernel is compiled: without bounds checks, and without the GIL."""
    compiler: Any = numba.njit(nogil=True, boundscheck=False, error_model="numpy")
    made: _F = compiler(function)
    return made


def _load(width: int) -> Any:
    """A number of `width` bits at an address: a byte unsigned, else signed."""

    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            number = builder.load(builder.inttoptr(arguments[0], ir.IntType(width).as_pointer()), align=1)
            return number if width == 64 else builder.zext(number, ir.IntType(64))

        return types.int64(types.int64), generate

    return intrinsic(load)


def _store(width: int) -> Any:
    """The low `width` bits of a number to an address."""

    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            number = arguments[1] if width == 64 else builder.trunc(arguments[1], ir.IntType(width))
            builder.store(number, builder.inttoptr(arguments[0], ir.IntType(width).as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return intrinsic(store)


def _copy() -> Any:
    """memcpy: target, source, size."""

    def copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointers = [builder.inttoptr(address, ir.IntType(8).as_pointer()) for address in arguments[:2]]
            memcpy: Any = cgutils.raw_memcpy
            memcpy(builder, *pointers, arguments[2], 1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    return intrinsic(copy)


load_byte, load_int64 = _load(8), _load(64)
store_byte, store_int32, store_int64 = _store(8), _store(32), _store(64)
copy_bytes = _copy()


@compiled
def get(array: int, field: int) -> int:
    return load_int64(array + 8 * field)  # type: ignore[no-any-return]  # an intrinsic has no type


@compiled
def put(array: int, field: int, value: int) -> None:
    store_int64(array + 8 * field, value)


@compiled
def clear_bit(bitmap: int, row: int) -> None:
    """Mark a row as null."""
    at = bitmap + (row >> 3)
    store_byte(at, load_byte(at) & ~(1 << (row & 7)))
