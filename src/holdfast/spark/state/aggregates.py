"""Aggregates that can be merged in any order: their stored parts, how two parts are merged, and the result. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.model import HoldfastError
from holdfast.spark.state.keys import flat

KINDS = ("count", "sum", "min", "max", "avg")
Asked = Mapping[str, "str | tuple[str, str]"]
"""Name of the result -> "count", or (kind, column)."""

LARGEST = 2.0**63 - 2.0**40
"""An integer sum beyond this may not fit into 64 bits. Less than 2**63, because the check uses inexact floats."""
DIGITS = 38
"""Of a decimal sum."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    name: str
    kind: str
    column: str | None

    @property
    def parts(self) -> tuple[str, ...]:
        return (f"{self.name}__sum", f"{self.name}__count") if self.kind == "avg" else (self.name,)

    @property
    def merges(self) -> tuple[str, ...]:
        """The Arrow aggregation that merges each part."""
        return {"count": ("sum",), "avg": ("sum", "sum")}.get(self.kind, (self.kind,))

    def types(self, given: pa.Schema) -> tuple[pa.DataType, ...]:
        if self.kind == "count":
            return (pa.int64(),)
        kind: Any = given.field(str(self.column)).type
        if self.kind == "sum":
            return (_sum_type(str(self.column), kind),)
        good = _is_number(kind) or pa.types.is_boolean(kind) if self.kind == "avg" else not pa.types.is_nested(kind)
        if not good:
            raise _not_for(str(self.column), kind, self.kind)
        return (pa.float64(), pa.int64()) if self.kind == "avg" else (kind,)

    def lift(self, rows: pa.Table, types: Sequence[pa.DataType]) -> list[Any]:
        """Each row as an aggregate of one row."""
        if self.column is None:
            return [pa.array(np.ones(rows.num_rows, np.int64))]
        values = flat(rows[self.column])
        counted = values.is_valid().cast(pa.int64())
        if self.kind == "count":
            return [counted]
        # As in Spark, an average takes whole numbers as floats, also those that are not exact as such.
        return [values.cast(types[0], safe=False), counted] if self.kind == "avg" else [values.cast(types[0])]

    def result(self, rows: pa.Table) -> Any:
        if self.kind != "avg":
            return flat(rows[self.name])
        total, count = (flat(rows[part]) for part in self.parts)
        known: Any = pc.if_else(pc.equal(count, pa.scalar(0, pa.int64())), pa.scalar(None, pa.int64()), count)
        return pc.divide(total, known.cast(pa.float64()))


