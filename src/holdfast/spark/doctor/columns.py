"""Arrow schemas of the doctor's tables, made from Spark's (`holdfast.doctor.tables.COLUMNS`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa

from holdfast.doctor.tables import COLUMNS

_PLAIN: dict[str, pa.DataType] = {
    "STRING": pa.string(), "DOUBLE": pa.float64(), "INT": pa.int32(), "BOOLEAN": pa.bool_(),
}  # fmt: skip


@cache
def arrow_schema_of(table: str) -> pa.Schema:
    fields: list[pa.Field[Any]] = [_field(part) for part in _parts(COLUMNS[table])]
    return pa.schema(fields)


def _field(text: str) -> pa.Field[Any]:
    name, _, kind = text.partition(" ")
    return pa.field(name, _kind(kind))


def _kind(text: str) -> pa.DataType:
    if text in _PLAIN:
        return _PLAIN[text]
    outer, _, inner = text.removesuffix(">").partition("<")
    if outer == "ARRAY":
        return pa.list_(_kind(inner))
    if outer == "MAP":
        key, value = _parts(inner)
        return pa.map_(_kind(key), _kind(value))
    if outer == "STRUCT":
        return pa.struct([_field(part) for part in _parts(inner)])
    raise ValueError(f"no table of ours has a column of the type {text}")


def _parts(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            yield text[start:place].strip()
            start = place + 1
    yield text[start:].strip()
