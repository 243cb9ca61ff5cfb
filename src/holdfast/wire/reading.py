"""Readers of messages, built from their fields: one pass over untrusted bytes that checks as it goes.

Unreadable bytes raise MalformedFrame with message, field and position. Unknown tagged fields are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.wire import primitives as p
from holdfast.wire.errors import MalformedFrame
from holdfast.wire.fields import Field, Struct

_UNREADABLE = (struct.error, IndexError, UnicodeDecodeError, MalformedFrame)

_Step = Callable[[p.Source, int, list[Any]], int]


def struct_reader(name: str, found: tuple[Field, ...], kind: Any, *, flexible: bool) -> p.Reader:
    plain = [field for field in found if field.tag is None]
    in_order = plain + [field for field in found if field.tag is not None]
    steps = _steps(plain, flexible=flexible)
    tagged = {
        field.tag: (place, _reader(field, flexible=True))
        for place, field in enumerate(in_order)
        if field.tag is not None
    }
    defaults = [field.default for field in in_order[len(plain) :]]
    make = _maker(found, in_order, kind)

    def read(source: p.Source, at: int) -> tuple[Any, int]:
        values: list[Any] = []
        try:
            for step in steps:
                at = step(source, at, values)
            if flexible:
                values += defaults
                at = _read_tags(source, at, values, tagged)
        except _UNREADABLE as error:
            field = in_order[min(len(values), len(in_order) - 1)].name if in_order else "tags"
            raise MalformedFrame(f"{name}.{field} at byte {at}: {_reason(error)}") from None
        return make(values), at

    return read


def _reason(error: Exception) -> str:
    if isinstance(error, MalformedFrame):
        return error.what.rstrip(".")
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else "the bytes end too early"


def _maker(found: tuple[Field, ...], in_order: list[Field], kind: Any) -> Callable[[list[Any]], Any]:
    if list(found) == in_order:
        return lambda values: tuple.__new__(kind, values)
    places = [in_order.index(field) for field in found]
    return lambda values: tuple.__new__(kind, [values[place] for place in places])


def _steps(plain: list[Field], *, flexible: bool) -> list[_Step]:
    """Neighbouring fields of constant size are read in one go."""
    steps: list[_Step] = []
    layout = ""
    for field in plain:
        if field.kind in p.FIXED and not field.array:
            layout += p.FIXED[field.kind][0]
            continue
        if layout:
            steps.append(_fixed_step(layout))
            layout = ""
        steps.append(_single_step(_reader(field, flexible=flexible)))
    if layout:
        steps.append(_fixed_step(layout))
    return steps


def _fixed_step(layout: str) -> _Step:
    form = struct.Struct(">" + layout)
    unpack, size = form.unpack_from, form.size

    def step(source: p.Source, at: int, values: list[Any]) -> int:
        values += unpack(source.data, at)
        return at + size

    return step


def _single_step(reader: p.Reader) -> _Step:
    def step(source: p.Source, at: int, values: list[Any]) -> int:
        value, at = reader(source, at)
        values.append(value)
        return at

    return step


def _read_tags(source: p.Source, at: int, values: list[Any], tagged: Mapping[int, tuple[int, p.Reader]]) -> int:
    count, at = p.read_uvarint(source, at)
    if not count:
        return at
    source.take(count, at, 2)
    for _ in range(count):
        tag, at = p.read_uvarint(source, at)
        size, at = p.read_uvarint(source, at)
        end = at + size
        if end > source.end:
            raise MalformedFrame(f"tag {tag} of {size} bytes and {source.end - at} left")
        if tag in tagged:
            place, reader = tagged[tag]
            values[place], at = reader(source, at)
            if at != end:
                raise MalformedFrame(f"tag {tag} says {size} bytes and has {size + at - end}")
        at = end
    return at


def _reader(field: Field, *, flexible: bool) -> p.Reader:
    count = p.read_compact_length if flexible else p.read_int32_length
    if field.struct is not None:
        if field.array:
            return p.array_reader(count, field.struct.read, field.struct.least_bytes, nullable=field.nullable)
        return _nullable_struct_reader(field.struct) if field.nullable and field.tag is None else field.struct.read
    if field.array and field.kind in p.FIXED:
        return p.fixed_array_reader(count, field.kind, nullable=field.nullable)
    if field.array:
        least = 16 if field.kind == "uuid" else 1
        item = _primitive_reader(field.kind, flexible=flexible, nullable=False)
        return p.array_reader(count, item, least, nullable=field.nullable)
    return _primitive_reader(field.kind, flexible=flexible, nullable=field.nullable)


def _primitive_reader(kind: str, *, flexible: bool, nullable: bool) -> p.Reader:
    if kind in p.FIXED:
        return p.fixed_reader(kind)
    if kind == "uuid":
        return p.read_uuid
    if kind == "string":
        return p.string_reader(p.read_compact_length if flexible else p.read_int16_length, nullable=nullable)
    return p.bytes_reader(p.read_compact_length if flexible else p.read_int32_length, nullable=nullable)


def _nullable_struct_reader(part: Struct) -> p.Reader:
    """A byte says whether the struct is present (KIP-893)."""

    def read(source: p.Source, at: int) -> tuple[Any, int]:
        present = struct.unpack_from(">b", source.data, at)[0]
        return (None, at + 1) if present < 0 else part.read(source, at + 1)

    return read
