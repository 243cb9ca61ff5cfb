"""Writers of messages, built from their fields.

A message may be a mapping, or any object with attributes. A missing field takes the schema's default; a field that this
version does not have is left out. A value that does not fit raises ValueError with message and field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from holdfast.wire import primitives as p
from holdfast.wire.fields import Field, Struct

Check = Callable[[str, frozenset[str]], None]
_Get = Callable[[str, Any], Any]
_Step = Callable[[bytearray, _Get], None]


def struct_writer(name: str, found: tuple[Field, ...], check: Check, *, flexible: bool) -> p.Writer:
    """`check` is called with names in a mapping that this version does not have."""
    known = frozenset(field.name for field in found)
    steps = _steps([field for field in found if field.tag is None], flexible=flexible)
    tags = _tag_writers(found)

    def write(out: bytearray, value: Any) -> None:
        get: _Get
        if type(value) is dict or isinstance(value, Mapping):  # checking for Mapping alone takes a third longer
            if not value.keys() <= known:
                check(name, frozenset(value.keys()) - known)
            get = value.get
        else:
            get = partial(_attribute, value)
        at = 0
        try:
            for _, step in steps:
                step(out, get)
                at += 1
            if flexible:
                _write_tags(out, tags, get)
        except (struct.error, ValueError, TypeError, AttributeError) as error:
            fields = steps[at][0] if at < len(steps) else "tags"
            raise ValueError(f"{name}.{fields}: {error}") from error

    return write


LONG_ANSWER_ITEMS = 4
"""An answer whose arrays have at most this many items is written in one go."""

LONG_ITEM_ITEMS = 1_000
"""An item with at most this many items inside it is written in one go: about a millisecond."""


def is_long(body: Mapping[str, Any]) -> bool:
    """Whether an answer should be written in steps: it has many items, or a large one, such as one topic with all its
    partitions."""
    return (
        any(len(value) > LONG_ANSWER_ITEMS for value in body.values() if isinstance(value, list | tuple))
        or _room_left(body, LONG_ITEM_ITEMS) < 0
    )


def _room_left(value: Mapping[str, Any], room: int) -> int:
    """`room` minus the number of items within. Stops counting below 0."""
    for content in value.values():
        if isinstance(content, list | tuple):
            room -= len(content)
            for item in content:
                if room < 0:
                    return room
                if isinstance(item, Mapping):
                    room = _room_left(item, room)
    return room


def write_in_steps(part: Struct, out: bytearray, value: Mapping[str, Any], *, flexible: bool) -> Iterator[None]:
    """The same bytes as `part.write`, pausing after every item of the message's own arrays, and within large items.

    It writes field by field, which is slower, so it is for long answers only.
    """
    plain = [field for field in part.fields if field.tag is None]
    for field in plain:
        content = value.get(field.name, field.default)
        if field.array and field.struct is not None and content is not None:
            (p.write_compact_length if flexible else p.write_int32_length)(out, len(content))
            for item in content:
                if isinstance(item, Mapping) and _room_left(item, LONG_ITEM_ITEMS) < 0:
                    yield from write_in_steps(field.struct, out, item, flexible=flexible)
                else:
                    field.struct.write(out, item)
                yield
        else:
            _writer(field, flexible=flexible)(out, content)
    if flexible:
        _write_tags(out, _tag_writers(part.fields), value.get)


def _steps(plain: list[Field], *, flexible: bool) -> list[tuple[str, _Step]]:
    """Neighbouring fields of constant size are written in one go."""
    steps: list[tuple[str, _Step]] = []
    run: list[Field] = []
    for field in plain:
        if field.kind in p.FIXED and not field.array:
            run.append(field)
            continue
        if run:
            steps.append(_fixed_step(run))
            run = []
        steps.append((field.name, _single_step(field, _writer(field, flexible=flexible))))
    if run:
        steps.append(_fixed_step(run))
    return steps


def _fixed_step(run: list[Field]) -> tuple[str, _Step]:
    pack = struct.Struct(">" + "".join(p.FIXED[field.kind][0] for field in run)).pack
    wanted = [(field.name, field.default) for field in run]

    def step(out: bytearray, get: _Get) -> None:
        out += pack(*[get(name, default) for name, default in wanted])

    return "/".join(field.name for field in run), step


def _single_step(field: Field, writer: p.Writer) -> _Step:
    name, default = field.name, field.default

    def step(out: bytearray, get: _Get) -> None:
        writer(out, get(name, default))

    return step


def _attribute(value: Any, name: str, default: Any) -> Any:
    return getattr(value, name, default)


def _tag_writers(found: tuple[Field, ...]) -> list[tuple[int, str, Any, p.Writer]]:
    """Of each tagged field, in their order: tag, name, default and writer."""
    tagged = sorted((field.tag, field) for field in found if field.tag is not None)
    return [(tag, field.name, field.default, _writer(field, flexible=True)) for tag, field in tagged]


def _write_tags(out: bytearray, tags: list[tuple[int, str, Any, p.Writer]], get: _Get) -> None:
    present = [(tag, value, writer) for tag, name, default, writer in tags if (value := get(name, default)) != default]
    p.write_uvarint(out, len(present))
    for tag, value, writer in present:
        content = bytearray()
        writer(content, value)
        p.write_uvarint(out, tag)
        p.write_uvarint(out, len(content))
        out += content


def _writer(field: Field, *, flexible: bool) -> p.Writer:
    count = p.write_compact_length if flexible else p.write_int32_length
    if field.struct is not None:
        if field.array:
            return p.array_writer(count, field.struct.write, nullable=field.nullable)
        return _nullable_struct_writer(field.struct) if field.nullable and field.tag is None else field.struct.write
    if field.array and field.kind in p.FIXED:
        return p.fixed_array_writer(count, field.kind, nullable=field.nullable)
    if field.array:
        item = _primitive_writer(field.kind, flexible=flexible, nullable=False)
        return p.array_writer(count, item, nullable=field.nullable)
    return _primitive_writer(field.kind, flexible=flexible, nullable=field.nullable)


def _primitive_writer(kind: str, *, flexible: bool, nullable: bool) -> p.Writer:
    if kind in p.FIXED:
        return p.fixed_writer(kind)
    if kind == "uuid":
        return p.write_uuid
    legacy = p.write_int16_length if kind == "string" else p.write_int32_length
    return p.blob_writer(p.write_compact_length if flexible else legacy, nullable=nullable)


def _nullable_struct_writer(part: Struct) -> p.Writer:
    def write(out: bytearray, value: Any) -> None:
        out.append(0xFF if value is None else 1)
        if value is not None:
            part.write(out, value)

    return write
