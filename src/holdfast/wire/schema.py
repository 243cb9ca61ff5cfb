"""Readers and writers of messages, built from kio's schemas.

kio knows every field of every version of every message. Its own reader is not safe with untrusted bytes: it reserves
memory for whatever count a frame claims (16 GiB for nine bytes, which ends the process). It also refuses unknown tagged
fields, which Kafka's protocol says to skip (KIP-482), and error codes newer than itself. So kio gives us the schemas
and, in the tests, something to compare with; we read and write ourselves, in one pass that checks as it goes.

A message is a named tuple with kio's field names, and plain values: numbers for error codes, milliseconds for times
(such fields end in `_ms`, as in Kafka's own schemas), `UUID | None` for ids, tuples for arrays.

A message to be written may also be a mapping, or any object with such attributes. A missing field takes the schema's
default; a field that this version does not have is left out, so that one value serves all versions. A name that *no*
version has is a mistake, and raises.

This module must not know what any message means.
"""

from __future__ import annotations

import importlib
import sys
from collections import namedtuple
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import ModuleType, NoneType
from typing import Any, Literal, get_args

from holdfast.wire import primitives as p
from holdfast.wire.api import Api
from holdfast.wire.fields import Field, Struct
from holdfast.wire.reading import struct_reader
from holdfast.wire.writing import struct_writer

Kind = Literal["request", "response"]

_TIMES = ("timedelta_i32", "timedelta_i64")


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
    and nothing in production. A broker must be ready sooner. Another thread that imports hypothesis in these few
    milliseconds would not find it; a test that uses it has imported it long before.
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
    """Checks that a field's name exists in some version, for messages given as mappings."""

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
        read=struct_reader(entity.__name__, found, kind, flexible=flexible),
        write=struct_writer(entity.__name__, found, names.check, flexible=flexible),
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