@dataclass(frozen=True, slots=True)
class Aggregates:
    """The aggregates of one operator, over rows of one schema."""

    each: tuple[Aggregate, ...]

    def fields(self, given: pa.Schema) -> list[pa.Field[Any]]:
        return [
            pa.field(part, kind) for one in self.each for part, kind in zip(one.parts, one.types(given), strict=True)
        ]

    def result_fields(self, given: pa.Schema) -> list[pa.Field[Any]]:
        return [pa.field(one.name, one.types(given)[0]) for one in self.each]

    def results(self, rows: pa.Table) -> dict[str, Any]:
        """The result columns, by name."""
        return {one.name: one.result(rows) for one in self.each}

    def columns(self) -> tuple[str, ...]:
        return tuple(sorted({one.column for one in self.each if one.column is not None}))

    def lift(self, rows: pa.Table) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for one in self.each:
            found |= dict(zip(one.parts, one.lift(rows, one.types(rows.schema)), strict=True))
        return found

    def add_up(self, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
        """One row for each key."""
        if not rows.num_rows:
            return rows
        merges = [(part, how) for one in self.each for part, how in zip(one.parts, one.merges, strict=True)]
        self._check_sums(rows, keys, [part for part, how in merges if how == "sum"])
        floats = [p for p, how in merges if how == "max" and pa.types.is_floating(rows.schema.field(p).type)]
        marked = rows
        for part in floats:
            marked = marked.append_column(_nan(part), pc.is_nan(rows[part]).cast(pa.int8()))
        groups: Any = marked.group_by(list(keys), use_threads=False)
        grouped = groups.aggregate([*merges, *((_nan(part), "max") for part in floats)])
        for part in floats:  # as in Spark, NaN is the largest of all; Arrow leaves it out
            name, has_nan = f"{part}_max", pc.equal(grouped[f"{_nan(part)}_max"], pa.scalar(1, pa.int8()))
            largest: Any = pc.if_else(pc.fill_null(has_nan, False), pa.scalar(float("nan")), grouped[name])
            grouped = grouped.set_column(grouped.column_names.index(name), name, largest)
        named: Any = grouped.select([*keys, *(f"{part}_{how}" for part, how in merges)])
        named = named.rename_columns([*keys, *(part for part, _ in merges)])
        wanted = pa.schema([rows.schema.field(name) for name in named.column_names])
        found: pa.Table = named.cast(wanted)
        return found

    def _check_sums(self, rows: pa.Table, keys: Sequence[str], sums: Sequence[str]) -> None:
        """Raise if a sum of whole numbers or decimals is too large. Arrow's sums overflow silently."""
        types: Any = pa.types
        for name in sums:
            kind: Any = rows.schema.field(name).type
            if not (types.is_integer(kind) or types.is_decimal(kind)):
                continue
            exact = types.is_integer(kind)
            largest = LARGEST if exact else 10.0 ** (DIGITS - kind.scale) * (1 - 1e-9)
            bounds: Any = pc.min_max(rows[name])
            top = max(abs(bounds["min"].as_py() or 0), abs(bounds["max"].as_py() or 0))
            if top * rows.num_rows < largest:
                continue
            floats = rows.select([*keys, name]).set_column(len(keys), name, rows[name].cast(pa.float64(), safe=False))
            totals: Any = floats.group_by(list(keys), use_threads=False).aggregate([(name, "sum")])[f"{name}_sum"]
            if np.abs(np.nan_to_num(totals.to_numpy())).max() >= largest:
                raise HoldfastError(
                    "STATE_SUM_TOO_LARGE",
                    f"A sum of {name!r} does not fit into {'64 bits' if exact else f'{DIGITS} digits'}.",
                    "Cast the column to a decimal or a double before the sum.",
                )


def parse_aggregates(asked: Asked, given: pa.Schema) -> Aggregates:
    if not asked:
        raise HoldfastError("STATE_NO_AGGREGATE", "No aggregate is named.", 'Give one: agg={"n": "count"}.')
    found = Aggregates(tuple(_parse(name, what, given) for name, what in asked.items()))
    parts = [field.name for field in found.fields(given)]
    taken = sorted({part for part in parts if parts.count(part) > 1})
    if taken:
        raise HoldfastError(
            "STATE_NAME_TAKEN", f"Two aggregates would both keep {taken[0]!r} in the state.", "Rename one of them."
        )
    return found


def _parse(name: str, what: str | tuple[str, str], given: pa.Schema) -> Aggregate:
    kind, column = (what, None) if isinstance(what, str) else (what[0], what[1])
    if kind not in KINDS or (column is None and kind != "count"):
        raise HoldfastError(
            "STATE_AGGREGATE_UNKNOWN",
            f"The aggregate {name!r} is {what!r}.",
            f'Write "count" or a pair of a kind and a column; kinds are {", ".join(KINDS)}.',
        )
    if column is not None and column not in given.names:
        raise no_column(column, given)
    return Aggregate(name, kind, column)


def no_column(name: str, given: pa.Schema) -> HoldfastError:
    return HoldfastError(
        "STATE_NO_COLUMN",
        f"The rows have no column {name!r}.",
        f"They have {', '.join(given.names)}: name one of these.",
    )


def _sum_type(name: str, kind: Any) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    raise _not_for(name, kind, "sum")


def _is_number(kind: Any) -> bool:
    types: Any = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _not_for(name: str, kind: Any, how: str) -> HoldfastError:
    return HoldfastError(
        "STATE_AGGREGATE_UNKNOWN",
        f"There is no {how} of the column {name!r}, which is of type {kind}.",
        "Cast it first, to a number for sums and averages.",
    )


def _nan(part: str) -> str:
    """The column that says whether a value is NaN, while they are added up."""
    return f"{part}__nan"
