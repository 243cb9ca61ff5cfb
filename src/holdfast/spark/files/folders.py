"""Folders by value, as Hive names them (`country=de/day=2026-01-02`): which rows go where, and which files a filter
skips.

A file's folder holds the values of these columns, so the ledger does not need them. The columns are also in the files,
because a reader that is given a list of files does not look at their folders. Files without such folders may be in the
same sink; they are always read.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from holdfast.model import HoldfastError

if TYPE_CHECKING:
    import pyarrow as pa

NULL = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name for null and for an empty string."""

TYPES = frozenset({"string", "byte", "short", "integer", "long", "boolean", "date"})
"""Types that a folder's name can hold without loss, under Spark's names."""

MAX_FOLDERS = 1_000
"""Folders that one task may write into: each adds a file and a line of the ledger with every batch."""

ESCAPED = frozenset("\"#%'*/:=?\\{}[]^\x7f")
"""Characters that Hive and Spark escape in a folder's name, besides control characters. Non-ASCII letters stay."""

LONGEST_NAME_BYTES = 255
"""File systems' limit for one folder's name."""

ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}
"""By PySpark's names."""

Value = str | int | bool | date | None


def parse_partition_by(text: str | None) -> tuple[str, ...]:
    """The option `partitionBy`: names separated by commas, or as a JSON list."""
    if not text:
        return ()
    try:
        names = json.loads(text) if text.lstrip().startswith("[") else text.split(",")
        found = tuple(str(name).strip() for name in names)
    except ValueError:
        found = ("",)
    if not all(found) or len(set(found)) != len(found):
        raise HoldfastError(
            "INVALID_OPTION", f"option partitionBy is {text!r}.", "Name columns, each once: day,country."
        )
    return found


def check_partition_by(names: Sequence[str], types: Mapping[str, str]) -> None:
    """`types` maps the rows' columns to Spark's type names."""
    for name in names:
        if name not in types:
            raise HoldfastError(
                "INVALID_OPTION",
                f"partitionBy names {name!r}, and the rows have {', '.join(sorted(types))}.",
                "Name a column of the rows.",
            )
        if types[name] not in TYPES:
            raise HoldfastError(
                "INVALID_OPTION",
                f"partitionBy names {name!r}, which is of type {types[name]}.",
                f"A folder's name can be {', '.join(sorted(TYPES))}: cast it, for instance to_date(timestamp) as day.",
            )


def folder_name(values: Mapping[str, Value]) -> str:
    """`country=de/day=2026-01-02`; empty for no values."""
    names = [f"{_escaped(name)}={_text(value)}" for name, value in values.items()]
    for name in names:
        if len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME_BYTES:
            raise HoldfastError(
                "SINK_FOLDER_TOO_LONG",
                f"A row belongs into a folder whose name has more than {LONGEST_NAME_BYTES} bytes: {name[:60]}…",
                "Choose columns with short values for partitionBy, a day or a country.",
            )
    return "/".join(names)


def values_of(file_name: str) -> dict[str, str | None]:
    """The values in the names of a file's folders, as strings; None for null."""
    parts = [part.partition("=") for part in file_name.split("/")[:-1] if "=" in part]
    return {unquote(name): None if value == NULL else unquote(value) for name, _, value in parts}


def split_by_values(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows by the folder they belong to, in the order of the folders."""
    import pyarrow.compute as pc

    if not names:
        yield "", rows
        return
    folders = _folders(rows, names)
    found = sorted(folders.unique().to_pylist())
    equal: Any = pc.equal  # its stubs allow no plain values
    for folder in found:
        yield folder, rows if len(found) == 1 else rows.filter(equal(folders, folder))


def _folders(rows: pa.RecordBatch, names: Sequence[str]) -> Any:
    """Every row's folder, as an array of strings. A name is made once for each distinct value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: list[Any] = []
    for name in names:
        packed: Any = rows.column(name).dictionary_encode(null_encoding="encode")
        named = pa.array([folder_name({name: value}) for value in _plain(packed.dictionary)], pa.string())
        parts.append(named.take(packed.indices))
    join: Any = pc.binary_join_element_wise
    return join(*parts, "/") if len(parts) > 1 else parts[0]


def _plain(values: Any) -> list[Value]:
    """As Python's values; dates as texts, because Python's end with the year 9999."""
    import numpy as np
    import pyarrow as pa

    if not pa.types.is_date32(values.type):
        found: list[Value] = values.to_pylist()
        return found
    days = values.cast(pa.int32()).to_pylist()
    return [None if day is None else str(np.datetime64(day, "D")) for day in days]


def may_hold(file_name: str, filters: Sequence[Any], types: Mapping[str, str]) -> bool:
    """False if, by its folders, no row in the file passes all of PySpark's `filters`. True if in doubt."""
    said = values_of(file_name)
    return not any(_excludes(one, said, types) for one in filters) if said else True


def _excludes(one: Any, said: Mapping[str, str | None], types: Mapping[str, str]) -> bool:
    kind, path = type(one).__name__, list(getattr(one, "attribute", ()))
    name = path[0] if len(path) == 1 else ""
    if name not in said or name not in types:
        return False
    try:
        value = _value(said[name], types[name])
    except ValueError:  # the reader asked for another type than the writer's
        return False
    if value is None:  # null or an empty string: nothing is certain, but that a null equals nothing
        return kind in ("EqualTo", "In") and types[name] != "string"
    if kind == "IsNull":
        return True
    wanted = getattr(one, "value", None)
    if kind == "In":
        return all(_differs(value, each) for each in wanted or ())
    if kind in ("EqualTo", "EqualNullSafe"):
        return _differs(value, wanted)
    if kind not in ORDERS or type(value) is not type(wanted) or isinstance(value, str | bool):
        return False  # Spark orders strings by bytes; not worth the risk
    return not ORDERS[kind](value, wanted)


def _differs(value: Value, wanted: object) -> bool:
    return type(value) is type(wanted) and value != wanted


def _value(text: str | None, kind: str) -> Value:
    if text is None:
        return None
    if kind in ("byte", "short", "integer", "long"):
        return int(text)
    if kind == "boolean":
        return text == "true"
    return date.fromisoformat(text) if kind == "date" else text


def _text(value: Value) -> str:
    if value is None or value == "":
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return _escaped(value.isoformat() if isinstance(value, date) else str(value))


def _escaped(text: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in ESCAPED or c < " " else c for c in text)
