"""Aggregates by key, and by key and window of event time. Pure.

A row counts in every window that the watermark has not passed when the row comes. `append`: a window is output once,
when the watermark passes its end. `update`: each batch outputs the windows it has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.spark.state.aggregates import Aggregates
from holdfast.spark.state.keys import flat, picked
from holdfast.spark.state.operators import Step, table_of
from holdfast.spark.state.runs import NEVER, Layout, View, expiry
from holdfast.spark.state.times import Times, timed

START = "__start"


def window_of(time: str, given: pa.Schema) -> Any:
    """The type of a window over this column: of times in UTC, or without a zone if the column's have none."""
    micros = pa.timestamp("us", tz="UTC" if given.field(time).type.tz else None)
    return pa.struct([pa.field("start", micros), pa.field("end", micros)])


def windows_from(kind: Any, starts: Times, ends: Times) -> Any:
    columns: list[Any] = [pa.array(times).cast(kind.field("start").type) for times in (starts, ends)]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    time: str
    size_us: int
    slide_us: int
    delay_us: int
    by: tuple[str, ...]
    aggregates: Aggregates
    append: bool

    keeps_offsets = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.by, self.time, *self.aggregates.columns())

    @property
    def supersedes(self) -> tuple[str, ...] | None:
        return None if self.append else ("window", *self.by)

    @property
    def signature(self) -> str:
        return f"windows {self.time} {self.size_us} {self.slide_us} by {self.by} {self.aggregates}"

    def layout(self, given: pa.Schema) -> Layout:
        fields = [given.field(name) for name in self.by]
        identity = (*self.by, START)
        return Layout(
            pa.schema([*fields, pa.field(START, pa.int64()), *self.aggregates.fields(given)]), identity, identity
        )

    def output(self, given: pa.Schema) -> pa.Schema:
        fields = [given.field(name) for name in self.by]
        return pa.schema(
            [pa.field("window", window_of(self.time, given)), *fields, *self.aggregates.result_fields(given)]
        )

    def step(self, view: View, rows: pa.Table, watermark: int) -> Step:
        found = timed(rows, self.time, self.delay_us, watermark)
        rows_at, starts = self._windows(found.at, found.met)
        layout, given = view.layout, rows.schema
        counted = np.zeros(found.rows.num_rows, bool)
        counted[rows_at] = True
        late = found.rows.num_rows - int(counted.sum()) + found.without
        touched = self._add(view, found.rows.take(picked(rows_at)), starts)
        view.push(layout.seal(touched, _starts(touched) + self.size_us))
        closed = view.expiring(watermark, found.watermark)
        if closed.num_rows:
            view.push(layout.seal(closed, expiry(closed), gone=True))
        return Step(self._shown(closed if self.append else touched, given), found.watermark, late)

    def _windows(self, at: Times, met: Times) -> tuple[Times, Times]:
        """Each row once for every window it counts in: the row's number, and the window's start."""
        newest_start = np.floor_divide(at, self.slide_us) * self.slide_us
        which, starts = [], []
        for number in range(-(-self.size_us // self.slide_us)):
            start = newest_start - number * self.slide_us
            open_ = np.flatnonzero((at < start + self.size_us) & (start + self.size_us > met))
            which.append(open_)
            starts.append(start[open_])
        return np.concatenate(which), np.concatenate(starts)

    def _add(self, view: View, rows: pa.Table, starts: Times) -> pa.Table:
        columns = {name: flat(rows[name]) for name in self.by} | {START: pa.array(starts)}
        return add(view, self.aggregates, table_of(columns | self.aggregates.lift(rows), view.layout.schema))

    def _shown(self, rows: pa.Table, given: pa.Schema) -> pa.Table:
        starts = _starts(rows)
        window = windows_from(window_of(self.time, given), starts, starts + self.size_us)
        columns = {"window": window} | {name: rows[name] for name in self.by}
        return table_of(columns | self.aggregates.results(rows), self.output(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Aggregates by key, kept for ever. Each batch outputs the keys it has changed."""

    by: tuple[str, ...]
    aggregates: Aggregates

    keeps_offsets = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.by, *self.aggregates.columns())

    @property
    def supersedes(self) -> tuple[str, ...]:
        return self.by

    @property
    def signature(self) -> str:
        return f"totals by {self.by} {self.aggregates}"

    def layout(self, given: pa.Schema) -> Layout:
        fields = [given.field(name) for name in self.by]
        return Layout(pa.schema([*fields, *self.aggregates.fields(given)]), self.by, self.by)

    def output(self, given: pa.Schema) -> pa.Schema:
        fields = [given.field(name) for name in self.by]
        return pa.schema([*fields, *self.aggregates.result_fields(given)])

    def step(self, view: View, rows: pa.Table, watermark: int) -> Step:
        columns = {name: flat(rows[name]) for name in self.by} | self.aggregates.lift(rows)
        touched = add(view, self.aggregates, table_of(columns, view.layout.schema))
        view.push(view.layout.seal(touched, np.full(touched.num_rows, NEVER, np.int64)))
        shown = {name: touched[name] for name in self.by} | self.aggregates.results(touched)
        return Step(table_of(shown, self.output(rows.schema)), watermark)


def add(view: View, aggregates: Aggregates, rows: pa.Table) -> pa.Table:
    """The new state of all keys in these rows."""
    identity, names = view.layout.identity, view.layout.schema.names
    added = aggregates.add_up(rows, identity).select(names)
    before = view.find(added)
    if not before.num_rows:
        return added
    return aggregates.add_up(pa.concat_tables([before.select(names), added]), identity).select(names)


def _starts(rows: pa.Table) -> Times:
    return np.asarray(flat(rows[START]).to_numpy(), np.int64)
