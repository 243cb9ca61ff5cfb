"""kio as a second opinion: the same values through its own reader and writer."""

from __future__ import annotations

import importlib
import io
import random
import string
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args
from uuid import UUID

from holdfast.wire.api import Api
from holdfast.wire.schema import Field, Kind, Struct, message

if TYPE_CHECKING:
    from kio.static.protocol import Entity

_BOUNDS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "error_code": (-1, 100),
    "timedelta_i32": (-(2**31), 2**31 - 1),
    "timedelta_i64": (0, 10**12),
}


def kio_type(api: Api, version: int, kind: Kind) -> Any:
    """kio's class; which of its 500 modules it is in is known only now."""
    module = importlib.import_module(f"kio.schema.{api.schema}.v{version}.{kind}")
    return getattr(module, message(api, version, kind).name)


def arbitrary(part: Struct, random_: random.Random, *, depth: int = 0) -> Any:
    """A random value of a message, small enough to print."""
    return part.type(*(_arbitrary(field, random_, depth) for field in part.fields))


def _arbitrary(field: Field, random_: random.Random, depth: int) -> Any:
    if field.tag is not None and random_.random() < 0.5:
        return field.default
    if field.array:
        if field.nullable and random_.random() < 0.2:
            return None
        return tuple(_single(field, random_, depth + 1) for _ in range(random_.randrange(0, 4 - min(depth, 2))))
    # kio can't write a null inside a tag
    if field.nullable and field.tag is None and field.kind not in ("uuid", "datetime_i64") and random_.random() < 0.3:
        return None
    return _single(field, random_, depth)


def _single(field: Field, random_: random.Random, depth: int) -> Any:
    if field.struct is not None:
        return arbitrary(field.struct, random_, depth=depth)
    match field.kind:
        case "bool":
            return random_.random() < 0.5
        case "float64":
            return random_.random()
        case "datetime_i64":
            return random_.choice([-1, 1_700_000_000_000])
        case "uuid":
            return None if random_.random() < 0.2 and not field.array else UUID(int=random_.getrandbits(128) | 1)
        case "string":
            return "".join(random_.choices(string.ascii_letters + "äß→😀", k=random_.choice([0, 1, 5, 150])))
        case "bytes" | "records":
            return random_.randbytes(random_.choice([0, 1, 9, 300]))
        case kind:
            low, high = _BOUNDS[kind]
            return random_.choice([low, high, random_.randint(low, high), random_.randint(0, 20)])


def to_kio(entity: type, part: Struct, value: Any) -> Any:
    """The same message as kio's own entity."""
    import dataclasses

    converted = {}
    for theirs, ours in zip(dataclasses.fields(entity), part.fields, strict=True):
        inner: Any = theirs.type
        if NoneType in get_args(inner):
            inner = next(arm for arm in get_args(inner) if arm is not NoneType)
        if ours.array:
            inner = get_args(inner)[0]
        got = getattr(value, ours.name)
        if ours.array:
            converted[theirs.name] = None if got is None else tuple(_to_kio(inner, ours, item) for item in got)
        else:
            converted[theirs.name] = _to_kio(inner, ours, got)
    return entity(**converted)


def _to_kio(inner: Any, field: Field, value: Any) -> Any:
    from kio.schema.errors import ErrorCode

    if field.struct is not None:
        return None if value is None else to_kio(inner, field.struct, value)
    match field.kind:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else datetime.fromtimestamp(value / 1000, tz=UTC)
        case _:
            return value


def kio_bytes(entity: Any) -> bytes:
    from kio.serial import entity_writer

    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def kio_read(entity: type[Entity], data: bytes) -> Any:
    from kio.serial import entity_reader

    value, _ = entity_reader(entity)(data, 0)
    return value
