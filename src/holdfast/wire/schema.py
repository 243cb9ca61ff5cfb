"""Readers and writers of messages, built from kio's schemas.

kio knows every field of every version of every message. Its own reader is not for bytes of strangers: it reserves
memory for whatever count a frame claims (16 GiB for nine bytes, which ends the process), refuses tagged fields it does
not know, which Kafka's protocol says to skip (KIP-482), and refuses error codes newer than itself. So kio is our
schema and, in the tests, our oracle; reading and writing is done here, in one pass that checks as it goes.

A message is a named tuple with kio's field names, and plain values: numbers for error codes, milliseconds for times
(such fields end in `_ms`, as in Kafka's own schemas), `UUID | None` for ids, tuples for arrays.

A message to be written may also be a mapping, or any object with such attributes. What is missing takes the schema's
default; what this version does not have is left out, so that one value serves all versions. A name that *no* version
has is a mistake, and raises.

This module must not know what any message means.
"""

from __future__ import annotations

import importlib
import struct
import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import ModuleType, NoneType
from typing import Any, Literal, get_args

from holdfast.wire import primitives as p
from holdfast.wire.api import Api
from holdfast.wire.errors import MalformedFrame

Kind = Literal["request", "response"]

_UNREADABLE = (struct.error, IndexError, UnicodeDecodeError, MalformedFrame)
_TIMES = ("timedelta_i32", "timedelta_i64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of one version of a message."""

    name: str
    kind: str
    """A primitive type of kio's, or "struct"."""
    array: bool
    nullable: bool
    tag: int | None
    default: Any
    struct: Struct | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Struct:
    """A message, or a part of one that repeats, in one version."""

    name: str
    fields: tuple[Field, ...]
    type: Callable[..., Any]
    """The named tuple its values are."""
    least_bytes: int
    """No value of it takes fewer: bounds the counts of arrays."""
    read: p.Reader
    write: p.Writer


@cache
def message(api: Api, version: int, kind: Kind) -> Struct:
    """The schema of one version of one message. Loading the first takes about 0.1 s, others a few ms."""
    module = _import(f"kio.schema.{api.schema}.v{version}.{kind}")
    wanted = api.schema.replace("_", "") + kind
    root = next(found for name, found in vars(module).items() if name.lower() == wanted)
    return _compile(root, _Names(api, kind))


def _import(name: str) -> ModuleType:
    """Import a part of kio, keeping it from importing hypothesis.

    kio registers test strategies wherever hypothesis can be imported, which costs 0.4 s in a development environment
    and nothing in production. A broker must be ready sooner.
    """
    if "hypothesis" in sys.modules or "kio.static.primitive" in sys.modules:
        return importlib.import_module(name)
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # None is how an import is made to fail
    try:
        return importlib.import_module(name)
    finally:
        del sys.modules["hypothesis"]


# -- kio's dataclasses -> fields


@dataclass(frozen=True, slots=True)
class _Names:
    """Finds out whether a field's name exists in any version, for messages given as mappings."""

    api: Api
    kind: Kind

    def check(self, struct_name: str, unknown: frozenset[str]) -> None:
        for version in reversed(self.api.versions):
            unknown -= _names_in(self.api, version, self.kind)
            if not unknown:
                return
        raise ValueError(f"{struct_name} has no field {', '.join(sorted(unknown))} in any version")


@cache
def _names_in(api: Api, version: int, kind: Kind) -> frozenset[str]:
    def walk(part: Struct) -> set[str]:
        names = {field.name for field in part.fields}
        for field in part.fields:
            if field.struct is not None:
                names |= walk(field.struct)
        return names

    return frozenset(walk(message(api, version, kind)))


def _compile(entity: Any, names: _Names) -> Struct:
    found = tuple(_field(field, names) for field in fields(entity))
    kind = namedtuple(entity.__name__, [field.name for field in found])  # type: ignore[misc]  # fields come from kio
    flexible = bool(entity.__flexible__)
    plain = tuple(field for field in found if field.tag is None)
    return Struct(
        name=entity.__name__,
        fields=found,
        type=kind,
        least_bytes=sum(_least_bytes(field) for field in plain) + flexible,
        read=_struct_reader(entity.__name__, found, kind, flexible=flexible),
        write=_struct_writer(entity.__name__, found, kind, names, flexible=flexible),
    )


def _field(field: Any, names: _Names) -> Field:
    kind, array, nullable, inner = field.metadata.get("kafka_type", "struct"), False, False, field.type
    if NoneType in get_args(inner):
        nullable, inner = True, next(part for part in get_args(inner) if part is not NoneType)
    if getattr(inner, "__origin__", None) is tuple:
        array, inner = True, get_args(inner)[0]
    nested = _compile(inner, names) if is_dataclass(inner) else None
    default = _default(field.default, kind, array=array, nullable=nullable, nested=nested)
    name = f"{field.name}_ms" if kind in _TIMES else field.name
    tag = field.metadata.get("tag")
    return Field(name=name, kind=kind, array=array, nullable=nullable, tag=tag, default=default, struct=nested)


def _default(value: Any, kind: str, *, array: bool, nullable: bool, nested: Struct | None) -> Any:
    """The schema's default as a plain value; without one, Kafka's implicit default of the type."""
    if kind == "datetime_i64":
        return -1
    if array:
        return value if value is not MISSING else None if nullable else ()
    if value is MISSING:
        if nested is not None:
            return None if nullable else nested.type(*(field.default for field in nested.fields))
        if kind in p.FIXED:
            return False if kind == "bool" else 0
        return None if nullable or kind == "uuid" else "" if kind == "string" else b""
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if kind in p.FIXED and kind not in ("bool", "float64"):
        return int(value)
    if nested is not None and is_dataclass(value):
        return nested.type(*(getattr(value, field.name) for field in nested.fields))
    return value


def _least_bytes(field: Field) -> int:
    if field.array:
        return 1
    if field.struct is not None:
        return 1 if field.nullable else field.struct.least_bytes
    if field.kind == "uuid":
        return 16
    return p.FIXED[field.kind][1] if field.kind in p.FIXED else 1


# -- fields -> readers


_Step = Callable[[p.Source, int, list[Any]], int]


def _struct_reader(name: str, found: tuple[Field, ...], kind: Any, *, flexible: bool) -> p.Reader:
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
            raise MalformedFrame(f"{name}.{field} at byte {at}: {_said(error)}") from None
        return make(values), at

    return read


def _said(error: Exception) -> str:
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
    """A byte tells whether the struct is there (KIP-893)."""

    def read(source: p.Source, at: int) -> tuple[Any, int]:
        there = struct.unpack_from(">b", source.data, at)[0]
        return (None, at + 1) if there < 0 else part.read(source, at + 1)

    return read


# -- fields -> writers


def _struct_writer(name: str, found: tuple[Field, ...], kind: Any, names: _Names, *, flexible: bool) -> p.Writer:
    known = frozenset(field.name for field in found)
    plain = [(field.name, field.default, _writer(field, flexible=flexible)) for field in found if field.tag is None]
    tagged = sorted((field for field in found if field.tag is not None), key=lambda field: field.tag or 0)
    tags = [(field.tag, field.name, field.default, _writer(field, flexible=True)) for field in tagged]

    def write(out: bytearray, value: Any) -> None:
        if isinstance(value, Mapping) and not value.keys() <= known:
            names.check(name, frozenset(value.keys()) - known)
        get = _getter(value)
        field = ""
        try:
            for field, default, writer in plain:
                writer(out, get(field, default))
            if flexible:
                _write_tags(out, tags, get)
        except (struct.error, ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{name}.{field}: {error}") from error

    return write


def _getter(value: Any) -> Callable[[str, Any], Any]:
    if isinstance(value, Mapping):
        return value.get
    return lambda name, default: getattr(value, name, default)


def _write_tags(out: bytearray, tags: list[Any], get: Callable[[str, Any], Any]) -> None:
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
