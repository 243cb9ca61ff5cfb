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
        if self.kind == "avg":
            return (pa.float64(), pa.int64())
        kind: Any = given.field(str(self.column)).type
        return (_sum_type(str(self.column), kind),) if self.kind == "sum" else (kind,)

    def lift(self, rows: pa.Table, types: Sequence[pa.DataType]) -> list[Any]:
        """Each row as an aggregate of one row."""
        if self.column is None:
            return [pa.array(np.ones(rows.num_rows, np.int64))]
        values = flat(rows[self.column])
        counted = values.is_valid().cast(pa.int64())
        if self.kind == "count":
            return [counted]
        return [values.cast(types[0]), counted] if self.kind == "avg" else [values.cast(types[0])]

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

    def results(self, rows: pa.Table) -> list[Any]:
        return [one.result(rows) for one in self.each]

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
        groups: Any = rows.group_by(list(keys), use_threads=False)
        grouped = groups.aggregate(merges)
        named: Any = grouped.select([*keys, *(f"{part}_{how}" for part, how in merges)])
        named = named.rename_columns([*keys, *(part for part, _ in merges)])
        wanted = pa.schema([rows.schema.field(name) for name in named.column_names])
        found: pa.Table = named.cast(wanted)
        return found

    def _check_sums(self, rows: pa.Table, keys: Sequence[str], sums: Sequence[str]) -> None:
        """Raise if an integer sum is too large. Arrow's sums overflow silently."""
        for name in sums:
            if not pa.types.is_integer(rows.schema.field(name).type) or not rows.num_rows:
                continue
            bounds: Any = pc.min_max(rows[name])
            top = max(abs(bounds["min"].as_py() or 0), abs(bounds["max"].as_py() or 0))
            if top * rows.num_rows < LARGEST:
                continue
            floats = rows.select([*keys, name]).set_column(len(keys), name, rows[name].cast(pa.float64(), safe=False))
            totals: Any = floats.group_by(list(keys), use_threads=False).aggregate([(name, "sum")])[f"{name}_sum"]
            if np.abs(np.nan_to_num(totals.to_numpy())).max() >= LARGEST:
                raise HoldfastError(
                    "STATE_SUM_TOO_LARGE",
                    f"A sum of {name!r} does not fit into 64 bits.",
                    "Cast the column to a decimal or a double before the sum.",
                )


def parse_aggregates(asked: Asked, given: pa.Schema) -> Aggregates:
    if not asked:
        raise HoldfastError("STATE_NO_AGGREGATE", "No aggregate is named.", 'Give one: agg={"n": "count"}.')
    return Aggregates(tuple(_parse(name, what, given) for name, what in asked.items()))


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
    raise HoldfastError(
        "STATE_AGGREGATE_UNKNOWN", f"The column {name!r} is of type {kind} and can't be summed.", "Cast it to a number."
    )
